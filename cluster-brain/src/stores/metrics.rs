//! What can be counted about the picture.

use berth_runtime::kube_client::Skipped;
use berth_runtime::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Kind;

/// Metrics of the picture and its watches.
#[derive(Clone, Debug)]
pub(crate) struct StoreMetrics {
    pub(super) skipped: Skipped,
    failures: Family<KindLabels, Counter>,
    lists: Family<KindLabels, Counter>,
    last_event: Family<KindLabels, Gauge>,
    pub(super) servers: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

impl StoreMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut stores = metrics.subsystem("brain_stores");
        Self {
            skipped: Skipped::register(&mut stores),
            failures: stores.register("watch_failures", "Errors of watches, by kind", Family::default()),
            lists: stores.register("lists", "Complete lists, by kind", Family::default()),
            last_event: stores.register(
                "last_event_timestamp_seconds",
                "Unix time of the last event of a watch, by kind",
                Family::default(),
            ),
            servers: stores.register("game_servers", "GameServers known", Gauge::default()),
        }
    }

    pub(super) fn failed(&self, kind: Kind) {
        self.failures.get_or_create(&KindLabels { kind: kind.as_str() }).inc();
    }

    pub(super) fn listed(&self, kind: Kind) {
        self.lists.get_or_create(&KindLabels { kind: kind.as_str() }).inc();
    }

    pub(super) fn event(&self, kind: Kind) {
        let now = berth_runtime::clock::now().as_second();
        self.last_event.get_or_create(&KindLabels { kind: kind.as_str() }).set(now);
    }
}
