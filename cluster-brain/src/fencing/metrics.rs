//! What can be counted about fencing.

use berth_runtime::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of fencing.
#[derive(Clone, Debug)]
pub(crate) struct FencingMetrics {
    pub(super) lapsed: Gauge,
    pub(super) held: Gauge,
    pub(crate) taken_back: Counter,
    pub(crate) lost: Counter,
    pub(crate) failed: Counter,
    pub(crate) pods_removed: Counter,
}

impl FencingMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut fencing = metrics.subsystem("fencing");
        Self {
            lapsed: fencing.register("nodes_lapsed", "Nodes for which nobody acts", Gauge::default()),
            held: fencing.register(
                "nodes_held",
                "Nodes silent together with so many others that nothing is taken back",
                Gauge::default(),
            ),
            taken_back: fencing.register(
                "servers_taken_back",
                "GameServers that never started, taken from a silent node",
                Counter::default(),
            ),
            lost: fencing.register(
                "servers_lost",
                "GameServers without a session on a silent node, replaced",
                Counter::default(),
            ),
            failed: fencing.register(
                "servers_failed",
                "GameServers that ended with their node",
                Counter::default(),
            ),
            pods_removed: fencing.register(
                "pods_removed",
                "Pods removed for a node that cannot do it",
                Counter::default(),
            ),
        }
    }
}
