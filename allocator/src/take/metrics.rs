//! What can be counted about taking.

use berth_runtime::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;

/// Metrics of taking.
#[derive(Clone, Debug)]
pub struct TakeMetrics {
    pub(super) writes: Counter,
    pub(super) allocated: Counter,
    pub(super) lost: Counter,
    pub(super) failed: Counter,
}

impl TakeMetrics {
    /// Registers them.
    pub fn register(metrics: &mut Metrics) -> Self {
        let mut taking = metrics.subsystem("allocator");
        Self {
            writes: taking.register("writes", "Writes of game servers that were tried", Counter::default()),
            allocated: taking.register("allocated", "Requests that got a game server", Counter::default()),
            lost: taking.register(
                "lost_races",
                "Writes that failed because somebody else had changed the game server",
                Counter::default(),
            ),
            failed: taking.register(
                "failed_writes",
                "Writes that the API server refused or did not answer",
                Counter::default(),
            ),
        }
    }
}
