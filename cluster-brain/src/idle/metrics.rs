//! What can be counted about nodes that nobody needs.

use berth_runtime::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of idle nodes.
#[derive(Clone, Debug)]
pub(crate) struct IdleMetrics {
    pub(super) asking: Gauge,
    pub(super) spare: Gauge,
    pub(super) released: Counter,
    pub(super) recalled: Counter,
    pub(super) failed: Counter,
}

impl IdleMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut idle = metrics.subsystem("idle");
        Self {
            asking: idle.register("nodes_asking", "Nodes that ask whether they are needed", Gauge::default()),
            spare: idle.register("nodes_spare", "Nodes that are told that they are not", Gauge::default()),
            released: idle.register(
                "released",
                "Times a node was told that it is not needed",
                Counter::default(),
            ),
            recalled: idle.register("recalled", "Times that was taken back", Counter::default()),
            failed: idle.register("failures", "Writes of it that failed", Counter::default()),
        }
    }
}
