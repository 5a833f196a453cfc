//! One node of a real API server: the agent runs in this process, with the rights that an agent has; the test plays brain,
//! kubelet and `berth-sdk`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use berth_agent::app;
use berth_agent::config::{BootIdSource, LeaseTiming, Settings, SpotSessions};
use berth_agent::drain::drainer::DrainSettings;
use berth_agent::fleetiq::settings::FleetSettings;
use berth_agent::host::fake::FakeHost;
use berth_agent::metadata::settings::MetadataSettings;
use berth_agent::ports::PortRange;
use berth_agent::socket::client;
use berth_agent::socket::views::Status;
use berth_api::game_node::{GameNode, Room};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::link::{Change, ListenerKey, Seen, Sequence, ServerUid, ToAgent, ToSdk, VERSIONS};
use berth_api::node_lease::HandOver;
use berth_dev::{ControlPlane, ControlPlaneOptions, eventually};
use berth_runtime::CancellationToken;
use berth_runtime::kube_client::KubeSettings;
use berth_runtime::metrics::Metrics;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use super::played::{Place, Sdk};

#[path = "others.rs"]
pub(crate) mod others;
#[path = "rights.rs"]
mod rights;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// One API server for most tests, with our resources in it.
async fn shared() -> &'static ControlPlane {
    static PREPARED: OnceCell<()> = OnceCell::const_new();
    let control_plane = ControlPlane::shared().await.expect("an API server");
    PREPARED.get_or_init(|| rights::install(control_plane)).await;
    control_plane
}

/// One node, one namespace.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) namespace: String,
    pub(crate) host: Arc<FakeHost>,
    pub(crate) place: Place,
    node_uid: String,
    kubeconfig: std::path::PathBuf,
    ports: PortRange,
    host_network: Option<PortRange>,
    lease: LeaseTiming,
    pub(crate) drain: DrainSettings,
    pub(crate) spot_sessions: SpotSessions,
    own: Option<ControlPlane>,
}

/// An agent that runs.
pub(crate) struct Agent {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Agent {
    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        let ended = tokio::time::timeout(LIMIT, self.task).await.expect("it ends in time");
        ended.expect("no panic")
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(LIMIT, self.task).await.expect("it ends in time");
        ended.expect("no panic").expect("no error");
    }
}

impl World {
    /// On the API server that tests share.
    pub(crate) async fn new() -> Self {
        Self::on(shared().await).await
    }

    /// On an API server of its own, with a short lease.
    pub(crate) async fn alone() -> Self {
        let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await.expect("an API server");
        rights::install(&control_plane).await;
        let seconds = Duration::from_secs;
        let lease = LeaseTiming { duration: seconds(4), renewal: seconds(1), margin: seconds(1) };
        Self { lease, ..Self::on(&control_plane).await }.keeping(control_plane)
    }

    /// On an API server of its own that does not know our resources.
    pub(crate) async fn bare() -> Self {
        let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await.expect("an API server");
        rights::install_roles(&control_plane).await;
        Self::on(&control_plane).await.keeping(control_plane)
    }

    fn keeping(mut self, control_plane: ControlPlane) -> Self {
        self.own = Some(control_plane);
        self
    }

    pub(crate) async fn stop_api_server(&self) {
        let own = self.own.as_ref().expect("its own API server");
        own.api_server().kill().await.expect("killed");
    }

    pub(crate) async fn start_api_server(&self) {
        let own = self.own.as_ref().expect("its own API server");
        own.api_server().start_again().expect("started");
        own.wait_until_ready().await.expect("ready");
    }

