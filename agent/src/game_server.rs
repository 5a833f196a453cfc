//! The game servers of this node: one worker each, from the hand-over to the last trace.
//!
//! A turn of a worker folds what is known into an observation (`observe`), decides one step (`decide`), and carries it
//! out (`apply`), until there is nothing left to do but wait. The `supervisor` watches, starts workers and feeds them.
//! What a server may become is decided here alone; what its game asks for comes from [`crate::front`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use berth_api::game_server::StatusPort;
use berth_api::lifecycle::State;
use berth_api::link::ServerUid;
use berth_runtime::kube_client::Skipped;
use berth_runtime::metrics::Subsystem;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

mod addresses;
mod amounts;
pub mod apply;
mod container;
pub mod decide;
#[cfg(test)]
mod drain_race;
mod mailbox;
mod memory;
pub mod observe;
mod patches;
pub mod pod;
mod sandbox;
pub mod supervisor;
mod trouble;
mod view;
pub mod wishes;
mod worker;

/// Why a server left the states in which it could serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The game was silent for too long.
    PingsMissed {
        /// Pings missed in a row.
        missed: u32,
    },
    /// Its pod is gone, and nobody asked for that here.
    PodMissing,
    /// Somebody is deleting its pod.
    PodDeleted,
    /// Another pod than the recorded one has its name.
    PodReplaced,
    /// The pod was evicted.
    Evicted {
        /// What kubelet says.
        message: String,
    },
    /// The pod failed.
    Failed {
        /// What is known of it.
        message: String,
    },
    /// The game ended with success.
    Completed,
    /// The game's container was started again after the game had been Ready.
    Restarted,
    /// The game is on no network of this kernel.
    OutOfReach,
    /// The node booted while the server was on it.
    NodeRebooted,
    /// A pod that is not ours has the server's name.
    ForeignPod {
        /// Whose it is.
        owner: String,
    },
    /// The template makes no pod.
    InvalidTemplate {
        /// What is wrong.
        message: String,
    },
    /// A quota of the namespace forbids the pod.
    QuotaExceeded {
        /// What the API server says.
        message: String,
    },
    /// It stayed in a state for too long.
    TooLong {
        /// The state.
        state: State,
        /// How long it may take.
        allowed: Duration,
    },
    /// The game called Shutdown.
    ShutdownCalled,
    /// The session ended because its node does.
    NodeEnds {
        /// When the node will be gone.
        at: Timestamp,
    },
    /// Somebody deletes the server.
    Deleted,
}

impl Reason {
    /// A short fixed word for metrics and the annotation.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::PingsMissed { .. } => "PingsMissed",
            Self::PodMissing => "PodMissing",
            Self::PodDeleted => "PodDeleted",
            Self::PodReplaced => "PodReplaced",
            Self::Evicted { .. } => "Evicted",
            Self::Failed { .. } => "Failed",
            Self::Completed => "Completed",
            Self::Restarted => "Restarted",
            Self::OutOfReach => "OutOfReach",
            Self::NodeRebooted => "NodeRebooted",
            Self::ForeignPod { .. } => "ForeignPod",
            Self::InvalidTemplate { .. } => "InvalidTemplate",
            Self::QuotaExceeded { .. } => "QuotaExceeded",
            Self::TooLong { .. } => "TooLong",
            Self::ShutdownCalled => "ShutdownCalled",
            Self::NodeEnds { .. } => "NodeEnds",
            Self::Deleted => "Deleted",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PingsMissed { missed } => write!(formatter, "{missed} health pings in a row were missed"),
            Self::PodMissing => formatter.write_str("the pod is gone"),
            Self::PodDeleted => formatter.write_str("the pod is being deleted"),
            Self::PodReplaced => formatter.write_str("the recorded pod does not exist any more"),
            Self::Evicted { message } => write!(formatter, "the pod was evicted: {message}"),
            Self::Failed { message } => formatter.write_str(message),
            Self::Completed => formatter.write_str("the game ended with exit code 0"),
            Self::Restarted => formatter.write_str("the game was restarted after it had been Ready"),
            Self::OutOfReach => formatter.write_str(
                "no process of the game is on a network of this node's kernel; its runtime has a network stack of its \
                 own, and the SDK cannot be reached from there",
            ),
            Self::NodeRebooted => formatter.write_str("the node was restarted"),
            Self::ForeignPod { owner } => {
                write!(formatter, "a pod of this name exists that belongs to {owner}")
            }
            Self::InvalidTemplate { message } => write!(formatter, "no pod can be made: {message}"),
            Self::QuotaExceeded { message } => write!(formatter, "no pod can be made: {message}"),
            Self::TooLong { state, allowed } => {
                write!(formatter, "it stayed in {state} for more than {} seconds", allowed.as_secs())
            }
            Self::ShutdownCalled => formatter.write_str("the game called Shutdown"),
            Self::NodeEnds { at } => write!(formatter, "the node will be gone at {at}"),
            Self::Deleted => formatter.write_str("the server is being deleted"),
        }
    }
}

