//! Guests of the tour: objects that come, go through something that other servers do not, and leave.
//!
//! Each kind is there once at a time. A turn looks at how far the guest is and takes it one step on, so that nothing is
//! waited for and any death in between is only a longer stay.

use std::fs;
use std::time::Duration;

use berth_api::conditions::{ConditionKind, trouble};
use berth_api::fleet::Fleet;
use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::eventually;
use berth_stories::harbour::{Harbour, game};
use berth_stories::world::STEP;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::session::{allocate, settled};
use super::tour::SCRIPT;
use super::truth::ORDERED;

/// After this a guest leaves, however far it has come.
const STAY: Duration = Duration::from_secs(40);
/// How far a guest has come, as the tour notes it on the object.
const STAGE: &str = "tour/stage";
/// The label by which one guest chooses its node, and which the node has not got until the tour gives it back.
const LABEL: &str = "kubernetes.io/hostname";
/// What stands there instead.
const AWAY: &str = "away";
/// A game that writes nothing while somebody takes its server.
const QUIET: [&str; 2] = ["--ready-after=100ms", "--health=2s"];
/// A Fleet whose template changes again and again.
const CHANGING: &str = "changing";
/// Where kubelet finds the reasons for which it is to refuse pods.
const REFUSALS: &str = "/run/kubelet-refuses";

/// What a guest goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Waits for a node that fits, and is told anew why.
    Waiting,
    /// A development server, which has no pod.
    Development,
    /// Kubelet refuses it wherever it goes.
    Refused,
    /// Its game falls silent.
    Mute,
    /// A Fleet with a session too many.
    Overflow,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Waiting, Self::Development, Self::Refused, Self::Mute, Self::Overflow];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Waiting => "waiting-",
            Self::Development => "development-",
            Self::Refused => "refused-",
            Self::Mute => "mute-",
            Self::Overflow => "overflow-",
        }
    }
}

/// All of them.
pub(crate) struct Guests<'a> {
    harbour: &'a Harbour,
    /// Since when each kind's present guest is there.
    since: [Instant; Kind::ALL.len()],
    count: u32,
    version: u32,
}

impl<'a> Guests<'a> {
    pub(crate) fn new(harbour: &'a Harbour) -> Self {
        Self { harbour, since: [Instant::now(); Kind::ALL.len()], count: 0, version: 0 }
    }

    /// Whether a server may end although the tour has not touched it.
    pub(crate) fn may_end(&self, server: &GameServer) -> bool {
        let kind = Kind::ALL.into_iter().find(|kind| server.name_any().starts_with(kind.prefix()));
        match kind {
            // It is replaced while it could not start, which without a set is an Error, and nothing else.
            Some(Kind::Refused) => server.state() == Some(State::Error),
            Some(Kind::Mute) => true,
            Some(Kind::Waiting | Kind::Development | Kind::Overflow) | None => false,
        }
    }

