//! What a namespace's budget must be, and which budgets match a game's pods. Pure.

use std::collections::BTreeMap;

use berth_api::game_server::{EvictionSafe, GameServerSpec};
use berth_api::names;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::selector::matches;
use crate::placement::eviction_in_force;
use crate::writes::under_version;

/// What to do about the budget of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// It is as it must be, or about to go.
    Leave,
    /// There is none.
    Create(Box<PodDisruptionBudget>),
    /// Somebody has changed what it protects.
    Repair(Value),
}

/// What to do about the budget of a namespace.
pub(super) fn decide(found: Option<&PodDisruptionBudget>, namespace: &str) -> Step {
    let Some(found) = found else { return Step::Create(Box::new(budget(namespace))) };
    let spec = found.spec.clone().unwrap_or_default();
    let allows_none = match &spec.max_unavailable {
        Some(IntOrString::Int(number)) => *number == 0,
        Some(IntOrString::String(text)) => text == "0%",
        None => false,
    };
    if (spec.selector == Some(selector()) && allows_none && spec.min_available.is_none())
        || found.metadata.deletion_timestamp.is_some()
    {
        return Step::Leave;
    }
    let version = found.metadata.resource_version.as_deref().unwrap_or_default();
    // A merge keeps what it does not name, so what must go is named as null.
    let selector = json!({ "matchLabels": matched(&spec.selector), "matchExpressions": null });
    let change = json!({ "spec": { "selector": selector, "maxUnavailable": "0%", "minAvailable": null } });
    Step::Repair(under_version(change, version))
}

/// Our label, and null for every other that a selector demands.
fn matched(selector: &Option<LabelSelector>) -> Value {
    let others = selector.iter().flat_map(|selector| selector.match_labels.iter().flatten());
    let mut labels: serde_json::Map<String, Value> =
        others.map(|(name, _)| (name.clone(), Value::Null)).collect();
    labels.insert(names::SAFE_TO_EVICT_LABEL.to_owned(), json!("false"));
    Value::Object(labels)
}

fn selector() -> LabelSelector {
    LabelSelector {
        match_labels: Some(BTreeMap::from([(names::SAFE_TO_EVICT_LABEL.to_owned(), "false".to_owned())])),
        match_expressions: None,
    }
}

fn budget(namespace: &str) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: ObjectMeta {
            name: Some(names::DISRUPTION_BUDGET.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), "berth".to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::String("0%".to_owned())),
            selector: Some(selector()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

/// The labels of the pods of a game that matter to budgets; those that differ from server to server are empty.
pub(crate) fn pod_labels(spec: &GameServerSpec) -> BTreeMap<String, String> {
    let written = &spec.template.0["metadata"]["labels"];
    let mut labels: BTreeMap<String, String> = written
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    labels.insert(names::ROLE_LABEL.to_owned(), names::ROLE_GAME_SERVER.to_owned());
    labels.entry(names::GAME_SERVER_LABEL.to_owned()).or_default();
    let is_evictable = match eviction_in_force(spec) {
        EvictionSafe::Always | EvictionSafe::OnUpgrade => "true",
        EvictionSafe::Never => "false",
    };
    labels.entry(names::SAFE_TO_EVICT_LABEL.to_owned()).or_insert_with(|| is_evictable.to_owned());
    labels
}

/// The names of the budgets that match pods with these labels, where they are several.
pub(crate) fn several<'a>(
    labels: &BTreeMap<String, String>,
    budgets: impl Iterator<Item = &'a PodDisruptionBudget>,
) -> Option<Vec<&'a str>> {
    let matching = budgets.filter(|budget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| matches(selector, labels))
    });
    let named: Vec<&str> = matching.filter_map(|budget| budget.metadata.name.as_deref()).collect();
    (named.len() > 1).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(spec: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"name": names::DISRUPTION_BUDGET, "namespace": "games", "resourceVersion": "4"},
            "spec": spec,
        }))
        .expect("a budget")
    }

    #[test]
    fn a_namespace_without_its_budget_gets_it() {
        let Step::Create(budget) = decide(None, "games") else { panic!("not created") };
        let written = json!(budget);
        assert_eq!(written["metadata"]["name"], "agones-gameserver-safe-to-evict-false");
        assert_eq!(
            written["spec"],
            json!({"maxUnavailable": "0%", "selector": {"matchLabels": {"agones.dev/safe-to-evict": "false"}}})
        );
        assert_eq!(decide(Some(&budget), "games"), Step::Leave);
    }

    #[test]
    fn what_somebody_changed_is_put_right_and_the_rest_is_theirs() {
        let ours = json!({"matchLabels": {"agones.dev/safe-to-evict": "false"}});
        let rows = [
            ("by number", json!({"maxUnavailable": 0, "selector": ours}), true),
            (
                "with a field of theirs",
                json!({"maxUnavailable": "0%", "selector": ours, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
                true,
            ),
            ("some may go", json!({"maxUnavailable": 1, "selector": ours}), false),
            ("the other limit", json!({"minAvailable": 1, "selector": ours}), false),
            ("no limit", json!({"selector": ours}), false),
            ("other pods", json!({"maxUnavailable": "0%", "selector": {"matchLabels": {"app": "x"}}}), false),
            (
                "fewer pods",
                json!({"maxUnavailable": "0%", "selector": {"matchLabels":
                {"agones.dev/safe-to-evict": "false", "app": "x"}}}),
                false,
            ),
        ];
        for (name, spec, is_right) in rows {
            match decide(Some(&changed(spec)), "games") {
                Step::Leave => assert!(is_right, "{name}"),
                Step::Repair(change) => {
                    assert!(!is_right, "{name}");
                    assert_eq!(change["metadata"]["resourceVersion"], "4");
                    assert_eq!(change["spec"]["minAvailable"], Value::Null);
                    let labels = &change["spec"]["selector"]["matchLabels"];
                    assert_eq!(labels["agones.dev/safe-to-evict"], "false", "{name}");
                    assert_eq!(labels["app"], Value::Null, "{name}");
                }
                Step::Create(_) => panic!("{name}"),
            }
        }
    }

    #[test]
    fn a_second_budget_that_matches_is_named() {
        let spec = |eviction: Value| -> GameServerSpec {
            serde_json::from_value(json!({
                "eviction": eviction,
                "template": {"metadata": {"labels": {"app": "duel"}}, "spec": {"containers": []}},
            }))
            .expect("a spec")
        };
        let named = |name: &str, selector: Value| -> PodDisruptionBudget {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"selector": selector}}))
                .expect("a budget")
        };
        let ours = budget("games");
        let by_app = named("by-app", json!({"matchLabels": {"app": "duel"}}));
        let of_all = named("of-all", json!({}));
        let of_none = named("of-none", json!(null));
        let other = named(
            "other",
            json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["duel"]}]}),
        );
        let told = |eviction, budgets: &[&PodDisruptionBudget]| {
            several(&pod_labels(&spec(eviction)), budgets.iter().copied()).map(|names| names.join(","))
        };
        let never = json!({"safe": "Never"});
        assert_eq!(told(never.clone(), &[&ours, &of_none, &other]), None);
        let both = format!("{},by-app", names::DISRUPTION_BUDGET);
        assert_eq!(told(never, &[&ours, &by_app]), Some(both));
        assert_eq!(told(json!({"safe": "Always"}), &[&ours, &by_app]), None, "ours does not match");
        assert_eq!(told(json!({"safe": "OnUpgrade"}), &[&of_all, &by_app]), Some("of-all,by-app".to_owned()));
    }
}
