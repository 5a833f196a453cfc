//! The real program on an instance of a FleetIQ group: AWS is the simulator, the API server and Redis are real, and the test
//! plays the operator and the publisher. What the program does to FleetIQ it also shows on its Node.

#[path = "fleetiq/stage.rs"]
#[allow(dead_code, reason = "the tests of the part alone use all of it")]
mod stage;

#[path = "fleetiq_node/hook.rs"]
mod hook;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use berth_agent::effects::Effect;
use berth_api::game_node::{GameNode, NodePhase, Protection};
use berth_api::notice::{InstanceMessage, InstanceStatus};
use berth_dev::{ControlPlane, Instance, Redis, RedisOptions, eventually};
use berth_runtime::kill_point::{KillPoint, Side, VARIABLE};
use berth_runtime::redis_connection::{Command as RedisCommand, RedisConnection, Reply};
use berth_runtime::redis_url::RedisFlags;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::stage::{GROUP, LIMIT, Stage};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Agents that run side by side.
const SIDE_BY_SIDE: usize = 4;
/// Nodes so far: they share an API server.
static NODES: AtomicUsize = AtomicUsize::new(0);
const ACTIVE: &str = "gamelift.status/active";
const DRAINING: &str = "gamelift.status/draining";
const PHASE: &str = "gamelift.status/phase";

async fn prepare(control_plane: &ControlPlane) {
    let client = control_plane.client();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/crds");
    for name in ["gameservers.yaml", "gamenodes.yaml"] {
        berth_dev::install::apply(&client, &crds.join(name)).await.expect("our resources");
    }
    let namespaces: Api<Namespace> = Api::all(client);
    let system: Namespace =
        serde_json::from_value(json!({ "metadata": { "name": "berth-system" } })).expect("a namespace");
    // The other test may have been first.
    let made = namespaces.create(&PostParams::default(), &system).await;
    assert!(made.is_ok() || namespaces.get("berth-system").await.is_ok(), "{made:?}");
}

/// A node that is an instance of a group, and its agent.
struct Scene {
    stage: Stage,
    client: Client,
    kubeconfig: PathBuf,
    node: String,
    folder: TempDir,
    redis_port: u16,
    point: Option<KillPoint>,
    /// The lifecycle hook that is answered.
    hook: Option<&'static str>,
    /// How long nobody has played when the agent asks whether the node is needed.
    idle_release: &'static str,
    child: Option<Child>,
    deaths: u32,
    began: Instant,
}

