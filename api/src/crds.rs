//! The CustomResourceDefinitions of Berth's resources, as values; `generate` writes them to `manifests/crds/`, and those
//! with an open pod template to `manifests/crds-open/`.
//!
//! Schemas are written by hand: they carry the limits, defaults and columns of `agones.dev/v1`, which no Rust type can
//! say. A GameServer has its defaults in the schema; a Fleet's and a set's template is stored as it was written. The pod
//! template is the whole schema of Kubernetes without its descriptions (size, and they are not our words).

use serde_json::{Value, json};

mod allocation_policy;
mod fleet;
mod fleet_autoscaler;
mod game_node;
mod game_server;
mod pod_template;

/// One CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct Crd {
    /// Name of its file.
    pub file: &'static str,
    /// The object.
    pub definition: Value,
}

/// Every CustomResourceDefinition.
pub fn all() -> Vec<Crd> {
    let mut all = with(&pod_template::schema());
    all.extend([
        Crd { file: "fleetautoscalers.yaml", definition: fleet_autoscaler::definition() },
        Crd { file: "gamenodes.yaml", definition: game_node::definition() },
        Crd { file: "gameserverallocationpolicies.yaml", definition: allocation_policy::definition() },
    ]);
    all
}

/// Those that hold a pod template, for clusters that are newer than its schema: fields that it does not know are kept.
/// The price is that a misspelled one is kept, too, and nobody says so.
pub fn open() -> Vec<Crd> {
    with(&pod_template::open(pod_template::schema()))
}

fn with(pod_template: &Value) -> Vec<Crd> {
    vec![
        Crd { file: "gameservers.yaml", definition: game_server::definition(pod_template) },
        Crd { file: "gameserversets.yaml", definition: fleet::game_server_set(pod_template) },
        Crd { file: "fleets.yaml", definition: fleet::fleet(pod_template) },
    ]
}

struct Names {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    scope: &'static str,
}

struct Column {
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    /// Shown only with `-o wide`.
    wide: bool,
}

const fn column(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, wide: false }
}

const AGE: Column = column("Age", "date", ".metadata.creationTimestamp");

struct Version {
    schema: Value,
    columns: Vec<Column>,
    subresources: Value,
    selectable: &'static [&'static str],
}

fn definition(names: &Names, version: Version) -> Value {
    let columns: Vec<Value> = version
        .columns
        .iter()
        .map(|column| {
            let mut one = json!({ "name": column.name, "type": column.kind, "jsonPath": column.path });
            if column.wide {
                one["priority"] = json!(1);
            }
            one
        })
        .collect();
    let selectable: Vec<Value> = version.selectable.iter().map(|path| json!({ "jsonPath": path })).collect();
    let mut v1 = json!({
        "name": "v1",
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": version.schema },
        "additionalPrinterColumns": columns,
        "subresources": version.subresources,
    });
    if !selectable.is_empty() {
        v1["selectableFields"] = json!(selectable);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", names.plural, names.group) },
        "spec": {
            "group": names.group,
            "names": {
                "kind": names.kind,
                "listKind": format!("{}List", names.kind),
                "plural": names.plural,
                "singular": names.singular,
                "shortNames": names.short,
            },
            "scope": names.scope,
            "versions": [v1],
        },
    })
}

/// The top of every namespaced resource of ours: names end up in labels, so they are held to 63 characters.
fn root(spec: Value, status: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "required": required,
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "type": "object", "properties": { "name": { "type": "string", "maxLength": 63 } } },
            "spec": spec,
            "status": status,
        },
    })
}

fn integer(format: &str, minimum: i64) -> Value {
    json!({ "type": "integer", "format": format, "minimum": minimum })
}

fn count64() -> Value {
    integer("int64", 0)
}

/// Conditions as Kubernetes has them; one of each type.
fn conditions() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "array",
        "nullable": true,
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": text,
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "reason": text,
                "message": text,
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "observedGeneration": { "type": "integer", "format": "int64" },
            },
        },
    })
}

fn words() -> Value {
    json!({ "type": "object", "nullable": true, "additionalProperties": { "type": "string" } })
}

fn scheduling() -> Value {
    json!({ "type": "string", "enum": ["Packed", "Distributed"] })
}

/// `schema` with a default, where defaults are wanted.
fn defaulted(mut schema: Value, default: Value, wanted: bool) -> Value {
    if wanted {
        schema["default"] = default;
    }
    schema
}
