//! What may happen to a game server that nobody asked for: nodes, kubelets, runtimes and people, each at its worst.
//! Against a real API server; no kubelet runs, the test says what it would.

#[path = "front_link/played.rs"]
#[allow(dead_code, reason = "the tests of the link use all of it")]
mod played;
#[path = "game_server_life/world.rs"]
#[allow(dead_code, reason = "the tests of a server's life use the rest of it")]
mod world;

use std::net::{IpAddr, Ipv4Addr};

use berth_agent::host::Exit;
use berth_api::game_node::GameNode;
use berth_api::game_server::{GameServer, GameServerStatus};
use berth_api::lifecycle::State;
use berth_api::link::{Change, Pulse, ServerUid, ToAgent};
use berth_api::node_lease::{HandOver, Returned};
use berth_dev::eventually;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use self::world::others::{bare, bare_on, make_pod};
use self::world::{LIMIT, World, one_port, spec};

async fn change(world: &World, name: &str, patch: Value) -> GameServer {
    world.servers().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("changed")
}

async fn until_reason(world: &World, name: &str, expected: &str) -> GameServer {
    let server = world.until_state(name, State::Unhealthy).await;
    let reason = server.annotation("berth.dev/reason").unwrap_or_default();
    assert!(reason.starts_with(expected), "{name}: {reason}");
    server
}

