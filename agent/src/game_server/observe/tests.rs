//! What is read from objects as the API server hands them out.

use std::net::{IpAddr, Ipv4Addr};

use berth_api::game_node::Room;
use berth_api::game_server::{GameServer, GameServerSpec, PodTemplate};
use berth_api::lifecycle::State;
use berth_api::node_lease::HandOver;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Ending, Handed, PodFacts, PodSight, Surroundings, handed, observe};
use crate::drain::Course;
use crate::game_server::memory::{Exit, Memory};
use crate::identity::Identity;
use crate::node::NodeFacts;

fn identity() -> Identity {
    Identity { node: "n".into(), node_uid: "node-uid".into(), boot_id: "boot".into(), process_id: "p".into() }
}

fn server(annotations: Value) -> GameServer {
    let mut server = GameServer::new("gs", GameServerSpec::default());
    server.metadata.uid = Some("gs-uid".into());
    server.metadata.annotations = serde_json::from_value(annotations).expect("annotations");
    server
}

fn pod(spec: Value, status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "uid": "pod-uid",
            "annotations": { "agones.dev/container": "main" },
            "ownerReferences": [{
                "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": "gs", "uid": "gs-uid",
                "controller": true
            }]
        },
        "spec": spec,
        "status": status
    }))
    .expect("a pod")
}

fn never() -> Value {
    json!({ "restartPolicy": "Never", "containers": [] })
}

fn facts(server: &GameServer, pod: &Pod) -> PodFacts {
    let memory = Memory::new(State::Ready, Timestamp::UNIX_EPOCH);
    let around = Surroundings {
        identity: &identity(),
        node: &NodeFacts::default(),
        taken: Room::default(),
        course: &Course::Open,
        ends_sessions: true,
    };
    match observe(server, Some(pod), &memory, around).pod {
        PodSight::Ours(facts) => facts,
        other => panic!("{other:?}"),
    }
}

fn ended(name: &str, code: i32, reason: &str) -> Value {
    json!({
        "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "terminated": { "exitCode": code, "reason": reason } }
    })
}

fn running(name: &str, id: &str) -> Value {
    json!({
        "name": name, "image": "i", "imageID": "", "ready": true, "restartCount": 0, "containerID": id,
        "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } }
    })
}

#[test]
fn endings_are_told_apart() {
    let failed = |message: &str| Some(Ending::Failed { message: message.to_owned() });
    let table = [
        ("a running pod", json!({ "phase": "Running", "containerStatuses": [running("main", "c")] }), None),
        ("a pending pod", json!({ "phase": "Pending" }), None),
        (
            "out of room",
            json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "no" }),
            Some(Ending::Refused { message: "kubelet refused the pod: OutOfcpu: no".into() }),
        ),
        (
            "a port that is taken",
            json!({ "phase": "Failed", "reason": "NodePorts", "message": "no" }),
            Some(Ending::Refused { message: "kubelet refused the pod: NodePorts: no".into() }),
        ),
        (
            "a node that is about to go down",
            json!({ "phase": "Failed", "reason": "NodeShutdown", "message": "no" }),
            Some(Ending::Refused { message: "kubelet refused the pod: NodeShutdown: no".into() }),
        ),
        (
            "a refusal after a container ran is a failure",
            json!({
                "phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no",
                "containerStatuses": [ended("main", 2, "Error")]
            }),
            failed("container main ended with exit code 2"),
        ),
        (
            "eviction",
            json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" }),
            Some(Ending::Evicted { message: "low on memory".into() }),
        ),
        (
            "a crash",
            json!({ "phase": "Failed", "containerStatuses": [ended("main", 1, "Error")] }),
            failed("container main ended with exit code 1"),
        ),
        (
            "out of memory while another container lives",
            json!({
                "phase": "Running",
                "containerStatuses": [running("log", "l"), ended("main", 137, "OOMKilled")]
            }),
            failed("container main ended with exit code 137 (OOMKilled)"),
        ),
        (
            "another container crashed",
            json!({
                "phase": "Failed",
                "containerStatuses": [ended("main", 0, "Completed"), ended("log", 3, "Error")]
            }),
            failed("container log ended with exit code 3"),
        ),
        (
            "another container ends while the game lives",
            json!({ "phase": "Running", "containerStatuses": [running("main", "c"), ended("log", 3, "Error")] }),
            None,
        ),
        ("success", json!({ "phase": "Succeeded" }), Some(Ending::Succeeded)),
        ("a failure without words", json!({ "phase": "Failed" }), failed("the pod failed")),
    ];
    for (name, status, expected) in table {
        assert_eq!(facts(&server(json!({})), &pod(never(), status)).ending, expected, "{name}");
    }
}

