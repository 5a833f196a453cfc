//! What the brain knows: one picture of the cluster in small typed form, fed by watches and by the answers to our own
//! writes, and the queues of those who act on it.
//!
//! Answers go in at once, and servers that are being created are remembered until a watch has shown them: a decision
//! never sees fewer servers than there are. Nothing is listed again on a timer; what a watch cannot decode is skipped,
//! warned of and counted.

mod arrivals;
mod cluster;
mod lookup;
mod metrics;
mod placeholder;
mod sdk;
mod server;
mod shelf;
mod watches;
mod world;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use berth_runtime::clock::Instant;
use tokio::sync::watch;

pub(crate) use cluster::{LeaseRecord, NodeRecord};
pub(crate) use metrics::StoreMetrics;
pub(crate) use placeholder::Placeholder;
pub(crate) use sdk::SdkPod;
pub(crate) use server::{Amount, Server};
pub(crate) use watches::{watch_cluster, watch_objects};
pub(crate) use world::{InFlight, World};

use crate::queue::Queue;

/// How long a burst of changes of servers is gathered before their set looks at them: each state of each server is an
/// event, and one report for many is enough.
const GATHER: Duration = Duration::from_millis(100);

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object from the API.
    pub(crate) fn of(metadata: &kube::api::ObjectMeta) -> Self {
        Self::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Somebody who should look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A Fleet, because it changed.
    Fleet(Key),
    /// A Fleet, because one of its sets did.
    FleetSoon(Key),
    /// A set, because it changed.
    Set(Key),
    /// A set, because one of its servers did.
    SetSoon(Key),
    /// An autoscaler.
    Autoscaler(Key),
    /// A server.
    Server(Key),
    /// A namespace, because its disruption budget may be missing.
    Namespace(String),
    /// Every server that waits for a node.
    Waiting,
}

/// Kinds of watched objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Fleet,
    GameServerSet,
    GameServer,
    Node,
    GameNode,
    Lease,
    DisruptionBudget,
    FleetAutoscaler,
    Placeholder,
    SdkPod,
    SdkRevision,
}

impl Kind {
    /// What must be known before anything is decided.
    const ALL: [Self; 9] = [
        Self::Fleet,
        Self::GameServerSet,
        Self::GameServer,
        Self::Node,
        Self::GameNode,
        Self::Lease,
        Self::DisruptionBudget,
        Self::FleetAutoscaler,
        Self::Placeholder,
    ];

    /// What is watched only while leading, so that a new leader starts from a list made after it was elected.
    const LED: [Self; 8] = [
        Self::Fleet,
        Self::GameServerSet,
        Self::GameServer,
        Self::DisruptionBudget,
        Self::FleetAutoscaler,
        Self::Placeholder,
        Self::SdkPod,
        Self::SdkRevision,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Fleet => "Fleet",
            Self::GameServerSet => "GameServerSet",
            Self::GameServer => "GameServer",
            Self::Node => "Node",
            Self::GameNode => "GameNode",
            Self::Lease => "Lease",
            Self::DisruptionBudget => "PodDisruptionBudget",
            Self::FleetAutoscaler => "FleetAutoscaler",
            Self::Placeholder => "Pod",
            Self::SdkPod => "berth-sdk Pod",
            Self::SdkRevision => "ControllerRevision",
        }
    }
}

/// The queues of those who act.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) fleets: Queue<Key>,
    pub(crate) sets: Queue<Key>,
    pub(crate) servers: Queue<Key>,
    pub(crate) namespaces: Queue<String>,
    pub(crate) autoscalers: Queue<Key>,
}

/// The picture, shared by those who feed it and those who act on it.
#[derive(Debug)]
pub(crate) struct Stores {
    /// Guards the whole picture; held for pure work only, never across a wait.
    world: Mutex<World>,
    pub(crate) queues: Queues,
    listed: watch::Sender<BTreeSet<Kind>>,
    pub(crate) metrics: StoreMetrics,
}

impl Stores {
    pub(crate) fn new(world: World, metrics: StoreMetrics) -> Self {
        Self {
            world: Mutex::new(world),
            queues: Queues {
                fleets: Queue::new(),
                sets: Queue::new(),
                servers: Queue::new(),
                namespaces: Queue::new(),
                autoscalers: Queue::new(),
            },
            listed: watch::Sender::new(BTreeSet::new()),
            metrics,
        }
    }

    /// Looks at the picture.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the picture, and wakes whom that concerns.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut World, Instant) -> T) -> T {
        let (result, wakes) = {
            let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
            let result = change(&mut world, Instant::now());
            let wakes = world.take_wakes();
            let waiting = if wakes.contains(&Wake::Waiting) { world.waiting() } else { Vec::new() };
            (result, wakes.into_iter().chain(waiting.into_iter().map(Wake::Server)).collect::<Vec<_>>())
        };
        for wake in wakes {
            match wake {
                Wake::Fleet(key) => self.queues.fleets.add(key),
                Wake::FleetSoon(key) => self.queues.fleets.add_after(key, GATHER),
                Wake::Set(key) => self.queues.sets.add(key),
                Wake::SetSoon(key) => self.queues.sets.add_after(key, GATHER),
                Wake::Server(key) => self.queues.servers.add(key),
                Wake::Namespace(namespace) => self.queues.namespaces.add(namespace),
                Wake::Autoscaler(key) => self.queues.autoscalers.add(key),
                Wake::Waiting => {}
            }
        }
        result
    }

    /// Notes that a kind has been listed in full.
    pub(crate) fn note_listed(&self, kind: Kind) {
        self.listed.send_if_modified(|listed| listed.insert(kind));
    }

    /// Waits until every kind has been listed in full.
    pub(crate) async fn all_listed(&self) {
        let mut listed = self.listed.subscribe();
        // The sender lives in `self`, so the channel cannot close while we wait.
        let _ = listed.wait_for(|listed| Kind::ALL.iter().all(|kind| listed.contains(kind))).await;
    }

    /// Waits until the pods of `berth-sdk` and their revisions have been listed.
    pub(crate) async fn sdk_listed(&self) {
        let mut listed = self.listed.subscribe();
        let kinds = [Kind::SdkPod, Kind::SdkRevision];
        let _ = listed.wait_for(|listed| kinds.iter().all(|kind| listed.contains(kind))).await;
    }

    /// Waits until what is watched without leading has been listed.
    pub(crate) async fn cluster_listed(&self) {
        let mut listed = self.listed.subscribe();
        let of_cluster = |kind: &&Kind| !Kind::LED.contains(kind);
        let _ = listed
            .wait_for(|listed| Kind::ALL.iter().filter(of_cluster).all(|kind| listed.contains(kind)))
            .await;
    }

    /// Forgets what only a leader knows: the next one, be it this process again, begins with a list of its own.
    pub(crate) fn forget_objects(&self) {
        self.listed.send_modify(|listed| listed.retain(|kind| !Kind::LED.contains(kind)));
        self.change(|world, _| world.forget_objects());
        self.queues.fleets.clear();
        self.queues.sets.clear();
        self.queues.servers.clear();
        self.queues.namespaces.clear();
        self.queues.autoscalers.clear();
    }
}
