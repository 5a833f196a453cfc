//! The schema of a pod template: that of `k8s-openapi`, without descriptions, with the list keys and the one default
//! that it leaves out. Without the keys, server-side apply would replace whole lists.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Lists that are maps to Kubernetes: property, then the keys of an entry. From the Kubernetes API reference (v1.34).
const LIST_KEYS: [(&str, &[&str]); 14] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("env", &["name"]),
    ("ports", &["containerPort", "protocol"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("volumes", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("schedulingGates", &["name"]),
    ("resourceClaims", &["name"]),
    ("claims", &["name"]),
];

pub(super) fn schema() -> Value {
    let mut generator =
        SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true).into_generator();
    let mut schema = PodTemplateSpec::json_schema(&mut generator).to_value();
    tidy(&mut schema);
    schema["properties"]["metadata"] = metadata();
    schema
}

/// The schema with room in every object of it for fields that it does not know. What it knows it still checks.
pub(super) fn open(mut schema: Value) -> Value {
    let Value::Object(fields) = &mut schema else {
        return schema;
    };
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(|property| *property = open(property.take()));
        fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(inner) {
            *inner = open(inner.take());
        }
    }
    schema
}

/// Metadata of a template: what a template may say of the object to be, and what tools leave there.
pub(super) fn metadata() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "name": text,
            "generateName": text,
            "namespace": text,
            "creationTimestamp": { "type": "string", "format": "date-time", "nullable": true },
            "labels": super::words(),
            "annotations": super::words(),
            "finalizers": { "type": "array", "items": text },
        },
    })
}

fn tidy(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return;
    };
    fields.remove("description");
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.iter_mut().for_each(|(name, property)| tidy_property(name, property));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(inner) {
            tidy(inner);
        }
    }
}

fn tidy_property(name: &str, property: &mut Value) {
    tidy(property);
    let Some((_, keys)) = LIST_KEYS.iter().find(|(list, _)| *list == name) else {
        return;
    };
    let Some(entry) = property.pointer_mut("/items/properties").and_then(Value::as_object_mut) else {
        return;
    };
    if keys.iter().all(|key| entry.contains_key(*key)) {
        default_keys(entry);
        property["x-kubernetes-list-type"] = json!("map");
        property["x-kubernetes-list-map-keys"] = json!(keys);
        require_keys(property, keys);
    }
}

/// A key must be required or have a default; a port without a protocol speaks TCP.
fn default_keys(entry: &mut Map<String, Value>) {
    if entry.contains_key("containerPort")
        && let Some(protocol) = entry.get_mut("protocol")
    {
        protocol["default"] = json!("TCP");
    }
}

fn require_keys(property: &mut Value, keys: &[&str]) {
    let has_default =
        |key: &str, property: &Value| property.pointer(&format!("/items/properties/{key}/default")).is_some();
    let missing: Vec<Value> =
        keys.iter().filter(|key| !has_default(key, property)).map(|key| json!(key)).collect();
    let required = &mut property["items"]["required"];
    match required {
        Value::Array(present) => {
            for key in missing {
                if !present.contains(&key) {
                    present.push(key);
                }
            }
        }
        _ if missing.is_empty() => {}
        _ => *required = json!(missing),
    }
}
