//! What is done about a server for which no node has room. Pure.
//!
//! A pod of the same size and constraints asks for it, so that whoever brings nodes brings one, and the scheduler, which
//! understands every constraint, chooses where. Where it lands, it has done its work: it goes, and the server comes.

use std::time::Duration;

use berth_api::game_node::NodePhase;

use super::nodes::{Closed, NodeView};
use super::place::{NoRoom, Refusal, Request, place, refusal_beside_room, refusal_unknown_to_scheduler};
use crate::stores::Placeholder;

/// How long a placeholder holds room on a node whose agent is not there: that of a new node is on its way.
const PATIENCE: Duration = Duration::from_secs(300);

/// A placeholder as a decision sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'a> {
    pub(super) placeholder: &'a Placeholder,
    /// How long we have seen it on its node.
    pub(super) landed_for: Duration,
    /// Its node is closed for new pods.
    pub(super) is_cordoned: bool,
}

/// What is done about the room of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It goes to the node of this index, as soon as its placeholders are gone.
    To(usize),
    /// A placeholder is made, which keeps away from these nodes.
    Ask {
        /// The scheduler would take them for good ones.
        apart_from: Vec<String>,
    },
    /// Its placeholder is of no use where it is: it goes, and the next one keeps away from that node.
    Withdraw,
    /// For the scheduler, for the agent of a node, or for somebody who changes something; this long at most.
    Wait(Option<Duration>),
}

/// What is done about the room of a server, and why no node has it.
pub(super) fn choose(
    request: &Request<'_>,
    nodes: &[NodeView],
    held: Option<Held<'_>>,
) -> (Way, Option<NoRoom>) {
    let landing = held.map_or(Landing::Pending, |held| landing(request, nodes, held));
    if let Landing::Good(index) = landing {
        return (Way::To(index), None);
    }
    let no_room = match place(request, nodes) {
        Ok(index) => return (Way::To(index), None),
        Err(no_room) => no_room,
    };
    let way = match (held, landing) {
        (None, _) if no_room.is_hopeless() => Way::Wait(None),
        (None, _) => {
            let is_trap = |node: &&NodeView| refusal_unknown_to_scheduler(request, node).is_some();
            Way::Ask { apart_from: nodes.iter().filter(is_trap).map(|node| node.name.clone()).collect() }
        }
        (Some(_), Landing::Useless) => Way::Withdraw,
        (Some(_), Landing::Patient(left)) => Way::Wait(Some(left)),
        (Some(_), Landing::Pending | Landing::Good(_)) => Way::Wait(None),
    };
    (way, Some(no_room))
}

/// What a placeholder's place is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Landing {
    /// It has none yet, or is going already.
    Pending,
    /// The server can come.
    Good(usize),
    /// The node's agent may come, for so long.
    Patient(Duration),
    /// Nothing comes of it.
    Useless,
}

fn landing(request: &Request<'_>, nodes: &[NodeView], held: Held<'_>) -> Landing {
    let Held { placeholder, landed_for, is_cordoned } = held;
    if placeholder.is_ending {
        return Landing::Pending;
    }
    if placeholder.is_over || (is_cordoned && placeholder.node.is_some()) {
        return Landing::Useless;
    }
    let Some(node) = &placeholder.node else { return Landing::Pending };
    let index = nodes.iter().position(|one| one.name == *node);
    let refused = match index {
        Some(index) => match refusal_beside_room(request, &nodes[index]) {
            None => return Landing::Good(index),
            Some(refusal) => !may_pass(&refusal),
        },
        None => false,
    };
    match PATIENCE.checked_sub(landed_for) {
        Some(left) if !refused => Landing::Patient(left),
        Some(_) | None => Landing::Useless,
    }
}

/// Whether a reason is likely to be over soon.
fn may_pass(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Closed(
            Closed::NoNode
            | Closed::Silent
            | Closed::Unknown
            | Closed::SdkUpdate
            | Closed::Surplus
            | Closed::Phase(NodePhase::Starting | NodePhase::Idle),
        )
        // The scheduler found it tolerated, or not there.
        | Refusal::Taint(_) => true,
        Refusal::Closed(Closed::OldAgent | Closed::Cordoned | Closed::Phase(_))
        | Refusal::HandedBack(_)
        | Refusal::NotSelected
        | Refusal::Cpu
        | Refusal::Memory
        | Refusal::Pods
        | Refusal::NoPortIn(_)
        | Refusal::NoRange(_)
        | Refusal::PortTaken(..) => false,
    }
}

