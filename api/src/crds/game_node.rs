//! GameNode's definition.

use serde_json::{Value, json};

use super::{AGE, Names, Version, column, count64};

pub(super) fn definition() -> Value {
    let names = Names {
        group: "berth.dev",
        kind: "GameNode",
        plural: "gamenodes",
        singular: "gamenode",
        short: &[],
        scope: "Cluster",
    };
    let text = json!({ "type": "string" });
    let schema = json!({
        "type": "object",
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": { "type": "object" },
            "spec": {
                "type": "object",
                "properties": {
                    "drain": {
                        "type": "object",
                        "required": ["by"],
                        "properties": {
                            "by": text,
                            "reason": text,
                            "deadline": { "type": "string", "format": "date-time" },
                        },
                    },
                    "surplus": { "type": "string", "format": "date-time" },
                },
            },
            "status": status(),
        },
    });
    let version = Version {
        schema,
        columns: vec![
            column("Phase", "string", ".status.phase"),
            column("Protection", "string", ".status.protection"),
            column("Servers", "integer", ".status.servers"),
            column("Allocated", "integer", ".status.allocated"),
            column("Ports free", "integer", ".status.portsFree"),
            column("Deadline", "string", ".status.deadline"),
            column("Agent", "string", ".status.agentVersion"),
            AGE,
        ],
        subresources: json!({ "status": {} }),
        selectable: &[],
    };
    super::definition(&names, version)
}

fn status() -> Value {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    let room = json!({
        "type": "object",
        "properties": { "milliCpu": count64(), "memoryBytes": count64(), "pods": count64() },
    });
    json!({
        "type": "object",
        "properties": {
            "phase": {
                "type": "string",
                "enum": ["Starting", "Active", "Idle", "Cordoned", "Draining", "Drained", "Gone"],
            },
            "phaseSince": time,
            "phaseReason": text,
            "protection": {
                "type": "string",
                "enum": ["NotConfigured", "Unregistered", "Registered", "Protected", "Missing", "Released"],
            },
            "group": text,
            "releasesIdle": { "type": "boolean" },
            "idleSince": time,
            "deadline": time,
            "nodeUid": text,
            "bootId": text,
            "epoch": { "type": "integer", "format": "int32" },
            "agentVersion": text,
            "formatVersions": { "type": "array", "items": { "type": "integer", "format": "int64" } },
            "addresses": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["type", "address"],
                    "properties": { "type": text, "address": text },
                },
            },
            "allocatable": room,
            "others": room,
            "free": room,
            "ports": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "properties": { "total": count64(), "free": count64() },
                },
            },
            "portsFree": count64(),
            "servers": count64(),
            "allocated": count64(),
            "serversByState": { "type": "object", "additionalProperties": count64() },
        },
    })
}
