//! Troubles that servers of this kind are known to have had elsewhere, each on a real API server: an address that comes
//! late, refusals of kubelet, ends before and during a session, numbers that are given out twice. No kubelet runs: the test
//! says what it would.

#[path = "front_link/played.rs"]
#[allow(dead_code, reason = "the tests of the link use all of it")]
mod played;
#[path = "game_server_life/world.rs"]
#[allow(dead_code, reason = "the tests of a server's life use the rest of it")]
mod world;

use std::collections::BTreeSet;

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::link::Change;
use berth_api::node_lease::Returned;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use self::world::{World, spec};

fn dynamic(name: &str) -> Value {
    json!({ "name": name, "containerPort": 7654 })
}

fn reason(server: &GameServer) -> &str {
    server.annotation("berth.dev/reason").unwrap_or_default()
}

/// A place, as players need it.
fn place(server: &GameServer) -> (String, String, Vec<u16>) {
    let status = server.status.clone().unwrap_or_default();
    let ports = status.ports.unwrap_or_default().iter().map(|port| port.port).collect();
    (status.address, status.node_name, ports)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_game_that_is_ready_before_its_node_has_an_address_waits_for_it() {
    let world = World::new().await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let show = async |addresses: Value| {
        let patch = Patch::Merge(json!({ "status": { "addresses": addresses } }));
        nodes.patch_status(&world.node, &PatchParams::default(), &patch).await.expect("shown");
    };
    show(Value::Null).await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let made = world.hand_over("early", spec(json!([dynamic("game")]))).await;
    let uid = made.uid().expect("a UID");
    berth_dev::eventually(world::LIMIT, "a pod", async || world.pods().get("early").await)
        .await
        .expect("a pod");
    world.run_pod("early").await;
    assert!(!game.listeners(&uid).await.is_empty());
    game.asks(&uid, 1, Change::Ready).await;
    let waiting = world
        .until("early", "told what it waits for", |server| {
            let conditions = server.status.as_ref().and_then(|status| status.conditions.clone());
            match conditions.unwrap_or_default().first() {
                Some(told) if told.reason == "NoAddress" => Ok(server.clone()),
                told => Err(format!("{told:?}")),
            }
        })
        .await;
    assert_eq!(waiting.state(), Some(State::Creating));
    show(json!([{ "type": "InternalIP", "address": "10.0.0.9" }])).await;
    let ready = world.until_state("early", State::Ready).await;
    game.acknowledged(&uid, 1).await;

    // Every version that anybody could have seen.
    let only = WatchParams::default().fields("metadata.name=early");
    let since = made.resource_version().expect("a version");
    let mut versions = world.servers().watch(&only, &since).await.expect("a watch").boxed();
    let mut is_last = false;
    while !is_last {
        let event = versions.next().await.expect("the watch goes on").expect("an event");
        let WatchEvent::Modified(version) = event else { continue };
        if matches!(version.state(), Some(State::Scheduled | State::Ready)) {
            let (address, node, ports) = place(&version);
            assert_eq!((address.as_str(), node.as_str(), ports.len()), ("10.0.0.9", world.node.as_str(), 1));
        }
        is_last = version.resource_version() == ready.resource_version();
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_kubelet_refuses_goes_elsewhere_and_whatever_it_ends_is_unhealthy() {
    let world = World::new().await;
    let agent = world.start().await;
    for refusal in ["OutOfpods", "OutOfcpu", "NodeAffinity", "UnexpectedAdmissionError"] {
        let name = refusal.to_lowercase();
        world.hand_over(&name, spec(json!([]))).await;
        world.until_state(&name, State::Scheduled).await;
        let status = json!({ "phase": "Failed", "reason": refusal, "message": "Pod was rejected" });
        world.report(&name, status).await;
        let server = world
            .until(&name, "handed back", |server| {
                if server.node_name().is_none() { Ok(server.clone()) } else { Err("not yet".to_owned()) }
            })
            .await;
        let returned = Returned::from_annotation(server.annotation("berth.dev/returned").unwrap_or_default());
        let returned = returned.expect("it reads");
        assert_eq!(returned.reason, format!("kubelet refused the pod: {refusal}: Pod was rejected"));
        if let Some(pod) = world.pods().get_opt(&name).await.expect("an answer") {
            assert!(pod.metadata.deletion_timestamp.is_some(), "the pod of {name} is left");
        }
    }
    let crash = json!([{
        "name": "main", "image": "game", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "terminated": { "exitCode": 1, "reason": "Error" } }
    }]);
    for (name, status, expected) in [
        (
            "evicted",
            json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" }),
            ["Evicted: ", "low on memory"],
        ),
        (
            "crashed-before-ready",
            json!({ "phase": "Failed", "containerStatuses": crash }),
            ["Failed: ", "container main ended with exit code 1"],
        ),
    ] {
        world.hand_over(name, spec(json!([]))).await;
        world.until_state(name, State::Scheduled).await;
        let pod = world.run_pod(name).await;
        assert_eq!(pod.spec.and_then(|spec| spec.restart_policy).as_deref(), Some("Never"));
        world.report(name, status).await;
        let server = world.until_state(name, State::Unhealthy).await;
        let [word, cause] = expected;
        let reason = reason(&server);
        assert!(reason.starts_with(word) && reason.contains(cause), "{name}: {reason}");
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_game_ran_out_of_memory_is_unhealthy_though_its_sidecar_lives() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let two = json!({
        "container": "main",
        "template": { "spec": { "containers": [
            { "name": "main", "image": "game:1" },
            { "name": "log", "image": "log:1" },
        ] } },
    });
    let uid = world.hand_over("starved", two).await.uid().expect("a UID");
    world.until_state("starved", State::Scheduled).await;
    world.run_pod("starved").await;
    game.asks(&uid, 1, Change::Ready).await;
    world.until_state("starved", State::Ready).await;
    let session = Patch::Merge(json!({ "status": { "state": "Allocated" } }));
    world.servers().patch("starved", &PatchParams::default(), &session).await.expect("allocated");
    let now = jiff::Timestamp::now().to_string();
    let status = |name: &str, state: Value| {
        json!({
            "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "containerID": format!("containerd://{name}"), "state": state
        })
    };
    let starved = status("main", json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } }));
    let lives = status("log", json!({ "running": { "startedAt": now } }));
    world.report("starved", json!({ "phase": "Running", "containerStatuses": [starved, lives] })).await;
    let server = world.until_state("starved", State::Unhealthy).await;
    assert_eq!(reason(&server), "Failed: container main ended with exit code 137 (OOMKilled)");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_given_out_once_whoever_has_it() {
    let world = World::new().await.with_ports(7000, 7003);
    let agent = world.start().await;
    let fixed = json!([{ "name": "s", "portPolicy": "Static", "containerPort": 5, "hostPort": 7001 }]);
    world.hand_over("static", spec(fixed)).await;
    world.until_state("static", State::Scheduled).await;
    let two = spec(json!([dynamic("a"), dynamic("b")]));
    world.hand_over("first", two.clone()).await;
    let (_, _, ports) = place(&world.until_state("first", State::Scheduled).await);
    let given: BTreeSet<u16> = ports.iter().copied().collect();
    assert_eq!((given.len(), given.contains(&7001)), (2, false), "{ports:?}");
    // One number is left, which is not enough for two ports, and is not given out for both.
    world.hand_over("second", two).await;
    world
        .until("second", "handed back", |server| {
            if server.node_name().is_none() { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
    world.hand_over("third", spec(json!([dynamic("c")]))).await;
    let (_, _, last) = place(&world.until_state("third", State::Scheduled).await);
    let all: BTreeSet<u16> = given.into_iter().chain(last).chain([7001]).collect();
    assert_eq!(all, BTreeSet::from([7000, 7001, 7002, 7003]));
    agent.stop().await;
}
