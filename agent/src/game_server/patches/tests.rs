//! Each write, as it goes over the wire.

use berth_api::game_server::{GameServer, GameServerSpec, GameServerStatus, NodeAddress, PortSpec};
use berth_api::lifecycle::State;
use berth_api::link::Sequence;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AtReady, Place, end, finish, grant, hand_back, make_ready, schedule, tolerate};
use crate::game_server::Reason;
use crate::game_server::amounts::Amounts;
use crate::game_server::wishes::{StateWish, Wishes};
use crate::node::NodeFacts;

fn server(state: State) -> GameServer {
    let mut server = GameServer::new("gs", GameServerSpec::default());
    server.metadata.resource_version = Some("42".into());
    server.metadata.finalizers = Some(vec!["agones.dev/controller".into(), "other".into()]);
    server.status = Some(GameServerStatus { state: Some(state), ..GameServerStatus::default() });
    server
}

fn node() -> NodeFacts {
    let addresses = vec![NodeAddress { kind: "InternalIP".into(), address: "10.0.0.1".into() }];
    NodeFacts { addresses, ..NodeFacts::default() }
}

fn port() -> PortSpec {
    PortSpec {
        name: Some("game".into()),
        container_port: Some(7654),
        host_port: Some(7001),
        ..PortSpec::default()
    }
}

fn ready(state: State, wishes: &Wishes, container: Option<&str>) -> Value {
    let (server, node) = (server(state), node());
    let pod_addresses = ["10.1.0.5".to_owned()];
    let place = Place { server: &server, name: "n", node: &node, ports: &[], pod_addresses: &pod_addresses };
    grant(&server, wishes, &Amounts::of(&GameServerStatus::default(), wishes), AtReady { place, container })
}

#[test]
fn scheduled_shows_ports_and_addresses() {
    let (server, node) = (server(State::Creating), node());
    let ports = [port()];
    let place = Place { server: &server, name: "n", node: &node, ports: &ports, pod_addresses: &[] };
    assert_eq!(
        schedule(&server, place, "pod-1"),
        json!({
            "metadata": { "resourceVersion": "42", "annotations": { "berth.dev/pod-uid": "pod-1" } },
            "spec": { "ports": [{ "name": "game", "containerPort": 7654, "hostPort": 7001 }] },
            "status": {
                "state": "Scheduled",
                "ports": [{ "name": "game", "port": 7001 }],
                "address": "10.0.0.1",
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
                "nodeName": "n"
            }
        })
    );
}

#[test]
fn all_that_a_game_asks_for_is_one_write_with_its_number() {
    let wishes = Wishes {
        up_to: Sequence(3),
        state: Some(StateWish::Ready),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        annotations: [("c".to_owned(), "d".to_owned())].into(),
        ..Wishes::default()
    };
    assert_eq!(
        ready(State::Scheduled, &wishes, Some("containerd://1")),
        json!({
            "metadata": {
                "resourceVersion": "42",
                "labels": { "agones.dev/sdk-a": "b" },
                "annotations": {
                    "agones.dev/sdk-c": "d",
                    "berth.dev/sdk-applied": "3",
                    "berth.dev/ready-container": "containerd://1"
                }
            },
            "status": {
                "state": "Ready",
                "reservedUntil": null,
                "addresses": [
                    { "type": "InternalIP", "address": "10.0.0.1" },
                    { "type": "PodIP", "address": "10.1.0.5" }
                ]
            }
        })
    );
}

#[test]
fn each_state_that_a_game_asks_for_is_written_with_what_belongs_to_it() {
    let wish = |state| Wishes { up_to: Sequence(1), state: Some(state), ..Wishes::default() };
    let allocated = ready(State::Ready, &wish(StateWish::Allocate { at: "t".into() }), None);
    assert_eq!(allocated["status"]["state"], "Allocated");
    assert_eq!(allocated["metadata"]["annotations"]["agones.dev/last-allocated"], "t");
    let until = Some("2026-01-01T00:00:00Z".to_owned());
    let reserved = ready(State::Ready, &wish(StateWish::Reserve { until }), None);
    assert_eq!(reserved["status"]["reservedUntil"], "2026-01-01T00:00:00Z");
    let shutdown = ready(State::Allocated, &wish(StateWish::Shutdown), None);
    assert_eq!(shutdown["status"]["state"], "Shutdown");
    assert_eq!(
        shutdown["metadata"]["annotations"]["berth.dev/reason"],
        "ShutdownCalled: the game called Shutdown"
    );
    let again = ready(State::Ready, &wish(StateWish::Ready), None);
    assert_eq!(again.get("status"), None, "Ready again changes nothing but the number");
    assert_eq!(again["metadata"]["annotations"]["berth.dev/sdk-applied"], "1");
}

