//! What keeps a server from going on although nothing is to be done about it: the reason that each state has which the
//! server may stay in without end. Pure.
//!
//! `agones.dev/v1` sets no bound to a game that is slow to start, so none is ended for it; but whoever looks at the
//! object reads why it waits. It is told only after a while, so that a server which comes up well is written as often as
//! its states need.

use std::time::Duration;

use berth_api::conditions::Trouble;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::observe::{Observed, PodSight};
use super::wishes::StateWish;

/// How long a fault that kubelet names, or that we see ourselves, may pass by itself.
const FAULT: Duration = Duration::from_secs(15);
/// How long kubelet may take to start a game before that is strange.
const START: Duration = Duration::from_secs(60);
/// How long a game may take to call Ready before that is strange.
const READY: Duration = Duration::from_secs(5 * 60);
/// How long a pod may outlast its own grace.
const LINGER: Duration = Duration::from_secs(30);

/// What kubelet says keeps the game from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// An image cannot be had.
    Image {
        /// What kubelet says.
        message: String,
    },
    /// A container cannot be made from what its author wrote.
    Container {
        /// What kubelet says.
        message: String,
    },
    /// A container ends again and again.
    Crashes {
        /// How often it was started anew, and how it ended last.
        message: String,
    },
    /// Nothing is known but that the game does not run.
    NotStarted {
        /// What kubelet says.
        message: String,
    },
}

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

/// What kubelet says of the containers that have to run before the game does, and of the game's own.
pub(super) fn hindrance(server: &GameServer, pod: &Pod) -> Option<Hindrance> {
    let status = pod.status.as_ref()?;
    if !matches!(status.phase.as_deref(), Some("Pending" | "Running")) {
        return None;
    }
    let init = status.init_container_statuses.iter().flatten();
    let game = super::observe::game_status(server, pod);
    let all: Vec<&ContainerStatus> = init.chain(game).collect();
    if let Some(found) = all.iter().find_map(|one| named(one)) {
        return Some(found);
    }
    let runs = game.and_then(|game| game.state.as_ref()).is_some_and(|state| state.running.is_some());
    if runs {
        return None;
    }
    let waits = all.iter().find_map(|one| {
        let waiting = one.state.as_ref()?.waiting.as_ref()?;
        Some(format!("container {} waits: {}", one.name, waiting.reason.as_deref().unwrap_or("no reason")))
    });
    let runs_init = all.iter().find(|one| {
        let state = one.state.as_ref();
        Some(one.name.as_str()) != game.map(|game| game.name.as_str())
            && one.started != Some(true)
            && state.is_some_and(|state| state.running.is_some())
    });
    let message = match (runs_init, waits) {
        (Some(one), _) => format!("init container {} has not ended", one.name),
        (None, Some(waits)) => waits,
        (None, None) => "kubelet says nothing of its containers".to_owned(),
    };
    Some(Hindrance::NotStarted { message })
}

fn named(one: &ContainerStatus) -> Option<Hindrance> {
    let waiting = one.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    let told = || {
        let message = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or_default();
        format!("container {}: {reason}: {message}", one.name)
    };
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "InvalidImageName"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => {
            return Some(Hindrance::Image { message: told() });
        }
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PreStartHookError"
        | "PostStartHookError" => {
            return Some(Hindrance::Container { message: told() });
        }
        _ => {}
    }
    // Also while it runs in between: a crash that is told and taken back at each turn would be a write at each turn.
    (one.restart_count > 0).then(|| {
        let last = one.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let last = last.map(|last| format!(", last after exit code {}", last.exit_code)).unwrap_or_default();
        let message = format!("container {} was started anew {} times{last}", one.name, one.restart_count);
        Hindrance::Crashes { message }
    })
}

#[cfg(test)]
mod tests;
