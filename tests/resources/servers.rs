//! The vectors of a GameServer that show many faults at once, and development servers.

use serde_json::{Value, json};

use crate::objects::game_server;

/// A bad GameServer, and everything its one refusal says.
pub(crate) fn bad() -> Vec<(Value, Vec<&'static str>)> {
    let several = json!([{ "name": "main", "image": "game" }, {
        "name": "log",
        "image": "log",
        "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } },
    }]);
    vec![
        (
            game_server(
                "nothing-chosen",
                json!({
                    "ports": [{ "hostPort": 5 }],
                    "template": { "spec": { "containers": [{ "name": "main" }, { "name": "log" }] } },
                }),
            ),
            vec![
                "spec.container: required",
                "spec.ports[0].containerPort: required with portPolicy Dynamic",
                "spec.ports[0].hostPort: must be left out with portPolicy Dynamic",
            ],
        ),
        (
            game_server(
                "all-wrong",
                json!({
                    "container": "zzz",
                    "players": { "initialCapacity": 10 },
                    "ports": [{ "portPolicy": "Passthrough", "containerPort": 5, "container": "q" }],
                    "template": { "spec": { "containers": several } },
                }),
            ),
            vec![
                "spec.container: \"zzz\"",
                "spec.ports[0].containerPort: must be left out with portPolicy Passthrough",
                "spec.ports[0].container: \"q\"",
                "spec.template.spec.containers[1].resources.requests.cpu: 2",
            ],
        ),
        (
            development("nope", json!({ "ports": [{ "containerPort": 7654 }] })),
            vec![
                "metadata.annotations.agones.dev/dev-address: \"nope\" is not an IP address",
                "spec.ports[0].hostPort: required for a development server",
                "spec.ports[0].portPolicy: must be Static for a development server",
            ],
        ),
        (
            development("", json!({})),
            vec!["metadata.annotations.agones.dev/dev-address: \"\" is not an IP address"],
        ),
        (
            development("192.168.1.5", json!({ "template": { "metadata": { "labels": { "a b": "" } } } })),
            vec!["spec.template.metadata.labels[a b]"],
        ),
        (game_server(&"x".repeat(64), json!({})), vec!["metadata.name", "63"]),
    ]
}

/// A good GameServer.
pub(crate) fn good() -> Vec<Value> {
    let ports = json!([{ "portPolicy": "Static", "hostPort": 7777 }]);
    vec![
        development("192.168.1.5", json!({ "ports": ports })),
        development("fd00::5", json!({ "ports": ports })),
        // No pod is made of it, so its pod may be anything.
        development("127.0.0.1", json!({ "template": { "spec": { "containers": [], "nodeName": "a" } } })),
        game_server(&"x".repeat(63), json!({})),
        game_server("dotted.name", json!({})),
    ]
}

fn development(address: &str, spec: Value) -> Value {
    let mut server = game_server(&format!("dev-{}x", address.replace(':', "-")), spec);
    server["metadata"]["annotations"] = json!({ "agones.dev/dev-address": address });
    server
}
