//! What the brain does about one server that is its own business. Pure.

use berth_api::lifecycle::State;
use berth_api::names;

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
        /// The node that handed it back.
        not_on: Option<String>,
    },
    /// A development server: make it Ready.
    MakeReady,
    /// Nodes have handed it back too often.
    GiveUp {
        /// Its set makes another; without one it goes to Error.
        has_set: bool,
        /// What the last node said.
        reason: String,
    },
    /// Nobody else will delete the object.
    Delete,
    /// Nobody else will let the object go, once it has no pod.
    LetGo {
        /// It never has a pod.
        is_podless: bool,
    },
}

/// What to do about a server. `has_node_object` tells whether the Node it was handed to exists.
pub(super) fn decide(server: &Server, has_node_object: bool) -> Step {
    let is_development = server.is_development();
    // An agent is, or will be, there for a server whose node exists.
    let is_agents = !is_development && server.node.is_some() && has_node_object;
    let is_held =
        server.finalizers.iter().any(|one| one == names::FINALIZER || one == names::LEGACY_FINALIZER);
    if server.is_ending {
        return if is_agents || !is_held { Step::Leave } else { Step::LetGo { is_podless: is_development } };
    }
    match server.state {
        Some(State::Shutdown) if !is_agents => Step::Delete,
        Some(State::Shutdown) => Step::Leave,
        None if server.node.is_none() => Step::Adopt,
        Some(State::PortAllocation | State::Creating | State::Starting | State::RequestReady)
            if is_development =>
        {
            Step::MakeReady
        }
        // Its creator wrote a state, and nothing else of what a server begins with.
        Some(State::PortAllocation | State::Creating) if server.node.is_none() && !is_held => Step::Adopt,
        Some(State::PortAllocation | State::Creating) if server.node.is_none() => place(server),
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
            | State::Error,
        ) => Step::Leave,
    }
}

fn place(server: &Server) -> Step {
    match server.returned() {
        Some(returned) if returned.times >= HAND_BACKS => Step::GiveUp {
            has_set: server.set.is_some(),
            reason: format!(
                "handed back {} times, last by {}: {}",
                returned.times, returned.node, returned.reason
            ),
        },
        returned => Step::Place { not_on: returned.map(|returned| returned.node) },
    }
}

#[cfg(test)]
mod tests {
    use berth_api::node_lease::{FORMAT_VERSION, Returned};

    use super::*;
    use crate::testing::server;

    fn returned(times: u32) -> String {
        Returned { version: FORMAT_VERSION, node: "n1".to_owned(), reason: "no port".to_owned(), times }
            .to_annotation()
    }

    #[test]
    fn a_server_without_a_state_is_taken_on() {
        assert_eq!(decide(&server("a").stateless().build(), false), Step::Adopt);
        let half = server("a").state(State::Creating).without_finalizer().build();
        assert_eq!(decide(&half, false), Step::Adopt, "its creator wrote a state");
        let wiped = server("a").stateless().on("n1").build();
        assert_eq!(decide(&wiped, true), Step::Leave, "its agent restores it");
    }

    #[test]
    fn a_waiting_server_is_placed_and_not_where_it_was_handed_back() {
        let waiting = || server("a").state(State::Creating);
        assert_eq!(decide(&waiting().build(), false), Step::Place { not_on: None });
        let once = waiting().annotation(names::RETURNED_ANNOTATION, &returned(1)).build();
        assert_eq!(decide(&once, false), Step::Place { not_on: Some("n1".to_owned()) });
        let twice = waiting().annotation(names::RETURNED_ANNOTATION, &returned(2));
        let reason = "handed back 2 times, last by n1: no port".to_owned();
        assert_eq!(
            decide(&twice.clone().build(), false),
            Step::GiveUp { has_set: false, reason: reason.clone() }
        );
        assert_eq!(decide(&twice.of("set").build(), false), Step::GiveUp { has_set: true, reason });
    }

    #[test]
    fn what_has_an_agent_is_left_to_it() {
        for state in State::ALL {
            let placed = server("a").state(state).on("n1");
            assert_eq!(decide(&placed.clone().build(), true), Step::Leave, "{state}");
            assert_eq!(decide(&placed.ending().build(), true), Step::Leave, "{state}, ending");
        }
    }

    #[test]
    fn what_has_no_agent_is_deleted_and_let_go() {
        let waiting = || server("a").state(State::Shutdown);
        assert_eq!(decide(&waiting().build(), false), Step::Delete);
        assert_eq!(decide(&waiting().ending().build(), false), Step::LetGo { is_podless: false });
        let orphan = || server("a").state(State::Ready).on("n1");
        assert_eq!(decide(&orphan().build(), false), Step::Leave, "its session may live on");
        assert_eq!(decide(&orphan().ending().build(), false), Step::LetGo { is_podless: false });
        let free = orphan().ending().without_finalizer().build();
        assert_eq!(decide(&free, false), Step::Leave, "nothing of ours holds it");
    }

    #[test]
    fn a_development_server_is_the_brains_alone() {
        let development = || server("a").annotation(names::DEV_ADDRESS_ANNOTATION, "10.0.0.1").on("10.0.0.1");
        for state in [State::PortAllocation, State::Creating, State::Starting, State::RequestReady] {
            assert_eq!(decide(&development().state(state).build(), false), Step::MakeReady, "{state}");
        }
        for state in [State::Ready, State::Allocated, State::Reserved, State::Unhealthy, State::Error] {
            assert_eq!(decide(&development().state(state).build(), false), Step::Leave, "{state}");
        }
        assert_eq!(decide(&development().state(State::Shutdown).build(), false), Step::Delete);
        let ending = development().state(State::Ready).ending().build();
        assert_eq!(decide(&ending, false), Step::LetGo { is_podless: true });
    }
}
