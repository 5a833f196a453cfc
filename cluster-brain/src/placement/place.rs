//! Which node a server goes to. Pure.

use std::collections::BTreeMap;
use std::fmt;

use berth_api::game_node::NodePhase;
use berth_api::game_server::{PortProtocol, Scheduling};

use super::Needs;
use super::nodes::{Closed, NodeView};
use super::selection::{allows, untolerated};

/// A server that looks for a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) needs: &'a Needs,
    pub(crate) scheduling: Scheduling,
    /// The node that has handed it back, or that it is taken from, and why.
    pub(crate) not_on: Option<(&'a str, &'a str)>,
}

/// Why one node does not do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    Closed(Closed),
    /// What it said.
    HandedBack(String),
    NotSelected,
    Taint(String),
    Cpu,
    Memory,
    Pods,
    NoPortIn(String),
    NoRange(String),
    PortTaken(u16, PortProtocol),
}

/// Why no node does, with the nodes for each reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NoRoom {
    hopeless: Option<String>,
    left_to_scheduler: Option<String>,
    refusals: BTreeMap<Refusal, Vec<String>>,
}

impl NoRoom {
    /// No node that there is or may be would change it.
    pub(super) fn is_hopeless(&self) -> bool {
        self.hopeless.is_some()
    }

    /// The choice is not ours.
    pub(super) fn is_left_to_scheduler(&self) -> bool {
        self.left_to_scheduler.is_some()
    }
}

/// The index of the node that the server goes to.
///
/// Packed takes the node with the most servers, so that others become empty; Distributed the one with the fewest. Among
/// equals the first by name, so that a decision can be told beforehand. Nodes that shall become empty come last.
pub(crate) fn place(request: &Request<'_>, nodes: &[NodeView]) -> Result<usize, NoRoom> {
    let Needs { hopeless, left_to_scheduler, .. } = request.needs;
    if hopeless.is_some() || left_to_scheduler.is_some() {
        let (hopeless, left_to_scheduler) = (hopeless.clone(), left_to_scheduler.clone());
        return Err(NoRoom { hopeless, left_to_scheduler, ..NoRoom::default() });
    }
    let mut refusals: BTreeMap<Refusal, Vec<String>> = BTreeMap::new();
    let mut fitting: Vec<usize> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        match refusal(request, node) {
            Some(refusal) => refusals.entry(refusal).or_default().push(node.name.clone()),
            None => fitting.push(index),
        }
    }
    let by_name = |one: &usize, other: &usize| nodes[*one].name.cmp(&nodes[*other].name);
    let by_servers = |one: &usize, other: &usize| nodes[*one].servers.cmp(&nodes[*other].servers);
    let by_due = |one: &usize, other: &usize| nodes[*one].is_due.cmp(&nodes[*other].is_due);
    let chosen = fitting.into_iter().min_by(|one, other| {
        let by_servers = match request.scheduling {
            Scheduling::Packed => by_servers(other, one),
            Scheduling::Distributed => by_servers(one, other),
        };
        by_due(one, other).then(by_servers).then_with(|| by_name(one, other))
    });
    chosen.ok_or(NoRoom { refusals, ..NoRoom::default() })
}

fn refusal(request: &Request<'_>, node: &NodeView) -> Option<Refusal> {
    closed(node)
        .or_else(|| handed_back(request, node))
        .or_else(|| not_allowed(request.needs, node))
        .or_else(|| lacks_room(request.needs, node))
        .or_else(|| lacks_ports(request.needs, node))
}

/// Why a node does not do, where the room on it is held for the server.
pub(super) fn refusal_beside_room(request: &Request<'_>, node: &NodeView) -> Option<Refusal> {
    closed(node)
        .or_else(|| not_allowed(request.needs, node))
        .or_else(|| refusal_unknown_to_scheduler(request, node))
}

/// Why a node does not do that the scheduler would take for a good one.
pub(super) fn refusal_unknown_to_scheduler(request: &Request<'_>, node: &NodeView) -> Option<Refusal> {
    handed_back(request, node).or_else(|| lacks_ports(request.needs, node))
}

fn closed(node: &NodeView) -> Option<Refusal> {
    node.offer.as_ref().err().map(|closed| Refusal::Closed(*closed))
}

fn handed_back(request: &Request<'_>, node: &NodeView) -> Option<Refusal> {
    let (_, reason) = request.not_on.filter(|(name, _)| *name == node.name)?;
    Some(Refusal::HandedBack(reason.to_owned()))
}

fn not_allowed(needs: &Needs, node: &NodeView) -> Option<Refusal> {
    if !allows(needs, &node.name, &node.labels) {
        return Some(Refusal::NotSelected);
    }
    let taint = untolerated(needs, &node.taints)?;
    Some(Refusal::Taint(format!("{}={}", taint.key, taint.value.as_deref().unwrap_or_default())))
}

