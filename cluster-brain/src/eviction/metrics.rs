//! What can be counted about budgets.

use berth_runtime::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;

/// Metrics of budgets.
#[derive(Clone, Debug)]
pub(crate) struct EvictionMetrics {
    pub(super) created: Counter,
    pub(super) repaired: Counter,
    pub(super) failed_turns: Counter,
}

impl EvictionMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut eviction = metrics.subsystem("eviction");
        Self {
            created: eviction.register("budgets_created", "Disruption budgets created", Counter::default()),
            repaired: eviction.register(
                "budgets_repaired",
                "Disruption budgets put right after somebody changed them",
                Counter::default(),
            ),
            failed_turns: eviction.register("failed_turns", "Turns that failed", Counter::default()),
        }
    }
}
