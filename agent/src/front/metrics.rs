//! What the link is counted by.

use berth_runtime::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Counters of the front; see the fields.
#[derive(Clone, Debug)]
pub struct FrontMetrics {
    /// 1 while `berth-sdk` is connected and has handed back what it holds (`berth_front_connected`).
    pub connected: Gauge,
    /// Unix seconds of the last time it did so (`berth_front_last_connected_timestamp_seconds`).
    pub last_connected: Gauge,
    /// Connections by how they ended, those refused at the door included (`berth_front_disconnects_total`).
    pub disconnects: Family<ReasonLabels, Counter>,
    /// Frames received by kind (`berth_front_frames_received_total`).
    pub frames_received: Family<FrameLabels, Counter>,
    /// Frames sent by kind (`berth_front_frames_sent_total`).
    pub frames_sent: Family<FrameLabels, Counter>,
    /// Frames that could not be written, and were left out (`berth_front_frames_unsendable_total`).
    pub frames_unsendable: Counter,
    /// Servers that are served (`berth_front_servers`).
    pub servers: Gauge,
    /// Listeners that are held (`berth_front_listeners`).
    pub listeners: Gauge,
    /// Sockets handed back that were not listeners, and were closed (`berth_front_sockets_refused_total`).
    pub sockets_refused: Counter,
    /// Events that wait for the core beyond what the channel holds (`berth_front_events_waiting`).
    pub events_waiting: Gauge,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    /// A fixed word.
    pub reason: &'static str,
}

/// Which frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FrameLabels {
    /// A fixed word.
    pub frame: &'static str,
}

impl FrontMetrics {
    /// Registers them.
    #[must_use]
    pub fn register(metrics: &mut Metrics) -> Self {
        let mut front = metrics.subsystem("front");
        Self {
            connected: front.register(
                "connected",
                "Whether berth-sdk is connected and has handed back what it holds",
                Gauge::default(),
            ),
            last_connected: front.register(
                "last_connected_timestamp_seconds",
                "When berth-sdk last connected",
                Gauge::default(),
            ),
            disconnects: front.register(
                "disconnects",
                "Connections of berth-sdk, by how they ended",
                Family::default(),
            ),
            frames_received: front.register(
                "frames_received",
                "Frames received from berth-sdk, by kind",
                Family::default(),
            ),
            frames_sent: front.register(
                "frames_sent",
                "Frames sent to berth-sdk, by kind",
                Family::default(),
            ),
            frames_unsendable: front.register(
                "frames_unsendable",
                "Frames that could not be written and were left out",
                Counter::default(),
            ),
            servers: front.register("servers", "Game servers that are served", Gauge::default()),
            listeners: front.register("listeners", "Listeners that are held", Gauge::default()),
            sockets_refused: front.register(
                "sockets_refused",
                "Sockets handed back that were not listeners",
                Counter::default(),
            ),
            events_waiting: front.register(
                "events_waiting",
                "Events that wait for the agent's core beyond what the channel holds",
                Gauge::default(),
            ),
        }
    }

    pub(super) fn disconnected(&self, reason: &'static str) {
        self.disconnects.get_or_create(&ReasonLabels { reason }).inc();
    }
}
