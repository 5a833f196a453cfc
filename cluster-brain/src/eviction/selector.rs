//! Whether a label selector matches. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Whether a selector matches these labels. One that demands nothing matches everything.
pub(super) fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let has_all = selector.match_labels.iter().flatten().all(|(name, value)| labels.get(name) == Some(value));
    has_all
        && selector.match_expressions.iter().flatten().all(|rule| {
            let value = labels.get(&rule.key);
            let is_among = value.is_some_and(|value| rule.values.iter().flatten().any(|one| one == value));
            match rule.operator.as_str() {
                "In" => is_among,
                "NotIn" => !is_among,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                // An operator of the future: a match that is not there is the smaller mistake.
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let labels = BTreeMap::from([("app".to_owned(), "duel".to_owned())]);
        let rule = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let rows: [(Value, bool); 11] = [
            (json!({}), true),
            (json!({"matchLabels": {"app": "duel"}}), true),
            (json!({"matchLabels": {"app": "duel", "other": "x"}}), false),
            (rule("app", "In", &["race", "duel"]), true),
            (rule("app", "In", &["race"]), false),
            (rule("app", "NotIn", &["race"]), true),
            (rule("other", "NotIn", &["race"]), true),
            (rule("app", "Exists", &[]), true),
            (rule("other", "Exists", &[]), false),
            (rule("other", "DoesNotExist", &[]), true),
            (rule("app", "Near", &["duel"]), false),
        ];
        for (selector, expected) in rows {
            let read: LabelSelector = serde_json::from_value(selector.clone()).expect("a selector");
            assert_eq!(matches(&read, &labels), expected, "{selector}");
        }
    }
}
