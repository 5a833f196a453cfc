//! What the author of a GameServerAllocationPolicy may say. Each row has a bad one and, next to it, one that is almost the
//! same and good.

use serde_json::{Value, json};

/// One rule, from both sides: a spec, and what the refusal says.
pub(crate) type Row = (&'static str, Value, Vec<&'static str>, Value);

pub(crate) fn policy(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "multicluster.agones.dev/v1",
        "kind": "GameServerAllocationPolicy",
        "metadata": { "name": name },
        "spec": spec,
    })
}

fn share(priority: i64, weight: i64) -> Value {
    json!({ "priority": priority, "weight": weight, "connectionInfo": { "namespace": "games" } })
}

fn reached(connection: Value) -> Value {
    json!({ "priority": 1, "weight": 1, "connectionInfo": connection })
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        ("priority", share(-1, 1), vec!["spec.priority", "greater than or equal to 0"], share(0, 1)),
        ("weight", share(1, -1), vec!["spec.weight", "greater than or equal to 0"], share(1, 0)),
        (
            "no priority",
            json!({ "weight": 1, "connectionInfo": { "namespace": "games" } }),
            vec!["spec.priority", "Required"],
            share(1, 1),
        ),
        (
            "no weight",
            json!({ "priority": 1, "connectionInfo": { "namespace": "games" } }),
            vec!["spec.weight", "Required"],
            share(1, 1),
        ),
        (
            "no namespace",
            reached(json!({ "clusterName": "there" })),
            vec!["spec.connectionInfo.namespace", "Required"],
            reached(json!({ "clusterName": "there", "namespace": "games" })),
        ),
        (
            "no endpoints",
            reached(json!({ "namespace": "games", "allocationEndpoints": [] })),
            vec!["spec.connectionInfo.allocationEndpoints", "at least 1"],
            reached(json!({ "namespace": "games", "allocationEndpoints": ["a.example"] })),
        ),
        (
            "server ca",
            reached(json!({ "namespace": "games", "serverCa": "-----BEGIN CERTIFICATE-----" })),
            vec!["spec.connectionInfo.serverCa", "byte"],
            reached(json!({ "namespace": "games", "serverCa": "LS0t" })),
        ),
    ]
}
