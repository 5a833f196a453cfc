//! The next step for one server. Pure and total.
//!
//! One step at a time: after each, the worker looks again. Deletion beats everything, then Shutdown, then whatever ends
//! a server, then what its game asks for.

use std::time::Duration;

use berth_api::conditions::Trouble;
use berth_api::lifecycle::State;
use jiff::Timestamp;

use super::Reason;
use super::observe::{DrainWord, Ending, Handed, Observed, PodFacts, PodSight};
use super::trouble::trouble;
use super::wishes::{StateWish, Wishes};

mod leaving;

/// How long a pod may take to end before a server that somebody deletes is shown as Shutdown. Most end sooner, and
/// then the write is spared.
const ENDS_SOON: Duration = Duration::from_secs(2);

/// How long kubelet may take to say how a game has ended that we saw end.
const TELLS_SOON: Duration = Duration::from_secs(20);

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something changes or this time comes.
    Wait(Option<Timestamp>),
    /// Give the server back to the brain, with the reason.
    HandBack(String),
    /// Take host ports.
    ReservePorts,
    /// Make the pod.
    CreatePod,
    /// Write why kubelet would not run the pod.
    NoteRefusal(String),
    /// Ask the API server whether the pod is really gone.
    LookForPod,
    /// Write Scheduled, with ports and addresses.
    Schedule,
    /// Write what the game asks for.
    Grant(Wishes),
    /// Write Ready, which nobody but the clock or another program's RequestReady asks for.
    MakeReady,
    /// Write a state that ends the server.
    End {
        /// Unhealthy, Error or Shutdown.
        to: State,
        /// Why.
        reason: Reason,
    },
    /// Nothing of what the game asks for can be done any more.
    DropWishes(Wishes),
    /// Delete the GameServer.
    DeleteServer,
    /// Delete it in the version that was seen, which has no session, since its node is being emptied.
    Withdraw(String),
    /// Tell the game of the node's end, or that nothing is said of it any more.
    TellDrain(DrainWord),
    /// Have the pod tolerate the taint of a node that is being emptied.
    Tolerate,
    /// Delete the pod of a session that its node does not outlive.
    EndSession {
        /// Seconds that the game has.
        grace: u32,
        /// When the node will be gone.
        deadline: Timestamp,
    },
    /// Delete the pod, with its grace.
    DeletePod,
    /// The last step: ports, SDK, finalizers.
    Finish,
    /// Write the addresses that players reach the server by now.
    Readdress,
    /// Write why the server does not go on, or that it does again.
    Tell(Option<Trouble>),
}

impl Step {
    /// A short fixed word for logs and metrics.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Wait(_) => "wait",
            Self::HandBack(_) => "hand_back",
            Self::ReservePorts => "reserve_ports",
            Self::CreatePod => "create_pod",
            Self::NoteRefusal(_) => "note_refusal",
            Self::LookForPod => "look_for_pod",
            Self::Schedule => "schedule",
            Self::Grant(_) => "grant",
            Self::MakeReady => "make_ready",
            Self::End { .. } => "end",
            Self::DropWishes(_) => "drop_wishes",
            Self::DeleteServer => "delete_server",
            Self::Withdraw(_) => "withdraw",
            Self::TellDrain(_) => "tell_drain",
            Self::Tolerate => "tolerate",
            Self::EndSession { .. } => "end_session",
            Self::DeletePod => "delete_pod",
            Self::Finish => "finish",
            Self::Readdress => "readdress",
            Self::Tell(_) => "tell",
        }
    }
}

/// The next step. Where nothing is to be done but wait, the object has to say why.
pub fn decide(seen: &Observed, now: Timestamp) -> Step {
    match act(seen, now) {
        Step::Wait(until) => tell(seen, until.into_iter().chain(leaving::next(seen, now)).min(), now),
        step => step,
    }
}

fn tell(seen: &Observed, until: Option<Timestamp>, now: Timestamp) -> Step {
    // What has ended keeps its last word.
    let may_take_back = seen.told.is_some() && !seen.deleting && !seen.state.is_terminal();
    match trouble(seen) {
        Some(due) if seen.told.as_deref() == Some(due.trouble.reason) => Step::Wait(until),
        Some(due) if now >= due.at => Step::Tell(Some(due.trouble)),
        Some(_) | None if may_take_back => Step::Tell(None),
        Some(due) => Step::Wait(Some(until.map_or(due.at, |until| until.min(due.at)))),
        None => Step::Wait(until),
    }
}

