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
    unreadable: Option<String>,
    refusals: BTreeMap<Refusal, Vec<String>>,
}

/// The index of the node that the server goes to.
///
/// Packed takes the node with the most servers, so that others become empty; Distributed the one with the fewest. Among
/// equals the first by name, so that a decision can be told beforehand.
pub(crate) fn place(request: &Request<'_>, nodes: &[NodeView]) -> Result<usize, NoRoom> {
    if let Some(unreadable) = &request.needs.unreadable {
        return Err(NoRoom { unreadable: Some(unreadable.clone()), ..NoRoom::default() });
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
    let chosen = fitting.into_iter().min_by(|one, other| match request.scheduling {
        Scheduling::Packed => by_servers(other, one).then_with(|| by_name(one, other)),
        Scheduling::Distributed => by_servers(one, other).then_with(|| by_name(one, other)),
    });
    chosen.ok_or(NoRoom { unreadable: None, refusals })
}

fn refusal(request: &Request<'_>, node: &NodeView) -> Option<Refusal> {
    let needs = request.needs;
    if let Err(closed) = node.offer {
        return Some(Refusal::Closed(closed));
    }
    if let Some((_, reason)) = request.not_on.filter(|(name, _)| *name == node.name) {
        return Some(Refusal::HandedBack(reason.to_owned()));
    }
    if !allows(needs, &node.name, &node.labels) {
        return Some(Refusal::NotSelected);
    }
    if let Some(taint) = untolerated(needs, &node.taints) {
        let value = taint.value.as_deref().unwrap_or_default();
        return Some(Refusal::Taint(format!("{}={value}", taint.key)));
    }
    // Nothing asked for fits everywhere, also where others have taken more than there is.
    if needs.room.milli_cpu > node.free.milli_cpu.max(0) {
        return Some(Refusal::Cpu);
    }
    if needs.room.memory_bytes > node.free.memory_bytes.max(0) {
        return Some(Refusal::Memory);
    }
    if needs.room.pods > node.free.pods.max(0) {
        return Some(Refusal::Pods);
    }
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
        if let Some(unreadable) = &self.unreadable {
            return write!(formatter, "the pod template cannot be read: {unreadable}");
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
    use proptest::prelude::{any, prop_assert, proptest};

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
