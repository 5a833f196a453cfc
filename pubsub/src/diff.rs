//! What to tell Redis now, given what is known and what it was told before. Pure.
//!
//! A changed status is published at once, an unchanged one once a heartbeat and never more often: readers of other makes
//! take one step a message. What is kept for late subscribers is written once a poll, before the message of the same
//! instance. Nothing is said or kept of what has not been seen for long: silence is what makes the agents look for
//! themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_api::notice::{
    InstanceMessage, InstanceStatus, PublisherState, RetainedGroup, RetainedInstance, group_key,
    instance_key, publisher_key,
};
use berth_runtime::clock::Instant;
use jiff::Timestamp;

use crate::limits::Survey;
use crate::picture::{GroupPicture, Picture, Seen};

/// How this publisher speaks.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Time between two messages that say the same.
    pub heartbeat: Duration,
    /// Who speaks.
    pub publisher: String,
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Keep this under a key for so long.
    Keep {
        /// The key.
        key: String,
        /// JSON.
        value: String,
        /// How long.
        life: Duration,
        /// What it is about.
        about: About,
    },
    /// Publish.
    Say {
        /// The channel.
        instance: String,
        /// The payload.
        message: String,
        /// What it says.
        status: InstanceStatus,
        /// It says something new.
        is_change: bool,
    },
    /// Remove a key.
    Forget {
        /// The key.
        key: String,
        /// What it was about.
        about: About,
    },
}

/// What a key is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// An instance, seen then.
    Instance(String, Instant),
    /// A group, or its publisher, after so many polls.
    Group(String, u64),
}

#[derive(Clone, Debug, Default)]
struct InstanceTold {
    /// When what was kept last had been seen.
    kept: Option<Instant>,
    /// What was said last, and when.
    said: Option<(InstanceStatus, Instant)>,
}

/// What Redis was told over this connection.
#[derive(Clone, Debug, Default)]
pub struct Told {
    instances: BTreeMap<String, InstanceTold>,
    groups: BTreeMap<String, u64>,
}

impl Told {
    /// Notes that this was done, at `now`.
    pub fn note(&mut self, operation: &Operation, now: Instant) {
        match operation {
            Operation::Keep { about: About::Instance(instance, seen), .. } => {
                self.instances.entry(instance.clone()).or_default().kept = Some(*seen);
            }
            Operation::Keep { about: About::Group(group, polls), .. } => {
                self.groups.insert(group.clone(), *polls);
            }
            Operation::Say { instance, status, .. } => {
                self.instances.entry(instance.clone()).or_default().said = Some((*status, now));
            }
            Operation::Forget { about: About::Instance(instance, _), .. } => {
                self.instances.remove(instance);
            }
            Operation::Forget { about: About::Group(group, _), .. } => {
                self.groups.remove(group);
            }
        }
    }
}

/// What to do now, and when there will be more to do though nothing changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub operations: Vec<Operation>,
    /// The next heartbeat.
    pub next: Option<Instant>,
}

/// What to tell now.
#[must_use]
pub fn plan(picture: &Picture, survey: &Survey, told: &Told, terms: &Terms, now: Instant) -> Plan {
    let mut plan = Plan { operations: Vec::new(), next: None };
    for (name, group) in &picture.0 {
        for (instance, seen) in &group.instances {
            let end = seen.at.instant + group.life();
            let life = end.saturating_duration_since(now);
            if life.is_zero() {
                continue;
            }
            let told = told.instances.get(instance).cloned().unwrap_or_default();
            if told.kept != Some(seen.at.instant) {
                plan.operations.push(keep_instance(name, instance, seen, life, survey, terms));
            }
            let due = match told.said {
                Some((status, at)) if status == seen.status => at + terms.heartbeat,
                Some(_) | None => now,
            };
            if due <= now {
                let message = message(name, instance, seen).to_wire();
                let is_change = told.said.is_none_or(|(status, _)| status != seen.status);
                let instance = instance.clone();
                plan.operations.push(Operation::Say { instance, message, status: seen.status, is_change });
            }
            let next = if due <= now { now + terms.heartbeat } else { due };
            if next < end {
                plan.next = Some(plan.next.map_or(next, |earlier| earlier.min(next)));
            }
        }
        if told.groups.get(name) != Some(&group.polls) {
            plan.operations.extend(keep_group(name, group, survey, now));
        }
    }
    let is_known = |instance: &String| picture.0.values().any(|group| group.instances.contains_key(instance));
    for (instance, told) in told.instances.iter().filter(|(instance, _)| !is_known(instance)) {
        let about = About::Instance(instance.clone(), told.kept.unwrap_or(now));
        plan.operations.push(Operation::Forget { key: instance_key(instance), about });
    }
    for (group, polls) in told.groups.iter().filter(|(group, _)| !picture.0.contains_key(*group)) {
        for key in [group_key(group), publisher_key(group)] {
            plan.operations.push(Operation::Forget { key, about: About::Group(group.clone(), *polls) });
        }
    }
    plan
}

fn message(group: &str, instance: &str, seen: &Seen) -> InstanceMessage {
    InstanceMessage {
        game_server_group_name: group.to_owned(),
        game_server_group_arn: seen.group_arn.clone(),
        instance_id: instance.to_owned(),
        instance_status: seen.status,
    }
}

fn keep_instance(
    name: &str,
    instance: &str,
    seen: &Seen,
    life: Duration,
    survey: &Survey,
    terms: &Terms,
) -> Operation {
    let kept = RetainedInstance {
        message: message(name, instance, seen),
        observed_at: rfc3339(seen.at.wall),
        changed_at: rfc3339(seen.changed),
        publisher: terms.publisher.clone(),
        protected_from_scale_in: survey.protected.get(instance).copied(),
    };
    Operation::Keep {
        key: instance_key(instance),
        value: json(&kept),
        life,
        about: About::Instance(instance.to_owned(), seen.at.instant),
    }
}

/// The group itself is written only where all of it was read: counts of some pages would mislead.
fn keep_group(name: &str, group: &GroupPicture, survey: &Survey, now: Instant) -> Vec<Operation> {
    let about = || About::Group(name.to_owned(), group.polls);
    let state = PublisherState {
        last_success: group.complete.map(|moment| rfc3339(moment.wall)),
        last_error: group.error.clone(),
        consecutive_errors: u64::from(group.failures),
    };
    let (key, life) = (publisher_key(name), group.period * 2);
    let mut operations = vec![Operation::Keep { key, value: json(&state), life, about: about() }];
    let complete =
        group.complete.filter(|complete| group.failures == 0 && now < complete.instant + group.life());
    if let Some(complete) = complete {
        let facts = survey.groups.get(name).cloned().unwrap_or_default();
        let kept = RetainedGroup {
            instance_count: u64::try_from(group.instances.len()).unwrap_or(u64::MAX),
            active: group.count(InstanceStatus::Active),
            draining: group.count(InstanceStatus::Draining),
            spot_terminating: group.count(InstanceStatus::SpotTerminating),
            polled_at: rfc3339(complete.wall),
            protection_policy: facts.protection_policy,
            balancing_strategy: facts.balancing_strategy,
            group_status: facts.group_status,
        };
        let life = (complete.instant + group.life()).saturating_duration_since(now);
        let key = group_key(name);
        operations.push(Operation::Keep { key, value: json(&kept), life, about: about() });
    }
    operations
}

/// With milliseconds, as readers of the retained state expect it.
fn rfc3339(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// Members of these types are texts, numbers and truths, which JSON always has a form for.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
#[path = "diff/tests.rs"]
mod tests;