/// What the local socket and the GameNode show of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// UID of the GameServer.
    pub uid: String,
    /// Its state.
    pub state: State,
    /// RFC 3339 time since when this agent has seen it in that state.
    pub since: String,
    /// Whether somebody has asked for its deletion.
    pub deleting: bool,
    /// The address that players use.
    pub address: String,
    /// Its ports.
    pub ports: Vec<StatusPort>,
    /// UID of its pod, where it has one.
    pub pod: Option<String>,
    /// Where its SDK stands.
    pub sdk: String,
    /// Why it is where it is, or what keeps it from going on.
    pub reason: Option<String>,
    /// Players, as far as the game counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub players: Option<Amount>,
    /// Its counters and lists, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub amounts: BTreeMap<String, Amount>,
    /// The states in which this agent has seen it, the present one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Moment>,
}

/// How much there is of something, of how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// How much there is.
    pub count: i64,
    /// How much there may be.
    pub capacity: i64,
}

/// A state, and since when this agent has seen it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// The state.
    pub state: State,
    /// RFC 3339 time.
    pub since: String,
}

/// The servers of this node as their workers see them. Clones show the same.
#[derive(Clone, Debug)]
pub struct Board {
    lines: Arc<watch::Sender<BTreeMap<ServerUid, Line>>>,
}

impl Default for Board {
    fn default() -> Self {
        Self { lines: Arc::new(watch::Sender::new(BTreeMap::new())) }
    }
}

impl Board {
    /// Shows a server; the same line twice is no change.
    pub fn show(&self, uid: &ServerUid, line: Line) {
        self.lines.send_if_modified(|lines| match lines.get(uid) {
            Some(known) if *known == line => false,
            Some(_) | None => {
                lines.insert(uid.clone(), line);
                true
            }
        });
    }

    /// Takes a server off.
    pub fn remove(&self, uid: &ServerUid) {
        self.lines.send_if_modified(|lines| lines.remove(uid).is_some());
    }

    /// The lines, and word of each change.
    pub fn lines(&self) -> watch::Receiver<BTreeMap<ServerUid, Line>> {
        self.lines.subscribe()
    }
}

/// Label of [`ServerMetrics::moves`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct MoveLabels {
    /// The state that was written.
    pub state: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// Label of [`ServerMetrics::failures`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailureLabels {
    /// What was tried.
    pub step: &'static str,
    /// What went wrong.
    pub category: &'static str,
}

/// Numbers about game servers.
#[derive(Clone, Debug, Default)]
pub struct ServerMetrics {
    /// Servers that have a worker.
    pub workers: Gauge,
    /// Workers that panicked and were started again.
    pub panics: Counter,
    /// States written.
    pub moves: Family<MoveLabels, Counter>,
    /// Steps that failed.
    pub failures: Family<FailureLabels, Counter>,
    /// Servers handed back.
    pub handed_back: Counter,
    /// Changes of games that were dropped.
    pub changes_dropped: Counter,
    /// Servers without a session deleted because their node was being emptied.
    pub withdrawn: Counter,
    /// Times such a server had been changed since it was looked at, as by an allocation.
    pub withdrawals_lost: Counter,
    /// Tolerations added to pods.
    pub tolerations: Counter,
    /// Sessions ended because their node ends.
    pub sessions_ended: Counter,
    /// Servers left alone because their namespace is not served.
    pub foreign_namespaces: Counter,
    /// Objects that could not be decoded.
    pub skipped: Skipped,
}

impl ServerMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        let new = Self::default();
        Self {
            workers: subsystem.register("workers", "Game servers that have a worker", new.workers),
            panics: subsystem.register(
                "worker_panics",
                "Workers that panicked and were started again",
                new.panics,
            ),
            moves: subsystem.register("moves", "States written, by state and reason", new.moves),
            failures: subsystem.register("step_failures", "Steps that failed", new.failures),
            handed_back: subsystem.register("handed_back", "Game servers handed back", new.handed_back),
            changes_dropped: subsystem.register(
                "changes_dropped",
                "Changes that games asked for and that were dropped",
                new.changes_dropped,
            ),
            withdrawn: subsystem.register(
                "withdrawn",
                "Game servers without a session deleted because their node is being emptied",
                new.withdrawn,
            ),
            withdrawals_lost: subsystem.register(
                "withdrawals_lost",
                "Times somebody, such as an allocation, had changed such a game server first",
                new.withdrawals_lost,
            ),
            tolerations: subsystem.register(
                "tolerations",
                "Pods that got a toleration, so that a draining node keeps them",
                new.tolerations,
            ),
            sessions_ended: subsystem.register(
                "sessions_ended",
                "Sessions ended because their node ends",
                new.sessions_ended,
            ),
            foreign_namespaces: subsystem.register(
                "foreign_namespaces",
                "Game servers left alone because their namespace is not served",
                new.foreign_namespaces,
            ),
            skipped: Skipped::register(subsystem),
        }
    }
}
