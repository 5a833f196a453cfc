use serde_json::{Value, json};

use super::*;

fn allocation(spec: Value) -> GameServerAllocation {
    serde_json::from_value(json!({
        "apiVersion": super::super::API_VERSION,
        "kind": super::super::KIND,
        "metadata": { "namespace": "games" },
        "spec": spec,
    }))
    .unwrap()
}

fn fields(spec: Value) -> Vec<String> {
    let faults = allocation(spec).read().unwrap_err();
    faults.into_iter().map(|fault| fault.field).collect()
}

#[test]
fn nothing_said_means_any_ready_server_packed() {
    let mut said = allocation(json!({}));
    let request = said.read().unwrap();
    assert_eq!((request.namespace.as_str(), request.scheduling), ("games", Scheduling::Packed));
    assert_eq!(request.selectors.len(), 1);
    assert_eq!(request.selectors[0].state, Wanted::Ready);
    assert!(request.selectors[0].fits_labels(&BTreeMap::new()));
    let shown = serde_json::to_value(&said).unwrap();
    assert_eq!(shown["spec"]["scheduling"], "Packed");
    assert_eq!(shown["spec"]["selectors"], json!([{ "gameServerState": "Ready" }]));
}

#[test]
fn the_older_fields_become_selectors_with_required_last() {
    let mut said = allocation(json!({
        "required": { "matchLabels": { "role": "gs" } },
        "preferred": [{ "matchLabels": { "preferred": "true" } }],
    }));
    let request = said.read().unwrap();
    let labels = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    assert!(request.selectors[0].fits_labels(&labels("preferred", "true")));
    assert!(!request.selectors[0].fits_labels(&labels("role", "gs")));
    assert!(request.selectors[1].fits_labels(&labels("role", "gs")));
    assert_eq!(said.spec.selectors.len(), 2);
}

#[test]
fn selectors_win_over_the_older_fields() {
    let mut said = allocation(json!({
        "required": { "matchLabels": { "a": "b" } },
        "selectors": [{ "matchLabels": { "c": "d" }, "gameServerState": "Allocated" }],
    }));
    let request = said.read().unwrap();
    assert_eq!(request.selectors.len(), 1);
    assert_eq!(request.selectors[0].state, Wanted::Allocated);
    assert_eq!(said.spec.required.labels.match_labels.as_ref().unwrap()["a"], "b");
}

#[test]
fn every_fault_is_told_with_its_path() {
    let found = fields(json!({
        "scheduling": "Nope",
        "selectors": [{
            "gameServerState": "Creating",
            "counters": { "r": { "minCount": 5, "maxCount": 2, "minAvailable": 5, "maxAvailable": 2 } },
            "lists": { "l": { "minAvailable": -1 } },
            "players": { "minAvailable": 1 },
        }],
        "priorities": [{ "type": "X", "key": "", "order": "Y" }],
        "counters": { "a": { "amount": 1 }, "b": { "action": "Increment" }, "c": { "capacity": -1 } },
        "lists": { "z": { "capacity": -1 } },
        "metadata": { "labels": { "bad key": "x", "good": "not valid!" }, "annotations": { "-": "" } },
    }));
    for wanted in [
        "spec.scheduling",
        "spec.selectors[0].gameServerState",
        "spec.selectors[0].counters[r].minCount",
        "spec.selectors[0].counters[r].minAvailable",
        "spec.selectors[0].lists[l].minAvailable",
        "spec.selectors[0].players.minAvailable",
        "spec.counters[a]",
        "spec.counters[b]",
        "spec.counters[c]",
        "spec.lists[z]",
        "spec.metadata.annotations",
    ] {
        assert_eq!(found.iter().filter(|field| *field == wanted).count(), 1, "{wanted} in {found:?}");
    }
    let count = |wanted: &str| found.iter().filter(|field| *field == wanted).count();
    assert_eq!((count("spec.priorities[0]"), count("spec.metadata.labels")), (3, 2));
    assert_eq!(found.len(), 16, "{found:?}");
}

#[test]
fn older_fields_are_held_to_the_rules_once_and_even_where_they_do_not_count() {
    let bad = json!({ "gameServerState": "Creating" });
    assert_eq!(fields(json!({ "required": bad })), ["spec.required.gameServerState"]);
    assert_eq!(
        fields(json!({ "required": bad, "preferred": [bad], "selectors": [{}] })),
        ["spec.required.gameServerState", "spec.preferred[0].gameServerState"]
    );
}

#[test]
fn label_selectors_are_held_to_the_rules_of_the_api() {
    let rules = [
        (json!({ "matchLabels": { "a b": "c" } }), "spec.selectors[0].matchLabels"),
        (json!({ "matchLabels": { "a": "c!" } }), "spec.selectors[0].matchLabels"),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] }),
            "spec.selectors[0].matchExpressions[0].values",
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "Exists", "values": ["b"] }] }),
            "spec.selectors[0].matchExpressions[0].values",
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "Like", "values": ["b"] }] }),
            "spec.selectors[0].matchExpressions[0].operator",
        ),
        (
            json!({ "matchExpressions": [{ "key": "-", "operator": "Exists" }] }),
            "spec.selectors[0].matchExpressions[0].key",
        ),
    ];
    for (selector, path) in rules {
        assert_eq!(fields(json!({ "selectors": [selector] })), [path]);
    }
}

#[test]
fn an_unknown_action_is_kept_for_the_event() {
    let mut said = allocation(json!({ "counters": {
        "rooms": { "action": "Increment", "amount": 2 },
        "seats": { "action": "Decrement", "amount": 3, "capacity": 9 },
        "odd": { "action": "Double", "amount": 1 },
    } }));
    let counters = said.read().unwrap().counters;
    assert_eq!(counters["rooms"], CounterChange { capacity: None, step: Some(Ok(2)) });
    assert_eq!(counters["seats"], CounterChange { capacity: Some(9), step: Some(Ok(-3)) });
    assert_eq!(counters["odd"].step, Some(Err("Double".to_owned())));
}

#[test]
fn a_maximum_of_zero_is_no_limit() {
    let mut said = allocation(json!({ "selectors": [{
        "counters": { "r": { "minCount": 5 } },
        "players": { "minAvailable": 0, "maxAvailable": 0 },
    }] }));
    let request = said.read().unwrap();
    let rule = &request.selectors[0].counters["r"];
    assert!(rule.count.hold(i64::MAX) && rule.count.hold(5) && !rule.count.hold(4));
    assert_eq!(request.selectors[0].players, None);
}

#[test]
fn null_is_the_same_as_nothing() {
    let said = allocation(json!({
        "selectors": null, "required": null, "metadata": { "labels": null }, "counters": null
    }));
    assert_eq!(said, allocation(json!({})));
}

#[test]
fn a_fault_says_what_is_allowed() {
    let faults = allocation(json!({ "scheduling": "Nope" })).read().unwrap_err();
    assert_eq!(
        faults[0].to_string(),
        "spec.scheduling: Unsupported value: \"Nope\": supported values: \"Packed\", \"Distributed\""
    );
    assert_eq!(faults[0].kind.reason(), "FieldValueNotSupported");
}
