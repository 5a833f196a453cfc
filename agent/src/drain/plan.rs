//! What a node's course is, and the next thing to do about its Node object. Pure and total.
//!
//! The order is what keeps sessions whole. First everybody hears of the course, so that offers stop; then the Node is
//! marked and closed; then every game pod tolerates the taint or is being deleted; then nothing happens for a while,
//! since whoever evicts for taints may not have seen a new toleration yet; only then comes the taint.

use std::time::Duration;

use berth_api::game_node::Protection;
use berth_api::names;
use jiff::{SignedDuration, Timestamp};

use super::Course;
use super::marks::{At, Marks, Phase};
use super::notice::{Notice, Severity, Source};
use crate::fleetiq::{Offers, Standing};
use crate::node::NodeFacts;

/// How long after the last new toleration the taint waits.
pub const SETTLE: Duration = Duration::from_secs(5);
/// Nothing waits when the node is gone sooner than this.
pub const IN_A_HURRY: Duration = Duration::from_secs(60);
/// How soon an instance is taken to end that EC2 interrupts, where nobody says when.
pub const SPOT_TIME: Duration = Duration::from_secs(50);

/// The pods of game servers on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Whether they are all known.
    pub are_known: bool,
    /// How many are left, those that are ending included.
    pub left: usize,
    /// Servers that live, those that have no pod yet included.
    pub servers: usize,
    /// One that the draining taint would evict.
    pub exposed_to_draining: Option<String>,
    /// One that the taint of protected nodes would evict.
    pub exposed_to_active: Option<String>,
    /// When a toleration was last new, of those on pods that stay.
    pub tolerated_at: Option<Timestamp>,
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The gravest notice.
    pub gravest: Option<&'a Notice>,
    /// The notices that must outlive the agent.
    pub kept: &'a [Notice],
    /// From when on servers without a session leave a node that is only closed.
    pub let_go_at: Timestamp,
    /// When the node counts as empty whoever is on it.
    pub given_up_at: Option<Timestamp>,
    /// The course so far.
    pub before: &'a Course,
    /// The Node.
    pub node: &'a NodeFacts,
    /// The standing with FleetIQ.
    pub standing: &'a Standing,
    /// The game servers' pods.
    pub pods: &'a Pods,
    /// When, and in which start of the machine.
    pub at: At<'a>,
}

/// A taint of ours, on the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OurTaint {
    /// Of a node that is being emptied.
    Draining,
    /// Of a node that FleetIQ keeps.
    Active,
    /// Of a node that is not yet protected.
    Unprotected,
}

impl OurTaint {
    /// Its key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Draining => names::DRAINING_TAINT,
            Self::Active => names::ACTIVE_TAINT,
            Self::Unprotected => names::UNPROTECTED_TAINT,
        }
    }

    /// Its effect.
    #[must_use]
    pub const fn effect(self) -> &'static str {
        match self {
            Self::Draining | Self::Active => "NoExecute",
            Self::Unprotected => "NoSchedule",
        }
    }
}

/// What to do next about the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something changes or this time comes.
    Wait(Option<Timestamp>),
    /// Write the marks.
    Mark(Marks),
    /// Close it, and note that it was we.
    Cordon,
    /// Open it, since it was we who closed it.
    Uncordon,
    /// Put a taint on.
    Taint(OurTaint),
    /// Take a taint off.
    Untaint(OurTaint),
}

/// The plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the node is for.
    pub course: Course,
    /// What the marks are to say.
    pub marks: Marks,
    /// The next step.
    pub step: Step,
    /// A taint that is due and would evict this pod.
    pub withheld: Option<(OurTaint, String)>,
}

/// When the node will be gone at the latest, where a notice does not say. Nobody knows for a drain that only waits for
/// its sessions; whoever hears of an end by Auto Scaling says so, since a hook may hold it up.
#[must_use]
pub fn assumed_deadline(severity: Severity, first_seen: Timestamp) -> Option<Timestamp> {
    match severity {
        Severity::Spot => Some(after(first_seen, SPOT_TIME)),
        Severity::AutoScaling
        | Severity::Advice
        | Severity::Surplus
        | Severity::Cordoned
        | Severity::Scheduled
        | Severity::Claimed
        | Severity::Ordered
        | Severity::Draining => None,
    }
}

/// Plans.
#[must_use]
pub fn plan(seen: Seen<'_>) -> Plan {
    let course = course(seen);
    let due = Marks::due(&course, seen.standing, seen.kept.to_vec(), &seen.node.marks, seen.at);
    let (mut step, withheld) = match &course {
        Course::Open | Course::Closed { .. } | Course::Spare { .. } => go_back(seen, &course, &due),
        Course::Draining { notice } | Course::Drained { notice } => go_on(seen, notice, &due),
    };
    if let Step::Wait(until) = step {
        let later = match &course {
            Course::Closed { let_go_at, .. } if seen.at.now < *let_go_at => Some(*let_go_at),
            Course::Draining { .. } => seen.given_up_at.filter(|at| seen.at.now < *at),
            Course::Open | Course::Closed { .. } | Course::Spare { .. } | Course::Drained { .. } => None,
        };
        step = Step::Wait(until.into_iter().chain(later).min());
    }
    Plan { course, marks: due, step, withheld }
}

