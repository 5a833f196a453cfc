//! Whether a template's own wishes allow a node: selector, required affinity, tolerations. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};

use super::Needs;

/// Whether selector and required affinity allow a node of this name and these labels.
pub(super) fn allows(needs: &Needs, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let selected = needs.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    selected && needs.affinity.as_ref().is_none_or(|affinity| matches(affinity, name, labels))
}

/// The first taint that keeps the server away.
pub(super) fn untolerated<'a>(needs: &Needs, taints: &'a [Taint]) -> Option<&'a Taint> {
    taints.iter().find(|taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
            && !needs.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    })
}

/// One term is enough; one that says nothing allows nothing.
fn matches(selector: &NodeSelector, name: &str, labels: &BTreeMap<String, String>) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, name, labels))
}

fn term_matches(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let of_field = |key: &str| (key == "metadata.name").then_some(name);
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|rule| holds(rule, labels.get(&rule.key).map(String::as_str)))
        && fields.iter().all(|rule| holds(rule, of_field(&rule.key)))
}

fn holds(rule: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let is_among = |value: &str| values.iter().any(|one| one == value);
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match rule.operator.as_str() {
        "In" => value.is_some_and(is_among),
        "NotIn" => !value.is_some_and(is_among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, limit)| value > limit),
        "Lt" => numbers().is_some_and(|(value, limit)| value < limit),
        // An operator of the future: better no node than a wrong one.
        _ => false,
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let effect_fits = some(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    let key = some(&toleration.key);
    let key_fits = key.as_ref().is_none_or(|key| *key == taint.key);
    let value_fits = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            key.is_some()
                && toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default()
        }
        Some(_) => false,
    };
    effect_fits && key_fits && value_fits
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labels() -> BTreeMap<String, String> {
        [("zone", "a"), ("cores", "8")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn affinity(terms: Value) -> Needs {
        let affinity = serde_json::from_value(json!({ "nodeSelectorTerms": terms })).expect("an affinity");
        Needs { affinity: Some(affinity), ..Needs::default() }
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn every_operator_means_what_the_scheduler_means() {
        let rows = [
            (expression("zone", "In", &["a", "b"]), true),
            (expression("zone", "In", &["b"]), false),
            (expression("zone", "NotIn", &["b"]), true),
            (expression("zone", "NotIn", &["a"]), false),
            (expression("other", "NotIn", &["a"]), true),
            (expression("zone", "Exists", &[]), true),
            (expression("other", "Exists", &[]), false),
            (expression("other", "DoesNotExist", &[]), true),
            (expression("zone", "DoesNotExist", &[]), false),
            (expression("cores", "Gt", &["4"]), true),
            (expression("cores", "Gt", &["8"]), false),
            (expression("cores", "Lt", &["16"]), true),
            (expression("zone", "Lt", &["16"]), false),
            (expression("zone", "Near", &["a"]), false),
            (json!({}), false),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), true),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), false),
        ];
        for (term, allowed) in rows {
            assert_eq!(allows(&affinity(json!([term])), "n1", &labels()), allowed, "{term}");
        }
        let either = json!([expression("zone", "In", &["b"]), expression("cores", "Exists", &[])]);
        assert!(allows(&affinity(either), "n1", &labels()), "one term is enough");
        assert!(!allows(&affinity(json!([])), "n1", &labels()), "no term allows nothing");
    }

    #[test]
    fn the_selector_must_hold_too() {
        let selecting = |value: &str| Needs {
            node_selector: BTreeMap::from([("zone".to_owned(), value.to_owned())]),
            ..Needs::default()
        };
        assert!(allows(&selecting("a"), "n1", &labels()));
        assert!(!allows(&selecting("b"), "n1", &labels()));
        assert!(allows(&Needs::default(), "n1", &BTreeMap::new()));
    }

    #[test]
    fn a_taint_needs_its_toleration() {
        let taint = |effect: &str| Taint {
            key: "dedicated".to_owned(),
            value: Some("x".to_owned()),
            effect: effect.to_owned(),
            ..Taint::default()
        };
        let rows = [
            (json!([]), "NoSchedule", false),
            (json!([]), "NoExecute", false),
            (json!([]), "PreferNoSchedule", true),
            (json!([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]), "NoSchedule", true),
            (json!([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]), "NoExecute", false),
            (json!([{"key": "dedicated", "operator": "Equal", "value": "x"}]), "NoExecute", true),
            (json!([{"key": "dedicated", "value": "y"}]), "NoSchedule", false),
            (json!([{"key": "dedicated", "operator": "Exists"}]), "NoSchedule", true),
            (json!([{"operator": "Exists"}]), "NoExecute", true),
            (json!([{"key": "other", "operator": "Exists"}]), "NoSchedule", false),
        ];
        for (tolerations, effect, tolerated) in rows {
            let needs = Needs {
                tolerations: serde_json::from_value(tolerations.clone()).expect("tolerations"),
                ..Needs::default()
            };
            assert_eq!(untolerated(&needs, &[taint(effect)]).is_none(), tolerated, "{tolerations} {effect}");
        }
    }
}
