//! An agent, played: it holds the lease of a node that exists only as objects, and moves servers as an agent would.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_api::game_node::{GameNode, GameNodeSpec, GameNodeStatus, NodePhase, PortCount, Room};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::{FORMAT_VERSION, HandOver, Holder, Returned};
use berth_runtime::CancellationToken;
use berth_runtime::tasks::Child;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::{Cluster, NAMESPACE};

/// The lease lasts long enough for a busy machine, and is renewed often enough to be seen soon.
const LEASE_SECONDS: i32 = 10;
const RENEWAL: Duration = Duration::from_millis(500);

/// How an agent behaves.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    /// Host ports it has.
    pub(crate) ports: i64,
    /// Processor time, in thousandths.
    pub(crate) milli_cpu: i64,
    /// It hands everything back, and says so.
    pub(crate) refuses: Option<&'static str>,
    /// It leaves new servers alone.
    pub(crate) is_stuck: bool,
    /// Labels and taints of its Node.
    pub(crate) node: Value,
}

impl Default for Manner {
    fn default() -> Self {
        Self { ports: 1000, milli_cpu: 64_000, refuses: None, is_stuck: false, node: json!({}) }
    }
}

/// A played agent. Dropping it is its death: nothing of it is taken back.
pub(crate) struct Agent {
    node: String,
    task: Child,
    stop: CancellationToken,
    /// Whether it holds its lease and acts.
    acts: watch::Sender<bool>,
    /// Whether its games fail instead of becoming Ready.
    pub(crate) crashes: Arc<AtomicBool>,
    /// What no agent should see.
    pub(crate) complaints: Arc<Mutex<Vec<String>>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}

impl Agent {
    /// It can reach nobody: it renews nothing, writes nothing, and what runs there runs on.
    pub(crate) fn fall_silent(&self) {
        self.acts.send_replace(false);
    }

    /// It is back.
    pub(crate) fn come_back(&self) {
        self.acts.send_replace(true);
    }
}

impl Cluster {
    /// Makes a node, and an agent for it.
    pub(crate) async fn agent(&self, node: &str, manner: Manner) -> Agent {
        let object = self.node(node, &manner).await;
        self.agent_on(&object, manner).await
    }

    /// Makes a node that has no agent.
    pub(crate) async fn node(&self, node: &str, manner: &Manner) -> Node {
        let mut object = manner.node.clone();
        object["metadata"]["name"] = json!(node);
        let nodes = Api::<Node>::all(self.client.clone());
        let object: Node = serde_json::from_value(object).expect("a Node");
        let object = nodes.create(&PostParams::default(), &object).await.expect("a created Node");
        // The API server taints a new Node as not ready; a controller that is not here would take that away.
        let taints = Patch::Merge(json!({ "spec": { "taints": manner.node["spec"]["taints"] } }));
        nodes.patch(node, &PatchParams::default(), &taints).await.expect("a Node that is ready");
        object
    }

    /// An agent for a node that is there.
    pub(crate) async fn agent_on(&self, object: &Node, manner: Manner) -> Agent {
        let node = &object.name_any();
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let crashes = Arc::new(AtomicBool::new(false));
        let (acts, sees) = watch::channel(true);
        let played = Played {
            client: self.client.clone(),
            node: node.to_owned(),
            hand_over: HandOver::new(node, object.uid().expect("a UID"), format!("boot-{node}")),
            manner,
            crashes: Arc::clone(&crashes),
            complaints: Arc::clone(&complaints),
        };
        played.describe().await;
        let stop = CancellationToken::new();
        let task = self.spawner.spawn_child(format!("agent {node}"), played.run(stop.clone(), sees));
        Agent { node: node.to_owned(), task, stop, acts, crashes, complaints }
    }

    /// Takes a node's objects away, as a cloud does that has taken the machine.
    pub(crate) async fn remove_node(&self, agent: Agent) {
        let name = agent.node.clone();
        drop(agent);
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.delete(&name, &DeleteParams::default()).await.expect("a deleted Node");
    }
}

