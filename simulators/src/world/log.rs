//! What happened, in order, never changed afterwards.

use jiff::Timestamp;
use serde::Serialize;

use super::words::{GroupName, InstanceId, ServerId};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum EventKind {
    GroupCreated,
    GroupChanged,
    GroupStatus,
    CeilingReached,
    Launched,
    InService,
    Status,
    TypeNotViable,
    Rebalance,
    SpotNotice,
    Maintenance,
    Sessions,
    HookWaits,
    HookExpired,
    Terminating,
    Terminated,
    SessionsLost,
    Registered,
    Claimed,
    ClaimExpired,
    Utilized,
    Unhealthy,
    Healed,
    Deregistered,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    pub(crate) seq: u64,
    pub(crate) time: Timestamp,
    pub(crate) kind: EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<GroupName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<InstanceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<ServerId>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

/// What an event is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) group: Option<GroupName>,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) server: Option<ServerId>,
}

/// All that happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventLog {
    events: Vec<Event>,
}

impl EventLog {
    pub(crate) fn add(&mut self, time: Timestamp, kind: EventKind, about: About, detail: impl Into<String>) {
        let About { group, instance, server } = about;
        let seq = self.events.len() as u64 + 1;
        self.events.push(Event { seq, time, kind, group, instance, server, detail: detail.into() });
    }

    /// What happened after the event with this number.
    pub(crate) fn since(&self, seq: u64) -> &[Event] {
        let start = usize::try_from(seq).unwrap_or(usize::MAX).min(self.events.len());
        &self.events[start..]
    }

    /// The last of what happened to an instance, the oldest first.
    pub(crate) fn chain(&self, instance: &InstanceId, most: usize) -> Vec<Event> {
        let mut chain = self
            .events
            .iter()
            .rev()
            .filter(|event| event.instance.as_ref() == Some(instance))
            .take(most)
            .cloned()
            .collect::<Vec<_>>();
        chain.reverse();
        chain
    }
}
