//! Servers that are not replaced because their autoscaler is about to want one less. Pure.
//!
//! A Fleet's number stays between two looks of its autoscaler. When a session ends in between, a set that knew only that
//! number would make a server, and let one go at the next look. Where a Buffer alone decides, what it will say is known
//! already, so the set waits for it.

use std::sync::Arc;

use berth_api::fleet_autoscaler::{FleetAutoscaler, PolicyKind};
use berth_api::game_server_set::GameServerSet;
use berth_api::names::FLEET_LABEL;

use super::buffer;
use crate::stores::{Key, World};

/// How many servers a set does not make until its autoscaler has looked.
pub(crate) fn spared(world: &World, set: &GameServerSet) -> usize {
    let ended = world.sessions_ended(set.metadata.uid.as_deref().unwrap_or_default());
    if ended == 0 {
        return 0;
    }
    ended.min(beyond(world, set).unwrap_or(0))
}

/// How many servers the Fleet has to have beyond what its Buffer would say now.
fn beyond(world: &World, set: &GameServerSet) -> Option<usize> {
    let namespace = set.metadata.namespace.as_deref()?;
    let name = set.metadata.labels.as_ref()?.get(FLEET_LABEL)?;
    let fleet = world.fleets.get(&Key::new(namespace, name))?;
    // An update counts by sets, which is no time to leave one short.
    if world.sets_of(namespace, fleet.metadata.uid.as_deref()?).len() != 1 {
        return None;
    }
    let is_of_fleet = |one: &&Arc<FleetAutoscaler>| {
        one.spec.fleet_name == *name && one.metadata.deletion_timestamp.is_none()
    };
    let mut autoscalers = world.autoscalers.within(namespace).filter(is_of_fleet);
    let (Some(autoscaler), None) = (autoscalers.next(), autoscalers.next()) else { return None };
    let policy = &autoscaler.spec.policy;
    let buffer = policy.buffer.as_ref().filter(|_| policy.kind == PolicyKind::Buffer)?;
    let servers = world.servers_of(set.metadata.uid.as_deref()?);
    let allocated = servers.iter().filter(|server| server.has_session()).count();
    let desired = buffer::decide(buffer, i32::try_from(allocated).ok()?).ok()?;
    usize::try_from(fleet.spec.replicas() - desired.replicas).ok()
}

#[cfg(test)]
mod tests {
    use berth_api::game_server::GameServer;
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }

    fn owner(kind: &str, name: &str) -> Value {
        json!([{"apiVersion": "agones.dev/v1", "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true}])
    }

    fn game_server(name: &str, version: u32, state: &str) -> GameServer {
        read(json!({
            "metadata": {
                "name": name, "namespace": "games", "uid": format!("uid-{name}"),
                "resourceVersion": version.to_string(), "ownerReferences": owner("GameServerSet", "set"),
            },
            "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {"state": state, "nodeName": "n1"},
        }))
    }

    fn set() -> GameServerSet {
        read(json!({
            "metadata": {
                "name": "set", "namespace": "games", "uid": "uid-set", "resourceVersion": "1",
                "labels": {FLEET_LABEL: "lobby"}, "ownerReferences": owner("Fleet", "lobby"),
            },
            "spec": {"replicas": 2, "template": {"spec": {"template": {}}}},
        }))
    }

    /// A Fleet of two with a buffer of one: a session, and a server beside it.
    fn world(policy: Value) -> World {
        let mut world = World::default();
        let fleet = json!({
            "metadata": {"name": "lobby", "namespace": "games", "uid": "uid-lobby", "resourceVersion": "1"},
            "spec": {"replicas": 2, "template": {"spec": {"template": {}}}},
        });
        let autoscaler = json!({
            "metadata": {"name": "a", "namespace": "games", "uid": "uid-a", "resourceVersion": "1"},
            "spec": {"fleetName": "lobby", "policy": policy},
        });
        world.note_fleet(None);
        let _ = world.fleets.seen(read(fleet));
        let _ = world.sets.seen(set());
        let _ = world.autoscalers.seen(read(autoscaler));
        world.see_server(&game_server("one", 1, "Allocated"));
        world.see_server(&game_server("two", 1, "Ready"));
        world
    }

    fn buffer_of(size: i32) -> Value {
        json!({"type": "Buffer", "buffer": {"bufferSize": size, "minReplicas": 1, "maxReplicas": 10}})
    }

    #[test]
    fn a_session_that_ends_is_not_replaced_where_its_buffer_wants_one_less() {
        let mut world = world(buffer_of(1));
        assert_eq!(spared(&world, &set()), 0, "nothing has ended");
        world.see_server(&game_server("one", 2, "Shutdown"));
        assert_eq!(spared(&world, &set()), 1);
        world.autoscaler_looked(&Key::new("games", "lobby"));
        assert_eq!(spared(&world, &set()), 0, "it has looked, and the Fleet's number is its word");
    }

    #[test]
    fn whatever_else_ends_or_decides_is_replaced() {
        let mut ready_ended = world(buffer_of(1));
        ready_ended.see_server(&game_server("two", 2, "Unhealthy"));
        assert_eq!(spared(&ready_ended, &set()), 0, "no session ended");
        let mut back_to_ready = world(buffer_of(1));
        back_to_ready.see_server(&game_server("one", 2, "Ready"));
        assert_eq!(spared(&back_to_ready, &set()), 0, "the server is still there");
        let mut larger = world(buffer_of(2));
        larger.see_server(&game_server("one", 2, "Shutdown"));
        assert_eq!(spared(&larger, &set()), 0, "the buffer needs it");
        let mut asked = world(json!({"type": "Webhook", "webhook": {"url": "https://example.com"}}));
        asked.see_server(&game_server("one", 2, "Shutdown"));
        assert_eq!(spared(&asked, &set()), 0, "nobody knows what a webhook says");
    }
}