#[test]
fn a_restart_counts_from_ready_on() {
    let always = json!({ "restartPolicy": "Always", "containers": [] });
    let now = json!({ "phase": "Running", "containerStatuses": [running("main", "c-2")] });
    let crashed = json!({ "phase": "Running", "containerStatuses": [ended("main", 1, "Error")] });
    let ready_with = |id: &str| server(json!({ "berth.dev/ready-container": id }));
    let table = [
        ("before Ready", server(json!({})), now.clone(), false),
        ("the same container", ready_with("c-2"), now.clone(), false),
        ("another container", ready_with("c-1"), now, true),
        ("none at the moment", ready_with("c-1"), crashed.clone(), true),
    ];
    for (name, server, status, expected) in table {
        assert_eq!(facts(&server, &pod(always.clone(), status)).restarted_since_ready, expected, "{name}");
    }
    assert_eq!(facts(&ready_with("c-1"), &pod(always, crashed)).ending, None, "kubelet starts it again");
}

#[test]
fn addresses_come_from_the_sandbox_until_kubelet_reports_them() {
    let server = server(json!({}));
    let mut memory = Memory::new(State::Scheduled, Timestamp::UNIX_EPOCH);
    memory.sandbox_addresses = vec![IpAddr::V4(Ipv4Addr::new(10, 1, 0, 5))];
    let around = Surroundings {
        identity: &identity(),
        node: &NodeFacts::default(),
        taken: Room::default(),
        course: &Course::Open,
        ends_sessions: true,
    };
    for (status, expected) in [
        (json!({ "phase": "Pending" }), "10.1.0.5"),
        (json!({ "phase": "Running", "podIPs": [{ "ip": "10.1.0.9" }] }), "10.1.0.9"),
    ] {
        let pod = pod(never(), status);
        let PodSight::Ours(facts) = observe(&server, Some(&pod), &memory, around).pod else {
            panic!("ours");
        };
        assert_eq!(facts.addresses, [expected]);
    }
}

#[test]
fn a_pod_of_the_same_name_may_be_a_strangers() {
    let server = server(json!({}));
    let memory = Memory::new(State::Creating, Timestamp::UNIX_EPOCH);
    let around = Surroundings {
        identity: &identity(),
        node: &NodeFacts::default(),
        taken: Room::default(),
        course: &Course::Open,
        ends_sessions: true,
    };
    let mut stranger = pod(never(), json!({}));
    stranger.metadata.owner_references = None;
    let seen = observe(&server, Some(&stranger), &memory, around).pod;
    assert_eq!(seen, PodSight::Foreign { owner: "nobody".into() });
    let mut earlier = pod(never(), json!({}));
    if let Some(owner) = earlier.metadata.owner_references.as_mut().and_then(|owners| owners.first_mut()) {
        owner.uid = "another".into();
    }
    let seen = observe(&server, Some(&earlier), &memory, around).pod;
    assert_eq!(seen, PodSight::Foreign { owner: "GameServer gs with UID another".into() });
}

#[test]
fn a_hand_over_names_node_and_boot() {
    let given = |node: &str, boot: &str| {
        server(json!({ "berth.dev/lease": HandOver::new("n", node, boot).to_annotation() }))
    };
    assert_eq!(handed(&given("node-uid", "boot"), &identity()), Handed::ToUs);
    assert_eq!(handed(&given("node-uid", "earlier"), &identity()), Handed::ToAnotherBoot);
    for wrong in [
        given("other", "boot"),
        server(json!({})),
        server(json!({ "berth.dev/lease": "{" })),
        server(json!({ "berth.dev/lease": "{\"version\":9,\"nodeUid\":\"node-uid\",\"bootId\":\"boot\"}" })),
    ] {
        assert!(matches!(handed(&wrong, &identity()), Handed::Wrong { .. }));
    }
}

