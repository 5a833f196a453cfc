//! Events: what an author sees of their game server in `kubectl describe`.
//!
//! They are built by one function each, in [`build`], and sent by a task of their own, so that a slow API server never
//! holds up a server. When too many wait, new ones are dropped and counted: an Event is news, not a record.

use berth_api::events::EventReason;
use berth_runtime::metrics::Subsystem;
use k8s_openapi::api::core::v1::Event;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;

use crate::identity::Identity;

pub mod build;
pub mod sender;

/// Events that may wait.
const WAITING: usize = 512;

/// Takes Events and never waits. Clones send to the same task.
#[derive(Clone, Debug)]
pub struct Recorder {
    events: mpsc::Sender<Event>,
    metrics: EventMetrics,
}

impl Recorder {
    /// A recorder, and where its task reads.
    pub fn new(metrics: EventMetrics) -> (Self, mpsc::Receiver<Event>) {
        let (events, waiting) = mpsc::channel(WAITING);
        (Self { events, metrics }, waiting)
    }

    /// Sends an Event, or drops it where too many wait.
    pub fn record(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.metrics.dropped.inc();
        }
    }
}

/// Records Events about this node's standing. Clones send to the same task.
#[derive(Clone, Debug)]
pub struct NodeRecorder {
    recorder: Recorder,
    identity: Identity,
}

impl NodeRecorder {
    /// A recorder of a node's Events.
    pub fn new(recorder: Recorder, identity: Identity) -> Self {
        Self { recorder, identity }
    }

    /// Sends an Event, or drops it where too many wait.
    pub fn record(&self, reason: EventReason, message: &str) {
        let now = berth_runtime::clock::now();
        let stamp = build::Stamp { node: &self.identity.node, now, number: rand::random() };
        self.recorder.record(build::node_standing(&self.identity, reason, message, stamp));
    }
}

/// Numbers about Events.
#[derive(Clone, Debug, Default)]
pub struct EventMetrics {
    /// Written.
    pub sent: Counter,
    /// Not written, because too many waited or the API server refused.
    pub dropped: Counter,
}

impl EventMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        let new = Self::default();
        Self {
            sent: subsystem.register("sent", "Events written", new.sent),
            dropped: subsystem.register(
                "dropped",
                "Events dropped, because too many waited or the API server refused",
                new.dropped,
            ),
        }
    }
}
