//! What the brain does about one server that is its own business. Pure.

use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::Returned;

use crate::fencing::{Death, Site};
use crate::stores::Server;

/// After how many hand-backs a server is replaced instead of placed again.
const HAND_BACKS: u32 = 2;

/// What to do about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is its node's, its set's or its author's business.
    Leave,
    /// Take on a server that somebody created directly; it goes to a node, where one fits.
    Adopt,
    /// Hand it to a node, where one fits.
    Place {
        /// The node that handed it back, and why.
        returned: Option<Returned>,
    },
    /// A development server: make it Ready.
    MakeReady,
    /// Nodes have handed it back too often.
    GiveUp {
        /// Its set makes another; without one it goes to Error.
        has_set: bool,
        /// What the last node said.
        returned: Returned,
    },
    /// It never started, and nobody acts for its node: it goes to another, or is replaced where it has a pod.
    TakeBack {
        /// Its set makes another; without one it fails.
        has_set: bool,
    },
    /// It has no session, and nobody acts for its node: its set makes another.
    Lose,
    /// It was lost, and its agent is back: there is another in its place.
    LetSurplusGo,
    /// It was lost, its agent is back, and a session is on it.
    Keep,
    /// It ended with its node.
    Fail(Death),
    /// Nobody else will delete the object.
    Delete,
    /// Nobody else will let the object go, once it has no pod.
    LetGo(Remains),
}

/// What may be left of a server that nobody looks after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remains {
    /// It never had a pod.
    Nothing,
    /// A pod, which whoever makes it end ends.
    Pod,
    /// A pod that nobody will end, since its Node is gone.
    DeadPod,
}

/// What to do about a server, given where it is.
pub(super) fn decide(server: &Server, site: Site) -> Step {
    let is_held =
        server.finalizers.iter().any(|one| one == names::FINALIZER || one == names::LEGACY_FINALIZER);
    // An agent is, or may come back, for a server whose node exists.
    let remains = match site {
        _ if server.is_development() => Some(Remains::Nothing),
        Site::Nowhere => Some(Remains::Pod),
        Site::Dead(Death::Gone) => Some(Remains::DeadPod),
        Site::Live | Site::Unsure | Site::Lapsed { .. } | Site::Dead(Death::Rebooted | Death::Silent) => None,
    };
    if server.is_ending {
        return remains.filter(|_| is_held).map_or(Step::Leave, Step::LetGo);
    }
    if server.state == Some(State::Shutdown) {
        return if remains.is_some() { Step::Delete } else { Step::Leave };
    }
    if server.is_development() {
        return match server.state {
            None if server.node.is_none() => Step::Adopt,
            Some(State::PortAllocation | State::Creating | State::Starting | State::RequestReady) => {
                Step::MakeReady
            }
            None
            | Some(
                State::Scheduled
                | State::Ready
                | State::Allocated
                | State::Reserved
                | State::Unhealthy
                | State::Error
                | State::Shutdown,
            ) => Step::Leave,
        };
    }
    match site {
        Site::Nowhere => waiting(server, is_held),
        Site::Unsure => Step::Leave,
        Site::Live => returned_to(server),
        Site::Lapsed { is_over } => silent(server, is_over),
        Site::Dead(death) => dead(server, death),
    }
}

fn waiting(server: &Server, is_held: bool) -> Step {
    match server.state {
        None => Step::Adopt,
        // Its creator wrote a state, and nothing else of what a server begins with.
        Some(State::PortAllocation | State::Creating) if !is_held => Step::Adopt,
        Some(State::PortAllocation | State::Creating) => place(server),
        Some(
            State::Starting
            | State::Scheduled
            | State::RequestReady
            | State::Ready
            | State::Allocated
            | State::Reserved
            | State::Unhealthy
            | State::Error
            | State::Shutdown,
        ) => Step::Leave,
    }
}

fn place(server: &Server) -> Step {
    match server.returned() {
        Some(returned) if returned.times >= HAND_BACKS => {
            Step::GiveUp { has_set: server.set.is_some(), returned }
        }
        returned => Step::Place { returned },
    }
}

/// The agent of its node is there.
fn returned_to(server: &Server) -> Step {
    if server.is_lost() {
        Step::LetSurplusGo
    } else if server.is_protected() && server.annotations.contains_key(names::LOST_ANNOTATION) {
        Step::Keep
    } else {
        Step::Leave
    }
}

/// Nobody acts for its node, and what runs there may run on.
fn silent(server: &Server, is_over: bool) -> Step {
    let has_set = server.set.is_some();
    match server.state {
        Some(State::PortAllocation | State::Creating) if is_over => Step::TakeBack { has_set },
        // Without a set nothing would come in its place.
        Some(State::Starting | State::Scheduled | State::RequestReady | State::Ready)
            if has_set && !server.is_lost() =>
        {
            Step::Lose
        }
        None
        | Some(
            State::PortAllocation
            | State::Creating
            | State::Starting
            | State::Scheduled
            | State::RequestReady
            | State::Ready
            | State::Allocated
            | State::Reserved
            | State::Unhealthy
            | State::Error
            | State::Shutdown,
        ) => Step::Leave,
    }
}

fn dead(server: &Server, death: Death) -> Step {
    match server.state {
        Some(State::PortAllocation | State::Creating) => Step::TakeBack { has_set: server.set.is_some() },
        Some(
            State::Starting
            | State::Scheduled
            | State::RequestReady
            | State::Ready
            | State::Allocated
            | State::Reserved,
        ) => Step::Fail(death),
        None | Some(State::Unhealthy | State::Error | State::Shutdown) => Step::Leave,
    }
}

#[cfg(test)]
mod tests;
