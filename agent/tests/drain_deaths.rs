//! Death at any instant of a drain: the real program is killed before and after each thing that it does to empty a node and
//! to take that back. Its successor goes on, nothing is done twice that shows, and the session is whole.
//!
//! The API server is real, and the agent has the rights that an agent has; the test plays brain, kubelet and operator.

#[path = "game_server_life/others.rs"]
#[allow(dead_code, reason = "the tests of a server's life use all of it")]
mod others;
#[path = "game_server_life/rights.rs"]
mod rights;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_agent::effects::Effect;
use berth_api::game_node::{GameNode, NodePhase};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::node_lease::HandOver;
use berth_dev::ControlPlane;
use berth_runtime::kill_point::{KillPoint, Side, VARIABLE};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::others::{bare, make_pod};

const LIMIT: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Agents that run side by side.
const SIDE_BY_SIDE: usize = 4;
const DRAINING: &str = "gamelift.status/draining";

/// One node, its agent, and a session on it.
struct Scene {
    client: Client,
    kubeconfig: PathBuf,
    namespace: String,
    node: String,
    node_uid: String,
    folder: TempDir,
    point: KillPoint,
    child: Option<Child>,
    deaths: u32,
}

impl Scene {
    async fn set(control_plane: &ControlPlane, point: KillPoint) -> Self {
        let client = control_plane.client();
        let namespace = control_plane.namespace("deaths").await.expect("a namespace");
        let node = format!("node-of-{namespace}");
        let nodes: Api<Node> = Api::all(client.clone());
        let object = serde_json::from_value(json!({ "metadata": { "name": node } })).expect("a node");
        let made = nodes.create(&PostParams::default(), &object).await.expect("a node");
        let status = json!({ "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" }
        }});
        nodes.patch_status(&node, &PatchParams::default(), &Patch::Merge(status)).await.expect("a status");
        let untainted = Patch::Merge(json!({ "spec": { "taints": null } }));
        nodes.patch(&node, &PatchParams::default(), &untainted).await.expect("a ready node");
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = rights::agent_of(control_plane, &node, &namespace, folder.path()).await;
        Self {
            client,
            kubeconfig,
            namespace,
            node,
            node_uid: made.uid().expect("a UID"),
            folder,
            point,
            child: None,
            deaths: 0,
        }
    }

    fn servers(&self) -> Api<GameServer> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Starts the agent; it dies at the point in its first life only.
    fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth-agent"));
        let folder = self.folder.path();
        command
            .args(["run", "--boot-id", "boot-1", "--node-name", &self.node])
            .args(["--game-namespaces", &self.namespace])
            .arg("--run-dir")
            .arg(folder.join("run"))
            .arg("--state-dir")
            .arg(folder.join("state"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .stdout(Stdio::null())
            .stderr(
                std::fs::File::options().create(true).append(true).open(folder.join("log")).expect("a log"),
            );
        if self.deaths == 0 {
            command.env(VARIABLE, self.point.to_string());
        }
        self.child = Some(command.spawn().expect("the agent starts"));
    }

    /// Starts it again where it has died.
    fn revive(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("a child"));
        if let Some(status) = ended {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(self.deaths == 0 && log.contains(&self.point.last_words()), "{status}: {log}");
            self.deaths += 1;
            self.start();
        }
    }

    async fn hand_over(&self, name: &str) -> GameServer {
        let object = json!({
            "metadata": {
                "name": name,
                "finalizers": ["agones.dev/controller"],
                "annotations": { "berth.dev/lease": HandOver::new(&self.node, &self.node_uid, "boot-1").to_annotation() }
            },
            "spec": {
                "health": { "disabled": true },
                "template": { "spec": { "containers": [{ "name": "main", "image": "game:1" }] } }
            },
            "status": { "state": "Creating", "nodeName": self.node, "address": "" }
        });
        let object = serde_json::from_value(object).expect("a server");
        self.servers().create(&PostParams::default(), &object).await.expect("it is created")
    }

    async fn change(&self, name: &str, change: Value) {
        let patch = Patch::Merge(change);
        self.servers().patch(name, &PatchParams::default(), &patch).await.expect("changed");
    }

    /// The agent makes the GameNode, in its own time.
    async fn order(&mut self, order: Value) {
        let patch = Patch::Merge(json!({ "spec": { "drain": order } }));
        self.until("taken an order", async |scene| {
            let game_nodes: Api<GameNode> = Api::all(scene.client.clone());
            let ordered = game_nodes.patch(&scene.node, &PatchParams::default(), &patch).await;
            ordered.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Waits for the scene to be as it should, and revives the agent meanwhile.
    async fn until(&mut self, what: &str, look: impl AsyncFn(&Self) -> Result<(), String>) {
        let end = tokio::time::Instant::now() + LIMIT;
        let mut last = String::new();
        while tokio::time::Instant::now() < end {
            self.revive();
            match look(self).await {
                Ok(()) => return,
                Err(seen) => last = seen,
            }
            tokio::time::sleep(LOOK).await;
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        panic!("{}: never {what}: {last}\n{log}", self.point);
    }

    async fn until_state(&mut self, name: &str, state: State) {
        self.until(&format!("{name} {state}"), async |scene| {
            let server = scene.servers().get(name).await.map_err(|error| error.to_string())?;
            if server.state() == Some(state) { Ok(()) } else { Err(format!("{:?}", server.status)) }
        })
        .await;
    }

    async fn node(&self) -> Result<Node, String> {
        Api::<Node>::all(self.client.clone()).get(&self.node).await.map_err(|error| error.to_string())
    }

    async fn phase(&self) -> Result<NodePhase, String> {
        let node = Api::<GameNode>::all(self.client.clone()).get(&self.node).await;
        Ok(node.map_err(|error| error.to_string())?.status.unwrap_or_default().phase)
    }

    /// The pod runs: kubelet says so.
    async fn run_pod(&self, name: &str) {
        let status = json!({ "status": {
            "phase": "Running",
            "podIP": "10.1.0.5", "podIPs": [{ "ip": "10.1.0.5" }],
        }});
        let patch = Patch::Merge(status);
        self.pods().patch_status(name, &PatchParams::default(), &patch).await.expect("reported");
    }

    /// Kubelet carries out what was asked.
    async fn end_pods(&self) -> Result<(), String> {
        let pods = self.pods().list(&Default::default()).await.map_err(|error| error.to_string())?;
        for pod in pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            let now = DeleteParams::default().grace_period(0);
            // It may have gone meanwhile.
            let _ = self.pods().delete(&pod.name_any(), &now).await;
        }
        Ok(())
    }

    async fn play(mut self) {
        let ends_session = [Side::Before, Side::After]
            .into_iter()
            .any(|side| self.point == KillPoint::new(Effect::EndSession, side));
        let arena = self.hand_over("arena").await;
        // As Agones makes one: it tolerates nothing.
        make_pod(&self.pods(), &arena, &self.node, &bare()).await;
        self.hand_over("lobby").await;
        self.start();
        for name in ["arena", "lobby"] {
            self.until_state(name, State::Scheduled).await;
            self.run_pod(name).await;
            self.change(name, json!({ "status": { "state": "RequestReady" } })).await;
            self.until_state(name, State::Ready).await;
        }
        self.change("arena", json!({ "status": { "state": "Allocated" } })).await;

        // The grace of 30 s is over 5 s before the deadline: the session is asked to end in 3 s.
        let deadline = Timestamp::now() + Duration::from_secs(38);
        self.order(json!({ "by": "test", "deadline": ends_session.then(|| deadline.to_string()) })).await;
        self.until("drained of all but its session", async |scene| {
            scene.end_pods().await?;
            let (node, phase) = (scene.node().await?, scene.phase().await?);
            if scene.servers().get_opt("lobby").await.map_err(|error| error.to_string())?.is_some() {
                return Err("lobby is there".to_owned());
            }
            let spec = node.spec.clone().unwrap_or_default();
            let is_tainted = spec.taints.iter().flatten().any(|taint| taint.key == DRAINING);
            let is_marked = node.annotations().get("gamelift.status/phase").is_some();
            let arena = scene.servers().get("arena").await.map_err(|error| error.to_string())?;
            let is_told = arena.annotation("gamelift.status/drain-reason").is_some();
            let is_over = arena.state() == Some(State::Unhealthy) || phase == NodePhase::Drained;
            let has_waited = if ends_session { is_over } else { is_told && phase == NodePhase::Draining };
            if is_tainted && is_marked && spec.unschedulable == Some(true) && has_waited {
                Ok(())
            } else {
                Err(format!("{phase:?} {spec:?} {:?} {:?}", arena.status, arena.metadata.annotations))
            }
        })
        .await;

        self.order(Value::Null).await;
        self.until("as it was", async |scene| {
            scene.end_pods().await?;
            let (node, phase) = (scene.node().await?, scene.phase().await?);
            let spec = node.spec.clone().unwrap_or_default();
            let is_clean = !spec.taints.iter().flatten().any(|taint| taint.key == DRAINING)
                && spec.unschedulable != Some(true)
                && !node.annotations().keys().any(|name| name.starts_with("gamelift.status/"));
            let arena = scene.servers().get_opt("arena").await.map_err(|error| error.to_string())?;
            let is_told = arena
                .as_ref()
                .is_some_and(|arena| arena.annotation("gamelift.status/drain-reason").is_some());
            if phase == NodePhase::Active && is_clean && (ends_session || !is_told) {
                Ok(())
            } else {
                Err(format!("{phase:?} {spec:?} {:?}", node.metadata.annotations))
            }
        })
        .await;
        assert_eq!(self.deaths, 1, "{} was never reached", self.point);
        if !ends_session {
            let after = self.servers().get("arena").await.expect("the session is there");
            assert_eq!(after.state(), Some(State::Allocated), "{}", self.point);
            let pod = self.pods().get("arena").await.expect("its pod is there");
            assert!(pod.metadata.deletion_timestamp.is_none(), "{}", self.point);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have died already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_step_of_a_drain_the_agent_dies_at_its_successor_goes_on_and_the_session_is_whole() {
    let control_plane = ControlPlane::shared().await.expect("an API server");
    rights::install(control_plane).await;
    let points =
        Effect::OF_DRAIN.iter().flat_map(|effect| Side::ALL.map(|side| KillPoint::new(*effect, side)));
    futures::stream::iter(points)
        .for_each_concurrent(SIDE_BY_SIDE, |point| async move {
            Scene::set(control_plane, point).await.play().await;
        })
        .await;
}
