//! What can be counted about autoscaling.

use berth_api::fleet_autoscaler::PolicyKind;
use berth_runtime::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of autoscaling.
#[derive(Clone, Debug)]
pub(crate) struct AutoscalingMetrics {
    looks: Family<LookLabels, Counter>,
    scalings: Family<ScalingLabels, Counter>,
    pub(super) asked: Counter,
    pub(super) unanswered: Counter,
    pub(super) failed_turns: Counter,
    pub(super) last_turn: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookLabels {
    policy: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScalingLabels {
    direction: &'static str,
}

impl AutoscalingMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut autoscaling = metrics.subsystem("autoscaling");
        Self {
            looks: autoscaling.register(
                "looks",
                "Decisions of FleetAutoscalers, by the type of their policy and by what came of it",
                Family::default(),
            ),
            scalings: autoscaling.register(
                "scalings",
                "Fleets given another number, by direction",
                Family::default(),
            ),
            asked: autoscaling.register("webhook_calls", "Webhooks asked", Counter::default()),
            unanswered: autoscaling.register(
                "webhook_failures",
                "Webhooks that had no answer",
                Counter::default(),
            ),
            failed_turns: autoscaling.register(
                "failed_turns",
                "Turns that failed and are taken again",
                Counter::default(),
            ),
            last_turn: autoscaling.register(
                "last_turn_timestamp_seconds",
                "Unix time of the last turn that succeeded",
                Gauge::default(),
            ),
        }
    }

    pub(super) fn looked(&self, policy: PolicyKind, result: &'static str) {
        self.looks.get_or_create(&LookLabels { policy: policy.as_str(), result }).inc();
    }

    pub(super) fn scaled(&self, from: i32, to: i32) {
        let direction = if to > from { "up" } else { "down" };
        self.scalings.get_or_create(&ScalingLabels { direction }).inc();
    }
}