fn lacks_room(needs: &Needs, node: &NodeView) -> Option<Refusal> {
    // Nothing asked for fits everywhere, also where others have taken more than there is.
    if needs.room.milli_cpu > node.free.milli_cpu.max(0) {
        Some(Refusal::Cpu)
    } else if needs.room.memory_bytes > node.free.memory_bytes.max(0) {
        Some(Refusal::Memory)
    } else if needs.room.pods > node.free.pods.max(0) {
        Some(Refusal::Pods)
    } else {
        None
    }
}

fn lacks_ports(needs: &Needs, node: &NodeView) -> Option<Refusal> {
    for (range, count) in &needs.dynamic_ports {
        match node.free_ports.get(range) {
            None => return Some(Refusal::NoRange(range.clone())),
            Some(free) if free < count => return Some(Refusal::NoPortIn(range.clone())),
            Some(_) => {}
        }
    }
    let taken = needs.static_ports.iter().find(|port| node.taken_ports.contains(port));
    taken.map(|(number, protocol)| Refusal::PortTaken(*number, *protocol))
}

/// Names that a sentence lists.
const NAMES: usize = 5;

/// Names in one phrase.
pub(super) fn list(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES).map(AsRef::as_ref).collect();
    match (shown.as_slice(), names.len() - shown.len()) {
        ([], _) => "no node".to_owned(),
        ([one], _) => (*one).to_owned(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// One reason, with its nodes.
fn told(refusal: &Refusal, nodes: &[String]) -> String {
    let count = nodes.len();
    let plural = if count == 1 { "node" } else { "nodes" };
    match refusal {
        Refusal::Closed(closed) => format!("{count} {plural} {}", word(*closed)),
        // Which nodes it is about is what somebody has to know who chose the port.
        Refusal::PortTaken(number, protocol) => {
            format!("port {number}/{} is taken on {}", protocol.as_str(), list(nodes))
        }
        Refusal::HandedBack(reason) => format!("{} said: {reason}", list(nodes)),
        Refusal::NotSelected => format!("{count} not selected by the template"),
        Refusal::Taint(taint) => format!("{count} taint {taint}"),
        Refusal::Cpu => format!("{count} not enough cpu"),
        Refusal::Memory => format!("{count} not enough memory"),
        Refusal::Pods => format!("{count} no room for another pod"),
        Refusal::NoPortIn(range) => format!("{count} no free port in range {range}"),
        Refusal::NoRange(range) => format!("{count} no port range {range}"),
    }
}

fn word(closed: Closed) -> &'static str {
    match closed {
        Closed::NoNode => "without a Node object",
        Closed::Silent => "with a silent agent",
        Closed::Unknown => "just started",
        Closed::OldAgent => "with too old an agent",
        Closed::SdkUpdate => "whose berth-sdk is being replaced",
        Closed::Surplus | Closed::Phase(NodePhase::Idle) => "idle, to be fetched back",
        Closed::Cordoned | Closed::Phase(NodePhase::Cordoned) => "cordoned",
        Closed::Phase(NodePhase::Starting) => "starting",
        Closed::Phase(NodePhase::Draining) => "draining",
        Closed::Phase(NodePhase::Drained) => "drained",
        Closed::Phase(NodePhase::Gone) => "gone",
        Closed::Phase(NodePhase::Active) => "closed",
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hopeless) = &self.hopeless {
            return formatter.write_str(hopeless);
        }
        if let Some(asked) = &self.left_to_scheduler {
            return write!(formatter, "left to the scheduler for its {asked}");
        }
        if self.refusals.is_empty() {
            return formatter.write_str("no node has an agent");
        }
        let mut reasons: Vec<_> = self.refusals.iter().collect();
        // Most nodes first.
        reasons.sort_by(|(one, ones), (other, others)| {
            others.len().cmp(&ones.len()).then_with(|| one.cmp(other))
        });
        let told: Vec<_> = reasons.into_iter().map(|(refusal, nodes)| told(refusal, nodes)).collect();
        formatter.write_str(&told.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use berth_api::game_node::Room;
    use k8s_openapi::api::core::v1::Taint;
    use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

    use super::*;
    use crate::testing::view;

    fn packed(needs: &Needs) -> Request<'_> {
        Request { needs, scheduling: Scheduling::Packed, not_on: None }
    }

    fn chosen<'a>(request: &Request<'_>, nodes: &'a [NodeView]) -> Result<&'a str, String> {
        place(request, nodes).map(|index| nodes[index].name.as_str()).map_err(|refused| refused.to_string())
    }

    #[test]
    fn packed_fills_nodes_and_distributed_spreads() {
        let nodes = [view("c", 3), view("b", 3), view("a", 1), view("d", 1)];
        let needs = Needs::default();
        assert_eq!(chosen(&packed(&needs), &nodes), Ok("b"));
        let spread = Request { scheduling: Scheduling::Distributed, ..packed(&needs) };
        assert_eq!(chosen(&spread, &nodes), Ok("a"));
        let again = Request { not_on: Some(("b", "no room")), ..packed(&needs) };
        assert_eq!(chosen(&again, &nodes), Ok("c"));
        let due = nodes.map(|node| NodeView { is_due: node.name != "d", ..node });
        assert_eq!(chosen(&packed(&needs), &due), Ok("d"), "the others shall become empty");
        assert_eq!(chosen(&packed(&needs), &due[..3]), Ok("b"), "they are there all the same");
    }

    #[test]
    fn when_nothing_fits_each_reason_is_said_with_its_number() {
        let ports = |free: i64| BTreeMap::from([("default".to_owned(), free)]);
        let needs = Needs {
            dynamic_ports: ports(1),
            static_ports: vec![(7000, PortProtocol::Tcp)],
            room: Room { milli_cpu: 500, memory_bytes: 0, pods: 1 },
            ..Needs::default()
        };
        let full = |name| NodeView { free_ports: ports(0), ..view(name, 0) };
        let mut tainted = NodeView { free_ports: ports(9), ..view("t", 0) };
        tainted.taints = vec![Taint {
            key: "dedicated".to_owned(),
            value: Some("x".to_owned()),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        }];
        let mut taken = NodeView { free_ports: ports(9), ..view("s", 0) };
        taken.taken_ports.insert((7000, PortProtocol::Tcp));
        let busy = NodeView { free: Room { milli_cpu: 499, ..view("u", 0).free }, ..view("u", 0) };
        let draining = NodeView { offer: Err(Closed::Phase(NodePhase::Draining)), ..view("v", 0) };
        let nodes = [full("a"), full("b"), tainted, taken, busy, draining];
        assert_eq!(
            chosen(&packed(&needs), &nodes).unwrap_err(),
            "2 no free port in range default, 1 node draining, 1 taint dedicated=x, 1 not enough cpu, \
             port 7000/TCP is taken on s"
        );
        assert_eq!(chosen(&packed(&needs), &[]).unwrap_err(), "no node has an agent");
    }

    #[test]
    fn a_port_that_is_taken_everywhere_is_said_by_name() {
        let needs = Needs { static_ports: vec![(7777, PortProtocol::Udp)], ..Needs::default() };
        let taken = |name| NodeView { taken_ports: [(7777, PortProtocol::Udp)].into(), ..view(name, 0) };
        let nodes = [taken("node-a"), taken("node-b"), view("node-c", 0)];
        assert_eq!(
            chosen(&packed(&needs), &nodes[..2]).unwrap_err(),
            "port 7777/UDP is taken on node-a and node-b"
        );
        let back = Request { not_on: Some(("node-c", "port 7777/UDP is in use")), ..packed(&needs) };
        assert_eq!(
            chosen(&back, &nodes).unwrap_err(),
            "port 7777/UDP is taken on node-a and node-b, node-c said: port 7777/UDP is in use"
        );
        let many: Vec<_> = (0..8).map(|index| format!("n{index}")).collect();
        assert_eq!(list(&many), "n0, n1, n2, n3, n4 and 3 more");
        assert_eq!(list(&many[..3]), "n0, n1 and n2");
    }

    #[test]
    fn a_port_that_is_taken_for_one_protocol_is_free_for_the_other() {
        let needs = |protocol| Needs { static_ports: vec![(7000, protocol)], ..Needs::default() };
        let mut node = view("a", 0);
        node.take(&needs(PortProtocol::Tcp));
        let nodes = [node];
        assert!(place(&packed(&needs(PortProtocol::Udp)), &nodes).is_ok());
        assert!(place(&packed(&needs(PortProtocol::Tcp)), &nodes).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn no_node_is_ever_given_more_than_it_has(
            sizes in proptest::collection::vec((1_i64..2000, 1_i64..1000, 0_i64..3), 1..60),
            spread in any::<bool>(),
        ) {
            let scheduling = if spread { Scheduling::Distributed } else { Scheduling::Packed };
            let mut nodes: Vec<_> = ["a", "b", "c"].map(|name| view(name, 0)).into();
            for (milli_cpu, memory_bytes, ports) in sizes {
                let needs = Needs {
                    room: Room { milli_cpu, memory_bytes, pods: 1 },
                    dynamic_ports: BTreeMap::from([("default".to_owned(), ports)]),
                    ..Needs::default()
                };
                if let Ok(index) = place(&Request { needs: &needs, scheduling, not_on: None }, &nodes) {
                    nodes[index].take(&needs);
                }
            }
            for node in nodes {
                prop_assert!(node.free.milli_cpu >= 0 && node.free.memory_bytes >= 0 && node.free.pods >= 0);
                prop_assert!(node.free_ports["default"] >= 0);
            }
        }
    }
}