#[test]
fn a_pod_that_kubelet_would_refuse_is_not_made() {
    let mut server = server(json!({}));
    server.spec.template = PodTemplate(json!({ "spec": { "containers": [{
        "name": "main", "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } }
    }] } }));
    let memory = Memory::new(State::Creating, Timestamp::UNIX_EPOCH);
    let room = |milli_cpu, gibibytes: i64, pods| Room { milli_cpu, memory_bytes: gibibytes << 30, pods };
    let node = NodeFacts { allocatable: room(2000, 8, 10), ..NodeFacts::default() };
    for (taken, expected) in [
        (room(1500, 7, 9), None),
        (room(1501, 0, 0), Some("the node has too little room: processor time")),
        (room(0, 8, 0), Some("the node has too little room: memory")),
        (room(0, 0, 10), Some("the node has too little room: pods")),
    ] {
        let around = Surroundings {
            identity: &identity(),
            node: &node,
            taken,
            course: &Course::Open,
            ends_sessions: true,
        };
        let seen = observe(&server, None, &memory, around);
        assert_eq!(seen.node_refuses.as_deref(), expected);
    }
}

#[test]
fn every_refusal_of_kubelet_is_told_from_a_failure() {
    for reason in
        ["OutOfcpu", "OutOfmemory", "OutOfpods", "NodePorts", "NodeAffinity", "UnexpectedAdmissionError"]
    {
        let status = json!({ "phase": "Failed", "reason": reason, "message": "m" });
        let expected = Ending::Refused { message: format!("kubelet refused the pod: {reason}: m") };
        assert_eq!(facts(&server(json!({})), &pod(never(), status)).ending, Some(expected), "{reason}");
    }
}

#[test]
fn the_end_of_a_process_counts_until_kubelet_has_seen_it() {
    let at = Timestamp::from_second(7).expect("a time");
    let seen = |server: &GameServer, pod: &Pod, container: &str, failure: Option<&str>| {
        let mut memory = Memory::new(State::Ready, Timestamp::UNIX_EPOCH);
        let failure = failure.map(str::to_owned);
        memory.exit = Some(Exit { container: container.to_owned(), at, failure });
        let around = Surroundings {
            identity: &identity(),
            node: &NodeFacts::default(),
            taken: Room::default(),
            course: &Course::Open,
            ends_sessions: true,
        };
        match observe(server, Some(pod), &memory, around).pod {
            PodSight::Ours(facts) => facts,
            other => panic!("{other:?}"),
        }
    };
    let runs = || json!({ "phase": "Running", "containerStatuses": [running("main", "c-1")] });
    let ends = json!({ "phase": "Running", "containerStatuses": [ended("main", 0, "Completed")] });
    let always = || json!({ "restartPolicy": "Always", "containers": [] });
    let plain = server(json!({}));
    let ready = server(json!({ "berth.dev/ready-container": "c-1" }));

    let facts = seen(&plain, &pod(never(), runs()), "c-1", None);
    assert_eq!((facts.ending, facts.over_since), (None, Some(at)), "how it ended is not known");
    let facts = seen(&plain, &pod(never(), runs()), "c-1", Some("code 3"));
    assert_eq!(facts.ending, Some(Ending::Failed { message: "code 3".into() }));
    let facts = seen(&plain, &pod(never(), runs()), "c-0", Some("code 3"));
    assert_eq!((facts.ending, facts.over_since), (None, None), "it was another container");
    let facts = seen(&plain, &pod(never(), ends), "c-1", None);
    assert_eq!((facts.ending, facts.over_since), (Some(Ending::Succeeded), None), "kubelet's word stands");
    let facts = seen(&plain, &pod(always(), runs()), "c-1", Some("code 3"));
    assert_eq!(
        (facts.ending, facts.restarted_since_ready),
        (None, false),
        "it is started again before Ready"
    );
    let facts = seen(&ready, &pod(always(), runs()), "c-1", None);
    assert!(facts.restarted_since_ready, "and from Ready on that is a restart");
}

#[test]
fn a_pod_on_another_node_is_not_taken_for_one_of_ours() {
    let server = server(json!({}));
    let memory = Memory::new(State::Creating, Timestamp::UNIX_EPOCH);
    let around = Surroundings {
        identity: &identity(),
        node: &NodeFacts::default(),
        taken: Room::default(),
        course: &Course::Open,
        ends_sessions: true,
    };
    for (node, expected) in [("n", None), ("m", Some("m"))] {
        let pod = pod(json!({ "nodeName": node, "containers": [] }), json!({}));
        let seen = match observe(&server, Some(&pod), &memory, around).pod {
            PodSight::Elsewhere { node } => Some(node),
            _ => None,
        };
        assert_eq!(seen.as_deref(), expected);
    }
}
