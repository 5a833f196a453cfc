//! Numbers about the lifecycle hook.

use berth_runtime::metrics::Subsystem;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::call::Answer;

/// Which call, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    /// The operation of AWS's API.
    pub operation: &'static str,
    /// `ok`, or why not.
    pub code: &'static str,
}

/// The numbers; see the fields.
#[derive(Clone, Debug, Default)]
pub struct HookMetrics {
    /// Calls, by what came of them.
    pub calls: Family<CallLabels, Counter>,
    /// Whether Auto Scaling waits for the hook: 1 or 0.
    pub waits: Gauge,
    /// Unix time of the last heartbeat that was taken.
    pub last_beat: Gauge,
    /// Unix time at which Auto Scaling goes on without another.
    pub expires: Gauge,
}

impl HookMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        let new = Self::default();
        Self {
            calls: subsystem.register("calls", "Calls to Auto Scaling about the lifecycle hook", new.calls),
            waits: subsystem.register("waits", "Whether Auto Scaling waits for the hook", new.waits),
            last_beat: subsystem.register(
                "last_beat_timestamp_seconds",
                "When Auto Scaling last took a heartbeat of the hook, in Unix time",
                new.last_beat,
            ),
            expires: subsystem.register(
                "expires_timestamp_seconds",
                "When Auto Scaling goes on without another heartbeat, in Unix time",
                new.expires,
            ),
        }
    }

    /// Counts a call.
    pub fn called(&self, answer: &Answer) {
        let (operation, failure) = answer.outcome();
        let code = failure.map_or("ok", |failure| failure.word());
        self.calls.get_or_create(&CallLabels { operation: operation.name(), code }).inc();
    }
}
