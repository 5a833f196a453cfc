//! What can be counted about leading.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::Metrics;

/// Metrics of the leader lease.
#[derive(Clone, Debug)]
pub struct LeaderMetrics {
    pub(super) leading: Gauge,
    pub(super) terms: Counter,
    pub(super) renewal_failures: Counter,
    pub(super) last_renewal: Gauge,
}

impl LeaderMetrics {
    /// Registers them.
    #[must_use]
    pub fn register(metrics: &mut Metrics) -> Self {
        let mut leader = metrics.subsystem("leader");
        Self {
            leading: leader.register(
                "leading",
                "1 while this process acts, 0 while another does",
                Gauge::default(),
            ),
            terms: leader.register("terms", "Times this process began to act", Counter::default()),
            renewal_failures: leader.register(
                "renewal_failures",
                "Reads and writes of the leader lease that failed",
                Counter::default(),
            ),
            last_renewal: leader.register(
                "last_renewal_timestamp_seconds",
                "Unix time of the last renewal of the leader lease",
                Gauge::default(),
            ),
        }
    }
}
