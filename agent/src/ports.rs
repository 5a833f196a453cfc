//! Host ports of this node: who has which, and giving free ones out.
//!
//! The ledger is the truth among game servers and pods of this node; the host is asked as well, since processes that
//! are no pods hold ports too. What is reserved stays until it is released, once, when the pod is gone.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_api::game_node::PortCount;
use berth_api::game_server::{PortProtocol, PortSpec};
use berth_api::link::ServerUid;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use berth_runtime::metrics::Subsystem;

pub mod ledger;
pub mod loopback;
pub mod probe;

use ledger::Ledger;

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    min: u16,
    max: u16,
}

impl PortRange {
    /// The range, unless its first port is above its last or 0.
    pub fn new(min: u16, max: u16) -> Option<Self> {
        (min > 0 && min <= max).then_some(Self { min, max })
    }

    /// Whether a port lies in it.
    pub fn contains(self, port: u16) -> bool {
        (self.min..=self.max).contains(&port)
    }

    /// Whether two ranges share a port.
    pub fn overlaps(self, other: Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }

    /// How many ports it has.
    pub fn len(self) -> usize {
        usize::from(self.max - self.min) + 1
    }

    /// Never: a range has at least one port.
    pub fn is_empty(self) -> bool {
        false
    }

    /// Every port of it, beginning at the `start`-th and going round.
    pub fn round_from(self, start: usize) -> impl Iterator<Item = u16> {
        let start = start % self.len();
        (self.min..=self.max).skip(start).chain((self.min..=self.max).take(start))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.min, self.max)
    }
}

/// What one listener needs for itself: a number, for one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The number.
    pub port: u16,
    /// What is spoken; never both.
    pub protocol: PortProtocol,
}

impl fmt::Display for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.port, self.protocol.as_str())
    }
}

/// Who has a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tenant {
    /// A game server, by UID.
    Server(ServerUid),
    /// Another pod, by UID.
    Pod(String),
}

impl fmt::Display for Tenant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(uid) => write!(formatter, "game server {uid}"),
            Self::Pod(uid) => write!(formatter, "pod {uid}"),
        }
    }
}

/// Why a server gets no ports here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// Every port of a range is taken.
    #[error("no free port in range {name} ({range})")]
    Exhausted {
        /// Name of the range.
        name: String,
        /// The range.
        range: PortRange,
    },
    /// A port that its author chose belongs to somebody else.
    #[error("static port {slot} is taken by {tenant}")]
    Taken {
        /// The port.
        slot: Slot,
        /// Who has it.
        tenant: Tenant,
    },
    /// A port that its author chose is bound by a process that is no pod.
    #[error("static port {slot} is in use on the host")]
    InUse {
        /// The port.
        slot: Slot,
    },
    /// A server names one static port twice.
    #[error("static port {slot} is named twice")]
    Twice {
        /// The port.
        slot: Slot,
    },
}

impl ReserveError {
    /// A short fixed word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Exhausted { .. } => "exhausted",
            Self::Taken { .. } => "taken",
            Self::InUse { .. } => "in_use",
            Self::Twice { .. } => "twice",
        }
    }
}

/// Numbers about host ports.
#[derive(Clone, Debug, Default)]
pub struct PortMetrics {
    /// Reservations refused.
    pub refused: Counter,
    /// Ports skipped because a process on the host has them.
    pub foreign: Counter,
    /// Ports that no one has.
    pub free: Gauge,
}

impl PortMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        let new = Self::default();
        Self {
            refused: subsystem.register("refusals", "Servers that got no ports here", new.refused),
            foreign: subsystem.register(
                "foreign_listeners",
                "Ports skipped because a process on the host has them",
                new.foreign,
            ),
            free: subsystem.register("free_ports", "Host ports that no one has", new.free),
        }
    }
}

/// The ledger of this node, shared. Clones share it.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Guards the ledger; held for a look-up or an entry, never across a question to the host.
    ledger: Arc<Mutex<Ledger>>,
    counts: Arc<watch::Sender<std::collections::BTreeMap<String, PortCount>>>,
    metrics: PortMetrics,
}

impl Ports {
    /// Shares a ledger.
    pub fn new(ledger: Ledger, metrics: PortMetrics) -> Self {
        let counts = Arc::new(watch::Sender::new(ledger.counts()));
        let ports = Self { ledger: Arc::new(Mutex::new(ledger)), counts, metrics };
        ports.publish();
        ports
    }

    /// Ports in all and left, by range; changes are told.
    pub fn counts(&self) -> watch::Receiver<std::collections::BTreeMap<String, PortCount>> {
        self.counts.subscribe()
    }

    /// Enters what a tenant has already, whoever else has it.
    pub fn enter(&self, tenant: &Tenant, slots: impl IntoIterator<Item = Slot>) {
        self.lock().enter(tenant, slots);
        self.publish();
    }

    /// Gives back all that a tenant has. Nothing happens when it has nothing.
    pub fn release(&self, tenant: &Tenant) -> Vec<Slot> {
        let released = self.lock().release(tenant);
        self.publish();
        released
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // The ledger has no step in which it is half changed, so a panic elsewhere leaves it whole.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self) {
        let counts = self.lock().counts();
        self.metrics.free.set(counts.values().map(|count| count.free).sum());
        self.counts.send_if_modified(|known| {
            let changed = *known != counts;
            *known = counts;
            changed
        });
    }
}

/// The slots that ports with known host ports take.
pub fn slots_of(ports: &[PortSpec]) -> Vec<Slot> {
    ports
        .iter()
        .filter(|port| port.policy() != berth_api::game_server::PortPolicy::None)
        .filter_map(|port| Some((port.host_port.filter(|number| *number > 0)?, port.protocol())))
        .flat_map(|(port, protocol)| {
            protocols_of(protocol).iter().map(move |one| Slot { port, protocol: *one })
        })
        .collect()
}

/// The protocols that one word stands for.
pub fn protocols_of(protocol: PortProtocol) -> &'static [PortProtocol] {
    match protocol {
        PortProtocol::Udp => &[PortProtocol::Udp],
        PortProtocol::Tcp => &[PortProtocol::Tcp],
        PortProtocol::TcpUdp => &[PortProtocol::Tcp, PortProtocol::Udp],
    }
}
