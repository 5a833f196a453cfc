//! The life of a game server on one node, against a real API server. No kubelet runs: the test says what it would.

#[path = "front_link/played.rs"]
#[allow(dead_code, reason = "the tests of the link use all of it")]
mod played;
#[path = "game_server_life/world.rs"]
#[allow(dead_code, reason = "the tests of upsets use all of it")]
mod world;

use berth_api::game_node::NodePhase;
use berth_api::lifecycle::State;
use berth_api::link::{Change, Pulse, ServerUid, ToAgent};
use berth_api::node_lease::{HandOver, Returned};
use berth_dev::eventually;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;

use self::world::others::{bare_on, make_pod};
use self::world::{World, one_port, spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_comes_up_serves_and_goes() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let server = world.hand_over("lobby", spec(one_port())).await;
    let uid = server.uid().expect("a UID");

    let server = world.until_state("lobby", State::Scheduled).await;
    let status = server.status.clone().expect("a status");
    assert_eq!(status.address, "10.0.0.1");
    let port = status.ports.expect("ports")[0].port;
    assert_eq!(server.spec.ports()[0].host_port, Some(port));
    let pod = world.pod("lobby").await;
    assert_eq!(pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some(world.node.as_str()));
    assert_eq!(server.annotation("berth.dev/pod-uid"), pod.metadata.uid.as_deref());

    world.run_pod("lobby").await;
    assert!(!game.listeners(&uid).await.is_empty());
    game.asks(&uid, 1, Change::Label { key: "mode".into(), value: "duel".into() }).await;
    game.asks(&uid, 2, Change::Ready).await;
    game.acknowledged(&uid, 2).await;
    let server = world.until_state("lobby", State::Ready).await;
    assert_eq!(server.annotation("berth.dev/sdk-applied"), Some("2"));
    assert_eq!(server.labels().get("agones.dev/sdk-mode").map(String::as_str), Some("duel"));
    let addresses = server.status.and_then(|status| status.addresses).expect("addresses");
    let kinds: Vec<_> = addresses.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["InternalIP", "PodIP"]);
    world.until_events("lobby", &["Scheduled", "Ready"]).await;
    let status = world.status().await.expect("a status");
    assert_eq!((status.servers.len(), status.ports["default"].free), (1, 3));

    game.asks(&uid, 3, Change::Shutdown).await;
    world.end_pod("lobby").await;
    world.until_gone("lobby").await;
    game.forgotten(&uid).await;
    let emptied = eventually(Duration::from_secs(20), "the port to be free", async || {
        let status = world.status().await.map_err(|error| error.to_string())?;
        if status.ports["default"].free == 4 && status.servers.is_empty() {
            Ok(())
        } else {
            Err(format!("{:?} {:?}", status.ports, status.servers))
        }
    });
    emptied.await.expect("in time");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_started_again_finds_its_servers_and_makes_no_second_pod() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let uid = world.hand_over("arena", spec(one_port())).await.uid().expect("a UID");
    world.until_state("arena", State::Scheduled).await;
    world.run_pod("arena").await;
    let held = game.listeners(&uid).await;
    game.asks(&uid, 1, Change::Ready).await;
    let before = world.until_state("arena", State::Ready).await;
    let pod = world.pod("arena").await.uid();
    agent.stop().await;
    drop(game);

    let agent = world.start().await;
    // Everything that was not acknowledged is said again, and is not done again.
    let mut game = world.connect(&[(&uid, &held)]).await;
    game.asks(&uid, 1, Change::Ready).await;
    game.acknowledged(&uid, 1).await;
    game.asks(&uid, 2, Change::Allocate { at: "2026-01-01T00:00:00.5Z".into() }).await;
    let after = world.until_state("arena", State::Allocated).await;
    assert_eq!(world.pod("arena").await.uid(), pod);
    assert_eq!(after.spec.ports(), before.spec.ports());
    assert_eq!(after.annotation("agones.dev/last-allocated"), Some("2026-01-01T00:00:00.5Z"));
    // Its port is known: another server gets another one.
    world.hand_over("second", spec(one_port())).await;
    let second = world.until_state("second", State::Scheduled).await;
    assert_ne!(second.spec.ports()[0].host_port, after.spec.ports()[0].host_port);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_made_before_the_agent_died_is_taken_with_its_ports() {
    let world = World::new().await;
    let server = world.hand_over("early", spec(one_port())).await;
    // As a predecessor would have left it that died right after it made the pod.
    let made = make_pod(&world.pods(), &server, &world.node, &bare_on(7002)).await;
    let agent = world.start().await;
    let server = world.until_state("early", State::Scheduled).await;
    assert_eq!(server.spec.ports()[0].host_port, Some(7002));
    assert_eq!(server.annotation("berth.dev/pod-uid"), made.metadata.uid.as_deref());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_says_why() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let mut uids = Vec::new();
    for name in ["crashed", "silent", "missing"] {
        uids.push(world.hand_over(name, spec(json!([]))).await.uid().expect("a UID"));
        world.until_state(name, State::Scheduled).await;
        world.run_pod(name).await;
    }
    for uid in &uids {
        game.asks(uid, 1, Change::Ready).await;
    }
    for name in ["crashed", "silent", "missing"] {
        world.until_state(name, State::Ready).await;
    }
    let crash = json!({
        "phase": "Failed",
        "containerStatuses": [{
            "name": "main", "image": "game", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } }
        }]
    });
    world.report("crashed", crash).await;
    let silent = ServerUid(uids[1].clone());
    game.says(ToAgent::Pings { uid: silent, pulse: Pulse::Silent { missed: 3 } }).await;
    world.kill_pod("missing").await;
    for (name, expected) in [
        ("crashed", "Failed: container main ended with exit code 137 (OOMKilled)"),
        ("silent", "PingsMissed: 3 health pings in a row were missed"),
        // The end of a pod may be seen before it is over, or after.
        ("missing", "Pod"),
    ] {
        let server = world.until_state(name, State::Unhealthy).await;
        let reason = server.annotation("berth.dev/reason").unwrap_or_default();
        assert!(reason.starts_with(expected), "{name}: {reason}");
        world.until_events(name, &["Scheduled", "Ready", "Unhealthy"]).await;
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_game_that_ends_well_is_shut_down_and_gone() {
    let world = World::new().await;
    let agent = world.start().await;
    world.hand_over("done", spec(json!([]))).await;
    world.until_state("done", State::Scheduled).await;
    world.run_pod("done").await;
    world.report("done", json!({ "phase": "Succeeded" })).await;
    // The API server itself takes away a pod that has ended.
    world.until_gone("done").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_server_stays_until_its_pod_is_gone() {
    let world = World::new().await;
    let agent = world.start().await;
    world.hand_over("leaving", spec(one_port())).await;
    world.until_state("leaving", State::Scheduled).await;
    world.run_pod("leaving").await;
    world.servers().delete("leaving", &DeleteParams::default()).await.expect("asked for");
    // A pod that takes its time is shown as what it is.
    let server = world.until_state("leaving", State::Shutdown).await;
    assert!(server.metadata.deletion_timestamp.is_some());
    world.end_pod("leaving").await;
    world.until_gone("leaving").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_node_cannot_take_goes_back_with_the_reason() {
    let world = World::new().await.with_ports(7000, 7000);
    let agent = world.start().await;
    world.host.take_port(9000, berth_api::game_server::PortProtocol::Udp);
    let fixed = json!([{ "name": "s", "portPolicy": "Static", "containerPort": 5, "hostPort": 9000 }]);
    let two = json!([{ "name": "a", "containerPort": 5 }, { "name": "b", "containerPort": 6 }]);
    world.hand_over("static", spec(fixed)).await;
    world.hand_over("greedy", spec(two)).await;
    let stranger = HandOver::new(&world.node, "another-node", "boot-1");
    world.hand_over_to("astray", spec(json!([])), stranger).await;
    for (name, expected) in [
        ("static", "static port 9000/UDP is in use on the host"),
        ("greedy", "no free port in range default (7000-7000)"),
        ("astray", "it was handed to another Node object of this name"),
    ] {
        let server = world
            .until(name, "handed back", |server| match server.annotation("berth.dev/returned") {
                Some(_) if server.node_name().is_none() => Ok(server.clone()),
                Some(_) | None => Err("not yet".to_owned()),
            })
            .await;
        let returned = Returned::from_annotation(server.annotation("berth.dev/returned").unwrap_or_default());
        let returned = returned.expect("it reads");
        assert_eq!((returned.reason.as_str(), returned.times), (expected, 1), "{name}");
        assert_eq!(server.state(), Some(State::Creating));
        world.until_events(name, &["HandedBack"]).await;
        assert!(world.pods().get_opt(name).await.expect("an answer").is_none(), "{name} has no pod");
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_kubelet_refuses_is_deleted_and_its_server_handed_back() {
    let world = World::new().await;
    let agent = world.start().await;
    world.hand_over("unlucky", spec(one_port())).await;
    world.until_state("unlucky", State::Scheduled).await;
    let refusal = json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected" });
    world.report("unlucky", refusal).await;
    let server = world
        .until("unlucky", "handed back", |server| {
            if server.node_name().is_none() { Ok(server.clone()) } else { Err("not yet".to_owned()) }
        })
        .await;
    assert_eq!(server.annotation("berth.dev/pod-uid"), None);
    assert_eq!(server.spec.ports()[0].host_port, None);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_makes_no_pod_is_an_error_with_its_time() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut bad = spec(json!([]));
    bad["template"]["spec"]["schedulingGates"] = json!([{ "name": "later" }]);
    world.hand_over("impossible", bad).await;
    let server = world.until_state("impossible", State::Error).await;
    assert!(server.annotation("agones.dev/errored-at").is_some());
    let reason = server.annotation("berth.dev/reason").unwrap_or_default();
    assert!(reason.contains("spec.template.spec.schedulingGates"), "{reason}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_status_is_restored_while_the_pod_lives() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let uid = world.hand_over("wiped", spec(one_port())).await.uid().expect("a UID");
    world.until_state("wiped", State::Scheduled).await;
    world.run_pod("wiped").await;
    game.asks(&uid, 1, Change::Ready).await;
    let before = world.until_state("wiped", State::Ready).await;
    let wipe = json!({ "status": { "nodeName": "", "state": "Creating", "address": "", "ports": null } });
    world.servers().patch("wiped", &PatchParams::default(), &Patch::Merge(wipe)).await.expect("wiped");
    let after = world.until_state("wiped", State::Ready).await;
    let place = |server: &berth_api::game_server::GameServer| {
        let status = server.status.clone().unwrap_or_default();
        (status.node_name, status.address, status.ports)
    };
    assert_eq!(place(&after), place(&before));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_agent_of_a_node_waits_and_takes_over_at_once() {
    let world = World::new().await;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "berth-system");
    let epoch = async || {
        let lease = leases.get(&world.node).await.expect("a lease");
        lease.spec.and_then(|spec| spec.lease_transitions)
    };
    let first = world.start().await;
    assert_eq!(epoch().await, Some(1));
    let second = world.launch();
    first.stop().await;
    let started = std::time::Instant::now();
    let taken = eventually(Duration::from_secs(20), "the lease to be taken", async || match epoch().await {
        Some(2) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    taken.await.expect("in time");
    assert!(started.elapsed() < Duration::from_secs(8), "without waiting for the lease to lapse");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_another_pod_is_not_given_out() {
    let world = World::new().await.with_ports(7000, 7001);
    let stranger = json!({
        "metadata": { "name": "stranger" },
        "spec": { "nodeName": world.node, "containers": [{
            "name": "web", "image": "web", "ports": [{ "containerPort": 80, "hostPort": 7000, "protocol": "TCP" }]
        }] }
    });
    let stranger = serde_json::from_value(stranger).expect("a pod");
    world.pods().create(&PostParams::default(), &stranger).await.expect("made");
    let agent = world.start().await;
    world.hand_over("beside", spec(one_port())).await;
    let server = world.until_state("beside", State::Scheduled).await;
    assert_eq!(server.spec.ports()[0].host_port, Some(7001));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lapsed_lease_stops_every_write_and_its_return_carries_on() {
    let world = World::alone().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let uid = world.hand_over("patient", spec(one_port())).await.uid().expect("a UID");
    world.until_state("patient", State::Scheduled).await;
    world.run_pod("patient").await;
    game.listeners(&uid).await;
    world.stop_api_server().await;
    let lapsed = eventually(Duration::from_secs(60), "the lease to lapse", async || {
        let status = world.status().await.map_err(|error| error.to_string())?;
        if status.lease.held { Err("held".to_owned()) } else { Ok(()) }
    });
    lapsed.await.expect("in time");
    game.asks(&uid, 1, Change::Ready).await;
    world.start_api_server().await;
    let server = world.until_state("patient", State::Ready).await;
    assert_eq!(server.annotation("berth.dev/sdk-applied"), Some("1"));
    game.acknowledged(&uid, 1).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_without_our_resources_is_refused_in_a_sentence() {
    let world = World::bare().await;
    let error = world.launch().ended().await.expect_err("refused");
    assert_eq!(
        format!("{error:#}"),
        "the API server does not know gameservers.agones.dev; apply Berth's CRDs (manifests/crds), then start again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_game_node_follows_node_and_servers() {
    let world = World::new().await;
    let agent = world.start().await;
    world.hand_over("shown", spec(one_port())).await;
    world.until_state("shown", State::Scheduled).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    nodes.patch(&world.node, &PatchParams::default(), &cordon).await.expect("cordoned");
    let shown = eventually(Duration::from_secs(20), "the picture", async || {
        let status = world.game_node().await.status.unwrap_or_default();
        let is_right = status.phase == NodePhase::Cordoned
            && status.servers == 1
            && status.servers_by_state.get(&State::Scheduled) == Some(&1)
            && status.ports_free == 3;
        if is_right { Ok(status) } else { Err(format!("{status:?}")) }
    });
    let status = shown.await.expect("in time");
    assert_eq!((status.allocatable.milli_cpu, status.boot_id.as_str(), status.epoch), (4000, "boot-1", 1));
    world.hand_over("late", spec(json!([]))).await;
    world
        .until("late", "handed back", |server| {
            if server.node_name().is_none() { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
    agent.stop().await;
}
