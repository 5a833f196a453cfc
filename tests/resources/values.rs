//! Amounts, labels, annotations, numbers and words in a game server: the second half of the table in `templates`.

use serde_json::{Value, json};

use crate::objects::pod;
use crate::templates::{Row, row, with_pod};

fn with_resources(resources: Value) -> Value {
    json!({ "template": pod(json!({ "name": "main", "image": "game", "resources": resources })) })
}

fn marked(metadata: Value) -> Value {
    let mut template = pod(json!({ "name": "main", "image": "game" }));
    template["metadata"] = metadata;
    json!({ "template": template })
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = amounts();
    rows.extend(marks());
    rows.extend(numbers_and_words());
    rows
}

fn amounts() -> Vec<Row> {
    vec![
        row(
            "memory limit below request",
            with_resources(json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "1000Mi" } })),
            [
                "{spec}.template.spec.containers[0].resources.requests.memory: 1Gi",
                "must be no more than its limit, 1000Mi",
            ],
            with_resources(json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "1024Mi" } })),
        ),
        row(
            "processors as numbers",
            with_resources(json!({ "requests": { "cpu": 2 }, "limits": { "cpu": 1 } })),
            ["{spec}.template.spec.containers[0].resources.requests.cpu: 2", "its limit, 1"],
            with_resources(
                json!({ "requests": { "cpu": 1, "memory": "1Mi" }, "limits": { "cpu": "1000m" } }),
            ),
        ),
        row(
            "an init container beyond its limit",
            with_pod(json!({ "initContainers": [{ "name": "a" }, {
                "name": "b",
                "resources": { "requests": { "cpu": "600m" }, "limits": { "cpu": "0.5" } },
            }] })),
            ["{spec}.template.spec.initContainers[1].resources.requests.cpu: 600m", "its limit, 0.5"],
            with_pod(json!({ "initContainers": [{
                "name": "a",
                "resources": { "requests": { "cpu": "500m" }, "limits": { "cpu": "0.5" } },
            }] })),
        ),
        row(
            "a negative request",
            with_resources(json!({ "requests": { "cpu": "-1" } })),
            ["{spec}.template.spec.containers[0].resources.requests.cpu: -1", "must be 0 or more"],
            with_resources(json!({ "requests": { "cpu": "0" } })),
        ),
        row(
            "a negative limit",
            with_resources(json!({ "limits": { "example.com/card": "-1" } })),
            ["{spec}.template.spec.containers[0].resources.limits.example.com/card: -1", "must be 0 or more"],
            with_resources(json!({ "limits": { "example.com/card": "1" } })),
        ),
        row(
            "an amount that is none",
            with_resources(json!({ "requests": { "memory": "1 GB" } })),
            ["{spec}.template.spec.containers[0].resources.requests.memory: \"1 GB\"", "1Gi"],
            with_resources(json!({ "requests": { "memory": "1G" } })),
        ),
        row(
            "the pod as a whole beyond its limit",
            with_pod(json!({ "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } } })),
            ["{spec}.template.spec.resources.requests.cpu: 2", "its limit, 1"],
            with_pod(json!({ "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1" } } })),
        ),
    ]
}

fn marks() -> Vec<Row> {
    let labels = |key: &str, value: &str| marked(json!({ "labels": { key: value } }));
    let annotations = |key: &str, value: &str| marked(json!({ "annotations": { key: value } }));
    let (long, fits) = ("k".repeat(64), "k".repeat(63));
    vec![
        row(
            "label key too long",
            labels(&long, ""),
            ["{spec}.template.metadata.labels[kkkk", "63"],
            labels(&format!("example.com/{fits}"), ""),
        ),
        row(
            "label key with a space",
            labels("my key", ""),
            ["{spec}.template.metadata.labels[my key]", "alphanumeric"],
            labels("my.key", ""),
        ),
        row(
            "label value too long",
            labels("key", &long),
            ["{spec}.template.metadata.labels[key]", "63"],
            labels("key", &fits),
        ),
        row(
            "label value with a slash",
            labels("key", "a/b"),
            ["{spec}.template.metadata.labels[key]: \"a/b\"", "alphanumeric"],
            annotations("key", "a/b"),
        ),
        row(
            "annotation key too long",
            annotations(&long, ""),
            ["{spec}.template.metadata.annotations[kkkk", "63"],
            annotations(&fits, "any text, of any length"),
        ),
        row(
            "annotation key of two slashes",
            annotations("a/b/c", ""),
            ["{spec}.template.metadata.annotations[a/b/c]"],
            annotations("example.com/B", ""),
        ),
        row(
            "annotations too large",
            annotations("key", &"x".repeat(262_144)),
            ["{spec}.template.metadata.annotations", "262144"],
            annotations("key", &"x".repeat(262_141)),
        ),
    ]
}

