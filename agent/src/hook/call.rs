//! The calls that are made to Auto Scaling, and what their answers mean. Pure.

use std::time::Duration;

pub use crate::fleetiq::call::Failure;

/// A call, about the instance of this agent and the named hook alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Asks of which group the instance is.
    FindGroup,
    /// Asks how long the hook waits for a heartbeat.
    DescribeHook {
        /// The instance's group.
        group: String,
    },
    /// Has Auto Scaling wait on.
    Beat {
        /// The instance's group.
        group: String,
    },
    /// Has Auto Scaling go on.
    Complete {
        /// The instance's group.
        group: String,
    },
}

impl Call {
    /// What kind of call it is.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::FindGroup => Operation::FindGroup,
            Self::DescribeHook { .. } => Operation::DescribeHook,
            Self::Beat { .. } => Operation::Beat,
            Self::Complete { .. } => Operation::Complete,
        }
    }
}

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Call::FindGroup`].
    FindGroup,
    /// [`Call::DescribeHook`].
    DescribeHook,
    /// [`Call::Beat`].
    Beat,
    /// [`Call::Complete`].
    Complete,
}

impl Operation {
    /// Its name in AWS's API, which is also that of the permission.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FindGroup => "DescribeAutoScalingInstances",
            Self::DescribeHook => "DescribeLifecycleHooks",
            Self::Beat => "RecordLifecycleActionHeartbeat",
            Self::Complete => "CompleteLifecycleAction",
        }
    }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Call::FindGroup`]; none where the instance is of no group.
    FindGroup(Result<Option<String>, Failure>),
    /// Of [`Call::DescribeHook`]: for how long one heartbeat lasts; none where the group has no such hook for ends.
    DescribeHook(Result<Option<Duration>, Failure>),
    /// Of [`Call::Beat`].
    Beat(Result<(), Failure>),
    /// Of [`Call::Complete`].
    Complete(Result<(), Failure>),
}

impl Answer {
    /// The call, and why it brought nothing, if it did not.
    #[must_use]
    pub fn outcome(&self) -> (Operation, Option<Failure>) {
        match self {
            Self::FindGroup(answer) => (Operation::FindGroup, answer.as_ref().err().copied()),
            Self::DescribeHook(answer) => (Operation::DescribeHook, answer.as_ref().err().copied()),
            Self::Beat(answer) => (Operation::Beat, answer.err()),
            Self::Complete(answer) => (Operation::Complete, answer.err()),
        }
    }
}

/// What an operator may do about a call that fails so.
#[must_use]
pub const fn advice(failure: Failure) -> &'static str {
    match failure {
        // Auto Scaling says the same of a wrong name and of an action that is over; the machine tells them apart.
        Failure::NotFound | Failure::InvalidRequest | Failure::LimitExceeded => {
            "Auto Scaling does not take what is asked"
        }
        Failure::Denied
        | Failure::ClockSkew
        | Failure::Throttled
        | Failure::Unreachable
        | Failure::Conflict
        | Failure::OutOfCapacity
        | Failure::Server
        | Failure::Timeout
        | Failure::Other => failure.advice(),
    }
}