fn act(seen: &Observed, now: Timestamp) -> Step {
    if seen.deleting {
        return take_down(seen, now);
    }
    match seen.state {
        State::PortAllocation | State::Creating | State::Starting => bring_up(seen, now),
        State::Scheduled | State::RequestReady | State::Ready | State::Allocated | State::Reserved => {
            keep_up(seen, now)
        }
        State::Unhealthy | State::Error => match leaving::of_remains(seen) {
            Some(step) if seen.wishes.is_empty() => step,
            Some(_) | None => drop_or_wait(seen, None),
        },
        State::Shutdown => Step::DeleteServer,
    }
}

fn end(to: State, reason: Reason) -> Step {
    Step::End { to, reason }
}

fn unhealthy(reason: Reason) -> Step {
    end(State::Unhealthy, reason)
}

fn drop_or_wait(seen: &Observed, until: Option<Timestamp>) -> Step {
    if seen.wishes.is_empty() { Step::Wait(until) } else { Step::DropWishes(seen.wishes.clone()) }
}

/// Deletion was asked for: the pod, then the rest.
fn take_down(seen: &Observed, now: Timestamp) -> Step {
    match &seen.pod {
        PodSight::Ours(pod) => match pod.terminating_since {
            None => Step::DeletePod,
            Some(since) => {
                let soon = after(since, ENDS_SOON);
                if seen.state.may_become(State::Shutdown) && !seen.state.is_terminal() {
                    if now >= soon {
                        return end(State::Shutdown, Reason::Deleted);
                    }
                    return drop_or_wait(seen, Some(soon));
                }
                drop_or_wait(seen, None)
            }
        },
        PodSight::Absent { confirmed: false } => Step::LookForPod,
        PodSight::Absent { confirmed: true } | PodSight::Foreign { .. } | PodSight::Elsewhere { .. }
            if seen.has_finalizer =>
        {
            Step::Finish
        }
        PodSight::Absent { confirmed: true } | PodSight::Foreign { .. } | PodSight::Elsewhere { .. } => {
            drop_or_wait(seen, None)
        }
    }
}

/// The server has no pod yet, or nobody has noted it.
fn bring_up(seen: &Observed, now: Timestamp) -> Step {
    let allowed = seen.state.time_allowed();
    let deadline = allowed.map(|allowed| after(seen.since, allowed));
    let is_late = deadline.is_some_and(|deadline| now >= deadline);
    match &seen.pod {
        PodSight::Foreign { owner } => end(State::Error, Reason::ForeignPod { owner: owner.clone() }),
        PodSight::Elsewhere { node } => Step::HandBack(format!("its pod is on node {node}")),
        PodSight::Ours(pod) => {
            if let Some(step) = ended(seen, pod, now) {
                return step;
            }
            if let Some(step) = leaving::without_session(seen, now) {
                return step;
            }
            if seen.has_node_address {
                return Step::Schedule;
            }
            match allowed {
                Some(allowed) if is_late => unhealthy(Reason::TooLong { state: seen.state, allowed }),
                Some(_) | None => Step::Wait(deadline),
            }
        }
        PodSight::Absent { confirmed } => {
            if let Some(reason) = &seen.refusal {
                return Step::HandBack(reason.clone());
            }
            if seen.had_pod {
                return if *confirmed { unhealthy(Reason::PodMissing) } else { Step::LookForPod };
            }
            match &seen.handed {
                Handed::ToUs => {}
                Handed::ToAnotherBoot => {
                    return Step::HandBack("it was handed to another boot of this node".to_owned());
                }
                Handed::Wrong { why } => return Step::HandBack(why.clone()),
            }
            if let Some(why) = leaving::refusal(seen).or_else(|| seen.node_refuses.clone()) {
                return Step::HandBack(why);
            }
            if is_late {
                let why =
                    seen.last_error.clone().unwrap_or_else(|| "no pod could be made in time".to_owned());
                return Step::HandBack(why);
            }
            if seen.has_ports { Step::CreatePod } else { Step::ReservePorts }
        }
    }
}

/// The server has, or should have, a pod.
fn keep_up(seen: &Observed, now: Timestamp) -> Step {
    if seen.wishes.wants_shutdown() {
        return Step::Grant(seen.wishes.clone());
    }
    let pod = match &seen.pod {
        PodSight::Ours(pod) => pod,
        PodSight::Absent { confirmed: false } => return Step::LookForPod,
        PodSight::Absent { confirmed: true } => {
            return match &seen.refusal {
                Some(reason) if seen.state == State::Scheduled => Step::HandBack(reason.clone()),
                Some(_) | None => unhealthy(gone(seen, Reason::PodMissing)),
            };
        }
        PodSight::Foreign { .. } => return unhealthy(Reason::PodReplaced),
        // The agent of that node takes it back.
        PodSight::Elsewhere { .. } => return Step::Wait(None),
    };
    if seen.is_other_pod {
        return unhealthy(Reason::PodReplaced);
    }
    if seen.handed == Handed::ToAnotherBoot {
        return unhealthy(Reason::NodeRebooted);
    }
    if let Some(step) = ended(seen, pod, now) {
        return step;
    }
    if seen.is_out_of_reach {
        return unhealthy(Reason::OutOfReach);
    }
    if pod.restarted_since_ready || seen.has_new_sandbox {
        return unhealthy(Reason::Restarted);
    }
    if let Some(missed) = seen.missed {
        return unhealthy(Reason::PingsMissed { missed });
    }
    attend(seen, pod, now)
}

