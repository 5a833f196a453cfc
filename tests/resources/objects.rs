//! Objects as a user writes them.

use berth_stories::resources::resource;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

pub(crate) fn pod(container: Value) -> Value {
    json!({ "spec": { "containers": [container] } })
}

pub(crate) fn game() -> Value {
    pod(json!({ "name": "main", "image": "game" }))
}

pub(crate) fn game_server(name: &str, spec: Value) -> Value {
    let mut whole = json!({ "template": game() });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "agones.dev/v1",
        "kind": "GameServer",
        "metadata": { "name": name },
        "spec": whole,
    })
}

pub(crate) fn fleet(name: &str, fields: Value) -> Value {
    let mut spec = json!({ "template": { "spec": { "template": game() } } });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ "apiVersion": "agones.dev/v1", "kind": "Fleet", "metadata": { "name": name }, "spec": spec })
}

pub(crate) fn set(name: &str, fields: Value) -> Value {
    let mut set = fleet(name, fields);
    set["kind"] = json!("GameServerSet");
    set["spec"]["replicas"] = json!(1);
    set
}

fn plural(object: &Value) -> (&str, &'static str) {
    match object["kind"].as_str().unwrap() {
        "GameServer" => ("GameServer", "gameservers"),
        "GameServerSet" => ("GameServerSet", "gameserversets"),
        "Fleet" => ("Fleet", "fleets"),
        "FleetAutoscaler" => ("FleetAutoscaler", "fleetautoscalers"),
        "GameServerAllocationPolicy" => ("GameServerAllocationPolicy", "gameserverallocationpolicies"),
        "GameNode" => ("GameNode", "gamenodes"),
        other => panic!("no such kind: {other}"),
    }
}

pub(crate) fn api(client: &kube::Client, object: &Value) -> Api<DynamicObject> {
    let (kind, plural) = plural(object);
    let resource = resource(kind, plural);
    if kind == "GameNode" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), "default", &resource)
    }
}
