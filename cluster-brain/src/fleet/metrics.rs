//! What can be counted about Fleets.

use berth_runtime::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of Fleets.
#[derive(Clone, Debug)]
pub(crate) struct FleetMetrics {
    pub(super) sets_created: Counter,
    pub(super) sets_scaled: Counter,
    pub(super) sets_deleted: Counter,
    pub(super) bad_steps: Counter,
    pub(super) failed_turns: Counter,
    pub(super) last_turn: Gauge,
}

impl FleetMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut fleets = metrics.subsystem("fleets");
        Self {
            sets_created: fleets.register("sets_created", "GameServerSets created", Counter::default()),
            sets_scaled: fleets.register(
                "sets_scaled",
                "GameServerSets given another number",
                Counter::default(),
            ),
            sets_deleted: fleets.register(
                "sets_deleted",
                "Empty old GameServerSets deleted",
                Counter::default(),
            ),
            bad_steps: fleets.register(
                "bad_steps",
                "Turns with a maxSurge or maxUnavailable that makes no sense",
                Counter::default(),
            ),
            failed_turns: fleets.register("failed_turns", "Turns that failed", Counter::default()),
            last_turn: fleets.register(
                "last_turn_timestamp_seconds",
                "Unix time of the last turn that succeeded",
                Gauge::default(),
            ),
        }
    }
}
