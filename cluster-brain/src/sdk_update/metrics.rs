//! What can be counted about the update of `berth-sdk`.

use berth_runtime::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of the update.
#[derive(Clone, Debug)]
pub(crate) struct SdkUpdateMetrics {
    pub(super) replaced: Counter,
    pub(super) failed: Counter,
    pub(super) due: Gauge,
}

impl SdkUpdateMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut update = metrics.subsystem("sdk_update");
        Self {
            replaced: update.register(
                "pods_replaced",
                "Pods of berth-sdk deleted on empty nodes, being of an older revision",
                Counter::default(),
            ),
            failed: update.register("failures", "Deletions that failed", Counter::default()),
            due: update.register("pods_due", "Pods of berth-sdk of an older revision", Gauge::default()),
        }
    }
}
