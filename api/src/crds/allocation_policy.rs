//! GameServerAllocationPolicy's definition.

use serde_json::{Value, json};

use super::{Names, Version, integer};

pub(super) fn definition() -> Value {
    let names = Names {
        group: "multicluster.agones.dev",
        kind: "GameServerAllocationPolicy",
        plural: "gameserverallocationpolicies",
        singular: "gameserverallocationpolicy",
        short: &["gsap"],
        scope: "Namespaced",
    };
    let text = json!({ "type": "string" });
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": { "type": "object" },
            "spec": {
                "type": "object",
                "required": ["priority", "weight"],
                "properties": {
                    "priority": integer("int32", 0),
                    "weight": integer("int64", 0),
                    "connectionInfo": {
                        "type": "object",
                        "required": ["namespace"],
                        "properties": {
                            "clusterName": text,
                            "allocationEndpoints": { "type": "array", "minItems": 1, "items": text },
                            "secretName": text,
                            "namespace": text,
                            "serverCa": { "type": "string", "format": "byte" },
                        },
                    },
                },
            },
        },
    });
    super::definition(&names, Version { schema, columns: vec![], subresources: json!({}), selectable: &[] })
}
