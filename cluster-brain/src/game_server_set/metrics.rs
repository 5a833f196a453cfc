//! What can be counted about sets.

use berth_runtime::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of sets.
#[derive(Clone, Debug)]
pub(crate) struct SetMetrics {
    pub(super) created: Counter,
    pub(super) deleted: Counter,
    pub(super) repeated: Counter,
    pub(super) paused: Counter,
    pub(super) failed_turns: Counter,
    pub(super) queued: Gauge,
    pub(super) last_turn: Gauge,
}

impl SetMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut sets = metrics.subsystem("game_server_sets");
        Self {
            created: sets.register("servers_created", "GameServers created", Counter::default()),
            deleted: sets.register("servers_deleted", "GameServers marked for deletion", Counter::default()),
            repeated: sets.register(
                "repeated_creations",
                "Creations sent again under the same name, because no answer had come",
                Counter::default(),
            ),
            paused: sets.register(
                "paused_creations",
                "Turns that created nothing, because the servers before failed to start",
                Counter::default(),
            ),
            failed_turns: sets.register("failed_turns", "Turns that failed", Counter::default()),
            queued: sets.register("queued", "Sets that wait for a turn or have one", Gauge::default()),
            last_turn: sets.register(
                "last_turn_timestamp_seconds",
                "Unix time of the last turn that succeeded",
                Gauge::default(),
            ),
        }
    }
}
