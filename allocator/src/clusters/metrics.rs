//! What can be counted about other clusters.

use berth_runtime::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allocated,
    Nothing,
    Refused,
    Silent,
    /// It was not made, since the endpoint has not answered lately.
    Skipped,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Nothing => "nothing",
            Self::Refused => "refused",
            Self::Silent => "silent",
            Self::Skipped => "skipped",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// Metrics of asking other clusters.
#[derive(Clone, Debug)]
pub struct ClusterMetrics {
    calls: Family<Labels, Counter>,
}

impl ClusterMetrics {
    /// Registers them.
    pub fn register(metrics: &mut Metrics) -> Self {
        let mut clusters = metrics.subsystem("allocator_clusters");
        Self {
            calls: clusters.register(
                "calls",
                "Calls to allocator services of other clusters, by what came of them",
                Family::default(),
            ),
        }
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.calls.get_or_create(&Labels { outcome: outcome.as_str() }).inc();
    }
}