    async fn on(control_plane: &ControlPlane) -> Self {
        let namespace = control_plane.namespace("games").await.expect("a namespace");
        let client = control_plane.client();
        let node = format!("node-of-{namespace}");
        let nodes: Api<Node> = Api::all(client.clone());
        let object = json!({ "metadata": { "name": node, "labels": { "kubernetes.io/hostname": node } } });
        let object = serde_json::from_value(object).expect("a node");
        let made = nodes.create(&PostParams::default(), &object).await.expect("a node");
        let status = json!({ "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
            "capacity": { "cpu": "4", "memory": "8Gi", "pods": "110" }
        }});
        nodes
            .patch_status(&node, &PatchParams::default(), &Patch::Merge(status))
            .await
            .expect("addresses of the node");
        // The API server taints every new node; a controller would take that off once its kubelet is ready.
        let untainted = json!({ "spec": { "taints": null } });
        nodes.patch(&node, &PatchParams::default(), &Patch::Merge(untainted)).await.expect("a ready node");
        let place = Place { sdk_uid: None, ..Place::new() };
        let kubeconfig = rights::agent_of(control_plane, &node, &namespace, place.folder.path()).await;
        Self {
            client,
            node,
            namespace,
            host: Arc::new(FakeHost::new("boot-1")),
            place,
            node_uid: made.uid().expect("a UID"),
            kubeconfig,
            ports: PortRange::new(7000, 7003).expect("a range"),
            host_network: PortRange::new(9500, 9507),
            lease: LeaseTiming::default(),
            drain: DrainSettings {
                cordon_grace: Duration::from_secs(30),
                max_wait: None,
                idle_release: None,
            },
            spot_sessions: SpotSessions::Sigterm,
            own: None,
        }
    }

    pub(crate) fn with_ports(mut self, min: u16, max: u16) -> Self {
        self.ports = PortRange::new(min, max).expect("a range");
        self
    }

    pub(crate) fn without_host_network(self) -> Self {
        Self { host_network: None, ..self }
    }

    fn settings(&self) -> Settings {
        let folder = self.place.folder.path();
        Settings {
            node_name: self.node.clone(),
            kube: KubeSettings { kubeconfig: Some(self.kubeconfig.clone()), kube_context: None },
            run_dir: folder.to_owned(),
            state_dir: folder.join("state"),
            cgroup_root: "/".into(),
            boot_id: BootIdSource::Given("boot-1".into()),
            port_ranges: BTreeMap::from([("default".to_owned(), self.ports)]),
            host_network_ports: self.host_network,
            lease: self.lease,
            sdk_uid: rustix::process::getuid().as_raw(),
            admin_address: None,
            game_namespaces: BTreeSet::from([self.namespace.clone()]),
            reserve: Room::default(),
            drain: self.drain,
            spot_sessions: self.spot_sessions,
            fleetiq: FleetSettings::off(),
            metadata: MetadataSettings::off(),
        }
    }

    /// Starts an agent, without waiting for it.
    pub(crate) fn launch(&self) -> Agent {
        let stop = CancellationToken::new();
        let metrics = Metrics::new("berth-agent", "test");
        let running = app::serve(self.settings(), Arc::clone(&self.host), metrics, stop.clone());
        #[allow(clippy::disallowed_methods, reason = "the test is the agent's supervisor")]
        let task = tokio::spawn(running);
        Agent { stop, task }
    }

    /// Starts an agent and waits until it offers the node.
    pub(crate) async fn start(&self) -> Agent {
        let agent = self.launch();
        let offered = eventually(LIMIT, "the node to be offered", async || {
            let status = self.status().await.map_err(|error| format!("{error:#}"))?;
            if status.phase == "Active" { Ok(()) } else { Err(format!("phase {}", status.phase)) }
        });
        offered.await.expect("offered");
        agent
    }

    pub(crate) async fn status(&self) -> anyhow::Result<Status> {
        Ok(client::status(&self.place.folder.path().join("agent.sock")).await?)
    }

    pub(crate) async fn game_node(&self) -> GameNode {
        Api::<GameNode>::all(self.client.clone()).get(&self.node).await.expect("a GameNode")
    }

    pub(crate) fn servers(&self) -> Api<GameServer> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The brain hands a server to this node, in the write that creates it.
    pub(crate) async fn hand_over(&self, name: &str, spec: Value) -> GameServer {
        self.hand_over_to(name, spec, HandOver::new(&self.node, &self.node_uid, "boot-1")).await
    }

    pub(crate) async fn hand_over_to(&self, name: &str, spec: Value, hand_over: HandOver) -> GameServer {
        let object = json!({
            "metadata": {
                "name": name,
                "finalizers": ["agones.dev/controller"],
                "annotations": { "berth.dev/lease": hand_over.to_annotation() }
            },
            "spec": spec,
            "status": { "state": "Creating", "nodeName": self.node, "address": "" }
        });
        let object = serde_json::from_value(object).expect("a server");
        self.servers().create(&PostParams::default(), &object).await.expect("it is created")
    }

    /// Waits until the server satisfies `look`.
    pub(crate) async fn until<T>(
        &self,
        name: &str,
        what: &str,
        look: impl Fn(&GameServer) -> Result<T, String>,
    ) -> T {
        let waited = eventually(LIMIT, format!("{name} to be {what}"), async || {
            let server = self.servers().get(name).await.map_err(|error| error.to_string())?;
            look(&server).map_err(|seen| {
                let status = server.status.clone().unwrap_or_default();
                format!("{seen}: {:?} {:?}", status.state, server.metadata.annotations)
            })
        });
        waited.await.expect("in time")
    }

    pub(crate) async fn until_state(&self, name: &str, state: State) -> GameServer {
        self.until(name, state.as_str(), |server| {
            if server.state() == Some(state) { Ok(server.clone()) } else { Err("another state".to_owned()) }
        })
        .await
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let waited = eventually(LIMIT, format!("{name} to be gone"), async || {
            match self.servers().get_opt(name).await {
                Ok(None) => Ok(()),
                Ok(Some(server)) => Err(format!("{:?} {:?}", server.status, server.metadata)),
                Err(error) => Err(error.to_string()),
            }
        });
        waited.await.expect("in time");
    }

    pub(crate) async fn pod(&self, name: &str) -> Pod {
        self.pods().get(name).await.expect("a pod")
    }

    /// Kubelet runs the pod: its sandbox appears, then its container.
    pub(crate) async fn run_pod(&self, name: &str) -> Pod {
        let pod = self.pod(name).await;
        let uid = pod.uid().expect("a UID");
        let address = Ipv4Addr::new(10, 1, 0, 5);
        self.host.sandbox_appears(&uid, 4711, vec![IpAddr::V4(address)]);
        self.report(
            name,
            json!({
                "phase": "Running",
                "podIPs": [{ "ip": address.to_string() }],
                "podIP": address.to_string(),
                "containerStatuses": [{
                    "name": "main", "image": "game", "imageID": "", "ready": true, "started": true,
                    "restartCount": 0, "containerID": "containerd://1",
                    "state": { "running": { "startedAt": jiff::Timestamp::now().to_string() } }
                }]
            }),
        )
        .await
    }

    /// Kubelet reports something of the pod.
    pub(crate) async fn report(&self, name: &str, status: Value) -> Pod {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods().patch_status(name, &PatchParams::default(), &patch).await.expect("reported")
    }

    /// Waits until somebody has asked for the pod's deletion, and then is the kubelet that carries it out.
    pub(crate) async fn end_pod(&self, name: &str) {
        let waited = eventually(LIMIT, format!("the pod of {name} to be deleted"), async || {
            let pod = self.pods().get(name).await.map_err(|error| error.to_string())?;
            pod.metadata.deletion_timestamp.map(drop).ok_or_else(|| "nobody has asked".to_owned())
        });
        waited.await.expect("in time");
        self.kill_pod(name).await;
    }

    /// The pod object goes, whoever asked.
    pub(crate) async fn kill_pod(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.expect("gone");
    }

    /// Waits until the server's Events are these reasons, in any order.
    pub(crate) async fn until_events(&self, name: &str, expected: &[&str]) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let selected = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let mut expected: Vec<String> = expected.iter().map(|reason| (*reason).to_owned()).collect();
        expected.sort();
        let waited = eventually(LIMIT, format!("Events of {name}: {expected:?}"), async || {
            let list = events.list(&selected).await.map_err(|error| error.to_string())?;
            let mut seen: Vec<String> = list.items.into_iter().filter_map(|event| event.reason).collect();
            seen.sort();
            if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
        });
        waited.await.expect("in time");
    }

    /// `berth-sdk` connects, handing back what it holds.
    pub(crate) async fn connect(&self, held: &[(&str, &[(ListenerKey, OwnedFd)])]) -> Game {
        let connected = eventually(LIMIT, "the link", async || {
            tokio::net::UnixStream::connect(self.place.socket()).await
        });
        let stream = connected.await.expect("it listens");
        let mut sdk = Sdk { stream, inbox: Vec::new(), sockets: Default::default() };
        sdk.say(&ToAgent::Hello { versions: VERSIONS, sdk: "0".into(), process_id: "s".into() }).await;
        assert!(matches!(sdk.hear().await, ToSdk::Hello { .. }));
        for (name, listeners) in held {
            let keys = listeners.iter().map(|(key, _)| *key).collect();
            let sockets: Vec<&OwnedFd> = listeners.iter().map(|(_, socket)| socket).collect();
            sdk.say_with(&ToAgent::HandBack { uid: ServerUid((*name).to_owned()), keys }, &sockets).await;
        }
        sdk.say(&ToAgent::HandBackEnds).await;
        Game { sdk }
    }
}

