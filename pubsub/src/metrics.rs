//! What can be counted about polling, publishing and looking for limits.

use std::sync::atomic::AtomicU64;

use berth_runtime::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::aws::{Operation, Outcome};
use crate::limits::Limit;

/// Metrics of this program.
#[derive(Clone, Debug)]
pub(crate) struct PubsubMetrics {
    calls: Family<CallLabels, Counter>,
    pub(crate) groups: Gauge,
    pub(crate) group_failures: Counter,
    pub(crate) refused_groups: Gauge,
    instances: Family<StatusLabels, Gauge>,
    pub(crate) unknown_statuses: Counter,
    pub(crate) longest_period: Gauge<f64, AtomicU64>,
    pub(crate) last_poll: Gauge,
    messages: Family<KindLabels, Counter>,
    pub(crate) keys_written: Counter,
    pub(crate) keys_removed: Counter,
    refusals: Family<WhatLabels, Counter>,
    pub(crate) redis_connected: Gauge,
    pub(crate) redis_connects: Counter,
    pub(crate) redis_failures: Counter,
    limits: Family<LimitLabels, Gauge>,
    pub(crate) last_survey: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhatLabels {
    what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// What Redis may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// To keep or remove a key.
    Key,
    /// To publish a message.
    Message,
}

impl PubsubMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut pubsub = metrics.subsystem("pubsub");
        Self {
            calls: pubsub.register(
                "aws_calls",
                "Calls of AWS, retries of one taken together",
                Family::default(),
            ),
            groups: pubsub.register("groups", "Game server groups that are looked at", Gauge::default()),
            group_failures: pubsub.register(
                "group_failures",
                "Times the list of groups could not be read; the one before stays",
                Counter::default(),
            ),
            refused_groups: pubsub.register(
                "refused_groups",
                "Entries of the list of groups that are no names",
                Gauge::default(),
            ),
            instances: pubsub.register(
                "instances",
                "Instances by what FleetIQ says of them",
                Family::default(),
            ),
            unknown_statuses: pubsub.register(
                "unknown_statuses",
                "Times an instance was listed without a status, or with one that nobody knows",
                Counter::default(),
            ),
            longest_period: pubsub.register(
                "longest_period_seconds",
                "Time between two polls of the group that is polled most seldom",
                Gauge::<f64, AtomicU64>::default(),
            ),
            last_poll: pubsub.register(
                "last_poll_timestamp_seconds",
                "Unix time of the last poll that read all pages of a group",
                Gauge::default(),
            ),
            messages: pubsub.register("messages", "Messages published", Family::default()),
            keys_written: pubsub.register("keys_written", "Keys written to Redis", Counter::default()),
            keys_removed: pubsub.register("keys_removed", "Keys removed from Redis", Counter::default()),
            refusals: pubsub.register("redis_refusals", "Commands that Redis refused", Family::default()),
            redis_connected: pubsub.register(
                "redis_connected",
                "1 while connected to Redis and logged in",
                Gauge::default(),
            ),
            redis_connects: pubsub.register(
                "redis_connects",
                "Connections made to Redis",
                Counter::default(),
            ),
            redis_failures: pubsub.register(
                "redis_failures",
                "Connections to Redis that could not be made, or broke",
                Counter::default(),
            ),
            limits: pubsub.register(
                "limits",
                "Groups, or the cluster, that a limit bites now",
                Family::default(),
            ),
            last_survey: pubsub.register(
                "last_survey_timestamp_seconds",
                "Unix time of the last look at all limits",
                Gauge::default(),
            ),
        }
    }

    pub(crate) fn note_call(&self, operation: Operation, outcome: Outcome) {
        let labels = CallLabels { operation: operation.as_str(), outcome: outcome.as_str() };
        self.calls.get_or_create(&labels).inc();
    }

    pub(crate) fn set_instances(&self, status: &'static str, count: u64) {
        self.instances.get_or_create(&StatusLabels { status }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn note_message(&self, is_change: bool) {
        let kind = if is_change { "change" } else { "heartbeat" };
        self.messages.get_or_create(&KindLabels { kind }).inc();
    }

    pub(crate) fn note_refusal(&self, refused: Refused) {
        let what = match refused {
            Refused::Key => "key",
            Refused::Message => "message",
        };
        self.refusals.get_or_create(&WhatLabels { what }).inc();
    }

    pub(crate) fn set_limit(&self, limit: Limit, count: usize) {
        let labels = LimitLabels { limit: limit.as_str() };
        self.limits.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
