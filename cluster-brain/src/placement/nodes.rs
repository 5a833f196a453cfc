//! The nodes as the placing of servers sees them: what each can still take, or why it takes nothing. Pure.

use std::collections::{BTreeMap, HashSet};

use berth_api::game_node::{GameNodeStatus, NodePhase, Room};
use berth_api::game_server::PortProtocol;
use berth_api::node_lease::{FORMAT_VERSION, HandOver};
use berth_runtime::clock::Instant;
use k8s_openapi::api::core::v1::Taint;

use super::Needs;
use crate::stores::{LeaseRecord, NodeRecord, World};

/// Why a node takes no servers at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Closed {
    /// There is no such Node.
    NoNode,
    /// Its agent does not renew its lease.
    Silent,
    /// Its agent has just started and speaks for another boot, or another Node of the name.
    Unknown,
    /// Its agent does not read our hand-overs.
    OldAgent,
    /// Somebody has closed it.
    Cordoned,
    /// Its `berth-sdk` is being replaced.
    SdkUpdate,
    /// We have told it that it is not needed.
    Surplus,
    /// It is in another phase than Active.
    Phase(NodePhase),
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    /// How a server is handed to it.
    pub(crate) offer: Result<HandOver, Closed>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    /// What is left of it.
    pub(crate) free: Room,
    /// Host ports left, by range.
    pub(crate) free_ports: BTreeMap<String, i64>,
    /// Host ports that servers have.
    pub(crate) taken_ports: HashSet<(u16, PortProtocol)>,
    /// Servers on it.
    pub(crate) servers: usize,
    /// Its `berth-sdk` is of an older revision: it shall become empty.
    pub(crate) is_due: bool,
}

impl NodeView {
    /// One more server goes there.
    pub(crate) fn take(&mut self, needs: &Needs) {
        self.load(needs, &needs.static_ports);
    }

    fn load(&mut self, needs: &Needs, host_ports: &[(u16, PortProtocol)]) {
        self.free.milli_cpu -= needs.room.milli_cpu;
        self.free.memory_bytes -= needs.room.memory_bytes;
        self.free.pods -= needs.room.pods;
        for (range, count) in &needs.dynamic_ports {
            *self.free_ports.entry(range.clone()).or_insert(0) -= count;
        }
        self.taken_ports.extend(host_ports);
        self.servers += 1;
    }
}

/// Every node that has, or had, an agent.
pub(crate) fn views(world: &World, now: Instant) -> Vec<NodeView> {
    let cluster = &world.cluster;
    let due = world.nodes_due_for_sdk();
    let view = |(name, said): (&String, &GameNodeStatus)| {
        let node = cluster.nodes.get(name);
        let is_closed = world.closed_for_sdk.as_ref() == Some(name);
        let is_surplus = cluster.surplus.contains_key(name);
        let offer = offer((node, said), is_surplus, cluster.leases.get(name), now);
        let offer = if is_closed { offer.and(Err(Closed::SdkUpdate)) } else { offer };
        let mut view = NodeView {
            name: name.clone(),
            offer,
            labels: node.map(|node| node.labels.clone()).unwrap_or_default(),
            taints: node.map(|node| node.taints.clone()).unwrap_or_default(),
            free: less(less(said.allocatable, said.others), world.reserve),
            free_ports: said.ports.iter().map(|(range, count)| (range.clone(), count.total)).collect(),
            taken_ports: HashSet::new(),
            servers: 0,
            is_due: due.contains(name),
        };
        for load in world.loads_on(name) {
            view.load(load.needs, load.host_ports);
        }
        view
    };
    cluster.game_nodes.iter().map(view).collect()
}