fn course(seen: Seen<'_>) -> Course {
    let Some(notice) = seen.gravest.cloned() else { return Course::Open };
    let is_unused = seen.pods.are_known && seen.pods.left == 0 && seen.pods.servers == 0;
    match notice.severity {
        Severity::Advice => return Course::Open,
        Severity::Surplus => return Course::Spare { notice, is_empty: is_unused },
        Severity::Cordoned => return Course::Closed { notice, let_go_at: seen.let_go_at },
        Severity::Scheduled
        | Severity::Claimed
        | Severity::Ordered
        | Severity::Draining
        | Severity::AutoScaling
        | Severity::Spot => {}
    }
    let is_given_up = seen.given_up_at.is_some_and(|at| seen.at.now >= at);
    let is_prepared = seen.node.is_cordoned && seen.node.has_taint(OurTaint::Draining.key());
    let is_empty = seen.pods.are_known && seen.pods.left == 0 && is_prepared;
    // A phase only goes forward: what is empty stays so while the node is to go.
    let is_marked =
        seen.node.marks.phase.is_some_and(|phase| matches!(phase, Phase::Drained | Phase::Deregistered));
    let was_drained =
        matches!(seen.before, Course::Drained { .. }) || (is_marked && is_prepared && seen.pods.left == 0);
    if is_empty || is_given_up || was_drained {
        Course::Drained { notice }
    } else {
        Course::Draining { notice }
    }
}

/// A node that drains, or has drained.
fn go_on(seen: Seen<'_>, notice: &Notice, due: &Marks) -> Next {
    let node = seen.node;
    if node.marks != *due {
        return act(Step::Mark(due.clone()));
    }
    if !node.is_cordoned {
        return act(Step::Cordon);
    }
    if node.has_taint(OurTaint::Draining.key()) || !seen.pods.are_known {
        return act(Step::Wait(None));
    }
    if let Some(pod) = &seen.pods.exposed_to_draining {
        return withhold(OurTaint::Draining, pod);
    }
    let is_in_a_hurry = notice.deadline.is_some_and(|deadline| deadline < after(seen.at.now, IN_A_HURRY));
    match seen.pods.tolerated_at.map(|time| after(time, SETTLE)) {
        Some(settled) if seen.at.now < settled && !is_in_a_hurry => act(Step::Wait(Some(settled))),
        Some(_) | None => act(Step::Taint(OurTaint::Draining)),
    }
}

/// A node that does not drain, or does not any more: what a drain of ours has done is taken back, and nothing else. The
/// marks of that drain go last, so that whoever is interrupted goes on.
fn go_back(seen: Seen<'_>, course: &Course, due: &Marks) -> Next {
    let node = seen.node;
    let was_drain_of_ours = node.marks.phase.is_some_and(Phase::is_of_drain);
    if was_drain_of_ours && node.has_taint(OurTaint::Draining.key()) {
        return act(Step::Untaint(OurTaint::Draining));
    }
    // Who closes the node for a reason other than somebody's cordon has to do it himself.
    let closes = matches!(course, Course::Closed { notice, .. } if notice.source != Source::Cordon);
    if node.is_cordoned_by_agent && node.is_cordoned && !closes {
        return act(Step::Uncordon);
    }
    if closes && !node.is_cordoned {
        return act(Step::Cordon);
    }
    if node.marks != *due {
        return act(Step::Mark(due.clone()));
    }
    hold_taints(seen)
}

/// The taints of a node that stays.
fn hold_taints(seen: Seen<'_>) -> Next {
    let has = |taint: OurTaint| seen.node.has_taint(taint.key());
    match seen.standing.protection {
        Protection::NotConfigured => return act(Step::Wait(None)),
        Protection::Protected | Protection::Missing if !has(OurTaint::Active) && seen.pods.are_known => {
            match &seen.pods.exposed_to_active {
                Some(pod) => return withhold(OurTaint::Active, pod),
                None => return act(Step::Taint(OurTaint::Active)),
            }
        }
        Protection::Registered | Protection::Released if has(OurTaint::Active) => {
            return act(Step::Untaint(OurTaint::Active));
        }
        Protection::Unregistered
        | Protection::Registered
        | Protection::Protected
        | Protection::Missing
        | Protection::Released => {}
    }
    if seen.standing.offers == Offers::Allowed && has(OurTaint::Unprotected) {
        return act(Step::Untaint(OurTaint::Unprotected));
    }
    act(Step::Wait(None))
}

/// The next step, and a taint that is due and would evict a pod.
type Next = (Step, Option<(OurTaint, String)>);

fn act(step: Step) -> Next {
    (step, None)
}

fn withhold(taint: OurTaint, pod: &str) -> Next {
    (Step::Wait(None), Some((taint, pod.to_owned())))
}

/// When a session has to be asked to end so that its game has its grace, and when that is over for the node; at once
/// where the time is shorter than the grace. Answers also the grace that is left, in whole seconds.
#[must_use]
pub fn end_of_session(deadline: Timestamp, grace: Duration, now: Timestamp) -> (Timestamp, u32) {
    let last = deadline.saturating_sub(SignedDuration::from_secs(5)).unwrap_or(Timestamp::MIN);
    let left = Duration::try_from(last.duration_since(now)).unwrap_or_default();
    let given = grace.min(left).max(Duration::from_secs(1));
    let given = SignedDuration::try_from(given).unwrap_or(SignedDuration::MAX);
    let at = last.saturating_sub(given).unwrap_or(Timestamp::MIN);
    (at, u32::try_from(given.as_secs()).unwrap_or(u32::MAX))
}

fn after(time: Timestamp, length: Duration) -> Timestamp {
    time.saturating_add(length).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
