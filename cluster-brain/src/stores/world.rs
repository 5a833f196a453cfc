//! The picture itself: objects, the servers that are being written, and who must look again after a change. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use berth_api::conditions::Trouble;
use berth_api::fleet::Fleet;
use berth_api::game_node::Room;
use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_api::names::FLEET_LABEL;
use berth_runtime::clock::Instant;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ObjectMeta;

use super::cluster::Cluster;
use super::server::Server;
use super::shelf::{Change, Kept, Shelf};
use super::{Key, Wake};
use crate::fencing::Sight;
use crate::game_server_set::Strain;
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

impl Kept for PodDisruptionBudget {
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
    pub(crate) budgets: Shelf<PodDisruptionBudget>,
    /// By the server's key, until a watch or an answer shows what became of it.
    pub(super) in_flight: BTreeMap<Key, InFlight>,
    pub(super) by_set: HashMap<String, BTreeSet<Key>>,
    pub(super) by_node: BTreeMap<String, BTreeSet<Key>>,
    pub(super) waiting: BTreeSet<Key>,
    /// How the new servers of sets fare, by the set's UID.
    strains: HashMap<String, Strain>,
    wakes: Vec<Wake>,
}

impl World {
    /// An empty picture. `lease_gap`: the longest time without an event of a watch of leases that lives.
    pub(crate) fn new(reserve: Room, lease_gap: Duration) -> Self {
        let mut world = Self { reserve, ..Self::default() };
        world.cluster.expect_leases_every(lease_gap);
        world
    }

    /// What is seen of the nodes that matter; `None` while nobody may judge them.
    pub(crate) fn sights(&self, now: Instant) -> Option<BTreeMap<String, Sight>> {
        let is_own = |node: &&String| !self.cluster.leases.contains_key(*node);
        self.cluster.sights(self.by_node.keys().filter(is_own).map(String::as_str), now)
    }

