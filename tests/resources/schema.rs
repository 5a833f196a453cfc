//! What the schemas take, fill in and refuse.

use serde_json::{Value, json};

use crate::objects::{fleet, game, game_server, pod};

/// A good object, and what must be stored at each path.
pub(crate) fn good() -> Vec<(Value, Vec<(&'static str, Value)>)> {
    vec![
        (
            game_server("minimal", json!({ "ports": [{ "name": "default", "containerPort": 7654 }] })),
            vec![
                ("/spec/ports/0/portPolicy", json!("Dynamic")),
                ("/spec/ports/0/range", json!("default")),
                ("/spec/ports/0/protocol", json!("UDP")),
                ("/spec/health/periodSeconds", json!(5)),
                ("/spec/health/failureThreshold", json!(3)),
                ("/spec/health/initialDelaySeconds", json!(5)),
                ("/spec/health/disabled", json!(false)),
                ("/spec/scheduling", json!("Packed")),
                ("/spec/sdkServer/logLevel", json!("Info")),
                ("/spec/sdkServer/grpcPort", json!(9357)),
                ("/spec/sdkServer/httpPort", json!(9358)),
                ("/spec/eviction/safe", json!("Never")),
                ("/spec/immutableReplicas", json!(1)),
            ],
        ),
        (
            game_server("counted", json!({ "counters": { "rooms": {} }, "lists": { "players": {} } })),
            vec![
                ("/spec/counters/rooms/count", json!(0)),
                ("/spec/counters/rooms/capacity", json!(1000)),
                ("/spec/lists/players/capacity", json!(1000)),
                ("/spec/lists/players/values", json!([])),
            ],
        ),
        (game_server("no-ports", json!({ "ports": null })), vec![]),
        (
            game_server(
                "port-without-protocol",
                json!({ "template": pod(json!({ "name": "main", "image": "game", "ports": [{ "containerPort": 1 }] })) }),
            ),
            vec![("/spec/template/spec/containers/0/ports/0/protocol", json!("TCP"))],
        ),
        (
            fleet("bare", json!({})),
            vec![
                ("/spec/replicas", json!(0)),
                ("/spec/scheduling", json!("Packed")),
                ("/spec/strategy/type", json!("RollingUpdate")),
                ("/spec/strategy/rollingUpdate/maxSurge", json!("25%")),
                ("/spec/strategy/rollingUpdate/maxUnavailable", json!("25%")),
                ("/spec/template/spec/health", Value::Null),
                ("/spec/template/spec/scheduling", Value::Null),
                ("/spec/template/spec/template/spec/containers/0/name", json!("main")),
            ],
        ),
        (
            fleet("recreate", json!({ "replicas": 3, "strategy": { "type": "Recreate" } })),
            vec![("/spec/strategy/rollingUpdate", Value::Null)],
        ),
        (
            fleet(
                "steps",
                json!({ "strategy": { "rollingUpdate": { "maxSurge": "99%", "maxUnavailable": 500 } } }),
            ),
            vec![
                ("/spec/strategy/rollingUpdate/maxSurge", json!("99%")),
                ("/spec/strategy/rollingUpdate/maxUnavailable", json!(500)),
            ],
        ),
        (
            fleet("no-sign", json!({ "strategy": { "rollingUpdate": { "maxSurge": "5" } } })),
            vec![("/spec/strategy/rollingUpdate/maxUnavailable", json!("25%"))],
        ),
        (
            fleet("ordered", json!({ "priorities": [{ "type": "Counter", "key": "rooms" }] })),
            vec![("/spec/priorities/0/order", json!("Ascending"))],
        ),
        (
            fleet(
                "as-written",
                json!({ "template": { "spec": {
                    "counters": { "rooms": {} },
                    "template": pod(json!({
                        "name": "main",
                        "image": "game",
                        "resources": { "requests": { "cpu": "1000m", "memory": "0.5Gi" } },
                    })),
                } } }),
            ),
            vec![
                ("/spec/template/spec/template/spec/containers/0/resources/requests/cpu", json!("1000m")),
                ("/spec/template/spec/counters/rooms", json!({})),
            ],
        ),
        (
            json!({ "apiVersion": "berth.dev/v1", "kind": "GameNode", "metadata": { "name": "node" }, "spec": {} }),
            vec![],
        ),
    ]
}

/// A bad object that no other table has, and words that its refusal must contain.
pub(crate) fn bad() -> Vec<(Value, Vec<&'static str>)> {
    vec![
        (
            json!({ "apiVersion": "agones.dev/v1", "kind": "GameServer", "metadata": { "name": "bad" }, "spec": {} }),
            vec!["spec.template", "Required"],
        ),
        (
            json!({ "apiVersion": "agones.dev/v1", "kind": "GameServer", "metadata": { "name": "bad" } }),
            vec!["spec", "Required"],
        ),
        (
            json!({
                "apiVersion": "agones.dev/v1",
                "kind": "GameServerSet",
                "metadata": { "name": "bad" },
                "spec": { "template": { "spec": { "template": game() } } },
            }),
            vec!["spec.replicas", "Required"],
        ),
        (
            json!({
                "apiVersion": "berth.dev/v1",
                "kind": "GameNode",
                "metadata": { "name": "bad" },
                "spec": { "drain": { "reason": "upgrade" } },
            }),
            vec!["spec.drain.by", "Required"],
        ),
    ]
}
