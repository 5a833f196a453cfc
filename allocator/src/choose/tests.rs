use std::collections::BTreeSet;

use berth_api::game_node::NodePhase;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use serde_json::{Value, json};

use super::*;
use crate::testing::{book, key, on, request};

/// The order in which servers are chosen, when each one chosen is taken out.
fn order(servers: &[(&str, Candidate)], spec: Value) -> Vec<String> {
    let whole = book(servers);
    let request = request(spec);
    let order = Order { book: &whole, request: &request, tie: Tie::Name };
    let mut names = all(&whole);
    names.sort_by(|left, right| order.compare(*left, *right));
    names.into_iter().map(|(name, _)| name.to_owned()).collect()
}

/// The servers of the tests' namespace.
fn all(book: &Book) -> Vec<(&str, &Candidate)> {
    let names = [Wanted::Allocated, Wanted::Ready].map(|state| book.by_node("games", state));
    let names = names.into_iter().flatten().flatten().flat_map(|(_, names)| names);
    names.filter_map(|name| Some((name.as_str(), book.candidate("games", name)?))).collect()
}

fn chosen(book: &Book, spec: Value) -> Option<String> {
    choose(book, &request(spec), Tie::Name, Instant::now(), 7).map(|choice| choice.name)
}

#[test]
fn packed_puts_servers_in_use_first_and_then_fuller_nodes() {
    let servers = [("gs1", on("n1")), ("gs2", on("n2")), ("gs3", on("n1").allocated())];
    assert_eq!(order(&servers, json!({})), ["gs3", "gs1", "gs2"]);
    let servers = [("gs1", on("n1")), ("gs2", on("n2")), ("gs4", on("n2"))];
    assert_eq!(order(&servers, json!({})), ["gs2", "gs4", "gs1"]);
    let servers = [("gs2", on("n2")), ("gs1", on("n1"))];
    assert_eq!(order(&servers, json!({})), ["gs1", "gs2"]);
}

#[test]
fn priorities_refine_the_packed_order() {
    let servers = [
        ("gs1", on("n1")),
        ("gs2", on("n2")),
        ("gs3", on("n1").allocated()),
        ("gs4", on("n2")),
        ("gs5", on("n1").counter("players", 0, 36)),
        ("gs6", on("n1").counter("players", 0, 26)),
    ];
    let by = |order: &str| json!({ "priorities": [{ "type": "Counter", "key": "players", "order": order }] });
    assert_eq!(order(&servers, by("Descending")), ["gs3", "gs5", "gs6", "gs1", "gs2", "gs4"]);
    assert_eq!(order(&servers, by("Ascending")), ["gs3", "gs6", "gs5", "gs1", "gs2", "gs4"]);
}

#[test]
fn distributed_goes_by_priorities_alone() {
    let servers = [
        ("gs4", on("n1").counter("sessions", 0, 901)),
        ("gs5", on("n1").counter("sessions", 0, 991)),
        ("gs6", on("n2").counter("sessions", 0, 1)),
    ];
    let by = |order: &str| {
        json!({
            "scheduling": "Distributed",
            "priorities": [{ "type": "Counter", "key": "sessions", "order": order }],
        })
    };
    assert_eq!(order(&servers, by("Ascending")), ["gs6", "gs4", "gs5"]);
    assert_eq!(order(&servers, by("Descending")), ["gs5", "gs4", "gs6"]);
}

#[test]
fn a_second_priority_counts_where_the_first_is_equal() {
    let servers = [
        ("gs1", on("n1")),
        ("gs2", on("n1").counter("assets", 0, 899)),
        ("gs3", on("n1").counter("sessions", 0, 991).counter("assets", 0, 900)),
        ("gs4", on("n1").counter("sessions", 0, 901)),
        ("gs5", on("n1").counter("sessions", 0, 991).counter("assets", 0, 901)),
        ("gs6", on("n1").counter("sessions", 0, 1)),
    ];
    let spec = json!({
        "scheduling": "Distributed",
        "priorities": [
            { "type": "Counter", "key": "sessions", "order": "Ascending" },
            { "type": "Counter", "key": "assets", "order": "Ascending" },
        ],
    });
    assert_eq!(order(&servers, spec), ["gs6", "gs4", "gs3", "gs5", "gs2", "gs1"]);
}