    pub(crate) fn take_wakes(&mut self) -> Vec<Wake> {
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
            self.strains.remove(&uid);
        }
    }

    /// Whether the set's new servers come up.
    fn note_strain(&mut self, change: &Change<Server>) {
        let (Some(before), Some(after)) = (&change.before, &change.after) else { return };
        let Some(set) = after.set.as_ref().filter(|_| before.uid == after.uid) else { return };
        if after.was_ready && !before.was_ready {
            self.strains.remove(set);
        } else if let Some(reason) = after.failed_start().filter(|_| before.failed_start().is_none()) {
            self.strains.entry(set.clone()).or_default().note_failure(&reason);
        }
    }

    /// How long the next servers of a set wait, and what is to be said of that.
    pub(crate) fn strain(&mut self, set: &str, now: Instant) -> (Option<Duration>, Option<Trouble>) {
        let Some(strain) = self.strains.get_mut(set) else { return (None, None) };
        (strain.wait(now), strain.trouble())
    }

    pub(crate) fn note_budget(&mut self, change: Option<Change<PodDisruptionBudget>>) {
        let Some(change) = change else { return };
        let spec = |budget: &Option<Arc<PodDisruptionBudget>>| {
            budget.as_ref().map(|budget| (budget.spec.clone(), budget.metadata.deletion_timestamp.is_some()))
        };
        if spec(&change.before) == spec(&change.after) {
            return;
        }
        let Some(one) = change.after.as_ref().or(change.before.as_ref()) else { return };
        let namespace = one.metadata.namespace.clone().unwrap_or_default();
        let sets: Vec<Key> = self.sets.within(&namespace).map(|set| set.key()).collect();
        for set in sets {
            self.wake(Wake::SetSoon(set));
        }
        self.wake(Wake::Namespace(namespace));
    }

    pub(crate) fn note_server(&mut self, change: Option<Change<Server>>) {
        let Some(change) = change else { return };
        if let (None, Some(after)) = (&change.before, &change.after) {
            self.wake(Wake::Namespace(after.key.namespace.clone()));
        }
        self.note_strain(&change);
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
    pub(crate) fn wake_servers_on(&mut self, node: &str) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn game_server(name: &str, version: u32, node: &str) -> GameServer {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "games", "uid": format!("uid-{name}"),
                "resourceVersion": version.to_string(), "finalizers": [berth_api::names::FINALIZER],
                "ownerReferences": [{
                    "apiVersion": "agones.dev/v1", "kind": "GameServerSet", "name": "set", "uid": "uid-set",
                    "controller": true,
                }],
            },
            "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {"state": "Creating", "nodeName": node},
        }))
        .expect("a GameServer")
    }

    fn key(name: &str) -> Key {
        Key::new("games", name)
    }

    fn coming(world: &mut World, name: &str, node: &str) {
        let object = game_server(name, 0, node);
        let flight = InFlight {
            set: Some("uid-set".to_owned()),
            node: Some(node.to_owned()),
            needs: Arc::new(Needs::of(&object.spec)),
            object: Some(Arc::new(object)),
        };
        world.begin(key(name), flight);
    }

    /// Servers of the set, seen and being created, and what uses room on the node.
    fn counts(world: &World) -> (usize, usize, usize) {
        (world.servers_of("uid-set").len(), world.being_created("uid-set"), world.loads_on("n1").count())
    }

    #[test]
    fn a_server_counts_once_from_its_decision_to_its_end() {
        for is_answer_first in [true, false] {
            let mut world = World::default();
            coming(&mut world, "a", "n1");
            assert_eq!(counts(&world), (0, 1, 1), "decided");
            assert!(!world.is_free(&key("a")));
            for is_answer in [is_answer_first, !is_answer_first] {
                match is_answer {
                    true => world.server_created(&game_server("a", 1, "n1")),
                    false => world.see_server(&game_server("a", 1, "n1")),
                }
                assert_eq!(counts(&world), (1, 0, 1), "there, whoever says so first");
            }
            let change = world.servers.gone(&key("a"), Some("uid-a"));
            world.note_server(change);
            assert_eq!(counts(&world), (0, 0, 0), "gone");
            world.server_created(&game_server("a", 1, "n1"));
            assert_eq!(counts(&world), (0, 0, 0), "a late answer brings nothing back");
        }
    }

    #[test]
    fn what_nobody_answered_stays_until_it_is_known_or_unwanted() {
        let mut world = World::default();
        coming(&mut world, "a", "n1");
        world.forget_objects();
        assert_eq!(world.unanswered("uid-set").len(), 1, "a gap in leading");
        world.forget_orphans();
        assert_eq!(world.unanswered("uid-set").len(), 0, "its set is no more");
        coming(&mut world, "b", "n1");
        world.forget_in_flight();
        assert_eq!(counts(&world), (0, 0, 0), "another has led");
    }

    #[test]
    fn a_hand_over_counts_on_its_node_until_it_is_answered() {
        let mut world = World::default();
        world.see_server(&game_server("a", 1, ""));
        assert_eq!(world.waiting(), [key("a")]);
        let needs = Arc::clone(&world.servers.get(&key("a")).expect("the server").needs);
        let flight = InFlight { set: None, node: Some("n1".to_owned()), needs, object: None };
        world.begin(key("a"), flight);
        assert_eq!(counts(&world), (1, 0, 1));
        world.server_changed(&game_server("a", 2, "n1"));
        assert_eq!(counts(&world), (1, 0, 1), "not twice");
        world.take_wakes();
        world.end(&key("a"));
        assert_eq!(counts(&world), (1, 0, 1));
        assert!(world.waiting().is_empty());
        assert!(!world.take_wakes().contains(&Wake::Waiting), "no room came free");
    }

    #[test]
    fn room_that_comes_free_wakes_those_that_wait() {
        let mut world = World::default();
        world.see_server(&game_server("a", 1, "n1"));
        world.take_wakes();
        world.see_server(&game_server("a", 2, "n1"));
        assert!(!world.take_wakes().contains(&Wake::Waiting));
        let change = world.servers.gone(&key("a"), None);
        world.note_server(change);
        let wakes = world.take_wakes();
        assert!(wakes.contains(&Wake::Waiting) && wakes.contains(&Wake::SetSoon(key("set"))), "{wakes:?}");
        coming(&mut world, "b", "n1");
        world.end(&key("b"));
        assert!(world.take_wakes().contains(&Wake::Waiting), "a creation that was refused");
    }

    #[test]
    fn a_server_that_fails_before_it_was_ready_strains_its_set_and_a_ready_one_ends_that() {
        let mut world = World::default();
        let mut version = 0;
        let mut see = |world: &mut World, name: &str, state: &str, reason: Option<&str>| {
            version += 1;
            let mut object = json!(game_server(name, version, "n1"));
            object["status"]["state"] = json!(state);
            if let Some(reason) = reason {
                object["metadata"]["annotations"] = json!({berth_api::names::REASON_ANNOTATION: reason});
            }
            world.see_server(&serde_json::from_value(object).expect("a GameServer"));
        };
        let now = Instant::now();
        let strained = |world: &mut World| {
            let _ = world.strain("uid-set", now);
            world.strains.contains_key("uid-set")
        };
        see(&mut world, "wanted-no-more", "Scheduled", None);
        see(&mut world, "wanted-no-more", "Shutdown", None);
        assert!(!strained(&mut world), "a scale-down is no failure");
        see(&mut world, "met-late", "Unhealthy", Some("Failed: x"));
        assert!(!strained(&mut world), "nobody knows what it was before");
        see(&mut world, "old", "Ready", None);
        see(&mut world, "old", "Unhealthy", Some("PingsMissed: x"));
        assert!(!strained(&mut world), "it served");
        see(&mut world, "cut-off", "Scheduled", None);
        see(&mut world, "cut-off", "Unhealthy", Some("NodeGone: x"));
        assert!(!strained(&mut world), "the build is not to blame");
        for (name, state) in [("a", "Unhealthy"), ("b", "Error"), ("c", "Shutdown")] {
            let mut world = World::default();
            see(&mut world, name, "Scheduled", None);
            see(&mut world, name, state, Some("Failed: x"));
            assert!(strained(&mut world), "{state} before it was Ready");
            see(&mut world, "next", "Scheduled", None);
            see(&mut world, "next", "Ready", None);
            assert!(!strained(&mut world), "one that starts ends it");
        }
    }

    #[test]
    fn servers_of_one_set_share_what_they_need() {
        let mut world = World::default();
        world.see_server(&game_server("a", 1, "n1"));
        world.see_server(&game_server("b", 2, "n1"));
        let needs = |name| Arc::as_ptr(&world.servers.get(&key(name)).expect("a server").needs);
        assert_eq!(needs("a"), needs("b"));
    }
}
