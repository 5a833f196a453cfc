//! What the end of its node means for a server. Pure and total.
//!
//! Who has no session leaves, in the very version in which it has none: an allocation that comes first wins. Who has one is
//! told, and stays for as long as the node does.

use jiff::Timestamp;

use super::Step;
use crate::drain::Course;
use crate::drain::plan::end_of_session;
use crate::game_server::observe::{DrainWord, Observed, PodFacts, PodSight};
use crate::game_server::wishes::StateWish;
use crate::pods::Endures;

/// Why the node takes no new server.
pub(super) fn refusal(seen: &Observed) -> Option<String> {
    let notice = seen.course.notice()?;
    Some(match seen.course {
        Course::Open | Course::Closed { .. } => format!("the node is closed: {}", notice.reason),
        Course::Spare { .. } => format!("the node is let go: {}", notice.reason),
        Course::Draining { .. } | Course::Drained { .. } => {
            format!("the node is being emptied: {}", notice.reason)
        }
    })
}

/// A server without a session leaves a node that is being emptied or not needed, and after a while one that is closed. A game that asks
/// for a session of its own has one.
pub(super) fn without_session(seen: &Observed, now: Timestamp) -> Option<Step> {
    if has_session(seen) {
        return None;
    }
    let is_due = match &seen.course {
        Course::Open => false,
        Course::Closed { let_go_at, .. } => now >= *let_go_at,
        Course::Spare { .. } | Course::Draining { .. } | Course::Drained { .. } => true,
    };
    refusal(seen).filter(|_| is_due).map(Step::Withdraw)
}

/// What has failed is for its owner to remove; on a node that is being emptied nobody waits for that.
pub(super) fn of_remains(seen: &Observed) -> Option<Step> {
    let is_draining =
        matches!(seen.course, Course::Spare { .. } | Course::Draining { .. } | Course::Drained { .. });
    let has_pod = matches!(&seen.pod, PodSight::Ours(_));
    refusal(seen).filter(|_| is_draining && has_pod).map(Step::Withdraw)
}

/// What to do about a server whose pod is well.
pub(super) fn step(seen: &Observed, pod: &PodFacts, now: Timestamp) -> Option<Step> {
    if let Some(step) = without_session(seen, now) {
        return Some(step);
    }
    let due = word(seen);
    if seen.drain_word != due {
        return Some(Step::TellDrain(due));
    }
    let is_draining = matches!(seen.course, Course::Draining { .. } | Course::Drained { .. });
    if is_draining && pod.endures == Endures::No {
        return Some(Step::Tolerate);
    }
    let deadline = ends_by(seen)?;
    let (at, grace) = end_of_session(deadline, pod.grace, now);
    (now >= at).then_some(Step::EndSession { grace, deadline })
}

/// When to look again by itself.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Timestamp> {
    let at = match (&seen.course, &seen.pod) {
        (Course::Closed { let_go_at, .. }, _) if !has_session(seen) => *let_go_at,
        (Course::Draining { .. } | Course::Drained { .. }, PodSight::Ours(pod))
            if pod.terminating_since.is_none() =>
        {
            end_of_session(ends_by(seen)?, pod.grace, now).0
        }
        (
            Course::Open
            | Course::Closed { .. }
            | Course::Spare { .. }
            | Course::Draining { .. }
            | Course::Drained { .. },
            _,
        ) => return None,
    };
    (now < at).then_some(at)
}

fn has_session(seen: &Observed) -> bool {
    let asks = matches!(seen.wishes.state, Some(StateWish::Allocate { .. } | StateWish::Reserve { .. }));
    seen.state.is_protected() || asks
}

/// What the game is to know.
fn word(seen: &Observed) -> DrainWord {
    match &seen.course {
        Course::Draining { notice } | Course::Drained { notice } if seen.state.is_protected() => {
            DrainWord::of(notice)
        }
        Course::Open
        | Course::Closed { .. }
        | Course::Spare { .. }
        | Course::Draining { .. }
        | Course::Drained { .. } => DrainWord::default(),
    }
}

/// When the node of a session is gone, where the session is to end before.
fn ends_by(seen: &Observed) -> Option<Timestamp> {
    match &seen.course {
        Course::Draining { notice } | Course::Drained { notice }
            if seen.ends_sessions && seen.state.is_protected() =>
        {
            notice.deadline
        }
        Course::Open
        | Course::Closed { .. }
        | Course::Spare { .. }
        | Course::Draining { .. }
        | Course::Drained { .. } => None,
    }
}