impl Scene {
    /// A scene whose agent dies at a point in its first life.
    async fn set(control_plane: &ControlPlane, redis_port: u16, point: Option<KillPoint>) -> Self {
        let client = control_plane.client();
        let stage = Stage::new().await;
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("authority.pem"), stage.simulator.authority()).expect("written");
        // Each simulator begins with the same instance.
        let node = format!("node-{}-of-{}", NODES.fetch_add(1, Ordering::Relaxed), stage.instance);
        let nodes: Api<Node> = Api::all(client.clone());
        let object = json!({
            "metadata": { "name": node },
            "spec": { "providerID": format!("aws:///eu-central-1a/{}", stage.instance) },
        });
        let object = serde_json::from_value(object).expect("a node");
        nodes.create(&PostParams::default(), &object).await.expect("a node");
        let status = json!({ "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" }
        }});
        nodes.patch_status(&node, &PatchParams::default(), &Patch::Merge(status)).await.expect("a status");
        let untainted = Patch::Merge(json!({ "spec": { "taints": null } }));
        nodes.patch(&node, &PatchParams::default(), &untainted).await.expect("a ready node");
        Self {
            stage,
            client,
            kubeconfig: control_plane.kubeconfig_path().to_owned(),
            node,
            folder,
            redis_port,
            point,
            hook: None,
            idle_release: "off",
            child: None,
            deaths: 0,
            began: Instant::now(),
        }
    }

    fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth-agent"));
        let folder = self.folder.path();
        let log = File::options().create(true).append(true).open(folder.join("log")).expect("a log");
        command
            .args(["run", "--boot-id", "boot-1", "--node-name", &self.node])
            .arg("--run-dir")
            .arg(folder.join("run"))
            .arg("--state-dir")
            .arg(folder.join("state"))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .env("GAME_SERVER_GROUP_NAME", GROUP)
            .env("REDIS_URL", format!("127.0.0.1:{}", self.redis_port))
            .env("BERTH_FLEETIQ_IDLE_RELEASE", self.idle_release)
            .env("AWS_REGION", "eu-central-1")
            .env("AWS_ACCESS_KEY_ID", "simulator")
            .env("AWS_SECRET_ACCESS_KEY", "simulator")
            .env("AWS_ENDPOINT_URL_GAMELIFT", self.stage.simulator.endpoint())
            .env("AWS_ENDPOINT_URL_AUTO_SCALING", self.stage.simulator.endpoint())
            .env("BERTH_ASG_HOOK", self.hook.unwrap_or_default())
            .env(
                "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                self.stage.simulator.metadata_endpoint(&self.stage.instance),
            )
            .env("SSL_CERT_FILE", folder.join("authority.pem"))
            .stdout(Stdio::null())
            .stderr(log);
        if let Some(point) = self.point.as_ref().filter(|_| self.deaths == 0) {
            command.env(VARIABLE, point.to_string());
        }
        self.child = Some(command.spawn().expect("the agent starts"));
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts it again where it has died.
    fn revive(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("a child"));
        if let Some(status) = ended {
            let log = self.log();
            let last_words = self.point.as_ref().map(KillPoint::last_words);
            let is_due = self.deaths == 0 && last_words.is_some_and(|words| log.contains(&words));
            assert!(is_due, "{status}: {log}");
            self.deaths += 1;
            self.start();
        }
    }

    /// Waits for the scene to be as it should, and revives the agent meanwhile.
    async fn until(&mut self, what: &str, look: impl AsyncFn(&Self) -> Result<(), String>) {
        let end = Instant::now() + LIMIT;
        let mut last = String::new();
        while Instant::now() < end {
            self.revive();
            match look(self).await {
                Ok(()) => return,
                Err(seen) => last = seen,
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("{:?}: never {what}: {last}\n{}", self.point, self.log());
    }

    async fn node(&self) -> Result<Node, String> {
        Api::<Node>::all(self.client.clone()).get(&self.node).await.map_err(|error| error.to_string())
    }

    async fn game_node(&self) -> Result<(NodePhase, Protection), String> {
        let node = Api::<GameNode>::all(self.client.clone()).get(&self.node).await;
        let status = node.map_err(|error| error.to_string())?.status.unwrap_or_default();
        Ok((status.phase, status.protection))
    }

    async fn order(&self, order: Value) {
        let game_nodes: Api<GameNode> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "drain": order } }));
        game_nodes.patch(&self.node, &PatchParams::default(), &patch).await.expect("ordered");
    }

    /// Waits until FleetIQ, the GameNode and the Node all say that the instance is kept, and the node is offered.
    async fn until_kept(&mut self) {
        self.until("kept", async |scene| {
            let (node, (phase, protection)) = (scene.node().await?, scene.game_node().await?);
            let is_kept = scene.stage.server()["utilization"] == "UTILIZED"
                && protection == Protection::Protected
                && phase == NodePhase::Active
                && has_taint(&node, ACTIVE)
                && !has_taint(&node, DRAINING)
                && says(&node, PHASE, "Active")
                && says(&node, "gamelift.status/instance-id", &scene.stage.instance)
                && says(&node, "gamelift.status/group", GROUP);
            if is_kept { Ok(()) } else { Err(scene.seen(&node, phase, protection)) }
        })
        .await;
    }

    /// Waits until FleetIQ has the instance back, and the Node says so.
    async fn until_given_back(&mut self) {
        self.until("given back", async |scene| {
            let (node, (phase, protection)) = (scene.node().await?, scene.game_node().await?);
            let is_given_back = scene.stage.server().is_null()
                && (phase, protection) == (NodePhase::Drained, Protection::Released)
                && has_taint(&node, DRAINING)
                && node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
                && says(&node, PHASE, "Deregistered");
            if is_given_back { Ok(()) } else { Err(scene.seen(&node, phase, protection)) }
        })
        .await;
    }

    /// Says that the node is not needed, as the brain does when it is asked; or that it is.
    async fn answer(&self, is_needed: bool) -> Result<(), String> {
        let game_nodes: Api<GameNode> = Api::all(self.client.clone());
        let seen = game_nodes.get(&self.node).await.map_err(|error| error.to_string())?;
        let asked = seen.status.and_then(|status| status.idle_since);
        if !is_needed && (asked.is_none() || asked == seen.spec.surplus) {
            return Ok(());
        }
        let word = asked.filter(|_| !is_needed);
        let patch = Patch::Merge(json!({ "spec": { "surplus": word } }));
        let said = game_nodes.patch(&self.node, &PatchParams::default(), &patch).await;
        said.map(drop).map_err(|error| error.to_string())
    }

    /// Waits until the instance may be taken away, and FleetIQ, the GameNode and the Node all say so.
    async fn until_at_rest(&mut self) {
        self.until("at rest", async |scene| {
            scene.answer(false).await?;
            let (node, (phase, protection)) = (scene.node().await?, scene.game_node().await?);
            let is_at_rest = scene.stage.server()["utilization"] == "AVAILABLE"
                && (phase, protection) == (NodePhase::Idle, Protection::Registered)
                && !has_taint(&node, ACTIVE)
                && !has_taint(&node, DRAINING)
                && node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true)
                && says(&node, PHASE, "Registered");
            if is_at_rest { Ok(()) } else { Err(scene.seen(&node, phase, protection)) }
        })
        .await;
    }

    fn seen(&self, node: &Node, phase: NodePhase, protection: Protection) -> String {
        let (spec, annotations) = (&node.spec, &node.metadata.annotations);
        format!("{phase:?} {protection:?} {} {spec:?} {annotations:?}", self.stage.server())
    }

    /// Each call once for each time that it is needed, and once more for the death; besides, signs of life.
    fn count_calls<const N: usize>(&self, needed: [(&str, usize); N]) {
        let beats = usize::try_from(self.began.elapsed().as_secs() / 57).expect("few");
        for (operation, times) in needed {
            let [attempts] = self.stage.attempts([operation]);
            let more = if operation == "UpdateGameServer" { beats } else { 0 };
            let most = times + usize::try_from(self.deaths).expect("few") + more;
            assert!((times..=most).contains(&attempts), "{:?}: {attempts} {operation}", self.point);
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

fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.taints.iter().flatten().any(|taint| taint.key == key))
}

