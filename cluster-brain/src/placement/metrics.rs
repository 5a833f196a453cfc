//! What can be counted about placing.

use berth_runtime::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of placing.
#[derive(Clone, Debug)]
pub(crate) struct PlacementMetrics {
    pub(super) placed: Counter,
    pub(super) adopted: Counter,
    pub(super) refused: Counter,
    pub(super) asked: Counter,
    pub(super) given_up: Counter,
    pub(super) let_go: Counter,
    pub(super) failed_turns: Counter,
    pub(super) waiting: Gauge,
    pub(super) last_turn: Gauge,
}

impl PlacementMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut placement = metrics.subsystem("placement");
        Self {
            placed: placement.register("placed", "Waiting GameServers handed to a node", Counter::default()),
            adopted: placement.register(
                "adopted",
                "Directly created GameServers taken on",
                Counter::default(),
            ),
            refused: placement.register(
                "no_room",
                "Times that no node fitted a GameServer",
                Counter::default(),
            ),
            asked: placement.register(
                "placeholders_made",
                "Pods made to ask for room in the name of a GameServer",
                Counter::default(),
            ),
            given_up: placement.register(
                "given_up",
                "GameServers replaced or failed because nodes handed them back",
                Counter::default(),
            ),
            let_go: placement.register(
                "let_go",
                "GameServers deleted or let go by the brain, having no agent",
                Counter::default(),
            ),
            failed_turns: placement.register("failed_turns", "Turns that failed", Counter::default()),
            waiting: placement.register("waiting", "GameServers that wait for a node", Gauge::default()),
            last_turn: placement.register(
                "last_turn_timestamp_seconds",
                "Unix time of the last turn that succeeded",
                Gauge::default(),
            ),
        }
    }
}
