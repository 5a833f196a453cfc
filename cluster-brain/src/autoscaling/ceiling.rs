//! How many servers a set makes at most, since its autoscaler would have no more. Pure.
//!
//! A Fleet's number stays between two looks of its autoscaler. When a session ends in between, a set that knew only that
//! number would make a server, and let one go at the next look. Where a Buffer alone decides, what it will say is known
//! already, so the set makes no more than that. What is there goes by the Fleet's number alone.

use std::sync::Arc;

use berth_api::fleet_autoscaler::{FleetAutoscaler, PolicyKind};
use berth_api::game_server_set::GameServerSet;
use berth_api::names::FLEET_LABEL;

use super::buffer;
use crate::stores::{Key, World};

/// What the Buffer of the set's Fleet would say now; `None` where more than one Buffer over one set decides.
pub(crate) fn ceiling(world: &World, set: &GameServerSet) -> Option<usize> {
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
    usize::try_from(desired.replicas).ok()
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
    fn a_buffer_says_how_many_there_will_be() {
        let mut world = world(buffer_of(1));
        assert_eq!(ceiling(&world, &set()), Some(2), "a session, and a server beside it");
        world.see_server(&game_server("two", 2, "Unhealthy"));
        assert_eq!(ceiling(&world, &set()), Some(2), "what fails without a session is replaced");
        world.see_server(&game_server("one", 2, "Shutdown"));
        assert_eq!(ceiling(&world, &set()), Some(1), "a session that ended is not");
    }

    #[test]
    fn a_buffer_keeps_its_own_limits() {
        let mut world = world(
            json!({"type": "Buffer", "buffer": {"bufferSize": 2, "minReplicas": 3, "maxReplicas": 10}}),
        );
        world.see_server(&game_server("one", 2, "Shutdown"));
        assert_eq!(ceiling(&world, &set()), Some(3));
    }

    #[test]
    fn nobody_knows_what_others_will_say() {
        let webhook = world(json!({"type": "Webhook", "webhook": {"url": "https://example.com"}}));
        assert_eq!(ceiling(&webhook, &set()), None);
        let mut two = world(buffer_of(1));
        let _ = two.autoscalers.seen(read(json!({
            "metadata": {"name": "b", "namespace": "games", "uid": "uid-b", "resourceVersion": "1"},
            "spec": {"fleetName": "lobby", "policy": buffer_of(3)},
        })));
        assert_eq!(ceiling(&two, &set()), None, "two autoscalers");
        let mut bad = world(buffer_of(1));
        let _ = bad.autoscalers.seen(read(json!({
            "metadata": {"name": "a", "namespace": "games", "uid": "uid-a", "resourceVersion": "2"},
            "spec": {"fleetName": "lobby", "policy": buffer_of(0)},
        })));
        assert_eq!(ceiling(&bad, &set()), None, "a buffer that nobody understands");
        let mut updated = world(buffer_of(1));
        let mut other = set();
        (other.metadata.name, other.metadata.uid) = (Some("newer".into()), Some("uid-newer".into()));
        let _ = updated.sets.seen(other);
        assert_eq!(ceiling(&updated, &set()), None, "an update goes on");
    }
}