struct Played {
    client: Client,
    node: String,
    hand_over: HandOver,
    manner: Manner,
    crashes: Arc<AtomicBool>,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Played {
    async fn describe(&self) {
        let game_nodes = Api::<GameNode>::all(self.client.clone());
        let mut game_node = GameNode::new(&self.node, GameNodeSpec::default());
        game_nodes.create(&PostParams::default(), &game_node).await.expect("a created GameNode");
        game_node.status = Some(GameNodeStatus {
            phase: NodePhase::Active,
            node_uid: self.hand_over.node_uid.clone(),
            boot_id: self.hand_over.boot_id.clone(),
            format_versions: vec![FORMAT_VERSION],
            allocatable: Room { milli_cpu: self.manner.milli_cpu, memory_bytes: 1 << 40, pods: 1000 },
            ports: BTreeMap::from([(
                "default".to_owned(),
                PortCount { total: self.manner.ports, free: self.manner.ports },
            )]),
            ..GameNodeStatus::default()
        });
        let status = Patch::Merge(json!({ "status": game_node.status }));
        let written = game_nodes.patch_status(&self.node, &PatchParams::default(), &status).await;
        written.expect("a described GameNode");
    }

    async fn run(self, stop: CancellationToken, mut acts: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.hold() => {}
                () = self.serve() => {}
                _ = acts.wait_for(|acts| !acts) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = acts.wait_for(|acts| *acts) => {}
            }
        }
    }

    async fn hold(&self) {
        let leases = Api::<Lease>::namespaced(self.client.clone(), names::SYSTEM_NAMESPACE);
        let boot_id = self.hand_over.boot_id.clone();
        let holder = Holder { node: self.node.clone(), boot_id, process_id: "p".to_owned() };
        let mut beat = tokio::time::interval(RENEWAL);
        loop {
            beat.tick().await;
            let spec = LeaseSpec {
                holder_identity: Some(holder.to_string()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                renew_time: Some(MicroTime(Timestamp::now())),
                lease_transitions: Some(1),
                ..LeaseSpec::default()
            };
            let change = Patch::Merge(json!({ "spec": spec }));
            if leases.patch(&self.node, &PatchParams::default(), &change).await.is_err() {
                let metadata = ObjectMeta { name: Some(self.node.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(spec) };
                // Whether it worked shows at the next beat.
                let _ = leases.create(&PostParams::default(), &lease).await;
            }
        }
    }

    async fn serve(&self) {
        let servers = Api::<GameServer>::namespaced(self.client.clone(), NAMESPACE);
        let ours = watcher::Config::default().fields(&format!("status.nodeName={}", self.node));
        let mut events = watcher::watcher(servers.clone(), ours).boxed();
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(server) | Event::InitApply(server)) = event {
                self.tend(&servers, &server).await;
            }
        }
    }

    async fn tend(&self, servers: &Api<GameServer>, server: &GameServer) {
        let name = server.name_any();
        let change = if server.metadata.deletion_timestamp.is_some() {
            json!({ "metadata": { "finalizers": null } })
        } else {
            match server.state() {
                Some(State::Shutdown) => {
                    let _ = servers.delete(&name, &DeleteParams::default()).await;
                    return;
                }
                Some(State::Creating) if self.manner.is_stuck => return,
                Some(State::Creating) if self.manner.refuses.is_some() => self.hand_back(server),
                Some(State::Creating) => {
                    self.check(server);
                    json!({ "status": {
                        "state": "Scheduled", "address": "10.0.0.1", "ports": [{"name": "game", "port": 7000}],
                    }})
                }
                Some(State::Scheduled) if self.crashes.load(Ordering::Relaxed) => json!({
                    "metadata": {"annotations": {names::REASON_ANNOTATION: "Failed: the game has ended"}},
                    "status": {"state": "Unhealthy"},
                }),
                Some(State::Scheduled) => json!({ "status": { "state": "Ready" } }),
                _ => return,
            }
        };
        let mut change = change;
        change["metadata"]["resourceVersion"] = json!(server.metadata.resource_version);
        // A conflict is followed by the event of what was written in between.
        let _ = servers.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
    }

    fn hand_back(&self, server: &GameServer) -> Value {
        let before = server.annotation(names::RETURNED_ANNOTATION);
        let before = before.and_then(|text| Returned::from_annotation(text).ok());
        let returned = Returned {
            version: FORMAT_VERSION,
            node: self.node.clone(),
            reason: self.manner.refuses.unwrap_or_default().to_owned(),
            times: before.map_or(0, |before| before.times) + 1,
        };
        json!({
            "metadata": {"annotations": {
                names::RETURNED_ANNOTATION: returned.to_annotation(), names::LEASE_ANNOTATION: null,
            }},
            "status": {"nodeName": ""},
        })
    }

    /// What an agent looks at before it takes a server.
    fn check(&self, server: &GameServer) {
        let hand_over = server.annotation(names::LEASE_ANNOTATION).map(HandOver::from_annotation);
        let is_ours = matches!(&hand_over, Some(Ok(hand_over)) if *hand_over == self.hand_over);
        let is_held = server.finalizers().iter().any(|one| one == names::FINALIZER);
        let has_eviction = server.status.as_ref().is_some_and(|status| status.eviction.is_some());
        let has_container = server.spec.container.as_deref() == Some("game");
        if !(is_ours && is_held && has_eviction && has_container) {
            self.complaints.lock().expect("the complaints").push(format!("{server:?}"));
        }
    }
}