/// The game, and the `berth-sdk` it talks to.
pub(crate) struct Game {
    sdk: Sdk,
}

impl Game {
    pub(crate) async fn asks(&mut self, uid: &str, number: u64, change: Change) {
        let uid = ServerUid(uid.to_owned());
        let seen = Seen::default();
        self.sdk.say(&ToAgent::Change { uid, sequence: Sequence(number), change, seen }).await;
    }

    pub(crate) async fn says(&mut self, frame: ToAgent) {
        self.sdk.say(&frame).await;
    }

    /// Hears frames until one satisfies `look`.
    pub(crate) async fn hears<T>(&mut self, look: impl Fn(&ToSdk) -> Option<T>) -> T {
        loop {
            if let Some(found) = look(&self.sdk.hear().await) {
                return found;
            }
        }
    }

    pub(crate) async fn acknowledged(&mut self, server: &str, number: u64) {
        self.hears(|frame| match frame {
            ToSdk::Acknowledge { uid, sequence } if uid.0 == server && sequence.0 >= number => Some(()),
            _ => None,
        })
        .await;
    }

    pub(crate) async fn listeners(&mut self, server: &str) -> Vec<(ListenerKey, OwnedFd)> {
        let keys = self
            .hears(|frame| match frame {
                ToSdk::Listeners { uid, keys } if uid.0 == server => Some(keys.clone()),
                _ => None,
            })
            .await;
        keys.into_iter().zip(std::mem::take(&mut self.sdk.sockets)).collect()
    }

    pub(crate) async fn forgotten(&mut self, server: &str) {
        self.hears(|frame| match frame {
            ToSdk::Forget { uid } if uid.0 == server => Some(()),
            _ => None,
        })
        .await;
    }
}

/// The spec of a server with these ports.
pub(crate) fn spec(ports: Value) -> Value {
    json!({
        "ports": ports,
        "template": { "spec": { "containers": [{ "name": "main", "image": "game:1" }] } }
    })
}

/// A port that the node chooses.
pub(crate) fn one_port() -> Value {
    json!([{ "name": "game", "containerPort": 7654 }])
}
