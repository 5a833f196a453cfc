//! Numbers about the instance's metadata.

use berth_runtime::metrics::Subsystem;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CodeLabels {
    /// A fixed word.
    pub code: &'static str,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SourceLabels {
    /// A fixed word.
    pub source: &'static str,
}

/// The numbers; see the fields.
#[derive(Clone, Debug, Default)]
pub struct MetadataMetrics {
    /// Reads that were answered.
    pub reads: Counter,
    /// Reads that failed.
    pub errors: Family<CodeLabels, Counter>,
    /// Notices that were raised or changed.
    pub notices: Family<SourceLabels, Counter>,
    /// Unix time of the last read that was answered.
    pub last_success: Gauge,
}

impl MetadataMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        let new = Self::default();
        Self {
            reads: subsystem.register(
                "reads",
                "Reads of the instance's metadata that were answered",
                new.reads,
            ),
            errors: subsystem.register("errors", "Reads of the instance's metadata that failed", new.errors),
            notices: subsystem.register("notices", "Notices that the instance's metadata gave", new.notices),
            last_success: subsystem.register(
                "last_success_timestamp_seconds",
                "When the instance's metadata last answered, in Unix time",
                new.last_success,
            ),
        }
    }

    /// Counts a read that failed.
    pub fn failed(&self, code: &'static str) {
        self.errors.get_or_create(&CodeLabels { code }).inc();
    }
}
