//! What keeps a server from going on although nothing is to be done about it: the reason that each state has which the
//! server may stay in without end. Pure.
//!
//! `agones.dev/v1` sets no bound to a game that is slow to start, so none is ended for it; but whoever looks at the
//! object reads why it waits. It is told only after a while, so that a server which comes up well is written as often as
//! its states need.

use std::time::Duration;

use berth_api::conditions::Trouble;
use berth_api::lifecycle::State;
use jiff::Timestamp;

use super::observe::{Hindrance, Observed, PodSight};
use super::wishes::StateWish;

/// How long a fault that kubelet names, or that we see ourselves, may pass by itself.
const FAULT: Duration = Duration::from_secs(15);
/// How long kubelet may take to start a game before that is strange.
const START: Duration = Duration::from_secs(60);
/// How long a game may take to call Ready before that is strange.
const READY: Duration = Duration::from_secs(5 * 60);
/// How long a pod may outlast its own grace.
const LINGER: Duration = Duration::from_secs(30);

/// A trouble, and when it is worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) trouble: Trouble,
    pub(super) at: Timestamp,
}

/// What keeps the server from going on, as far as is seen.
pub(super) fn trouble(seen: &Observed) -> Option<Due> {
    if seen.deleting {
        return lingers(seen);
    }
    match seen.state {
        State::PortAllocation | State::Creating | State::Starting => nowhere(seen),
        State::Scheduled | State::RequestReady => nowhere(seen).or_else(|| not_ready(seen)),
        State::Ready | State::Allocated | State::Reserved => unheard(seen),
        State::Unhealthy | State::Error | State::Shutdown => None,
    }
}

fn due(seen: &Observed, patience: Duration, reason: &'static str, message: String) -> Due {
    Due { trouble: Trouble { reason, message }, at: after(seen.since, patience) }
}

fn after(time: Timestamp, length: Duration) -> Timestamp {
    time.saturating_add(length).unwrap_or(Timestamp::MAX)
}

fn nowhere(seen: &Observed) -> Option<Due> {
    let has_pod = matches!(seen.pod, PodSight::Ours(_));
    (has_pod && !seen.has_address && !seen.has_node_address)
        .then(|| due(seen, FAULT, "NoAddress", "the node has no address that players could use".to_owned()))
}

fn not_ready(seen: &Observed) -> Option<Due> {
    let PodSight::Ours(pod) = &seen.pod else { return None };
    if let Some(hindrance) = &pod.hindrance {
        return Some(match hindrance {
            Hindrance::Image { message } => due(seen, FAULT, "ImagePull", message.clone()),
            Hindrance::Container { message } => due(seen, FAULT, "ContainerConfig", message.clone()),
            Hindrance::Crashes { message } => due(seen, FAULT, "Crashes", message.clone()),
            Hindrance::NotStarted { message } => due(seen, START, "NotStarted", message.clone()),
        });
    }
    if let Some(due) = unheard(seen) {
        return Some(due);
    }
    let asked = matches!(
        seen.wishes.state,
        Some(StateWish::Ready | StateWish::Allocate { .. } | StateWish::Reserve { .. })
    );
    if asked && pod.addresses.is_empty() {
        let message = "the game asks for players, and its pod has no address yet".to_owned();
        return Some(due(seen, FAULT, "NoAddress", message));
    }
    let message = "the game runs and has not called Ready".to_owned();
    Some(due(seen, READY, "NotReady", message))
}

/// The game runs and cannot speak to us.
fn unheard(seen: &Observed) -> Option<Due> {
    let why = seen.sdk_error.as_ref()?;
    Some(due(seen, FAULT, "SdkNotOpen", format!("the game cannot reach its SDK: {why}")))
}

/// The pod of a server that is being deleted stays longer than its grace.
fn lingers(seen: &Observed) -> Option<Due> {
    let PodSight::Ours(pod) = &seen.pod else { return None };
    let deadline = pod.to_end_by?;
    let message = format!("the pod was to be gone by {deadline}; kubelet has not ended it");
    Some(Due { trouble: Trouble { reason: "PodLingers", message }, at: after(deadline, LINGER) })
}

#[cfg(test)]
mod tests;
