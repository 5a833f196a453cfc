//! Questions that decisions ask of the picture. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_api::lifecycle::State;

use super::shelf::Kept;
use super::world::World;
use super::{Key, Server};
use crate::placement::Needs;

/// A server, or one that is on its way to a node, as the node sees it.
pub(crate) struct Load<'a> {
    pub(crate) needs: &'a Needs,
    pub(crate) host_ports: &'a [(u16, berth_api::game_server::PortProtocol)],
}

impl World {
    /// The sets that a Fleet controls, by name.
    pub(crate) fn sets_of(&self, namespace: &str, fleet_uid: &str) -> Vec<Arc<GameServerSet>> {
        let is_ours = |set: &&Arc<GameServerSet>| {
            set.metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.controller == Some(true) && owner.uid == fleet_uid)
        };
        self.sets.within(namespace).filter(is_ours).cloned().collect()
    }

    /// The servers that a set controls, by name.
    pub(crate) fn servers_of(&self, set_uid: &str) -> Vec<Arc<Server>> {
        let keys = self.by_set.get(set_uid).into_iter().flatten();
        keys.filter_map(|key| self.servers.get(key)).cloned().collect()
    }

    /// How many servers of a set are being created and not yet seen.
    pub(crate) fn being_created(&self, set_uid: &str) -> usize {
        self.in_flight.values().filter(|flight| flight.set.as_deref() == Some(set_uid)).count()
    }

    /// The servers of a set that were sent, and of which nobody knows whether they arrived.
    pub(crate) fn unanswered(&self, set_uid: &str) -> Vec<(Key, Arc<GameServer>)> {
        let of_set = self.in_flight.iter().filter(|(_, flight)| flight.set.as_deref() == Some(set_uid));
        of_set.filter_map(|(key, flight)| Some((key.clone(), Arc::clone(flight.object.as_ref()?)))).collect()
    }

    /// Whether a name is free for a new server.
    pub(crate) fn is_free(&self, key: &Key) -> bool {
        self.servers.get(key).is_none() && !self.in_flight.contains_key(key)
    }

    /// Ready and Allocated servers by node, of all Fleets.
    pub(crate) fn tallies(&self) -> BTreeMap<String, usize> {
        let counted = |server: &&Arc<Server>| matches!(server.state, Some(State::Ready | State::Allocated));
        let on_node = |keys: &std::collections::BTreeSet<Key>| {
            keys.iter().filter_map(|key| self.servers.get(key)).filter(counted).count()
        };
        let all = self.by_node.iter().map(|(node, keys)| (node.clone(), on_node(keys)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Everything that uses room on a node, by what it needs.
    pub(crate) fn loads_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = Load<'a>> {
        let keys = self.by_node.get(node).into_iter().flatten();
        let servers = keys.filter_map(|key| self.servers.get(key)).filter(|server| server.uses_room());
        let there = servers.map(|server| Load { needs: &server.needs, host_ports: &server.host_ports });
        let is_coming = move |(key, flight): &(&'a Key, &'a super::InFlight)| {
            let is_there = self.servers.get(key).is_some_and(|server| server.node.as_deref() == Some(node));
            flight.node.as_deref() == Some(node) && !is_there
        };
        let coming = self.in_flight.iter().filter(is_coming);
        there.chain(
            coming.map(|(_, flight)| Load { needs: &flight.needs, host_ports: &flight.needs.static_ports }),
        )
    }

    /// Whether a server is on its way to a node.
    pub(crate) fn is_awaited_on(&self, node: &str) -> bool {
        self.in_flight.values().any(|flight| flight.node.as_deref() == Some(node))
    }

    /// Whether a namespace has game servers.
    pub(crate) fn has_servers(&self, namespace: &str) -> bool {
        self.servers.within(namespace).next().is_some()
    }

    /// The keys of the servers that a node has.
    pub(crate) fn keys_on(&self, node: &str) -> Vec<Key> {
        self.by_node.get(node).into_iter().flatten().cloned().collect()
    }

    /// Whether a set is still there to want servers.
    pub(crate) fn set_is_live(&self, key: &Key, uid: &str) -> bool {
        self.sets.get(key).is_some_and(|set| set.uid() == uid && set.metadata.deletion_timestamp.is_none())
    }
}