    /// Takes each guest one step on, and tells what was done.
    pub(crate) async fn turn(&mut self, servers: &[GameServer]) -> anyhow::Result<Vec<String>> {
        let mut acts = Vec::new();
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            let present = servers.iter().find(|server| server.name_any().starts_with(kind.prefix()));
            let is_overdue = self.since[index].elapsed() > STAY;
            let done = match (kind, present) {
                (Kind::Overflow, _) => self.overflow(present, is_overdue).await?,
                (_, None) => Some(self.arrive(kind).await?),
                (_, Some(server)) if server.metadata.deletion_timestamp.is_some() => None,
                (_, Some(server)) if is_overdue => Some(self.remove(server).await?),
                (Kind::Waiting, Some(server)) => self.wait(server).await?,
                (Kind::Development, Some(server)) => self.develop(server).await?,
                (Kind::Refused, Some(server)) => match server.state() {
                    // Its refusals fell to others.
                    Some(State::Error | State::Ready) => Some(self.remove(server).await?),
                    _ => None,
                },
                (Kind::Mute, Some(server)) => self.silence(server).await?,
            };
            if done.as_ref().is_some_and(|done| done.starts_with("arrives")) {
                self.since[index] = Instant::now();
            }
            acts.extend(done.map(|done| format!("{kind:?} {done}")));
        }
        self.change_template().await?;
        self.autoscale().await?;
        self.update_sdk().await?;
        Ok(acts)
    }

    /// All leave, and nothing of them stays.
    pub(crate) async fn leave(&self) -> anyhow::Result<()> {
        for node in self.harbour.cluster.nodes() {
            fs::write(node.machine_path(REFUSALS), "")?;
            self.label(node.name(), node.name()).await?;
        }
        settled(self.autoscalers().delete(CHANGING, &DeleteParams::default()).await.map(drop))?;
        let fleets = self.harbour.fleets();
        for fleet in fleets.list(&ListParams::default()).await? {
            if is_guest(&fleet.name_any()) || fleet.name_any() == CHANGING {
                settled(fleets.delete(&fleet.name_any(), &DeleteParams::default()).await.map(drop))?;
            }
        }
        let gone = eventually(STEP, "all guests to be gone", async || {
            let servers = self.harbour.all_servers().await.map_err(|error| error.to_string())?;
            let there = |server: &&GameServer| {
                is_guest(&server.name_any()) || server.name_any().starts_with(CHANGING)
            };
            let Some(one) = servers.iter().find(there) else { return Ok(()) };
            let removed = self.harbour.servers().delete(&one.name_any(), &DeleteParams::default()).await;
            Err(format!("{}: {:?} ({:?})", one.name_any(), one.status, removed.err()))
        });
        Ok(gone.await?)
    }

    async fn arrive(&mut self, kind: Kind) -> anyhow::Result<String> {
        self.count += 1;
        let name = format!("{}{}", kind.prefix(), self.count);
        let mut server = json!({ "metadata": { "name": name }, "spec": game(&SCRIPT) });
        match kind {
            Kind::Waiting => {
                let node = self.node_of(&name);
                self.label(&node, AWAY).await?;
                server["spec"]["template"]["spec"]["nodeSelector"] = json!({ LABEL: node });
            }
            Kind::Development => {
                server["metadata"]["annotations"] = json!({ names::DEV_ADDRESS_ANNOTATION: "127.0.0.1" });
                server["spec"]["ports"] = json!([{ "name": "default", "portPolicy": "Static", "hostPort": 7999, "containerPort": 7999 }]);
            }
            Kind::Refused => {
                for node in self.harbour.cluster.nodes() {
                    fs::write(node.machine_path(REFUSALS), format!("{ORDERED}\n"))?;
                }
            }
            Kind::Mute => {
                server["spec"] = game(&["--ready-after=100ms", "--health=200ms"]);
                server["spec"]["health"] =
                    json!({ "initialDelaySeconds": 1, "periodSeconds": 1, "failureThreshold": 1 });
            }
            Kind::Overflow => {}
        }
        let servers = self.harbour.servers();
        servers.create(&PostParams::default(), &serde_json::from_value(server)?).await?;
        Ok(format!("arrives as {name}"))
    }

    async fn wait(&self, server: &GameServer) -> anyhow::Result<Option<String>> {
        let name = server.name_any();
        if server.state() == Some(State::Ready) {
            return Ok(Some(self.remove(server).await?));
        }
        let conditions =
            server.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let Some(told) = trouble(&conditions, ConditionKind::Placed) else { return Ok(None) };
        let is_old = told.message == "an old reason";
        match server.annotation(STAGE) {
            // Said anew, since there is another reason by now.
            None => {
                let mut conditions = json!(conditions);
                conditions[0]["message"] = json!("an old reason");
                self.note(server, json!({ "status": { "conditions": conditions } })).await?;
                Ok(Some(format!("{name} waits for an old reason")))
            }
            Some(_) if is_old || server.node_name().is_some() => Ok(None),
            Some(_) => {
                let node = self.node_of(&name);
                self.label(&node, &node).await?;
                Ok(Some(format!("{name} may go to {node}")))
            }
        }
    }

    async fn develop(&self, server: &GameServer) -> anyhow::Result<Option<String>> {
        let (name, is_ready) = (server.name_any(), server.state() == Some(State::Ready));
        match server.annotation(STAGE) {
            None if is_ready => {
                self.note(server, json!({ "status": { "state": "RequestReady" } })).await?;
                Ok(Some(format!("{name} asks for Ready")))
            }
            Some(_) if is_ready => {
                self.note(server, json!({ "status": { "state": "Shutdown" } })).await?;
                Ok(Some(format!("{name} ends")))
            }
            None | Some(_) => Ok(None),
        }
    }

    async fn silence(&self, server: &GameServer) -> anyhow::Result<Option<String>> {
        let name = server.name_any();
        match server.state() {
            Some(State::Ready) if server.annotation(STAGE).is_none() => {
                self.note(server, json!({})).await?;
                order(self.harbour, &name, "silence").await?;
                Ok(Some(format!("{name} falls silent")))
            }
            Some(State::Unhealthy) => Ok(Some(self.remove(server).await?)),
            _ => Ok(None),
        }
    }

    async fn overflow(
        &mut self,
        server: Option<&GameServer>,
        is_overdue: bool,
    ) -> anyhow::Result<Option<String>> {
        let fleets = self.harbour.fleets();
        let found = fleets.list(&ListParams::default()).await?;
        let fleet = found.into_iter().find(|fleet| fleet.name_any().starts_with(Kind::Overflow.prefix()));
        let Some(fleet) = fleet else {
            // Not before what is left of the last one has gone.
            if server.is_some() {
                return Ok(None);
            }
            self.count += 1;
            let name = format!("{}{}", Kind::Overflow.prefix(), self.count);
            let fleet = json!({ "metadata": { "name": name }, "spec": {
                "replicas": 1,
                "allocationOverflow": { "labels": { "overflow": "yes" } },
                "template": { "spec": game(&QUIET) },
            } });
            fleets.create(&PostParams::default(), &serde_json::from_value::<Fleet>(fleet)?).await?;
            return Ok(Some(format!("arrives as {name}")));
        };
        let name = fleet.name_any();
        let is_marked = |server: &GameServer| server.labels().contains_key("overflow");
        if is_overdue || server.is_some_and(is_marked) {
            settled(fleets.delete(&name, &DeleteParams::default()).await.map(drop))?;
            return Ok(Some(format!("{name} leaves")));
        }
        let Some(server) = server else { return Ok(None) };
        match server.state() {
            Some(State::Ready) if allocate(self.harbour, server).await?.is_some() => {
                Ok(Some(format!("{name} has a session")))
            }
            Some(State::Allocated) if fleet.spec.replicas() == 1 => {
                self.harbour.scale(&name, 0).await?;
                Ok(Some(format!("{name} has a session too many")))
            }
            _ => Ok(None),
        }
    }

    /// A node that has no servers has a pod of `berth-sdk` that is of an older revision. There is no such node, and nobody
    /// makes another pod, so that it is a matter of the brain alone.
    async fn update_sdk(&self) -> anyhow::Result<()> {
        let client = || self.harbour.client.clone();
        let revisions: Api<ControllerRevision> = Api::namespaced(client(), names::SYSTEM_NAMESPACE);
        let labels = |revision: &str| json!({ "app.kubernetes.io/name": "berth-sdk", names::REVISION_LABEL: revision });
        for (number, revision) in [(1, "older"), (2, "newer")] {
            let name = format!("berth-sdk-{revision}");
            let object = json!({
                "metadata": { "name": name, "labels": labels(revision) }, "revision": number, "data": {},
            });
            let made = revisions.create(&PostParams::default(), &serde_json::from_value(object)?).await;
            settled(made.map(drop))?;
        }
        let pods: Api<Pod> = Api::namespaced(client(), names::SYSTEM_NAMESPACE);
        let pod = json!({
            "metadata": { "name": "berth-sdk-guest", "labels": labels("older") },
            "spec": {
                "nodeName": "nowhere",
                "automountServiceAccountToken": false,
                "containers": [{ "name": "berth-sdk", "image": "berth-sdk" }],
            },
        });
        settled(pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await.map(drop)).map(drop)
    }

    /// Another template, once the last one is in force.
    async fn change_template(&mut self) -> anyhow::Result<()> {
        let fleets = self.harbour.fleets();
        if self.version == 0 {
            self.version = 1;
            return self.harbour.create_fleet(CHANGING, 1, &SCRIPT).await;
        }
        let sets: Api<GameServerSet> = Api::default_namespaced(self.harbour.client.clone());
        let of_fleet = ListParams::default().labels(&format!("{}={CHANGING}", names::FLEET_LABEL));
        let sets = sets.list(&of_fleet).await?;
        let is_ready = |set: &GameServerSet| {
            set.status.as_ref().is_some_and(|status| status.ready_replicas == set.spec.replicas)
        };
        if sets.items.len() == 1 && sets.iter().all(is_ready) {
            self.version += 1;
            let labels = json!({ "version": self.version.to_string() });
            let change =
                Patch::Merge(json!({ "spec": { "template": { "metadata": { "labels": labels } } } }));
            settled(fleets.patch(CHANGING, &PatchParams::default(), &change).await.map(drop))?;
        }
        Ok(())
    }

    /// The Fleet whose template changes has a number that changes with it.
    async fn autoscale(&self) -> anyhow::Result<()> {
        let wish = json!({
            "apiVersion": "autoscaling.agones.dev/v1",
            "kind": "FleetAutoscaler",
            "metadata": { "name": CHANGING },
            "spec": {
                "fleetName": CHANGING,
                "policy": { "type": "Buffer", "buffer": { "bufferSize": 1 + self.version % 2, "maxReplicas": 2 } },
                "sync": { "type": "FixedInterval", "fixedInterval": { "seconds": 1 } },
            },
        });
        let applied = PatchParams::apply("tour").force();
        let wished = self.autoscalers().patch(CHANGING, &applied, &Patch::Apply(wish)).await;
        settled(wished.map(drop)).map(drop)
    }

    fn autoscalers(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("autoscaling.agones.dev", "v1", "FleetAutoscaler");
        let kind = ApiResource::from_gvk_with_plural(&kind, "fleetautoscalers");
        Api::default_namespaced_with(self.harbour.client.clone(), &kind)
    }

    async fn remove(&self, server: &GameServer) -> anyhow::Result<String> {
        let name = server.name_any();
        settled(self.harbour.servers().delete(&name, &DeleteParams::default()).await.map(drop))?;
        Ok(format!("{name} leaves"))
    }

    /// Changes a guest and notes that it has come further.
    async fn note(&self, server: &GameServer, mut change: Value) -> anyhow::Result<()> {
        change["metadata"] = json!({
            "resourceVersion": server.resource_version(),
            "annotations": { STAGE: "further" },
        });
        let patch = Patch::Merge(change);
        let noted = self.harbour.servers().patch(&server.name_any(), &PatchParams::default(), &patch).await;
        settled(noted.map(drop)).map(drop)
    }

    /// The node that a waiting guest wants: another one each time.
    fn node_of(&self, name: &str) -> String {
        let nodes = self.harbour.cluster.nodes();
        let number: usize = name.rsplit('-').next().and_then(|end| end.parse().ok()).unwrap_or_default();
        nodes[number % nodes.len()].name().to_owned()
    }

    async fn label(&self, node: &str, value: &str) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.harbour.client.clone());
        let patch = Patch::Merge(json!({ "metadata": { "labels": { LABEL: value } } }));
        settled(nodes.patch(node, &PatchParams::default(), &patch).await.map(drop)).map(drop)
    }
}

fn is_guest(name: &str) -> bool {
    Kind::ALL.into_iter().any(|kind| name.starts_with(kind.prefix()))
}

/// Orders the game in a pod to do something.
pub(crate) async fn order(harbour: &Harbour, pod: &str, order: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "simulated.kubelet/order": order } } }));
    settled(harbour.pods().patch(pod, &PatchParams::default(), &patch).await.map(drop)).map(drop)
}
