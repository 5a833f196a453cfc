//! The picture itself: objects, the servers that are being written, and who must look again after a change. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use berth_api::fleet::Fleet;
use berth_api::game_node::Room;
use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_api::names::FLEET_LABEL;
use kube::api::ObjectMeta;

use super::cluster::Cluster;
use super::server::Server;
use super::shelf::{Change, Kept, Shelf};
use super::{Key, Wake};
use crate::placement::Needs;

impl Kept for Fleet {
    fn key(&self) -> Key {
        Key::of(&self.metadata)
    }
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

impl Kept for GameServerSet {
    fn key(&self) -> Key {
        Key::of(&self.metadata)
    }
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

/// A server that is being created, or a hand-over that is being written.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    /// UID of the set it is created for; `None` for the hand-over of a server that exists.
    pub(crate) set: Option<String>,
    /// The node it goes to.
    pub(crate) node: Option<String>,
    pub(crate) needs: Arc<Needs>,
    /// The object, to be sent again under the same name while nobody knows whether it arrived.
    pub(crate) object: Option<Arc<GameServer>>,
}

/// What the brain knows.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    /// Kept free on each node.
    pub(crate) reserve: Room,
    pub(crate) fleets: Shelf<Fleet>,
    pub(crate) sets: Shelf<GameServerSet>,
    pub(crate) servers: Shelf<Server>,
    /// By the server's key, until a watch or an answer shows what became of it.
    pub(super) in_flight: BTreeMap<Key, InFlight>,
    pub(super) by_set: HashMap<String, BTreeSet<Key>>,
    pub(super) by_node: BTreeMap<String, BTreeSet<Key>>,
    pub(super) waiting: BTreeSet<Key>,
    wakes: Vec<Wake>,
}

impl World {
    pub(crate) fn new(reserve: Room) -> Self {
        Self { reserve, ..Self::default() }
    }

