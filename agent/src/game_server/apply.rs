//! Every call that changes something for a game server, or that looks past the watch.
//!
//! The claim is checked right before each write, and each call is over within three quarters of the lease's margin.
//! "Already exists" and "not found" are success where they mean that the work is done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_api::game_node::Room;
use berth_api::game_server::{GameServer, PortSpec};
use berth_api::names;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::kill_point::around;
use berth_runtime::kube_client::{CallError, Class, Lenient, open, within};
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource as _};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::patches;
use super::pod::{Plan, PodError, build};
use super::{Board, ServerMetrics};
use crate::drain::Course;
use crate::effects::Effect;
use crate::events::Recorder;
use crate::events::build::Stamp;
use crate::front::FrontHandle;
use crate::host::Host;
use crate::identity::Identity;
use crate::lease::{Authority, Claim, NotHeld};
use crate::node::NodeFacts;
use crate::node::room::plus;
use crate::ports::Ports;
use crate::ports::probe::ProbeError;

/// Account that is used where a template names none, if the namespace has it.
const SDK_ACCOUNT: &str = "agones-sdk";
/// How long it is believed that a namespace has, or lacks, that account.
const ACCOUNT_MEMORY: Duration = Duration::from_secs(60);

/// Calls at once: more of them would only wait in the API server, where waiting costs them their time.
const CALLS: usize = 8;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The lease is not ours at this moment.
    #[error("nothing may be written")]
    NotHeld(#[from] NotHeld),
    /// The API server did not do it.
    #[error("could not {what}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// What it answered.
        source: CallError,
    },
    /// A pod of the server's name is still ending: that of an earlier server.
    #[error("could not create the pod: one of that name, of an earlier server, is still ending")]
    NameTaken,
    /// No pod can be made.
    #[error("could not build the pod")]
    Pod(#[from] PodError),
    /// No ports can be had.
    #[error("could not get host ports")]
    Ports(#[from] ProbeError),
    /// The request could not be put together.
    #[error("could not put the request together")]
    Request(#[source] serde_json::Error),
}

impl ApplyError {
    /// The class of the API server's answer, where it is one.
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Call { source, .. } => Some(source.class()),
            Self::NotHeld(_) | Self::NameTaken | Self::Pod(_) | Self::Ports(_) | Self::Request(_) => None,
        }
    }

    /// A short fixed word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotHeld(_) => "not_held",
            Self::Call { source, .. } => source.class().category(),
            Self::NameTaken => "name_taken",
            Self::Pod(_) => "pod",
            Self::Ports(_) => "ports",
            Self::Request(_) => "request",
        }
    }
}

/// What every worker acts with.
pub struct Actor<H> {
    /// To the API server.
    pub client: Client,
    /// The right to write.
    pub authority: Authority,
    /// Who we are.
    pub identity: Identity,
    /// The machine.
    pub host: Arc<H>,
    /// Its ports.
    pub ports: Ports,
    /// The SDK of all servers.
    pub front: FrontHandle,
    /// Events.
    pub recorder: Recorder,
    /// Our node, as it is now.
    pub node: watch::Receiver<Arc<NodeFacts>>,
    /// What its pods take.
    pub taken: Taken,
    /// What it is for.
    pub course: watch::Receiver<Course>,
    /// Whether sessions are ended before the node is gone.
    pub ends_sessions: bool,
    /// What the servers look like.
    pub board: Board,
    /// Numbers.
    pub metrics: ServerMetrics,
    /// The time.
    pub clock: Clock,
    /// How long one call may take.
    pub limit: Duration,
    /// Which namespaces have an account of their own for game servers.
    pub accounts: Accounts,
    /// Room for calls.
    pub calls: Calls,
    /// Whether pods may share the node's network.
    pub allows_host_network: bool,
}

/// What the pods of the node take.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Those that are no game servers.
    pub others: watch::Receiver<Room>,
    /// Those that are.
    pub games: watch::Receiver<Room>,
}

impl Taken {
    /// All of it.
    pub fn all(&self) -> Room {
        plus(*self.others.borrow(), *self.games.borrow())
    }
}

/// Room for calls to the API server, so that many servers at once do not make each other late.
#[derive(Debug)]
pub struct Calls(Semaphore);

impl Default for Calls {
    fn default() -> Self {
        Self(Semaphore::new(CALLS))
    }
}

/// What is remembered of the namespaces' accounts.
#[derive(Debug, Default)]
pub struct Accounts {
    /// Guards the memory; held for a look-up.
    known: Mutex<BTreeMap<String, (bool, Instant)>>,
}

