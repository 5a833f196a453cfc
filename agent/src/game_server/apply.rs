//! Every call that changes something for a game server, or that looks past the watch.
//!
//! The claim is checked right before each write, and each call is over within three quarters of the lease's margin.
//! "Already exists" and "not found" are success where they mean that the work is done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_api::game_server::{GameServer, PortSpec};
use berth_api::names;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::kube_client::{CallError, Class, within};
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource as _};
use serde_json::Value;
use tokio::sync::watch;

use super::pod::{Plan, PodError, build};
use super::{Board, ServerMetrics};
use crate::events::Recorder;
use crate::events::build::Stamp;
use crate::front::FrontHandle;
use crate::host::Host;
use crate::identity::Identity;
use crate::lease::{Authority, Claim, NotHeld};
use crate::node::NodeFacts;
use crate::ports::Ports;
use crate::ports::probe::ProbeError;

/// Account that is used where a template names none, if the namespace has it.
const SDK_ACCOUNT: &str = "agones-sdk";
/// How long it is believed that a namespace has, or lacks, that account.
const ACCOUNT_MEMORY: Duration = Duration::from_secs(60);

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
            Self::NotHeld(_) | Self::Pod(_) | Self::Ports(_) | Self::Request(_) => None,
        }
    }

    /// A short fixed word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotHeld(_) => "not_held",
            Self::Call { source, .. } => source.class().category(),
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
    pub async fn patch(&self, server: &GameServer, body: Value) -> Result<GameServer, ApplyError> {
        self.claim()?;
        let (namespace, name) = key(server);
        let params =
            PatchParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        let body = Patch::Merge(body);
        let servers = self.servers(namespace);
        let call = servers.patch(name, &params, &body);
        within(self.limit, call)
            .await
            .map_err(|source| ApplyError::Call { what: "change the game server", source })
    }

    /// The server as the API server has it now.
    ///
    /// # Errors
    /// What the API server answered.
    pub async fn look(&self, namespace: &str, name: &str) -> Result<Option<GameServer>, ApplyError> {
        within(self.limit, self.servers(namespace).get_opt(name))
            .await
            .map_err(|source| ApplyError::Call { what: "read the game server", source })
    }

    /// The pod as the API server has it now.
    ///
    /// # Errors
    /// What the API server answered.
    pub async fn look_for_pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ApplyError> {
        within(self.limit, self.pods(namespace).get_opt(name))
            .await
            .map_err(|source| ApplyError::Call { what: "read the pod", source })
    }

    /// Makes the pod, or finds the one that is there.
    ///
    /// # Errors
    /// Not held, the template makes none, or what the API server answered.
    pub async fn create_pod(&self, server: &GameServer, ports: &[PortSpec]) -> Result<MadePod, ApplyError> {
        let (namespace, name) = key(server);
        let account = self.account(namespace).await?;
        let plan = Plan { server, ports, node: &self.identity.node, service_account: account };
        let body = serde_json::to_vec(&build(plan)?).map_err(ApplyError::Request)?;
        self.claim()?;
        let params =
            PostParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PostParams::default() };
        let request = kube::core::Request::new(Pod::url_path(&(), Some(namespace))).create(&params, body);
        let created = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request::<Pod>(request).await
        };
        let error = match within(self.limit, created).await {
            Ok(pod) => return Ok(MadePod::New(pod)),
            Err(error) => error,
        };
        if error.class() == Class::AlreadyExists
            && let Some(pod) = self.look_for_pod(namespace, name).await?
        {
            return Ok(MadePod::Old(pod));
        }
        Err(ApplyError::Call { what: "create the pod", source: error })
    }

    async fn account(&self, namespace: &str) -> Result<Option<&'static str>, ApplyError> {
        let now = self.clock.instant();
        if let Some(there) = self.accounts.recall(namespace, now) {
            return Ok(there.then_some(SDK_ACCOUNT));
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let there = match within(self.limit, accounts.get_metadata_opt(SDK_ACCOUNT)).await {
            Ok(found) => found.is_some(),
            // Without the right to look, the namespace's default account is what every pod may have.
            Err(error) if error.class() == Class::Forbidden => false,
            Err(source) => return Err(ApplyError::Call { what: "look for the service account", source }),
        };
        self.accounts.note(namespace, there, now);
        Ok(there.then_some(SDK_ACCOUNT))
    }

    /// Deletes this very pod, with its own grace.
    ///
    /// # Errors
    /// Not held, or what the API server answered.
    pub async fn delete_pod(&self, pod: &Pod) -> Result<(), ApplyError> {
        self.claim()?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let params =
            DeleteParams { preconditions: uid(pod.metadata.uid.as_deref()), ..DeleteParams::default() };
        done("delete the pod", within(self.limit, self.pods(namespace).delete(name, &params)).await)
    }

    /// Deletes the GameServer; its finalizer keeps it until the pod is gone.
    ///
    /// # Errors
    /// Not held, or what the API server answered.
    pub async fn delete_server(&self, server: &GameServer) -> Result<(), ApplyError> {
        self.claim()?;
        let (namespace, name) = key(server);
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: uid(server.metadata.uid.as_deref()),
            ..DeleteParams::default()
        };
        let call = within(self.limit, self.servers(namespace).delete(name, &params)).await;
        done("delete the game server", call)
    }
}

/// Namespace and name.
pub(super) fn key(server: &GameServer) -> (&str, &str) {
    (
        server.metadata.namespace.as_deref().unwrap_or_default(),
        server.metadata.name.as_deref().unwrap_or_default(),
    )
}

fn uid(uid: Option<&str>) -> Option<Preconditions> {
    uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None })
}

/// A deletion that finds nothing, or another object of that name, has been done.
fn done<T>(what: &'static str, answer: Result<T, CallError>) -> Result<(), ApplyError> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.class(), Class::NotFound | Class::Conflict) => Ok(()),
        Err(source) => Err(ApplyError::Call { what, source }),
    }
}
