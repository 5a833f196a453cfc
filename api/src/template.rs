//! The template of a game server in a Fleet or set: carried as written, compared by meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::game_server::GameServerSpec;
use crate::quantity::Quantity;

/// A game server to be: metadata and spec as their author wrote them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GameServerTemplate {
    /// Labels and annotations of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The server.
    pub spec: GameServerSpec,
}

/// Labels and annotations of the server to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

impl GameServerTemplate {
    /// Labels of the server to be.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default()
    }

    /// Annotations of the server to be.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.metadata.as_ref().and_then(|metadata| metadata.annotations.clone()).unwrap_or_default()
    }

    /// Whether two templates make the same server: quantities by amount, absent and empty alike where Kubernetes makes
    /// no difference. Without this, `cpu: 1000m` beside a stored `cpu: 1` would make new sets without end.
    pub fn means_the_same_as(&self, other: &Self) -> bool {
        meaning(self) == meaning(other)
    }
}

fn meaning(template: &GameServerTemplate) -> Value {
    let mut value = serde_json::json!(template);
    normalise(&mut value, Place::Ordinary);
    value
}

/// Objects in which nothing and an empty object are one. Elsewhere they may differ (`emptyDir: {}`, selectors).
const EMPTY_IS_ABSENT: [&str; 11] = [
    "annotations",
    "counters",
    "health",
    "labels",
    "lists",
    "metadata",
    "nodeSelector",
    "resources",
    "sdkServer",
    "securityContext",
    "eviction",
];

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Ordinary,
    /// Each value is an amount (`limits`, `requests`, `overhead`).
    Amounts,
    /// Each value is free text under free names (`labels` …), never interpreted.
    Words,
}

fn place_of(name: &str) -> Place {
    match name {
        "limits" | "requests" | "overhead" => Place::Amounts,
        "labels" | "annotations" | "nodeSelector" | "matchLabels" => Place::Words,
        _ => Place::Ordinary,
    }
}

fn normalise(value: &mut Value, place: Place) {
    match value {
        Value::Object(fields) => normalise_fields(fields, place),
        Value::Array(entries) => entries.iter_mut().for_each(|entry| normalise(entry, Place::Ordinary)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn normalise_fields(fields: &mut Map<String, Value>, place: Place) {
    for (name, field) in fields.iter_mut() {
        match place {
            Place::Amounts => normalise_amount(field),
            Place::Words => {}
            Place::Ordinary if matches!(name.as_str(), "sizeLimit" | "divisor") => normalise_amount(field),
            Place::Ordinary => normalise(field, place_of(name)),
        }
    }
    if place == Place::Words {
        return;
    }
    fields.retain(|name, field| match field {
        Value::Null => false,
        Value::Array(entries) => !entries.is_empty(),
        Value::Object(inner) => {
            let vanishes = EMPTY_IS_ABSENT.contains(&name.as_str()) || place_of(name) == Place::Amounts;
            !(inner.is_empty() && vanishes)
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    });
}

fn normalise_amount(field: &mut Value) {
    if let Some(amount) = Quantity::from_json(field) {
        *field = Value::String(format!("{amount:?}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::GameServerTemplate;

    fn template(pod: Value) -> GameServerTemplate {
        serde_json::from_value(json!({ "spec": { "template": { "spec": pod } } })).expect("a template")
    }

    fn main_with(fields: Value) -> GameServerTemplate {
        let mut container = json!({ "name": "main", "image": "game" });
        container.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        template(json!({ "containers": [container] }))
    }

    #[test]
    fn amounts_and_empties_are_compared_by_meaning() {
        let resources = |cpu: Value, memory: &str| {
            main_with(json!({ "resources": { "requests": { "cpu": cpu, "memory": memory } } }))
        };
        let base = resources(json!("1000m"), "0.5Gi");
        for (cpu, memory) in [(json!("1"), "512Mi"), (json!("1.0"), "512Mi"), (json!(1), "0.5Gi")] {
            assert!(base.means_the_same_as(&resources(cpu.clone(), memory)), "{cpu} {memory}");
        }
        assert!(!base.means_the_same_as(&resources(json!("1001m"), "0.5Gi")));
        let bare = main_with(json!({}));
        for same in [
            json!({ "resources": {} }),
            json!({ "resources": { "limits": {} } }),
            json!({ "env": [] }),
            json!({ "command": null }),
        ] {
            assert!(bare.means_the_same_as(&main_with(same.clone())), "{same}");
        }
    }

    #[test]
    fn what_differs_in_meaning_is_not_the_same() {
        let volume = |source: Value| template(json!({ "containers": [], "volumes": [source] }));
        assert!(
            !volume(json!({ "name": "a", "emptyDir": {} }))
                .means_the_same_as(&volume(json!({ "name": "a" })))
        );
        let labelled = |value: &str| {
            let mut one = template(json!({ "containers": [] }));
            one.metadata =
                serde_json::from_value(json!({ "labels": { "limits": value } })).expect("metadata");
            one
        };
        assert!(!labelled("1").means_the_same_as(&labelled("1000m")), "a label is text, not an amount");
    }

    #[test]
    fn fields_that_this_crate_does_not_know_are_carried() {
        let newer = template(json!({ "containers": [], "fieldOfTheFuture": { "deep": [1, 2] } }));
        let carried: GameServerTemplate =
            serde_json::from_value(serde_json::to_value(&newer).expect("encodes")).expect("decodes");
        assert_eq!(carried, newer);
        assert_eq!(carried.spec.template.0["spec"]["fieldOfTheFuture"]["deep"][1], 2);
    }
}
