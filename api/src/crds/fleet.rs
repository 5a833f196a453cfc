//! The definitions of Fleet and GameServerSet: the same columns, scale and template.

use serde_json::{Value, json};

use super::game_server::{Defaults, spec};
use super::{
    AGE, Column, Names, Version, column, conditions, count64, defaulted, integer, pod_template, root,
    scheduling, words,
};

/// Step of a rolling update where none is given.
const STEP: &str = "25%";

pub(super) fn fleet(pod: &Value) -> Value {
    let names = Names {
        group: "agones.dev",
        kind: "Fleet",
        plural: "fleets",
        singular: "fleet",
        short: &["flt"],
        scope: "Namespaced",
    };
    let spec = json!({
        "type": "object",
        "required": ["template"],
        "properties": {
            "replicas": defaulted(integer("int32", 0), json!(0), true),
            "allocationOverflow": allocation_overflow(),
            "strategy": strategy(),
            "scheduling": defaulted(scheduling(), json!("Packed"), true),
            "priorities": priorities(true),
            "template": template(pod),
        },
    });
    super::definition(&names, version(spec, &["spec"], false))
}

pub(super) fn game_server_set(pod: &Value) -> Value {
    let names = Names {
        group: "agones.dev",
        kind: "GameServerSet",
        plural: "gameserversets",
        singular: "gameserverset",
        short: &["gss", "gsset"],
        scope: "Namespaced",
    };
    let spec = json!({
        "type": "object",
        "required": ["replicas", "template"],
        "x-kubernetes-validations": [{
            "rule": "self.template == oldSelf.template",
            "message": "must not change: a new version of a server is a new set",
            "fieldPath": ".template",
            "reason": "FieldValueInvalid",
        }],
        "properties": {
            "replicas": integer("int32", 0),
            "allocationOverflow": allocation_overflow(),
            "scheduling": scheduling(),
            "priorities": priorities(false),
            "template": template(pod),
        },
    });
    super::definition(&names, version(spec, &["spec"], true))
}

fn version(spec: Value, required: &[&str], counts_shutdown: bool) -> Version {
    Version {
        schema: root(spec, status(counts_shutdown), required),
        columns: columns(),
        subresources: json!({
            "status": {},
            "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
        }),
        selectable: &[],
    }
}

fn columns() -> Vec<Column> {
    vec![
        column("Scheduling", "string", ".spec.scheduling"),
        column("Desired", "integer", ".spec.replicas"),
        column("Current", "integer", ".status.replicas"),
        column("Allocated", "integer", ".status.allocatedReplicas"),
        column("Ready", "integer", ".status.readyReplicas"),
        AGE,
    ]
}

fn template(pod: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": { "metadata": pod_template::metadata(), "spec": spec(pod, Defaults::AsWritten) },
    })
}

fn allocation_overflow() -> Value {
    json!({
        "type": "object",
        "nullable": true,
        "properties": { "labels": words(), "annotations": words() },
    })
}

fn strategy() -> Value {
    // A number from 1, or a percentage from 1 to 99; a text without the sign is a percentage too.
    let step = json!({ "x-kubernetes-int-or-string": true, "minimum": 1, "pattern": "^[1-9][0-9]?%?$", "default": STEP });
    json!({
        "type": "object",
        "default": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": STEP, "maxUnavailable": STEP } },
        "properties": {
            "type": { "type": "string", "enum": ["Recreate", "RollingUpdate"], "default": "RollingUpdate" },
            "rollingUpdate": {
                "type": "object",
                "nullable": true,
                "properties": { "maxSurge": step, "maxUnavailable": step },
            },
        },
    })
}

fn priorities(filled: bool) -> Value {
    let order = json!({ "type": "string", "enum": ["Ascending", "Descending"] });
    json!({
        "type": "array",
        "nullable": true,
        "items": {
            "type": "object",
            "required": ["type", "key"],
            "properties": {
                "type": { "type": "string", "enum": ["Counter", "List"] },
                "key": { "type": "string" },
                "order": defaulted(order, json!("Ascending"), filled),
            },
        },
    })
}

fn status(counts_shutdown: bool) -> Value {
    let number = integer("int32", 0);
    let sums = json!({
        "type": "object",
        "nullable": true,
        "additionalProperties": {
            "type": "object",
            "properties": {
                "allocatedCount": count64(),
                "allocatedCapacity": count64(),
                "count": count64(),
                "capacity": count64(),
            },
        },
    });
    let mut status = json!({
        "type": "object",
        "properties": {
            "replicas": number,
            "readyReplicas": number,
            "reservedReplicas": number,
            "allocatedReplicas": number,
            "players": {
                "type": "object",
                "nullable": true,
                "properties": { "count": count64(), "capacity": count64() },
            },
            "counters": sums,
            "lists": sums,
            "conditions": conditions(),
        },
    });
    if counts_shutdown {
        status["properties"]["shutdownReplicas"] = number;
    }
    status
}
