//! Servers as they come, change and go: from decisions, watches and answers, each counted once. Pure.

use std::sync::Arc;
use std::time::Duration;

use berth_api::conditions::Trouble;
use berth_api::game_server::GameServer;
use berth_runtime::clock::Instant;

use super::server::Server;
use super::shelf::Change;
use super::world::{InFlight, World};
use super::{Key, Wake};

impl World {
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
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::placement::Needs;

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