fn offer(
    (node, said): (Option<&NodeRecord>, &GameNodeStatus),
    is_surplus: bool,
    lease: Option<&LeaseRecord>,
    now: Instant,
) -> Result<HandOver, Closed> {
    let node = node.ok_or(Closed::NoNode)?;
    let lease = lease.filter(|lease| lease.is_live(now)).ok_or(Closed::Silent)?;
    let holder =
        lease.holder.as_ref().filter(|holder| holder.boot_id == said.boot_id).ok_or(Closed::Unknown)?;
    if said.node_uid != node.uid || said.node_uid.is_empty() || said.boot_id.is_empty() {
        return Err(Closed::Unknown);
    }
    if !said.format_versions.contains(&FORMAT_VERSION) {
        return Err(Closed::OldAgent);
    }
    if is_surplus {
        return Err(Closed::Surplus);
    }
    if said.phase != NodePhase::Active {
        return Err(Closed::Phase(said.phase));
    }
    if node.is_cordoned {
        return Err(Closed::Cordoned);
    }
    Ok(HandOver::new(&holder.node, &said.node_uid, &said.boot_id))
}

fn less(room: Room, other: Room) -> Room {
    Room {
        milli_cpu: room.milli_cpu - other.milli_cpu,
        memory_bytes: room.memory_bytes - other.memory_bytes,
        pods: room.pods - other.pods,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_api::game_node::PortCount;

    use super::*;
    use crate::testing::{agent, lease, node};

    const DAY: Duration = Duration::from_secs(86_400);

    fn world(now: Instant) -> World {
        let mut world = World::default();
        world.cluster.put_node("n1", node("n1"));
        world.cluster.put_game_node("n1", agent("n1"));
        world.cluster.see_lease("n1", &lease("n1"), now);
        world
    }

    #[test]
    fn only_a_node_whose_agent_is_live_and_known_is_offered() {
        let now = Instant::now();
        let offered = |change: &dyn Fn(&mut World), at| {
            let mut world = world(now);
            change(&mut world);
            views(&world, at).remove(0).offer
        };
        let said = |change: &dyn Fn(&mut GameNodeStatus)| {
            let mut status = agent("n1");
            change(&mut status);
            offered(&|world| _ = world.cluster.put_game_node("n1", status.clone()), now)
        };
        assert_eq!(offered(&|_| {}, now), Ok(HandOver::new("n1", "uid-n1", "boot-n1")));
        assert_eq!(offered(&|_| {}, now + DAY), Err(Closed::Silent));
        assert_eq!(offered(&|world| world.cluster.nodes.clear(), now), Err(Closed::NoNode));
        assert_eq!(offered(&|world| world.cluster.leases.clear(), now), Err(Closed::Silent));
        assert_eq!(said(&|status| status.node_uid = "other".to_owned()), Err(Closed::Unknown));
        assert_eq!(said(&|status| status.boot_id = "other".to_owned()), Err(Closed::Unknown));
        assert_eq!(said(&|status| status.format_versions = vec![0]), Err(Closed::OldAgent));
        for phase in
            [NodePhase::Starting, NodePhase::Idle, NodePhase::Cordoned, NodePhase::Draining, NodePhase::Gone]
        {
            assert_eq!(said(&|status| status.phase = phase), Err(Closed::Phase(phase)));
        }
        let told = offered(&|world| world.hear_word("n1", Some("t".to_owned())), now);
        assert_eq!(told, Err(Closed::Surplus));
        let cordoned = NodeRecord { is_cordoned: true, ..node("n1") };
        let closed = offered(&|world| _ = world.cluster.put_node("n1", cordoned.clone()), now);
        assert_eq!(closed, Err(Closed::Cordoned));
    }

    #[test]
    fn what_others_use_and_what_is_kept_free_is_not_offered() {
        let now = Instant::now();
        let mut world = world(now);
        world.reserve = Room { milli_cpu: 100, memory_bytes: 10, pods: 0 };
        let mut said = agent("n1");
        said.allocatable = Room { milli_cpu: 4000, memory_bytes: 1000, pods: 110 };
        said.others = Room { milli_cpu: 900, memory_bytes: 90, pods: 10 };
        said.ports = BTreeMap::from([("default".to_owned(), PortCount { total: 5, free: 5 })]);
        world.cluster.put_game_node("n1", said);
        let view = views(&world, now).remove(0);
        assert_eq!(view.free, Room { milli_cpu: 3000, memory_bytes: 900, pods: 100 });
        assert_eq!(view.free_ports["default"], 5);
    }
}
