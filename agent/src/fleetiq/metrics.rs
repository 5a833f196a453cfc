//! Numbers about the standing with FleetIQ, and about who tells of the instance's status.

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

/// What a message was worth.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WorthLabels {
    /// A fixed word.
    pub worth: &'static str,
}

/// The numbers; see the fields.
#[derive(Clone, Debug, Default)]
pub struct FleetMetrics {
    /// Calls, by what came of them.
    pub calls: Family<CallLabels, Counter>,
    /// Whether FleetIQ keeps the instance: 1 or 0.
    pub protected: Gauge,
    /// Whether servers are kept from being offered: 1 or 0.
    pub offers_withheld: Gauge,
    /// Unix time of the last sign of life that was taken.
    pub last_beat: Gauge,
    /// Registrations after one was lost.
    pub reregistered: Counter,
    /// Whether the instance was given back and FleetIQ keeps calling it viable: 1 or 0.
    pub drained_but_active: Gauge,
    /// Unix time of the last word on the instance's status.
    pub last_status: Gauge,
    /// Observations of the status, by what they were worth.
    pub observations: Family<WorthLabels, Counter>,
    /// Whether the channel is listened to: 1 or 0.
    pub redis_connected: Gauge,
    /// Subscriptions that were made.
    pub redis_subscriptions: Counter,
    /// Connections that failed or broke.
    pub redis_failures: Counter,
}

impl FleetMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        let new = Self::default();
        Self {
            calls: subsystem.register("calls", "Calls to FleetIQ", new.calls),
            protected: subsystem.register("protected", "Whether FleetIQ keeps the instance", new.protected),
            offers_withheld: subsystem.register(
                "offers_withheld",
                "Whether servers are not offered because of FleetIQ",
                new.offers_withheld,
            ),
            last_beat: subsystem.register(
                "last_beat_timestamp_seconds",
                "When FleetIQ last took a sign of life, in Unix time",
                new.last_beat,
            ),
            reregistered: subsystem.register(
                "reregistered",
                "Registrations after FleetIQ had lost the instance",
                new.reregistered,
            ),
            drained_but_active: subsystem.register(
                "drained_but_active",
                "Whether the instance was given back, and FleetIQ keeps calling it viable",
                new.drained_but_active,
            ),
            last_status: subsystem.register(
                "last_status_timestamp_seconds",
                "When the instance's status was last heard of, in Unix time",
                new.last_status,
            ),
            observations: subsystem.register(
                "observations",
                "Observations of the instance's status, by what they were worth",
                new.observations,
            ),
            redis_connected: subsystem.register(
                "redis_connected",
                "Whether the instance's channel on Redis is listened to",
                new.redis_connected,
            ),
            redis_subscriptions: subsystem.register(
                "redis_subscriptions",
                "Times the instance's channel on Redis was subscribed to",
                new.redis_subscriptions,
            ),
            redis_failures: subsystem.register(
                "redis_failures",
                "Connections to Redis that failed or broke",
                new.redis_failures,
            ),
        }
    }

    /// Counts a call.
    pub fn called(&self, answer: &Answer) {
        let (call, failure) = answer.outcome();
        let code = failure.map_or("ok", |failure| failure.word());
        self.calls.get_or_create(&CallLabels { operation: call.operation(), code }).inc();
    }
}