/// Why a server waits.
pub(super) fn told(no_room: &NoRoom, placeholder: Option<&Placeholder>) -> String {
    let node = placeholder.and_then(|placeholder| placeholder.node.as_deref());
    let said = placeholder.and_then(|placeholder| placeholder.said.as_deref());
    match (no_room.is_left_to_scheduler(), said, node) {
        (true, Some(said), _) => format!("no node fits: {no_room}: {said}"),
        (_, _, Some(node)) => {
            format!("no node fits: {no_room}; there is room on {node}, whose agent does not take it yet")
        }
        (_, _, None) => format!("no node fits: {no_room}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_api::game_node::Room;
    use berth_api::game_server::Scheduling;

    use super::*;
    use crate::placement::Needs;
    use crate::stores::Key;
    use crate::testing::view;

    fn placeholder(node: Option<&str>) -> Placeholder {
        Placeholder {
            key: Key::new("games", "a-room"),
            uid: "p".to_owned(),
            resource_version: "1".to_owned(),
            server: Key::new("games", "a"),
            server_uid: "uid-a".to_owned(),
            node: node.map(str::to_owned),
            is_ending: false,
            is_over: false,
            said: None,
        }
    }

    fn large() -> Needs {
        let room = Room { milli_cpu: 5000, memory_bytes: 0, pods: 1 };
        Needs { room, dynamic_ports: BTreeMap::from([("default".to_owned(), 1)]), ..Needs::default() }
    }

    fn way(needs: &Needs, nodes: &[NodeView], placeholder: Option<&Placeholder>, seconds: u64) -> Way {
        let request = Request { needs, scheduling: Scheduling::Packed, not_on: None };
        let held = placeholder.map(|placeholder| Held {
            placeholder,
            landed_for: Duration::from_secs(seconds),
            is_cordoned: false,
        });
        choose(&request, nodes, held).0
    }

    #[test]
    fn a_server_without_room_asks_once_and_goes_where_its_placeholder_lands() {
        let needs = large();
        let full = NodeView { free_ports: BTreeMap::from([("default".to_owned(), 0)]), ..view("full", 9) };
        let nodes = [view("n1", 0), full];
        // The scheduler does not know of ports.
        assert_eq!(way(&needs, &nodes, None, 0), Way::Ask { apart_from: vec!["full".to_owned()] });
        assert_eq!(way(&needs, &nodes, Some(&placeholder(None)), 0), Way::Wait(None));
        assert_eq!(
            way(&needs, &nodes, Some(&placeholder(Some("n1"))), 0),
            Way::To(0),
            "it holds the room there"
        );
        assert_eq!(way(&needs, &nodes, Some(&placeholder(Some("full"))), 0), Way::Withdraw);
        let ending = Placeholder { is_ending: true, ..placeholder(Some("n1")) };
        assert_eq!(way(&needs, &nodes, Some(&ending), 0), Way::Wait(None));
        let over = Placeholder { is_over: true, ..placeholder(Some("n1")) };
        assert_eq!(way(&needs, &nodes, Some(&over), 0), Way::Withdraw);
    }

    #[test]
    fn room_that_comes_free_elsewhere_is_taken() {
        let small = Needs { room: Room { milli_cpu: 1, memory_bytes: 0, pods: 1 }, ..Needs::default() };
        let nodes = [view("n1", 0), view("n2", 3)];
        assert_eq!(way(&small, &nodes, Some(&placeholder(None)), 0), Way::To(1));
        assert_eq!(
            way(&small, &nodes, Some(&placeholder(Some("n1"))), 0),
            Way::To(0),
            "the room it has first"
        );
        assert_eq!(way(&small, &nodes, Some(&placeholder(Some("new"))), 0), Way::To(1));
    }

    #[test]
    fn what_is_left_to_the_scheduler_waits_for_it_whatever_is_free() {
        let needs = Needs { left_to_scheduler: Some("pod affinity".to_owned()), ..Needs::default() };
        let nodes = [view("n1", 0)];
        assert_eq!(way(&needs, &nodes, None, 0), Way::Ask { apart_from: Vec::new() });
        assert_eq!(way(&needs, &nodes, Some(&placeholder(None)), 0), Way::Wait(None));
        assert_eq!(way(&needs, &nodes, Some(&placeholder(Some("n1"))), 0), Way::To(0));
        let hopeless = Needs { hopeless: Some("x".to_owned()), ..Needs::default() };
        assert_eq!(way(&hopeless, &nodes, None, 0), Way::Wait(None), "nobody could help");
    }

    #[test]
    fn a_new_node_is_given_time_and_a_closing_one_none() {
        let needs = large();
        let there = placeholder(Some("n1"));
        let closed = |closed| NodeView { offer: Err(closed), ..view("n1", 0) };
        for passing in [
            Closed::Silent,
            Closed::Unknown,
            Closed::NoNode,
            Closed::Surplus,
            Closed::Phase(NodePhase::Starting),
            Closed::Phase(NodePhase::Idle),
        ] {
            let wait = Way::Wait(Some(Duration::from_secs(290)));
            assert_eq!(way(&needs, &[closed(passing)], Some(&there), 10), wait, "{passing:?}");
        }
        for closing in [Closed::Cordoned, Closed::OldAgent, Closed::Phase(NodePhase::Draining)] {
            assert_eq!(way(&needs, &[closed(closing)], Some(&there), 10), Way::Withdraw, "{closing:?}");
        }
        assert_eq!(
            way(&needs, &[], Some(&there), 10),
            Way::Wait(Some(Duration::from_secs(290))),
            "no agent yet"
        );
        assert_eq!(way(&needs, &[], Some(&there), 301), Way::Withdraw, "none came");
        let request = Request { needs: &needs, scheduling: Scheduling::Packed, not_on: None };
        let cordoned = Held { placeholder: &there, landed_for: Duration::ZERO, is_cordoned: true };
        assert_eq!(choose(&request, &[], Some(cordoned)).0, Way::Withdraw);
    }

    #[test]
    fn what_is_waited_for_is_said() {
        let nothing = NoRoom::default();
        assert_eq!(told(&nothing, None), "no node fits: no node has an agent");
        assert_eq!(
            told(&nothing, Some(&placeholder(Some("n7")))),
            "no node fits: no node has an agent; there is room on n7, whose agent does not take it yet"
        );
        let needs = Needs { left_to_scheduler: Some("pod affinity".to_owned()), ..Needs::default() };
        let request = Request { needs: &needs, scheduling: Scheduling::Packed, not_on: None };
        let left = place(&request, &[]).expect_err("left to the scheduler");
        let said = Placeholder { said: Some("0/2 nodes are available".to_owned()), ..placeholder(None) };
        assert_eq!(
            told(&left, Some(&said)),
            "no node fits: left to the scheduler for its pod affinity: 0/2 nodes are available"
        );
    }
}