/// The pod is well: what does the game want, and what does the clock?
fn attend(seen: &Observed, pod: &PodFacts, now: Timestamp) -> Step {
    if let Some(step) = leaving::step(seen, pod, now) {
        return step;
    }
    // A server is never Ready without the addresses that players need, nor before its container is known where
    // a later restart must be told from an earlier one, nor while anybody may evict its pod.
    let is_reachable = !pod.addresses.is_empty()
        && seen.has_address
        && pod.is_container_known
        && pod.is_held_by_budgets
        && pod.over_since.is_none();
    match &seen.wishes.state {
        Some(StateWish::Ready | StateWish::Allocate { .. } | StateWish::Reserve { .. }) if !is_reachable => {
            return Step::Wait(None);
        }
        Some(_) => return Step::Grant(seen.wishes.clone()),
        None if !seen.wishes.is_empty() => return Step::Grant(seen.wishes.clone()),
        None => {}
    }
    if seen.has_moved_address {
        return Step::Readdress;
    }
    match seen.state {
        State::RequestReady if is_reachable => Step::MakeReady,
        State::RequestReady => match seen.state.time_allowed() {
            Some(allowed) if now >= after(seen.since, allowed) => {
                unhealthy(Reason::TooLong { state: seen.state, allowed })
            }
            Some(allowed) => Step::Wait(Some(after(seen.since, allowed))),
            None => Step::Wait(None),
        },
        State::Reserved => match seen.reserved_until {
            Some(until) if now >= until => Step::MakeReady,
            until => Step::Wait(until),
        },
        State::PortAllocation
        | State::Creating
        | State::Starting
        | State::Scheduled
        | State::Ready
        | State::Allocated
        | State::Unhealthy
        | State::Error
        | State::Shutdown => Step::Wait(None),
    }
}

/// What the end of a pod, or its coming end, means.
fn ended(seen: &Observed, pod: &PodFacts, now: Timestamp) -> Option<Step> {
    let is_terminating = pod.terminating_since.is_some();
    if let (Some(at), Some(_)) = (seen.cut_short, &pod.ending) {
        return Some(unhealthy(Reason::NodeEnds { at }));
    }
    match &pod.ending {
        Some(Ending::Refused { message }) if seen.state.is_before_ready() => {
            // Handed back once the pod, and with it its name and ports, is gone; nothing but the note tells why then.
            Some(match &seen.refusal {
                None => Step::NoteRefusal(message.clone()),
                Some(_) if is_terminating => Step::Wait(None),
                Some(_) => Step::DeletePod,
            })
        }
        Some(Ending::Refused { message } | Ending::Failed { message }) => {
            Some(unhealthy(Reason::Failed { message: message.clone() }))
        }
        Some(Ending::Evicted { message }) => Some(unhealthy(Reason::Evicted { message: message.clone() })),
        Some(Ending::Succeeded) if !is_terminating => Some(end(State::Shutdown, Reason::Completed)),
        // A session on a pod that somebody deletes goes on for the grace that the pod has.
        Some(Ending::Succeeded) | None if is_terminating && !seen.state.is_protected() => {
            Some(unhealthy(Reason::PodDeleted))
        }
        Some(Ending::Succeeded) => Some(unhealthy(Reason::PodDeleted)),
        None if is_terminating => Some(Step::Wait(None)),
        None if pod.restarted_since_ready => None,
        None => {
            let tells_by = after(pod.over_since?, TELLS_SOON);
            let message = || "the game has ended; kubelet has not said how".to_owned();
            Some(if now >= tells_by {
                unhealthy(Reason::Failed { message: message() })
            } else {
                Step::Wait(Some(tells_by))
            })
        }
    }
}

/// Why a session is over whose pod we were told to end.
fn gone(seen: &Observed, otherwise: Reason) -> Reason {
    seen.cut_short.map_or(otherwise, |at| Reason::NodeEnds { at })
}

fn after(time: Timestamp, length: Duration) -> Timestamp {
    time.saturating_add(length).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
