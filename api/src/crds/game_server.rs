//! GameServer's definition, and the schema of its spec for all who carry one.

use serde_json::{Value, json};

use super::{AGE, Names, Version, column, conditions, count64, defaulted, integer, root, scheduling};

/// Entries that a list of a game server may hold, and named counters or lists that a server may have.
const MAX_ITEMS: i64 = 1000;
/// Upper bound of the numbers of a health rule, as in `agones.dev/v1`.
const MAX_HEALTH: i64 = 2_147_483_648;

pub(super) fn definition(pod_template: &Value) -> Value {
    let names = Names {
        group: "agones.dev",
        kind: "GameServer",
        plural: "gameservers",
        singular: "gameserver",
        short: &["gs"],
        scope: "Namespaced",
    };
    let version = Version {
        schema: root(spec(pod_template, Defaults::Filled), status(), &["spec"]),
        columns: vec![
            column("State", "string", ".status.state"),
            column("Address", "string", ".status.address"),
            column("Port", "string", ".status.ports[0].port"),
            column("Node", "string", ".status.nodeName"),
            AGE,
        ],
        // No status subresource: state, labels and spec of a server change in one write.
        subresources: json!({
            "scale": {
                "specReplicasPath": ".spec.immutableReplicas",
                "statusReplicasPath": ".status.immutableReplicas",
            },
        }),
        selectable: &[".status.nodeName"],
    };
    super::definition(&names, version)
}

/// Whether the API server fills defaults in.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Defaults {
    /// In a GameServer.
    Filled,
    /// In a template, which is stored as written.
    AsWritten,
}

pub(super) fn spec(pod_template: &Value, defaults: Defaults) -> Value {
    let filled = defaults == Defaults::Filled;
    let name = json!({ "type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" });
    json!({
        "type": "object",
        "required": ["template"],
        "properties": {
            "container": name,
            "ports": { "type": "array", "nullable": true, "items": port(filled) },
            "health": defaulted(health(filled), json!({}), filled),
            "scheduling": defaulted(scheduling(), json!("Packed"), filled),
            "sdkServer": defaulted(sdk_server(filled), json!({}), filled),
            "players": {
                "type": "object",
                "nullable": true,
                "properties": { "initialCapacity": count64() },
            },
            "counters": { "type": "object", "maxProperties": MAX_ITEMS, "nullable": true, "additionalProperties": counter(filled) },
            "lists": { "type": "object", "maxProperties": MAX_ITEMS, "nullable": true, "additionalProperties": list(filled) },
            "eviction": defaulted(eviction(filled), json!({}), filled),
            "immutableReplicas": defaulted(json!({ "type": "integer", "minimum": 1, "maximum": 1 }), json!(1), filled),
            "template": pod_template,
        },
    })
}

fn port(filled: bool) -> Value {
    let number = json!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535 });
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "range": defaulted(json!({ "type": "string" }), json!("default"), filled),
            "portPolicy": defaulted(
                json!({ "type": "string", "enum": ["Dynamic", "Static", "Passthrough", "None"] }),
                json!("Dynamic"),
                filled,
            ),
            "container": { "type": "string" },
            "containerPort": number,
            "hostPort": number,
            "protocol": defaulted(
                json!({ "type": "string", "enum": ["UDP", "TCP", "TCPUDP"] }),
                json!("UDP"),
                filled,
            ),
        },
    })
}

fn health(filled: bool) -> Value {
    let number = |minimum: i64, default: i64| {
        let schema =
            json!({ "type": "integer", "format": "int64", "minimum": minimum, "maximum": MAX_HEALTH });
        defaulted(schema, json!(default), filled)
    };
    json!({
        "type": "object",
        "properties": {
            "disabled": defaulted(json!({ "type": "boolean" }), json!(false), filled),
            "periodSeconds": number(0, 5),
            "failureThreshold": number(1, 3),
            "initialDelaySeconds": number(0, 5),
        },
    })
}

fn sdk_server(filled: bool) -> Value {
    let number = |default: i64| {
        let schema = json!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535 });
        defaulted(schema, json!(default), filled)
    };
    json!({
        "type": "object",
        "properties": {
            "logLevel": defaulted(
                json!({ "type": "string", "enum": ["Error", "Info", "Debug", "Trace"] }),
                json!("Info"),
                filled,
            ),
            "grpcPort": number(9357),
            "httpPort": number(9358),
        },
    })
}

fn counter(filled: bool) -> Value {
    json!({
        "type": "object",
        "properties": {
            "count": defaulted(count64(), json!(0), filled),
            "capacity": defaulted(count64(), json!(1000), filled),
        },
    })
}

fn list(filled: bool) -> Value {
    let mut capacity = defaulted(count64(), json!(1000), filled);
    capacity["maximum"] = json!(MAX_ITEMS);
    let values = json!({
        "type": "array",
        "maxItems": MAX_ITEMS,
        "items": { "type": "string" },
        "x-kubernetes-list-type": "set",
    });
    json!({
        "type": "object",
        "properties": { "capacity": capacity, "values": defaulted(values, json!([]), filled) },
    })
}

fn eviction(filled: bool) -> Value {
    let safe = json!({ "type": "string", "enum": ["Always", "OnUpgrade", "Never"] });
    json!({ "type": "object", "properties": { "safe": defaulted(safe, json!("Never"), filled) } })
}

fn status() -> Value {
    let text = json!({ "type": "string" });
    let states: Vec<&str> = crate::lifecycle::State::ALL.iter().map(|state| state.as_str()).collect();
    json!({
        "type": "object",
        "properties": {
            "state": { "type": "string", "enum": states },
            "ports": {
                "type": "array",
                "nullable": true,
                "items": {
                    "type": "object",
                    "required": ["port"],
                    "properties": { "name": text, "port": integer("int32", 0) },
                },
            },
            "address": text,
            "addresses": {
                "type": "array",
                "nullable": true,
                "items": {
                    "type": "object",
                    "required": ["address", "type"],
                    "properties": { "type": text, "address": text },
                },
            },
            "nodeName": text,
            "reservedUntil": { "type": "string", "format": "date-time", "nullable": true },
            "players": {
                "type": "object",
                "nullable": true,
                "properties": {
                    "count": count64(),
                    "capacity": count64(),
                    "ids": { "type": "array", "nullable": true, "items": text },
                },
            },
            "counters": { "type": "object", "nullable": true, "additionalProperties": counter(true) },
            "lists": { "type": "object", "nullable": true, "additionalProperties": list(true) },
            "eviction": eviction(false),
            "immutableReplicas": { "type": "integer", "minimum": 1, "maximum": 1, "default": 1 },
            "conditions": conditions(),
        },
    })
}