#[test]
fn an_error_has_its_time_and_its_reason() {
    let reason = Reason::QuotaExceeded { message: "pods: 5".into() };
    let now: Timestamp = "2026-01-01T00:00:00.123Z".parse().expect("a time");
    let body = end(&server(State::Creating), State::Error, &reason, now);
    assert_eq!(body["status"], json!({ "state": "Error" }));
    let annotations = &body["metadata"]["annotations"];
    assert_eq!(annotations["agones.dev/errored-at"], "2026-01-01T00:00:00Z");
    assert_eq!(annotations["berth.dev/reason"], "QuotaExceeded: no pod can be made: pods: 5");
}

#[test]
fn handing_back_leaves_no_trace_of_this_node_but_the_reason() {
    let mut server = server(State::Scheduled);
    server.spec.ports = Some(vec![port()]);
    server.metadata.annotations =
        Some([("berth.dev/pod-uid".to_owned(), "pod-1".to_owned())].into_iter().collect());
    let body = hand_back(&server, "n", "no free port");
    assert_eq!(
        body["status"],
        json!({ "state": "Creating", "nodeName": "", "address": "", "addresses": null, "ports": null })
    );
    assert_eq!(body["spec"]["ports"], json!([{ "name": "game", "containerPort": 7654 }]));
    let annotations = &body["metadata"]["annotations"];
    assert_eq!(annotations["berth.dev/pod-uid"], Value::Null);
    let returned: Value =
        serde_json::from_str(annotations["berth.dev/returned"].as_str().expect("text")).expect("JSON");
    assert_eq!(returned, json!({ "version": 1, "node": "n", "reason": "no free port", "times": 1 }));
}

#[test]
fn defect_2_a_pod_gets_its_toleration_whatever_list_it_has() {
    let ours = json!({
        "key": "gamelift.status/draining", "operator": "Equal", "value": "true", "effect": "NoExecute"
    });
    let theirs = json!({ "key": "gpu", "operator": "Exists" });
    let table = [
        ("none", Value::Null, json!({ "op": "add", "path": "/spec/tolerations", "value": [ours] })),
        ("an empty one", json!([]), json!({ "op": "add", "path": "/spec/tolerations/-", "value": ours })),
        ("another's", json!([theirs]), json!({ "op": "add", "path": "/spec/tolerations/-", "value": ours })),
    ];
    for (name, tolerations, expected) in table {
        let pod = json!({
            "metadata": { "uid": "u", "resourceVersion": "7" },
            "spec": { "containers": [], "tolerations": tolerations }
        });
        let operations = tolerate(&serde_json::from_value(pod).expect("a pod"));
        // Of this very pod, and in the version that was seen: a list that another has made since is not lost.
        assert_eq!(operations[0], json!({ "op": "test", "path": "/metadata/uid", "value": "u" }), "{name}");
        assert_eq!(
            operations[1],
            json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": "7" }),
            "{name}"
        );
        assert_eq!(operations[2], expected, "{name}");
    }
}

#[test]
fn only_our_finalizers_go() {
    let body = finish(&server(State::Ready));
    assert_eq!(body, json!({ "metadata": { "resourceVersion": "42", "finalizers": ["other"] } }));
}

#[test]
fn ready_by_the_clock_needs_no_number() {
    let (server, node) = (server(State::Reserved), node());
    let place = Place { server: &server, name: "n", node: &node, ports: &[], pod_addresses: &[] };
    let body = make_ready(&server, AtReady { place, container: None });
    assert_eq!(body["status"]["state"], "Ready");
    assert_eq!(body["metadata"], json!({ "resourceVersion": "42" }));
}