    pub(super) fn take_wakes(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.wakes)
    }

    pub(super) fn wake(&mut self, wake: Wake) {
        if !self.wakes.contains(&wake) {
            self.wakes.push(wake);
        }
    }

    /// Keys of the servers that wait for a node.
    pub(crate) fn waiting(&self) -> Vec<Key> {
        self.waiting.iter().cloned().collect()
    }

    /// Forgets Fleets, sets and servers, but not the servers of which nobody knows whether they arrived.
    pub(super) fn forget_objects(&mut self) {
        let (cluster, reserve) = (std::mem::take(&mut self.cluster), self.reserve);
        let mut in_flight = std::mem::take(&mut self.in_flight);
        in_flight.retain(|_, flight| flight.object.is_some());
        *self = Self { cluster, reserve, in_flight, ..Self::default() };
    }

    /// Forgets what was on its way.
    pub(crate) fn forget_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// All sets are known: what is on its way to others is wanted by nobody.
    pub(super) fn forget_orphans(&mut self) {
        let Self { sets, in_flight, .. } = self;
        let known: BTreeSet<&str> = sets.iter().map(|set| set.uid()).collect();
        in_flight.retain(|_, flight| flight.set.as_deref().is_none_or(|set| known.contains(set)));
    }

    pub(crate) fn note_fleet(&mut self, change: Option<Change<Fleet>>) {
        for fleet in change.iter().flat_map(|change| [&change.before, &change.after]).flatten() {
            self.wake(Wake::Fleet(fleet.key()));
        }
    }

    pub(crate) fn note_set(&mut self, change: Option<Change<GameServerSet>>) {
        let Some(change) = change else { return };
        let spec = |set: &Option<Arc<GameServerSet>>| {
            set.as_ref().map(|set| (set.metadata.generation, set.metadata.deletion_timestamp.is_some()))
        };
        let is_soon = spec(&change.before) == spec(&change.after);
        for set in [&change.before, &change.after].into_iter().flatten() {
            self.wake(Wake::Set(set.key()));
            if let Some(fleet) = fleet_of(&set.metadata) {
                self.wake(if is_soon { Wake::FleetSoon(fleet) } else { Wake::Fleet(fleet) });
            }
        }
        if let (Some(set), None) = (&change.before, &change.after) {
            // Nobody is left to want what is still on its way; what arrives goes with the set.
            let uid = set.uid().to_owned();
            self.in_flight.retain(|_, flight| flight.set.as_deref() != Some(&uid));
        }
    }

    pub(crate) fn note_server(&mut self, change: Option<Change<Server>>) {
        let Some(change) = change else { return };
        if let Some(before) = &change.before {
            self.unlist(before);
        }
        if let Some(after) = &change.after {
            self.list(after);
        }
        let one = change.after.as_ref().or(change.before.as_ref());
        let Some(one) = one.cloned() else { return };
        if change.after.is_none() {
            self.in_flight.remove(&one.key);
        }
        self.wake(Wake::Server(one.key.clone()));
        if let Some(set) = &one.set_name {
            self.wake(Wake::SetSoon(Key::new(&one.key.namespace, set)));
        }
        let used_room = |server: &Option<Arc<Server>>| {
            server.as_ref().filter(|server| server.uses_room()).and_then(|server| server.node.clone())
        };
        if used_room(&change.before).is_some() && used_room(&change.before) != used_room(&change.after) {
            self.wake(Wake::Waiting);
        }
    }

    /// A server as a watch or a list shows it.
    pub(crate) fn see_server(&mut self, object: &GameServer) {
        let server = self.read_server(object);
        self.land(&server.key.clone());
        let change = self.servers.seen(server);
        self.note_server(change);
    }

    /// A server that was being created is there, in this form or a newer one.
    fn land(&mut self, key: &Key) {
        if self.in_flight.get(key).is_some_and(|flight| flight.object.is_some()) {
            self.in_flight.remove(key);
        }
    }

    /// The answer to the creation of a server. One that is in flight no more has been seen by the watch, and may be gone
    /// again.
    pub(crate) fn server_created(&mut self, object: &GameServer) {
        let key = Key::of(&object.metadata);
        if self.in_flight.remove(&key).is_some() {
            let server = self.read_server(object);
            let change = self.servers.created(server);
            self.note_server(change);
        }
    }

    /// The answer to a change of a server.
    pub(crate) fn server_changed(&mut self, object: &GameServer) {
        let server = self.read_server(object);
        let change = self.servers.changed(server);
        self.note_server(change);
    }

    /// Servers of one set share one description of their needs.
    fn read_server(&self, object: &GameServer) -> Server {
        let key = Key::of(&object.metadata);
        let mut server = Server::read(object, self.servers.get(&key).map(|known| &**known));
        let flight = self.in_flight.get(&key).map(|flight| &flight.needs);
        let sibling = server.set.as_ref().and_then(|set| {
            let first = self.by_set.get(set)?.first()?;
            self.servers.get(first).map(|sibling| &sibling.needs)
        });
        if let Some(same) = [flight, sibling].into_iter().flatten().find(|needs| **needs == server.needs) {
            server.needs = Arc::clone(same);
        }
        server
    }

    /// A node came or went: its servers are looked at again.
    pub(super) fn wake_servers_on(&mut self, node: &str) {
        for key in self.keys_on(node) {
            self.wake(Wake::Server(key));
        }
    }

    /// Notes what is about to be written, so that room and numbers are counted before the API server answers.
    pub(crate) fn begin(&mut self, key: Key, flight: InFlight) {
        self.in_flight.insert(key, flight);
    }

    /// What was in flight did not happen, or is known from its answer.
    pub(crate) fn end(&mut self, key: &Key) {
        let Some(flight) = self.in_flight.remove(key) else { return };
        let arrived = self.servers.get(key).and_then(|server| server.node.as_deref());
        if flight.node.is_some() && flight.node.as_deref() != arrived {
            self.wake(Wake::Waiting);
        }
    }

    fn list(&mut self, server: &Server) {
        if let Some(set) = &server.set {
            self.by_set.entry(set.clone()).or_default().insert(server.key.clone());
        }
        if let Some(node) = &server.node {
            self.by_node.entry(node.clone()).or_default().insert(server.key.clone());
        }
        if server.is_waiting() {
            self.waiting.insert(server.key.clone());
        }
    }

    fn unlist(&mut self, server: &Server) {
        if let Some(set) = &server.set
            && let Some(keys) = self.by_set.get_mut(set)
        {
            keys.remove(&server.key);
            if keys.is_empty() {
                self.by_set.remove(set);
            }
        }
        if let Some(node) = &server.node
            && let Some(keys) = self.by_node.get_mut(node)
        {
            keys.remove(&server.key);
            if keys.is_empty() {
                self.by_node.remove(node);
            }
        }
        self.waiting.remove(&server.key);
    }
}

/// The Fleet that an object says it belongs to.
fn fleet_of(metadata: &ObjectMeta) -> Option<Key> {
    let name = metadata.labels.as_ref()?.get(FLEET_LABEL).filter(|name| !name.is_empty())?;
    Some(Key::new(metadata.namespace.clone().unwrap_or_default(), name))
}
