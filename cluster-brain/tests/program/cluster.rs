//! A control plane with Berth's resources, brains, and the questions that tests ask of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_api::fleet::Fleet;
use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_api::lifecycle::State;
use berth_dev::{ControlPlane, ControlPlaneOptions, Daemon, Launch, eventually, install};
use berth_runtime::CancellationToken;
use berth_runtime::kill_point::{KillPoint, VARIABLE};
use berth_runtime::tasks::{Spawner, TaskGroup};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// How long a condition may take on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);
/// Where the tests' objects live.
pub(crate) const NAMESPACE: &str = "default";

/// A cluster for one test.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) spawner: Spawner,
    _stop: tokio_util::sync::DropGuard,
}

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")
}

impl Cluster {
    /// A control plane with Berth's resources and no brain.
    pub(crate) async fn start() -> Self {
        Self::start_with(ControlPlaneOptions::default()).await
    }

    pub(crate) async fn start_with(options: ControlPlaneOptions) -> Self {
        let plane = ControlPlane::start(options).await.expect("a control plane");
        let client = plane.client();
        let crds = std::fs::read_dir(manifests().join("crds")).expect("the folder of the definitions");
        let crds = crds.map(|file| file.expect("a file").path());
        let rights = ["namespace.yaml", "rbac.yaml", "priority.yaml", "game-namespace/bindings.yaml"];
        for file in crds.chain(rights.map(|file| manifests().join(file))) {
            install::apply(&client, &file).await.expect("an applied manifest");
        }
        // What a controller manager would make, and pods need.
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("an account");
        for namespace in [NAMESPACE, berth_api::names::SYSTEM_NAMESPACE] {
            let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
            // Where a controller manager runs it is faster at times.
            let _ = accounts.create(&PostParams::default(), &account).await;
        }
        let group = TaskGroup::new(CancellationToken::new());
        let (spawner, token) = (group.spawner(), group.token());
        Self { plane, client, spawner, _stop: token.drop_guard() }
    }

    /// Starts a brain, with the rights that it ships with.
    pub(crate) fn brain(&self, name: &str) -> Daemon {
        self.brain_with(name, &[])
    }

    /// Starts a brain with further arguments.
    pub(crate) fn brain_with(&self, name: &str, arguments: &[&str]) -> Daemon {
        let launch = self.launch(name).arguments(arguments.iter().copied());
        Daemon::start(self.plane.instance(), launch).expect("a brain")
    }

    /// Starts a brain that kills itself at a point.
    pub(crate) fn brain_dying_at(&self, name: &str, point: &KillPoint) -> Daemon {
        let launch = self.launch(name).variable(VARIABLE, point.to_string());
        Daemon::start(self.plane.instance(), launch).expect("a brain")
    }

    fn launch(&self, name: &str) -> Launch {
        let kubeconfig = self.plane.instance().folder().join("brain.kubeconfig");
        let kubeconfig = self.plane.kubeconfig_for("berth-brain", &[], &kubeconfig).expect("a kubeconfig");
        let kubeconfig = kubeconfig.to_string_lossy().into_owned();
        Launch::new(name, env!("CARGO_BIN_EXE_berth-brain"))
            .arguments(["--kubeconfig".to_owned(), kubeconfig])
            .arguments(["--log-level", "info,berth_brain=debug"])
    }