#[test]
fn an_earlier_selector_beats_any_order() {
    let role = |candidate: Candidate| candidate.label("role", "gs");
    let mut servers = vec![
        ("gs1", role(on("n1")).label("preferred", "true")),
        ("gs2", on("n1")),
        ("gs3", role(on("n2")).allocated()),
        ("gs4", role(on("n2")).label("preferred", "true")),
        ("gs5", role(on("n2"))),
        ("gs6", role(on("n2"))),
    ];
    let spec = json!({ "selectors": [
        { "matchLabels": { "preferred": "true" } }, { "matchLabels": { "role": "gs" } },
    ] });
    let mut names = Vec::new();
    while let Some(name) = chosen(&book(&servers), spec.clone()) {
        servers.retain(|(other, _)| *other != name);
        names.push(name);
    }
    let preferred: BTreeSet<&str> = names[..2].iter().map(String::as_str).collect();
    assert_eq!(preferred, BTreeSet::from(["gs1", "gs4"]));
    assert_eq!(names[2..], ["gs5", "gs6"], "gs3 is in use, and gs2 fits nothing");
}

#[test]
fn players_count_only_with_a_maximum_and_only_where_a_server_has_them() {
    let servers = [
        ("gs1", on("n1")),
        ("gs3", on("n1").allocated().players(5, 10)),
        ("gs4", on("n1").allocated().players(5, 17)),
    ];
    let spec =
        |players: Value| json!({ "selectors": [{ "gameServerState": "Allocated", "players": players }] });
    let whole = book(&servers);
    let wanted = Some("gs3".to_owned());
    assert_eq!(chosen(&whole, spec(json!({ "minAvailable": 1, "maxAvailable": 10 }))), wanted);
    let wanted = Some("gs4".to_owned());
    assert_eq!(chosen(&whole, spec(json!({ "minAvailable": 6, "maxAvailable": 20 }))), wanted);
    assert_eq!(chosen(&whole, spec(json!({ "minAvailable": 13, "maxAvailable": 20 }))), None);
}

#[test]
fn counters_and_lists_must_be_there_and_fit() {
    let whole = book(&[
        ("a", on("n").counter("rooms", 8, 10).list("maps", &["ice"], 2)),
        ("b", on("n").counter("rooms", 2, 10).list("maps", &["fire", "sand"], 3)),
        ("c", on("n")),
    ]);
    let by = |counters: Value, lists: Value| {
        chosen(&whole, json!({ "selectors": [{ "counters": counters, "lists": lists }] }))
    };
    let rows = [
        (json!({ "rooms": { "minAvailable": 3 } }), json!({}), Some("b")),
        (json!({ "rooms": { "minCount": 3 } }), json!({}), Some("a")),
        (json!({ "rooms": { "maxCount": 5 } }), json!({}), Some("b")),
        (json!({ "rooms": { "maxAvailable": 2 } }), json!({}), Some("a")),
        (json!({ "rooms": { "maxAvailable": 1 } }), json!({}), None),
        (json!({ "other": {} }), json!({}), None),
        (json!({}), json!({ "maps": { "containsValue": "sand" } }), Some("b")),
        (json!({}), json!({ "maps": { "containsValue": "snow" } }), None),
        (json!({}), json!({ "maps": { "minAvailable": 1 } }), Some("a")),
        (json!({}), json!({ "maps": { "minAvailable": 2 } }), None),
        (json!({}), json!({ "other": {} }), None),
    ];
    for (counters, lists, wanted) in rows {
        assert_eq!(by(counters.clone(), lists.clone()).as_deref(), wanted, "{counters} {lists}");
    }
}

#[test]
fn distributed_without_priorities_takes_any_and_packed_always_the_same() {
    let names: Vec<String> = (0..50).map(|number| format!("gs{number:02}")).collect();
    let servers: Vec<(&str, Candidate)> = names.iter().map(|name| (name.as_str(), on("n"))).collect();
    let whole = book(&servers);
    let with = |scheduling: &str, random: u64| {
        let request = request(json!({ "scheduling": scheduling }));
        choose(&whole, &request, Tie::Name, Instant::now(), random).unwrap().name
    };
    let distributed: BTreeSet<String> = (0..200).map(|random| with("Distributed", random)).collect();
    assert!(distributed.len() > 25, "{distributed:?}");
    let packed: BTreeSet<String> = (0..200).map(|random| with("Packed", random)).collect();
    assert_eq!(packed, BTreeSet::from(["gs00".to_owned()]));
}

