//! FleetAutoscalers: every so often a policy says how many servers a Fleet shall have, and the Fleet is given that number.
//!
//! What a policy says is decided by pure functions over a snapshot of the Fleet and its servers; only a webhook is asked
//! while deciding. Nothing is written where nothing changes, and nothing is remembered between two looks: a brain that
//! takes over looks at every autoscaler at once.

mod amounts;
mod buffer;
mod ceiling;
#[cfg(test)]
mod examples;
mod metrics;
mod plan;
mod reconciler;
mod report;
mod review;
mod schedule;
mod webhook;

use std::fmt;

pub(crate) use ceiling::ceiling;
pub(crate) use metrics::AutoscalingMetrics;
pub(crate) use reconciler::AutoscalingReconciler;
pub(crate) use webhook::Asker;

use review::ReviewError;
use schedule::ScheduleError;
use webhook::AskError;

/// How many servers a Fleet shall have, and the limit that made it another number than the policy wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Desired {
    replicas: i32,
    limit: Option<Limit>,
}

impl Desired {
    /// What the policy wants.
    const fn free(replicas: i32) -> Self {
        Self { replicas, limit: None }
    }

    /// What a limit leaves of it.
    const fn limited(replicas: i32, limit: Limit) -> Self {
        Self { replicas, limit: Some(limit) }
    }
}

/// What may bite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    MinReplicas(i32),
    MaxReplicas(i32),
    MinCapacity(i64),
    MaxCapacity(i64),
    /// A share of nothing would be nothing.
    OneServer,
}

impl Limit {
    /// The word of the condition that tells of it.
    const fn as_str(self) -> &'static str {
        match self {
            Self::MinReplicas(_) => "MinReplicas",
            Self::MaxReplicas(_) => "MaxReplicas",
            Self::MinCapacity(_) => "MinCapacity",
            Self::MaxCapacity(_) => "MaxCapacity",
            Self::OneServer => "OneServer",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinReplicas(least) => write!(formatter, "minReplicas, {least}"),
            Self::MaxReplicas(most) => write!(formatter, "maxReplicas, {most}"),
            Self::MinCapacity(least) => write!(formatter, "minCapacity, {least}"),
            Self::MaxCapacity(most) => write!(formatter, "maxCapacity, {most}"),
            Self::OneServer => formatter.write_str("one server, since nothing is allocated"),
        }
    }
}

/// Why a policy has no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("the policy is of type {kind} and has no {field}")]
    NoObject { kind: &'static str, field: &'static str },
    #[error("bufferSize {0:?} is neither a number from 1 nor a percentage from 1% to 99%")]
    BadBuffer(String),
    #[error("the {place} of the Fleet has no {kind} of the name {key:?}")]
    NoSuchKey { place: &'static str, kind: &'static str, key: String },
    #[error("another server would bring no room: its {kind} {key:?} starts full")]
    NoGain { kind: &'static str, key: String },
    #[error("the schedule is not active now")]
    Inactive,
    #[error("the schedule makes no sense")]
    Schedule(#[from] ScheduleError),
    #[error("a schedule or a chain may not be within a schedule, nor a chain within a chain")]
    Nested,
    #[error("policies of type Wasm are not supported; a Webhook can do the same")]
    NotSupported,
    #[error("the webhook cannot be asked")]
    BadWebhook(#[from] ReviewError),
    #[error("the webhook has no answer")]
    Webhook(#[from] AskError),
    #[error("the chain is empty")]
    EmptyChain,
    #[error("no policy of the chain has an answer: {0}")]
    Chain(String),
}

impl NoAnswer {
    /// One word for the condition, and for metrics.
    const fn reason(&self) -> &'static str {
        match self {
            Self::NoObject { .. } | Self::BadBuffer(_) | Self::Schedule(_) | Self::Nested => "InvalidPolicy",
            Self::BadWebhook(_) => "InvalidPolicy",
            Self::NoSuchKey { .. } => "NoSuchKey",
            Self::NoGain { .. } => "NoGain",
            Self::Inactive => "ScheduleInactive",
            Self::NotSupported => "NotSupported",
            Self::Webhook(_) => "WebhookFailed",
            Self::EmptyChain | Self::Chain(_) => "ChainFailed",
        }
    }

    /// Whether another answer may come though nobody changes anything.
    const fn may_pass_soon(&self) -> bool {
        match self {
            Self::Webhook(_) | Self::Chain(_) => true,
            Self::NoObject { .. }
            | Self::BadBuffer(_)
            | Self::NoSuchKey { .. }
            | Self::NoGain { .. }
            | Self::Inactive
            | Self::Schedule(_)
            | Self::Nested
            | Self::NotSupported
            | Self::BadWebhook(_)
            | Self::EmptyChain => false,
        }
    }
}
