//! What the author of a Fleet may say beside the game server. Each row has a bad Fleet and, next to it, one that is
//! almost the same and good.

use serde_json::{Value, json};

use crate::objects::game;

/// One rule, from both sides: fields of a Fleet's spec, and what the refusal says.
pub(crate) type Row = (&'static str, Value, Vec<&'static str>, Value);

fn step(field: &str, value: Value) -> Value {
    json!({ "strategy": { "rollingUpdate": { field: value } } })
}

fn priority(priority: Value) -> Value {
    json!({ "priorities": [{ "type": "List", "key": "players" }, priority] })
}

fn marked(metadata: Value) -> Value {
    json!({ "template": { "metadata": metadata, "spec": { "template": game() } } })
}

fn overflow(marks: Value) -> Value {
    json!({ "allocationOverflow": marks })
}

/// Every rule of a Fleet's own.
pub(crate) fn rows() -> Vec<Row> {
    let (long, fits) = ("k".repeat(64), "k".repeat(63));
    vec![
        (
            "replicas below zero",
            json!({ "replicas": -1 }),
            vec!["spec.replicas", "greater than or equal to 0"],
            json!({ "replicas": 0 }),
        ),
        (
            "unknown strategy",
            json!({ "strategy": { "type": "Blue" } }),
            vec!["spec.strategy.type", "Recreate", "RollingUpdate"],
            json!({ "strategy": { "type": "RollingUpdate" } }),
        ),
        (
            "surge of all",
            step("maxSurge", json!("100%")),
            vec!["spec.strategy.rollingUpdate.maxSurge", "[1-9][0-9]?%?"],
            step("maxSurge", json!("99%")),
        ),
        (
            "surge of nothing",
            step("maxSurge", json!("0%")),
            vec!["spec.strategy.rollingUpdate.maxSurge", "[1-9][0-9]?%?"],
            step("maxSurge", json!("5")),
        ),
        (
            "unavailable in words",
            step("maxUnavailable", json!("some")),
            vec!["spec.strategy.rollingUpdate.maxUnavailable", "[1-9][0-9]?%?"],
            step("maxUnavailable", json!("1%")),
        ),
        (
            "none unavailable",
            step("maxUnavailable", json!(0)),
            vec!["spec.strategy.rollingUpdate.maxUnavailable", "greater than or equal to 1"],
            step("maxUnavailable", json!(500)),
        ),
        (
            "unknown scheduling",
            json!({ "scheduling": "Random" }),
            vec!["spec.scheduling", "Packed", "Distributed"],
            json!({ "scheduling": "Distributed" }),
        ),
        (
            "priority of an unknown type",
            priority(json!({ "type": "John", "key": "rooms" })),
            vec!["spec.priorities[1].type", "Counter", "List"],
            priority(json!({ "type": "Counter", "key": "rooms" })),
        ),
        (
            "priority in an unknown order",
            priority(json!({ "type": "Counter", "key": "rooms", "order": "Up" })),
            vec!["spec.priorities[1].order", "Ascending", "Descending"],
            priority(json!({ "type": "Counter", "key": "rooms", "order": "Descending" })),
        ),
        (
            "priority of nothing",
            priority(json!({ "type": "Counter" })),
            vec!["spec.priorities[1].key", "Required"],
            priority(json!({ "type": "Counter", "key": "no such counter" })),
        ),
        (
            "label key of the servers too long",
            marked(json!({ "labels": { &long: "" } })),
            vec!["spec.template.metadata.labels[kkkk", "63"],
            marked(json!({ "labels": { &fits: "" } })),
        ),
        (
            "label value of the servers too long",
            marked(json!({ "labels": { "key": &long } })),
            vec!["spec.template.metadata.labels[key]", "63"],
            marked(json!({ "labels": { "key": &fits } })),
        ),
        (
            "annotation key of the servers too long",
            marked(json!({ "annotations": { &long: "" } })),
            vec!["spec.template.metadata.annotations[kkkk", "63"],
            marked(json!({ "annotations": { "key": &long } })),
        ),
        (
            "overflow label with a space",
            overflow(json!({ "labels": { "key": "too many" } })),
            vec!["spec.allocationOverflow.labels[key]: \"too many\"", "alphanumeric"],
            overflow(json!({ "labels": { "key": "too-many" }, "annotations": null })),
        ),
        (
            "overflow annotation without a name",
            overflow(json!({ "annotations": { "example.com/": "" } })),
            vec!["spec.allocationOverflow.annotations[example.com/]", "non-empty"],
            overflow(json!({ "annotations": { "example.com/a": "too many" }, "labels": null })),
        ),
        (
            "no game server",
            json!({ "template": {} }),
            vec!["spec.template.spec", "Required"],
            json!({ "template": { "spec": { "template": game() } } }),
        ),
        (
            "no pod",
            json!({ "template": { "spec": {} } }),
            vec!["spec.template.spec.template", "Required"],
            // Nothing of the template is filled in, and an address of a developer's machine says nothing here.
            marked(json!({ "annotations": { "agones.dev/dev-address": "nowhere" } })),
        ),
    ]
}