#[test]
fn wary_replicas_seldom_choose_the_same_but_keep_the_order() {
    let names: Vec<String> = (0..50).map(|number| format!("gs{number:02}")).collect();
    let mut servers: Vec<(&str, Candidate)> = names.iter().map(|name| (name.as_str(), on("full"))).collect();
    servers.push(("empty", on("empty")));
    let whole = book(&servers);
    let by = |replica: u64| {
        choose(&whole, &request(json!({})), Tie::Replica(replica), Instant::now(), 0).unwrap().name
    };
    let chosen: BTreeSet<String> = (0..9).map(by).collect();
    assert!(chosen.len() > 5, "{chosen:?}");
    assert!(!chosen.contains("empty"));
}

#[test]
fn nothing_is_taken_from_a_node_that_is_closed() {
    let mut whole = book(&[("a", on("draining").allocated()), ("b", on("open"))]);
    whole.nodes.set_phase("draining", NodePhase::Draining);
    assert_eq!(chosen(&whole, json!({})).as_deref(), Some("b"));
    let allocated = json!({ "selectors": [{ "gameServerState": "Allocated" }] });
    assert_eq!(chosen(&whole, allocated), None);
}

#[test]
fn other_namespaces_are_not_looked_at() {
    let mut whole = Book::default();
    let candidate = on("n");
    whole.see(&crate::book::ServerKey::new("other", "a"), candidate.version.clone(), Some(candidate));
    assert_eq!(chosen(&whole, json!({})), None);
}

proptest! {
    /// The choice is the first that fits in the sorted order, for every book: no server that fits better is passed over.
    #[test]
    fn the_choice_is_the_best_of_all(
        servers in proptest::collection::btree_map("[a-f]{1,2}", candidate(), 0..12),
        distributed in any::<bool>(),
    ) {
        let named: Vec<(&str, Candidate)> =
            servers.iter().map(|(name, candidate)| (name.as_str(), candidate.clone())).collect();
        let whole = book(&named);
        let request = request(json!({
            "scheduling": if distributed { "Distributed" } else { "Packed" },
            "selectors": [
                { "gameServerState": "Allocated", "counters": { "rooms": { "minAvailable": 1 } } },
                { "matchLabels": { "a": "b" } },
                {},
            ],
            "priorities": [{ "type": "Counter", "key": "rooms", "order": "Descending" }],
        }));
        let order = Order { book: &whole, request: &request, tie: Tie::Name };
        let rank = |candidate: &Candidate| request.selectors.iter().position(|rule| fits(rule, candidate));
        let mut all: Vec<(&str, &Candidate)> =
            self::all(&whole).into_iter().filter(|(_, candidate)| rank(candidate).is_some()).collect();
        all.sort_by(|left, right| {
            rank(left.1).cmp(&rank(right.1)).then_with(|| order.compare(*left, *right))
        });
        let choice = choose(&whole, &request, Tie::Name, Instant::now(), 1);
        prop_assert_eq!(choice.as_ref().map(|choice| choice.name.as_str()), all.first().map(|(name, _)| *name));
        if let Some(choice) = choice {
            let candidate = whole.look(&key(&choice.name)).cloned();
            prop_assert!(candidate.is_some_and(|candidate| rank(&candidate) == Some(choice.selector)));
        }
    }
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let node = prop_oneof![Just("n1"), Just("n2"), Just("")];
    (node, any::<bool>(), any::<bool>(), proptest::option::of(0_i64..4)).prop_map(
        |(node, is_allocated, is_labelled, rooms)| {
            let mut candidate = on(node);
            if is_allocated {
                candidate = candidate.allocated();
            }
            if is_labelled {
                candidate = candidate.label("a", "b");
            }
            rooms.map_or(candidate.clone(), |rooms| candidate.counter("rooms", rooms, 3))
        },
    )
}