fn numbers_and_words() -> Vec<Row> {
    let counters = |counter: Value| json!({ "counters": { "rooms": counter } });
    let lists = |list: Value| json!({ "lists": { "players": list } });
    let health = |field: &str, value: i64| json!({ "health": { field: value } });
    let sdk = |sdk: Value| json!({ "sdkServer": sdk });
    let named = |field: &str, count: usize| {
        let each: serde_json::Map<String, Value> =
            (0..count).map(|number| (format!("n{number}"), json!({}))).collect();
        json!({ field: each })
    };
    let values = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
    vec![
        row(
            "health period below zero",
            health("periodSeconds", -1),
            ["{spec}.health.periodSeconds", "greater than or equal to 0"],
            health("periodSeconds", 0),
        ),
        row(
            "no failure allowed",
            health("failureThreshold", 0),
            ["{spec}.health.failureThreshold", "greater than or equal to 1"],
            health("failureThreshold", 1),
        ),
        row(
            "initial delay too long",
            health("initialDelaySeconds", 2_147_483_649),
            ["{spec}.health.initialDelaySeconds", "2147483648"],
            health("initialDelaySeconds", 2_147_483_648),
        ),
        row(
            "unknown scheduling",
            json!({ "scheduling": "Random" }),
            ["{spec}.scheduling", "Packed", "Distributed"],
            json!({ "scheduling": "Distributed" }),
        ),
        row(
            "SDK port zero",
            sdk(json!({ "grpcPort": 0 })),
            ["{spec}.sdkServer.grpcPort", "greater than or equal to 1"],
            sdk(json!({ "grpcPort": 1 })),
        ),
        row(
            "both SDK ports on one number",
            sdk(json!({ "httpPort": 9357 })),
            ["{spec}.sdkServer.httpPort: must differ from grpcPort, 9357"],
            sdk(json!({ "grpcPort": 9358, "httpPort": 9357 })),
        ),
        row(
            "unknown log level",
            sdk(json!({ "logLevel": "Loud" })),
            ["{spec}.sdkServer.logLevel", "Error", "Info", "Debug", "Trace"],
            sdk(json!({ "logLevel": "Trace" })),
        ),
        row(
            "unknown eviction rule",
            json!({ "eviction": { "safe": "Maybe" } }),
            ["{spec}.eviction.safe", "Always", "OnUpgrade", "Never"],
            json!({ "eviction": { "safe": "OnUpgrade" } }),
        ),
        row(
            "counter below zero",
            counters(json!({ "count": -1 })),
            ["{spec}.counters.rooms.count", "greater than or equal to 0"],
            // More than fits is taken, as in `agones.dev/v1`.
            counters(json!({ "count": 5, "capacity": 3 })),
        ),
        row(
            "counter capacity below zero",
            counters(json!({ "capacity": -1 })),
            ["{spec}.counters.rooms.capacity", "greater than or equal to 0"],
            counters(json!({ "capacity": i64::MAX })),
        ),
        row(
            "list capacity too high",
            lists(json!({ "capacity": 1001 })),
            ["{spec}.lists.players.capacity", "1000"],
            lists(json!({ "capacity": 1000 })),
        ),
        row(
            "list of too many values",
            lists(json!({ "values": values(1001) })),
            ["{spec}.lists.players.values", "1000"],
            lists(json!({ "values": values(1000), "capacity": 1 })),
        ),
        row(
            "list with a value twice",
            lists(json!({ "values": ["a", "b", "a"] })),
            ["{spec}.lists.players.values", "duplicate entries"],
            lists(json!({ "values": ["a", "b", "A"] })),
        ),
        row(
            "more than a thousand counters",
            named("counters", 1001),
            ["{spec}.counters", "1000"],
            named("counters", 1000),
        ),
        row(
            "more than a thousand lists",
            named("lists", 1001),
            ["{spec}.lists", "1000"],
            named("lists", 1000),
        ),
        row(
            "player capacity below zero",
            json!({ "players": { "initialCapacity": -1 } }),
            ["{spec}.players.initialCapacity", "greater than or equal to 0"],
            json!({ "players": { "initialCapacity": 0 } }),
        ),
        row(
            "more than one of itself",
            json!({ "immutableReplicas": 2 }),
            ["{spec}.immutableReplicas", "less than or equal to 1"],
            json!({ "immutableReplicas": 1 }),
        ),
        row(
            "a misspelled field of the pod",
            json!({ "template": pod(json!({ "name": "main", "image": "game", "resuorces": {} })) }),
            [".{spec}.template.spec.containers", ".resuorces: field not declared"],
            json!({ "template": pod(json!({ "name": "main", "image": "game", "resources": {} })) }),
        ),
    ]
}
