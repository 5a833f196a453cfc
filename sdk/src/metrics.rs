//! What is counted, registered by `app.rs` under the subsystem `sdk`. Label values come from closed sets.

use berth_runtime::metrics::Subsystem;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Everything this program counts.
#[derive(Clone, Debug)]
pub(crate) struct SdkMetrics {
    pub(crate) seats: SeatMetrics,
    pub(crate) serve: ServeMetrics,
    pub(crate) link: LinkMetrics,
    pub(crate) journal: JournalMetrics,
}

/// What is counted about game servers.
#[derive(Clone, Debug)]
pub(crate) struct SeatMetrics {
    pub(crate) servers: Gauge,
    pub(crate) pings: Counter,
    unconfirmed: Gauge,
}

/// What is counted about calls.
#[derive(Clone, Debug)]
pub(crate) struct ServeMetrics {
    calls: Family<CallLabels, Counter>,
    connections: Family<TransportLabels, Gauge>,
    refused: Family<TransportLabels, Counter>,
}

/// What is counted about the agent's socket.
#[derive(Clone, Debug)]
pub(crate) struct LinkMetrics {
    pub(crate) connected: Gauge,
    pub(crate) connections: Counter,
    pub(crate) failures: Family<FailureLabels, Counter>,
}

/// What is counted about the journal.
#[derive(Clone, Debug)]
pub(crate) struct JournalMetrics {
    pub(crate) writable: Gauge,
    pub(crate) commits: Counter,
    pub(crate) changes: Counter,
    pub(crate) bytes: Gauge,
    pub(crate) failures: Family<FailureLabels, Counter>,
    pub(crate) set_aside: Counter,
}

/// What a game speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Transport {
    Grpc,
    Rest,
}

/// What a game calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Call {
    Ready,
    Allocate,
    Shutdown,
    Health,
    GetGameServer,
    WatchGameServer,
    SetLabel,
    SetAnnotation,
    Reserve,
    GetCounter,
    UpdateCounter,
    GetList,
    UpdateList,
    AddListValue,
    RemoveListValue,
    PlayerConnect,
    PlayerDisconnect,
    SetPlayerCapacity,
    GetPlayerCapacity,
    GetPlayerCount,
    IsPlayerConnected,
    GetConnectedPlayers,
    /// A path or method that is none of these.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Code(tonic::Code);

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        use std::fmt::Write as _;
        write!(encoder, "{:?}", self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    transport: Transport,
    call: Call,
    code: Code,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransportLabels {
    transport: Transport,
}

/// Why a connection to the agent ended, or the journal could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FailureLabels {
    pub(crate) reason: &'static str,
}

impl SdkMetrics {
    pub(crate) fn register(subsystem: &mut Subsystem<'_>) -> Self {
        Self {
            seats: SeatMetrics {
                servers: subsystem.register("servers", "Game servers that are served", Gauge::default()),
                pings: subsystem.register("pings", "Health pings", Counter::default()),
                unconfirmed: subsystem.register(
                    "outbox_changes",
                    "Changes that were answered and that the agent has not confirmed",
                    Gauge::default(),
                ),
            },
            serve: ServeMetrics {
                calls: subsystem.register("calls", "Calls that ended", Family::default()),
                connections: subsystem.register("connections", "Open connections", Family::default()),
                refused: subsystem.register(
                    "connections_refused",
                    "Connections closed at once, because a server had too many",
                    Family::default(),
                ),
            },
            link: LinkMetrics {
                connected: subsystem.register(
                    "link_connected",
                    "1 while the agent is there",
                    Gauge::default(),
                ),
                connections: subsystem.register(
                    "link_connections",
                    "Connections made to the agent",
                    Counter::default(),
                ),
                failures: subsystem.register(
                    "link_failures",
                    "Connections to the agent that ended or could not be made",
                    Family::default(),
                ),
            },
            journal: JournalMetrics::register(subsystem),
        }
    }
}

impl JournalMetrics {
    fn register(subsystem: &mut Subsystem<'_>) -> Self {
        Self {
            writable: subsystem.register(
                "journal_writable",
                "1 while changes can be written down",
                Gauge::default(),
            ),
            commits: subsystem.register(
                "journal_commits",
                "Commits, each of which waits for the disk once",
                Counter::default(),
            ),
            changes: subsystem.register(
                "journal_changes",
                "Changes that were written down",
                Counter::default(),
            ),
            bytes: subsystem.register(
                "journal_bytes",
                "Bytes of the changes that are in the journal",
                Gauge::default(),
            ),
            failures: subsystem.register(
                "journal_failures",
                "Times that the journal could not be opened, read or written",
                Family::default(),
            ),
            set_aside: subsystem.register(
                "journal_set_aside",
                "Journals that could not be relied on and were set aside",
                Counter::default(),
            ),
        }
    }
}

impl SeatMetrics {
    /// The number of one server's unconfirmed changes went from `before` to `after`.
    pub(crate) fn count_changes(&self, before: usize, after: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        if before != after {
            self.unconfirmed.inc_by(number(after) - number(before));
        }
    }
}

impl ServeMetrics {
    /// A call ended.
    pub(crate) fn ended(&self, transport: Transport, call: Call, code: tonic::Code) {
        self.calls.get_or_create(&CallLabels { transport, call, code: Code(code) }).inc();
    }

    /// A connection was accepted; it counts as open until the value is dropped.
    pub(crate) fn opened(&self, transport: Transport) -> OpenConnection {
        let gauge = self.connections.get_or_create(&TransportLabels { transport }).clone();
        gauge.inc();
        OpenConnection { gauge }
    }

    /// A connection was closed at once.
    pub(crate) fn refused(&self, transport: Transport) {
        self.refused.get_or_create(&TransportLabels { transport }).inc();
    }
}

/// Counts a connection while it lives.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    gauge: Gauge,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