async fn until_handed_back(world: &World, name: &str) -> Returned {
    let text = world
        .until(name, "handed back", |server| match server.annotation("berth.dev/returned") {
            Some(text) if server.node_name().is_none() => Ok(text.to_owned()),
            Some(_) | None => Err("not yet".to_owned()),
        })
        .await;
    Returned::from_annotation(&text).expect("it reads")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_game_that_cannot_start_says_why_on_its_object() {
    let world = World::new().await;
    let agent = world.start().await;
    world.hand_over("stuck", spec(json!([]))).await;
    world.until_state("stuck", State::Scheduled).await;
    let waiting = json!({ "phase": "Pending", "containerStatuses": [{
        "name": "main", "image": "game", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ErrImagePull", "message": "no such image" } }
    }]});
    world.report("stuck", waiting).await;
    let condition = world
        .until("stuck", "told why", |server| {
            let conditions = server.status.as_ref().and_then(|status| status.conditions.clone());
            conditions.unwrap_or_default().into_iter().next().ok_or_else(|| "not yet".to_owned())
        })
        .await;
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("Progressing", "False"));
    assert_eq!(condition.reason, "ImagePull");
    assert_eq!(condition.message, "container main: ErrImagePull: no such image");
    world.until_events("stuck", &["Scheduled", "NotProgressing"]).await;
    world.run_pod("stuck").await;
    world
        .until("stuck", "well", |server| {
            let conditions = server.status.as_ref().and_then(|status| status.conditions.clone());
            let conditions = conditions.unwrap_or_default();
            if conditions.iter().all(|one| one.status == "True") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_address_of_the_node_is_shown_and_a_lost_one_is_kept() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let uid = world.hand_over("moving", spec(one_port())).await.uid().expect("a UID");
    world.until_state("moving", State::Scheduled).await;
    world.run_pod("moving").await;
    game.asks(&uid, 1, Change::Ready).await;
    world.until_state("moving", State::Ready).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let show = async |addresses: Value| {
        let status = Patch::Merge(json!({ "status": { "addresses": addresses } }));
        nodes.patch_status(&world.node, &PatchParams::default(), &status).await.expect("shown");
    };
    let address = |server: &GameServer| server.status.clone().unwrap_or_default().address;
    show(json!([{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "ExternalIP", "address": "1.2.3.4" }]))
        .await;
    let moved = world
        .until("moving", "at its new address", |server| {
            if address(server) == "1.2.3.4" { Ok(server.clone()) } else { Err(address(server)) }
        })
        .await;
    let kinds: Vec<String> =
        moved.status.and_then(|status| status.addresses).into_iter().flatten().map(|one| one.kind).collect();
    assert_eq!(kinds, ["InternalIP", "ExternalIP", "PodIP"]);
    // One that is lost, seen beside one that came: what is shown keeps the one and gains the other.
    show(json!([{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "InternalIP", "address": "fd00::1" }]))
        .await;
    let kept = world
        .until("moving", "shown with one more", |server| {
            let all = server.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
            if all.iter().any(|one| one.address == "fd00::1") {
                Ok(server.clone())
            } else {
                Err(format!("{all:?}"))
            }
        })
        .await;
    assert_eq!((address(&kept).as_str(), kept.state()), ("1.2.3.4", Some(State::Ready)));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_made_again_gets_new_listeners_and_is_a_restart_once_the_game_was_ready() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let server = world.hand_over("again", spec(one_port())).await;
    let uid = server.uid().expect("a UID");
    world.until_state("again", State::Scheduled).await;
    let pod = world.run_pod("again").await.uid().expect("a UID");
    let first = game.listeners(&uid).await[0].0.generation;
    world.host.sandbox_appears(&pod, 4712, vec![IpAddr::V4(Ipv4Addr::new(10, 1, 0, 6))]);
    let second = game.listeners(&uid).await;
    assert!(second.iter().all(|(key, _)| key.generation > first), "the old ones are closed for these");
    let second = second[0].0.generation;
    game.asks(&uid, 1, Change::Ready).await;
    let ready = world.until_state("again", State::Ready).await;
    assert_eq!(ready.annotation("berth.dev/reason"), None, "before Ready it is no failure");
    world.host.sandbox_appears(&pod, 4713, Vec::new());
    until_reason(&world, "again", "Restarted").await;
    assert!(game.listeners(&uid).await.iter().all(|(key, _)| key.generation > second));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_made_again_while_the_agent_was_away_is_noticed_too() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let uid = world.hand_over("asleep", spec(one_port())).await.uid().expect("a UID");
    world.until_state("asleep", State::Scheduled).await;
    let pod = world.run_pod("asleep").await.uid().expect("a UID");
    let held = game.listeners(&uid).await;
    game.asks(&uid, 1, Change::Ready).await;
    world.until_state("asleep", State::Ready).await;
    agent.stop().await;
    drop(game);
    world.host.sandbox_appears(&pod, 4712, Vec::new());
    let agent = world.start().await;
    let _game = world.connect(&[(&uid, &held)]).await;
    until_reason(&world, "asleep", "Restarted").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_game_that_ends_is_known_before_kubelet_says_so() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    for (name, exit, expected) in [
        ("crashing", Exit::Code(3), "Failed: container main ended with exit code 3"),
        ("starving", Exit::OutOfMemory, "Failed: container main ended with exit code 137 (OOMKilled)"),
    ] {
        let uid = world.hand_over(name, spec(json!([]))).await.uid().expect("a UID");
        world.until_state(name, State::Scheduled).await;
        let pod = world.run_pod(name).await.uid().expect("a UID");
        game.asks(&uid, 1, Change::Ready).await;
        world.until_state(name, State::Ready).await;
        world.host.container_exits(&pod, "1", exit);
        until_reason(&world, name, expected).await;
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_with_a_network_of_its_own_is_refused_with_the_reason() {
    let world = World::new().await;
    let agent = world.start().await;
    world.hand_over("sealed", spec(json!([]))).await;
    world.until_state("sealed", State::Scheduled).await;
    let pod = world.pod("sealed").await.uid().expect("a UID");
    world.host.hide_processes(&pod);
    world.run_pod("sealed").await;
    until_reason(&world, "sealed", "OutOfReach").await;
    agent.stop().await;
}

fn on_host(sdk: Value) -> Value {
    let mut spec = spec(json!([{ "name": "game", "portPolicy": "Passthrough" }]));
    spec["template"]["spec"]["hostNetwork"] = json!(true);
    spec["sdkServer"] = sdk;
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_the_nodes_network_have_sdk_ports_of_their_own() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let mut told = Vec::new();
    for (name, sdk) in
        [("a", json!({})), ("b", json!({})), ("c", json!({ "grpcPort": 4000, "httpPort": 4001 }))]
    {
        let uid = world.hand_over(name, on_host(sdk)).await.uid().expect("a UID");
        world.until_state(name, State::Scheduled).await;
        let pod = world.pod(name).await;
        let env = pod.spec.and_then(|spec| spec.containers[0].env.clone()).unwrap_or_default();
        let numbers: Vec<u16> = env.iter().filter_map(|one| one.value.as_ref()?.parse().ok()).collect();
        assert_eq!(numbers.len(), 2, "{env:?}");
        told.extend(numbers);
        assert!(!game.listeners(&uid).await.is_empty(), "{name}: there is no sandbox to wait for");
    }
    assert_eq!(told[4..], [4000, 4001]);
    assert!(told[..4].iter().all(|port| (9500..=9507).contains(port)), "{told:?}");
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 6, "no two share a port");
    world.hand_over("d", on_host(json!({ "grpcPort": 4000 }))).await;
    let returned = until_handed_back(&world, "d").await;
    assert!(returned.reason.starts_with("static port 4000/TCP is taken by "), "{}", returned.reason);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_the_nodes_network_can_be_refused_by_a_setting() {
    let world = World::new().await.without_host_network();
    let agent = world.start().await;
    world.hand_over("open", on_host(json!({}))).await;
    let server = world.until_state("open", State::Error).await;
    assert!(server.annotation("agones.dev/errored-at").is_some());
    let reason = server.annotation("berth.dev/reason").unwrap_or_default();
    assert!(reason.contains("spec.template.spec.hostNetwork"), "{reason}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_port_of_another_server_is_named_and_freed_with_it() {
    let world = World::new().await;
    let agent = world.start().await;
    let fixed = json!([{ "name": "s", "portPolicy": "Static", "containerPort": 5, "hostPort": 9100 }]);
    let first = world.hand_over("first", spec(fixed.clone())).await.uid().expect("a UID");
    world.until_state("first", State::Scheduled).await;
    world.hand_over("second", spec(fixed.clone())).await;
    let returned = until_handed_back(&world, "second").await;
    let expected = format!("static port 9100/UDP is taken by game server {first}");
    assert_eq!((returned.reason, returned.times), (expected, 1));
    world.servers().delete("first", &Default::default()).await.expect("asked for");
    world.end_pod("first").await;
    world.until_gone("first").await;
    world.hand_over("third", spec(fixed)).await;
    world.until_state("third", State::Scheduled).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_somebody_moves_on_paper_stays_where_its_pod_is() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let uid = world.hand_over("moved", spec(one_port())).await.uid().expect("a UID");
    world.until_state("moved", State::Scheduled).await;
    world.run_pod("moved").await;
    game.asks(&uid, 1, Change::Ready).await;
    let before = world.until_state("moved", State::Ready).await;
    change(&world, "moved", json!({ "status": { "nodeName": "elsewhere", "address": "9.9.9.9" } })).await;
    let after = world
        .until("moved", "back", |server| {
            let here = server.node_name() == Some(world.node.as_str());
            if here { Ok(server.clone()) } else { Err(format!("{:?}", server.node_name())) }
        })
        .await;
    assert_eq!(after.state(), Some(State::Ready));
    assert_eq!(after.status.map(|status| status.address), before.status.map(|status| status.address));
    // Handed over in earnest: it is let go, and its pod with it.
    let other = HandOver::new("elsewhere", "another-node", "boot").to_annotation();
    let moved = json!({
        "metadata": { "annotations": { "berth.dev/lease": other } },
        "status": { "nodeName": "elsewhere" }
    });
    change(&world, "moved", moved).await;
    world.end_pod("moved").await;
    game.forgotten(&uid).await;
    let left = world.servers().get("moved").await.expect("it is there");
    assert_eq!(left.node_name(), Some("elsewhere"));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_from_a_backup_never_resumes_as_ready() {
    let world = World::new().await;
    for name in ["restored", "halfway"] {
        world.hand_over(name, spec(one_port())).await;
    }
    let annotations = json!({ "annotations": { "berth.dev/pod-uid": "a-pod-of-the-past" } });
    let ready = json!({ "metadata": annotations, "status": { "state": "Ready", "address": "10.0.0.1" } });
    change(&world, "restored", ready).await;
    change(&world, "halfway", json!({ "metadata": annotations })).await;
    let agent = world.start().await;
    for name in ["restored", "halfway"] {
        until_reason(&world, name, "PodMissing").await;
        assert!(world.pods().get_opt(name).await.expect("an answer").is_none(), "{name}: one pod ever");
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_pod_is_on_another_node_is_handed_back() {
    let world = World::new().await;
    let server = world.hand_over("apart", spec(one_port())).await;
    make_pod(&world.pods(), &server, "elsewhere", &bare()).await;
    let agent = world.start().await;
    let returned = until_handed_back(&world, "apart").await;
    assert_eq!(returned.reason, "its pod is on node elsewhere");
    agent.stop().await;
}

/// What the agent says locally of a server, once it says anything.
async fn until_said(world: &World, name: &str) -> String {
    let said = eventually(LIMIT, format!("the agent to say something of {name}"), async || {
        let status = world.status().await.map_err(|error| error.to_string())?;
        let line = status.servers.into_iter().find(|line| line.name == name);
        line.and_then(|line| line.reason).ok_or_else(|| "nothing yet".to_owned())
    });
    said.await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_free_once_the_pod_of_an_earlier_server_has_ended() {
    let world = World::new().await;
    let earlier = json!({
        "metadata": {
            "name": "again",
            "ownerReferences": [{
                "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": "again", "uid": "earlier",
                "controller": true
            }]
        },
        "spec": { "nodeName": world.node, "containers": [{ "name": "main", "image": "game:1" }] }
    });
    let earlier: Pod = serde_json::from_value(earlier).expect("a pod");
    world.pods().create(&PostParams::default(), &earlier).await.expect("made");
    world.pods().delete("again", &DeleteParams::default()).await.expect("on its way");
    let agent = world.start().await;
    let uid = world.hand_over("again", spec(one_port())).await.uid().expect("a UID");
    let said = until_said(&world, "again").await;
    assert!(said.contains("of an earlier server, is still ending"), "{said}");
    world.kill_pod("again").await;
    let server = world.until_state("again", State::Scheduled).await;
    assert!(server.spec.ports()[0].host_port.is_some(), "it has a port");
    let pod = world.pod("again").await;
    let owners: Vec<String> =
        pod.metadata.owner_references.into_iter().flatten().map(|owner| owner.uid).collect();
    assert_eq!(owners, [uid]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_and_not_done_is_decided_anew() {
    let world = World::alone().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let uid = world.hand_over("alive", spec(json!([]))).await.uid().expect("a UID");
    world.until_state("alive", State::Scheduled).await;
    world.run_pod("alive").await;
    game.asks(&uid, 1, Change::Ready).await;
    game.acknowledged(&uid, 1).await;
    change(&world, "alive", json!({ "status": { "state": "Allocated" } })).await;
    world.stop_api_server().await;
    let pings = |pulse| ToAgent::Pings { uid: ServerUid(uid.clone()), pulse };
    game.says(pings(Pulse::Silent { missed: 3 })).await;
    until_said(&world, "alive").await;
    game.says(pings(Pulse::Alive)).await;
    world.start_api_server().await;
    game.asks(&uid, 2, Change::Label { key: "mode".into(), value: "duel".into() }).await;
    game.acknowledged(&uid, 2).await;
    let server = world.servers().get("alive").await.expect("it is there");
    assert_eq!(server.state(), Some(State::Allocated), "its game speaks again: {server:?}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_dropped_may_be_said_again() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let uid = world.hand_over("late", spec(json!([]))).await.uid().expect("a UID");
    world.until_state("late", State::Scheduled).await;
    world.run_pod("late").await;
    world.report("late", json!({ "phase": "Failed" })).await;
    let before = world.until_state("late", State::Unhealthy).await;
    for _ in 0..2 {
        game.asks(&uid, 1, Change::Label { key: "mode".into(), value: "duel".into() }).await;
        game.acknowledged(&uid, 1).await;
    }
    let after = world.servers().get("late").await.expect("it is there");
    assert_eq!(after.resource_version(), before.resource_version(), "neither was written");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_agones_is_taken_over_with_its_sidecar() {
    let world = World::new().await.with_ports(7000, 7001);
    let object = json!({
        "metadata": { "name": "adopted", "finalizers": ["agones.dev/controller"] },
        "spec": spec(json!([{ "name": "game", "containerPort": 7654, "hostPort": 7000 }])),
        "status": {
            "state": "Scheduled", "nodeName": world.node, "address": "10.0.0.1",
            "ports": [{ "name": "game", "port": 7000 }],
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }]
        }
    });
    let object = serde_json::from_value(object).expect("a server");
    let server = world.servers().create(&PostParams::default(), &object).await.expect("it is created");
    let mut theirs = bare_on(7000);
    theirs["initContainers"] =
        json!([{ "name": "agones-gameserver-sidecar", "image": "sdk:1", "restartPolicy": "Always" }]);
    make_pod(&world.pods(), &server, &world.node, &theirs).await;
    let pod = world.run_pod("adopted").await.uid().expect("a UID");
    let agent = world.start().await;

    change(&world, "adopted", json!({ "status": { "state": "RequestReady" } })).await;
    let ready = world.until_state("adopted", State::Ready).await;
    assert_eq!(ready.status.and_then(|status| status.ports).map(|ports| ports[0].port), Some(7000));
    world.hand_over("beside", spec(one_port())).await;
    let beside = world.until_state("beside", State::Scheduled).await;
    assert_eq!(beside.spec.ports()[0].host_port, Some(7001), "its port is known");
    change(&world, "adopted", json!({ "status": { "state": "Allocated" } })).await;
    world.hand_over("none-left", spec(one_port())).await;
    until_handed_back(&world, "none-left").await;
    assert!(
        world.host.requests().iter().all(|request| request.pod_uid != pod),
        "no listener beside the sidecar's"
    );

    change(&world, "adopted", json!({ "status": { "state": "Shutdown" } })).await;
    world.end_pod("adopted").await;
    world.until_gone("adopted").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_agent_dies_after_the_end_of_its_refused_pod_is_handed_back_all_the_same() {
    let world = World::new().await;
    let agent = world.start().await;
    world.hand_over("refused", spec(one_port())).await;
    world.until_state("refused", State::Scheduled).await;
    agent.stop().await;
    // What an agent leaves that dies right after it has deleted the pod.
    change(&world, "refused", json!({ "metadata": { "annotations": { "berth.dev/refused": "OutOfcpu" } } }))
        .await;
    world.kill_pod("refused").await;
    let agent = world.start().await;
    let returned = until_handed_back(&world, "refused").await;
    assert_eq!(returned.reason, "OutOfcpu");
    let server = world.servers().get("refused").await.expect("it is there");
    assert_eq!(server.annotation("berth.dev/refused"), None, "the next node begins anew");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_was_wiped_while_no_agent_ran_is_restored() {
    let world = World::new().await;
    let agent = world.start().await;
    for name in ["wiped", "moved"] {
        world.hand_over(name, spec(one_port())).await;
        world.until_state(name, State::Scheduled).await;
    }
    let before = world.servers().get("wiped").await.expect("a server").status.expect("a status");
    agent.stop().await;
    change(&world, "wiped", json!({ "status": { "nodeName": "", "address": "", "ports": null } })).await;
    let elsewhere = HandOver::new("elsewhere", "another-node", "another-boot").to_annotation();
    let moved = json!({
        "metadata": { "annotations": { "berth.dev/lease": elsewhere } },
        "status": { "nodeName": "another" },
    });
    change(&world, "moved", moved).await;

    let agent = world.start().await;
    let restored = world.until("wiped", "its place again", |server| {
        let status = server.status.clone().unwrap_or_default();
        let place = |status: &GameServerStatus| {
            (status.node_name.clone(), status.address.clone(), status.ports.clone())
        };
        let shown = place(&status);
        if shown == place(&before) { Ok(status.state) } else { Err(format!("{shown:?}")) }
    });
    assert_eq!(restored.await, Some(State::Scheduled));
    // The other's pod is nobody's here.
    let ending = eventually(LIMIT, "the pod of a server that was moved to end", async || {
        match world.pods().get_opt("moved").await {
            Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_none() => Err("it stays".to_owned()),
            Ok(Some(_) | None) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    });
    ending.await.expect("in time");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_game_node_that_somebody_deletes_is_written_again_though_nothing_changes() {
    let world = World::new().await;
    let agent = world.start().await;
    let nodes: Api<GameNode> = Api::all(world.client.clone());
    let seen = async || {
        let node = nodes.get_opt(&world.node).await.map_err(|error| error.to_string())?;
        let node = node.filter(|node| node.status.is_some()).ok_or_else(|| "none".to_owned())?;
        Ok::<_, String>(node.uid())
    };
    let before = eventually(LIMIT, "a GameNode", &seen).await.expect("in time");
    nodes.delete(&world.node, &DeleteParams::default()).await.expect("deleted");
    let again = eventually(LIMIT, "another GameNode", async || {
        let uid = seen().await?;
        if uid == before { Err("the old one".to_owned()) } else { Ok(()) }
    });
    again.await.expect("in time");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_read_keeps_nobody_else_from_being_adopted() {
    let world = World::new().await;
    let agent = world.start().await;
    for name in ["odd", "fine"] {
        world.hand_over(name, spec(one_port())).await;
        world.until_state(name, State::Scheduled).await;
    }
    agent.stop().await;
    // More than a port can be, and no less than the schema allows; in the second case no list shows it either.
    let ports = json!([{ "name": "game", "port": 70000 }]);
    for status in [json!({ "ports": ports }), json!({ "ports": ports, "nodeName": "" })] {
        let patch = Patch::Merge(json!({ "status": status }));
        let objects: Api<DynamicObject> = Api::namespaced_with(
            world.client.clone(),
            &world.namespace,
            &ApiResource::erase::<GameServer>(&()),
        );
        objects.patch("odd", &PatchParams::default(), &patch).await.expect("changed");
        let agent = world.start().await;
        change(&world, "fine", json!({ "status": { "address": "" } })).await;
        world
            .until("fine", "an address", |server| match server.status.clone().unwrap_or_default().address {
                address if address.is_empty() => Err("none".to_owned()),
                _ => Ok(()),
            })
            .await;
        let pod = world.pods().get("odd").await.expect("its pod stays");
        assert_eq!(pod.metadata.deletion_timestamp, None);
        agent.stop().await;
    }
}