    pub(crate) fn servers(&self) -> Api<GameServer> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn sets(&self) -> Api<GameServerSet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn fleets(&self) -> Api<Fleet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates a Fleet; `spec` is merged over a small template.
    pub(crate) async fn create_fleet(&self, name: &str, replicas: i32, spec: Value) {
        let mut whole = json!({
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "template": template("one")},
        });
        for (field, value) in spec.as_object().expect("an object") {
            whole["spec"][field] = value.clone();
        }
        let fleet: Fleet = serde_json::from_value(whole).expect("a Fleet");
        self.fleets().create(&PostParams::default(), &fleet).await.expect("a created Fleet");
    }

    /// Merges a change into a Fleet.
    pub(crate) async fn change_fleet(&self, name: &str, spec: Value) {
        let change = Patch::Merge(json!({ "spec": spec }));
        self.fleets().patch(name, &PatchParams::default(), &change).await.expect("a changed Fleet");
    }

    /// Creates a server directly; `fields` are those of its spec.
    pub(crate) async fn create_server(&self, name: &str, annotations: Value, fields: Value) {
        let mut server = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": template("lone")["spec"],
        });
        for (field, value) in fields.as_object().expect("an object") {
            server["spec"][field] = value.clone();
        }
        let server: GameServer = serde_json::from_value(server).expect("a GameServer");
        self.servers().create(&PostParams::default(), &server).await.expect("a created GameServer");
    }

    /// Every server there is.
    pub(crate) async fn all_servers(&self) -> Vec<GameServer> {
        self.servers().list(&ListParams::default()).await.expect("a list of servers").items
    }

    /// Waits until exactly this many servers are there, all Ready, and the Fleet says so.
    pub(crate) async fn wait_for_ready(&self, fleet: &str, count: usize) {
        let what = format!("{count} Ready servers of {fleet}");
        eventually(LIMIT, what, async || {
            let servers = self.all_servers().await;
            let ready = servers.iter().filter(|server| server.state() == Some(State::Ready)).count();
            let said = self.fleets().get(fleet).await.expect("the Fleet").status.unwrap_or_default();
            let numbers = (said.replicas, said.ready_replicas);
            let wanted = i32::try_from(count).expect("a small number");
            if servers.len() == count && ready == count && numbers == (wanted, wanted) {
                return Ok(());
            }
            let other = servers.iter().find(|server| server.state() != Some(State::Ready));
            let other = other.map(|server| (&server.metadata.annotations, &server.status));
            Err(format!("{} servers, {ready} Ready, the Fleet says {numbers:?}; {other:?}", servers.len()))
        })
        .await
        .expect("the right number of servers");
    }

    /// Waits until a condition of a Fleet has this status, and gives its message.
    pub(crate) async fn fleet_condition(&self, fleet: &str, kind: &str, status: &str) -> String {
        self.fleet_says(fleet, kind, status, "").await
    }

    /// The same, whose message says this too: a first message may know less.
    pub(crate) async fn fleet_says(&self, fleet: &str, kind: &str, status: &str, part: &str) -> String {
        eventually(LIMIT, format!("{kind} of {fleet} to be {status}"), async || {
            let fleet = self.fleets().get(fleet).await.map_err(|error| error.to_string())?;
            let conditions = fleet.status.and_then(|status| status.conditions).unwrap_or_default();
            let is_so =
                |one: &&Condition| one.type_ == kind && one.status == status && one.message.contains(part);
            let found = conditions.iter().find(is_so);
            found.map(|one| one.message.clone()).ok_or_else(|| format!("{conditions:?}"))
        })
        .await
        .expect("the condition as asked")
    }

    /// Waits until a server is as asked.
    pub(crate) async fn wait_for_server(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(&GameServer) -> bool,
    ) -> GameServer {
        eventually(LIMIT, format!("{name} to be {what}"), async || {
            let server = self.servers().get(name).await.map_err(|error| error.to_string())?;
            if is_so(&server) {
                return Ok(server);
            }
            Err(format!("{:?} {:?}", server.metadata.annotations, server.status))
        })
        .await
        .expect("the server as asked")
    }

    /// Waits until an object of this name is gone.
    pub(crate) async fn wait_until_gone(&self, name: &str) {
        eventually(LIMIT, format!("{name} to be gone"), async || {
            match self.servers().get_opt(name).await.expect("an answer") {
                None => Ok(()),
                Some(server) => Err(format!("{:?}", server.metadata)),
            }
        })
        .await
        .expect("the server gone");
    }
}

/// A template; `version` is its image's tag.
pub(crate) fn template(version: &str) -> Value {
    json!({
        "metadata": {"labels": {"version": version}},
        "spec": {
            "ports": [{"name": "game", "containerPort": 7000}],
            "template": {"spec": {"containers": [{
                "name": "game",
                "image": format!("game:{version}"),
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            }]}},
        },
    })
}