fn says(node: &Node, annotation: &str, value: &str) -> bool {
    node.annotations().get(annotation).is_some_and(|said| said == value)
}

/// The whole life of an instance, and a death somewhere in it.
async fn live(control_plane: &ControlPlane, point: KillPoint) {
    // Nobody publishes: what FleetIQ thinks is asked for once, before anything is begun.
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut scene = Scene::set(control_plane, closed.port(), Some(point.clone())).await;
    // A registration that is there already is looked at.
    let client = aws_sdk_gamelift::Client::from_conf(scene.stage.aws().build());
    let register = client.register_game_server().game_server_group_name(GROUP);
    let register = register.game_server_id(&scene.stage.instance).instance_id(&scene.stage.instance);
    register.send().await.expect("registered");
    scene.start();
    scene.until_kept().await;
    scene.order(json!({ "by": "test", "reason": "a death" })).await;
    scene.until_given_back().await;
    scene.order(Value::Null).await;
    scene.until_kept().await;
    assert_eq!(scene.deaths, 1, "{point} was never reached");
    scene.count_calls([
        ("DescribeGameServerInstances", 1),
        // Ours, the one that is refused, and the one after the drain.
        ("RegisterGameServer", 3),
        ("DescribeGameServer", 1),
        ("ClaimGameServer", 2),
        ("UpdateGameServer", 2),
        ("DeregisterGameServer", 1),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_call_to_fleetiq_the_agent_dies_at_its_successor_goes_on_with_at_most_one_call_more() {
    let control_plane = ControlPlane::shared().await.expect("an API server");
    prepare(control_plane).await;
    let of_rest = |effect: &&Effect| **effect != Effect::KeepInstanceAlive;
    let points = Effect::OF_FLEETIQ.iter().filter(of_rest);
    let points = points.flat_map(|effect| Side::ALL.map(|side| KillPoint::new(*effect, side)));
    futures::stream::iter(points).for_each_concurrent(SIDE_BY_SIDE, |point| live(control_plane, point)).await;
}

/// An instance that nobody needs, then somebody, and then it is to go while it rests; and a death somewhere in that.
async fn rest(control_plane: &ControlPlane, point: KillPoint) {
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut scene = Scene::set(control_plane, closed.port(), Some(point.clone())).await;
    scene.idle_release = "1s";
    scene.start();
    scene.until_kept().await;
    scene.until_at_rest().await;
    scene.until("needed", async |scene| scene.answer(true).await).await;
    scene.until_kept().await;
    assert_eq!(scene.deaths, 1, "{point} was never reached");
    scene.until_at_rest().await;
    scene.count_calls([
        ("DescribeGameServerInstances", 1),
        // The first, and each time that it rests.
        ("RegisterGameServer", 3),
        ("DescribeGameServer", 0),
        ("ClaimGameServer", 2),
        // In use twice, and a sign of life each time that it rests.
        ("UpdateGameServer", 4),
        ("DeregisterGameServer", 2),
    ]);
    scene.order(json!({ "by": "test", "reason": "its end" })).await;
    scene.until_given_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_step_of_an_idle_release_the_agent_dies_at_its_successor_goes_on() {
    let control_plane = ControlPlane::shared().await.expect("an API server");
    prepare(control_plane).await;
    let first = |effect: Effect| Side::ALL.map(|side| KillPoint::new(effect, side).to_string());
    let second = |effect: Effect| first(effect).map(|point| point.replace(":1", ":2"));
    let points = [
        first(Effect::UntaintNode),
        first(Effect::DeregisterInstance),
        second(Effect::RegisterInstance),
        first(Effect::KeepInstanceAlive),
        second(Effect::ClaimInstance),
        second(Effect::UpdateInstance),
    ];
    let points = points.concat().into_iter().map(|point| point.parse().expect("a point"));
    futures::stream::iter(points).for_each_concurrent(SIDE_BY_SIDE, |point| rest(control_plane, point)).await;
}

/// The adapter's publisher writes such bytes once a minute, and its daemon needed three of them to give an idle node back.
#[tokio::test(flavor = "multi_thread")]
async fn one_message_of_the_adapter_empties_a_node_and_gives_its_instance_back() {
    let control_plane = ControlPlane::shared().await.expect("an API server");
    prepare(control_plane).await;
    let place = Instance::create("fleetiq").expect("an instance");
    let redis = Redis::start(&place, "redis", RedisOptions::default()).await.expect("Redis");
    let mut scene = Scene::set(control_plane, redis.port(), None).await;
    scene.start();
    scene.until_kept().await;
    let message = InstanceMessage {
        game_server_group_name: GROUP.into(),
        game_server_group_arn: format!("arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/{GROUP}"),
        instance_id: scene.stage.instance.clone(),
        instance_status: InstanceStatus::Draining,
    };
    let url =
        RedisFlags { redis_url: Some(format!("127.0.0.1:{}", redis.port()).into()), ..RedisFlags::default() };
    let server = url.server().expect("valid").expect("a server");
    eventually(LIMIT, "the agent to listen", async || {
        let mut connection = RedisConnection::open(&server).await.expect("a connection");
        let publish = RedisCommand::new("PUBLISH").with(&scene.stage.instance).with(message.to_wire());
        match connection.call(&[publish], LIMIT).await.map_err(|error| error.to_string())?.first() {
            Some(Reply::Integer(1)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .expect("a listener");
    let began = Instant::now();
    scene
        .until("closed", async |scene| {
            let node = scene.node().await?;
            let is_closed = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
            if is_closed { Ok(()) } else { Err(format!("{:?}", node.spec)) }
        })
        .await;
    println!("from the message to the cordon {:?}", began.elapsed());
    scene.until_given_back().await;
    println!("from the message to the instance given back {:?}", began.elapsed());
    let node = scene.node().await.expect("a node");
    let reason = node.annotations().get("gamelift.status/drain-reason").cloned().unwrap_or_default();
    assert!(reason.contains("FleetIQ"), "{reason}");
}