impl Accounts {
    fn recall(&self, namespace: &str, now: Instant) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(namespace).filter(|(_, until)| now < *until).map(|(there, _)| *there)
    }

    fn note(&self, namespace: &str, there: bool, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(namespace.to_owned(), (there, now + ACCOUNT_MEMORY));
    }
}

/// A pod of the server's name.
#[derive(Debug)]
pub enum MadePod {
    /// Made now.
    New(Pod),
    /// It was there: ours, from an earlier try, or a stranger's.
    Old(Pod),
}

impl<H: Host> Actor<H> {
    /// The claim, at this moment.
    ///
    /// # Errors
    /// There is none.
    pub fn claim(&self) -> Result<Claim, NotHeld> {
        self.authority.check(self.clock.instant())
    }

    /// A stamp for an Event.
    pub fn stamp(&self) -> Stamp<'_> {
        Stamp { node: &self.identity.node, now: self.clock.now(), number: rand::random() }
    }

    /// Sends an Event.
    pub fn record(&self, event: Event) {
        self.recorder.record(event);
    }

    fn servers(&self, namespace: &str) -> Api<GameServer> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Changes a server. The body names the version it was made for.
    ///
    /// # Errors
    /// Not held, or what the API server answered.
    pub async fn patch(
        &self,
        effect: Effect,
        server: &GameServer,
        body: Value,
    ) -> Result<GameServer, ApplyError> {
        let (namespace, name) = key(server);
        let params =
            PatchParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        let body = Patch::Merge(body);
        let servers = self.servers(namespace);
        let call = servers.patch(name, &params, &body);
        self.write((effect, "change the game server"), call).await
    }

    /// The server as the API server has it now.
    ///
    /// # Errors
    /// What the API server answered.
    pub async fn look(&self, namespace: &str, name: &str) -> Result<Option<GameServer>, ApplyError> {
        self.read("read the game server", self.servers(namespace).get_opt(name)).await
    }

    /// The same of one that may be undecodable, which is then as good as none.
    ///
    /// # Errors
    /// What the API server answered.
    pub async fn look_leniently(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<GameServer>, ApplyError> {
        let servers = Api::<Lenient<GameServer>>::namespaced(self.client.clone(), namespace);
        let found = self.read("read the game server", servers.get_opt(name)).await?;
        Ok(found.and_then(|server| open(server, &self.metrics.skipped).ok()))
    }

    /// The pod as the API server has it now.
    ///
    /// # Errors
    /// What the API server answered.
    pub async fn look_for_pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ApplyError> {
        self.read("read the pod", self.pods(namespace).get_opt(name)).await
    }

    /// Makes the pod, or finds the one that is there.
    ///
    /// # Errors
    /// Not held, the template makes none, or what the API server answered.
    pub async fn create_pod(
        &self,
        server: &GameServer,
        ports: &[PortSpec],
        sdk_ports: (u16, u16),
    ) -> Result<MadePod, ApplyError> {
        let (namespace, name) = key(server);
        let plan = Plan {
            server,
            ports,
            node: &self.identity.node,
            sdk_ports,
            allows_host_network: self.allows_host_network,
            service_account: self.account(namespace).await?,
        };
        let body = serde_json::to_vec(&build(plan)?).map_err(ApplyError::Request)?;
        let params =
            PostParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PostParams::default() };
        let request = kube::core::Request::new(Pod::url_path(&(), Some(namespace))).create(&params, body);
        let created = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request::<Pod>(request).await
        };
        let error = match self.write((Effect::CreatePod, "create the pod"), created).await {
            Ok(pod) => return Ok(MadePod::New(pod)),
            Err(error) => error,
        };
        if error.class() == Some(Class::AlreadyExists)
            && let Some(pod) = self.look_for_pod(namespace, name).await?
        {
            return Ok(MadePod::Old(pod));
        }
        Err(error)
    }

    async fn account(&self, namespace: &str) -> Result<Option<&'static str>, ApplyError> {
        let now = self.clock.instant();
        if let Some(there) = self.accounts.recall(namespace, now) {
            return Ok(there.then_some(SDK_ACCOUNT));
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let looked = accounts.get_metadata_opt(SDK_ACCOUNT);
        let there = match self.read("look for the service account", looked).await {
            Ok(found) => found.is_some(),
            // Without the right to look, the namespace's default account is what every pod may have.
            Err(error) if error.class() == Some(Class::Forbidden) => false,
            Err(error) => return Err(error),
        };
        self.accounts.note(namespace, there, now);
        Ok(there.then_some(SDK_ACCOUNT))
    }

    /// Deletes this very pod, with its own grace. Answers the pod as it ends, or none where it is gone.
    ///
    /// # Errors
    /// Not held, or what the API server answered.
    pub async fn delete_pod(&self, effect: Effect, pod: &Pod) -> Result<Option<Pod>, ApplyError> {
        let (namespace, name) = place(pod);
        let params =
            DeleteParams { preconditions: uid(pod.metadata.uid.as_deref()), ..DeleteParams::default() };
        let pods = self.pods(namespace);
        let deleted = self.write((effect, "delete the pod"), pods.delete(name, &params)).await;
        done(deleted.map(|ending| ending.left()))
    }

    /// Deletes this very pod, with a grace of so many seconds. Answers the pod as it ends, or none where it is gone.
    ///
    /// # Errors
    /// Not held, or what the API server answered.
    pub async fn end_session(&self, pod: &Pod, grace: u32) -> Result<Option<Pod>, ApplyError> {
        let (namespace, name) = place(pod);
        let params =
            DeleteParams { preconditions: uid(pod.metadata.uid.as_deref()), ..DeleteParams::default() }
                .grace_period(grace);
        let pods = self.pods(namespace);
        let deleted = self.write((Effect::EndSession, "end the session"), pods.delete(name, &params)).await;
        done(deleted.map(|ending| ending.left()))
    }

    /// Has this very pod tolerate the taint of a node that is being emptied. Tolerations can only be added.
    ///
    /// # Errors
    /// Not held, or what the API server answered; a conflict where somebody has changed the pod.
    pub async fn tolerate(&self, pod: &Pod) -> Result<Pod, ApplyError> {
        let (namespace, name) = place(pod);
        let operations = patches::tolerate(pod);
        let patch: Patch<Pod> = Patch::Json(serde_json::from_value(operations).map_err(ApplyError::Request)?);
        let params =
            PatchParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        let pods = self.pods(namespace);
        self.write((Effect::Tolerate, "add a toleration to the pod"), pods.patch(name, &params, &patch)).await
    }

    /// Deletes the GameServer in the version that was seen.
    ///
    /// # Errors
    /// Not held, or what the API server answered; a conflict where somebody has changed the server.
    pub async fn withdraw(&self, server: &GameServer) -> Result<Option<GameServer>, ApplyError> {
        let (namespace, name) = key(server);
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: server.metadata.uid.clone(),
                resource_version: server.metadata.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        let servers = self.servers(namespace);
        let what = (Effect::Withdraw, "delete the game server in the version that has no session");
        let deleted = self.write(what, servers.delete(name, &params)).await;
        deleted.map(|ending| ending.left())
    }

    /// Deletes the GameServer; its finalizer keeps it until the pod is gone. Answers the server as it ends, or none
    /// where it is gone.
    ///
    /// # Errors
    /// Not held, or what the API server answered.
    pub async fn delete_server(&self, server: &GameServer) -> Result<Option<GameServer>, ApplyError> {
        let (namespace, name) = key(server);
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: uid(server.metadata.uid.as_deref()),
            ..DeleteParams::default()
        };
        let servers = self.servers(namespace);
        let what = (Effect::DeleteServer, "delete the game server");
        let deleted = self.write(what, servers.delete(name, &params)).await;
        done(deleted.map(|ending| ending.left()))
    }

    /// One call that changes something: the claim is checked once there is room for the call, right before it.
    async fn write<T>(
        &self,
        (effect, what): (Effect, &'static str),
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApplyError> {
        // The semaphore is never closed; without a permit, calls would only be more at once.
        let _room = self.calls.0.acquire().await.ok();
        self.claim()?;
        around(effect, within(self.limit, call)).await.map_err(|source| ApplyError::Call { what, source })
    }

    async fn read<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApplyError> {
        let _room = self.calls.0.acquire().await.ok();
        within(self.limit, call).await.map_err(|source| ApplyError::Call { what, source })
    }
}

/// Namespace and name.
pub(super) fn key(server: &GameServer) -> (&str, &str) {
    (
        server.metadata.namespace.as_deref().unwrap_or_default(),
        server.metadata.name.as_deref().unwrap_or_default(),
    )
}

fn place(pod: &Pod) -> (&str, &str) {
    (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default())
}

fn uid(uid: Option<&str>) -> Option<Preconditions> {
    uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None })
}

/// A deletion that finds nothing, or another object of that name, has been done.
fn done<K>(answer: Result<Option<K>, ApplyError>) -> Result<Option<K>, ApplyError> {
    match answer {
        Err(error) if matches!(error.class(), Some(Class::NotFound | Class::Conflict)) => Ok(None),
        answer => answer,
    }
}
