//! The end of a node, against a real API server. No kubelet runs: the test says what it would, and plays whoever says that
//! the node will go.

#[path = "front_link/played.rs"]
#[allow(dead_code, reason = "the tests of the link use all of it")]
mod played;
#[path = "game_server_life/world.rs"]
#[allow(dead_code, reason = "the tests of a server's life use all of it")]
mod world;

use std::time::Duration;

use berth_agent::socket::client;
use berth_agent::socket::views::{DrainAnswer, DrainRequest, Status};
use berth_api::game_node::{GameNode, NodePhase};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::link::Change;
use berth_dev::eventually;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource as _, ResourceExt};
use serde_json::{Value, json};

use self::world::others::{bare_on, make_pod};
use self::world::{Game, LIMIT, World, one_port, spec};

const REASON: &str = "gamelift.status/drain-reason";
const UNTIL: &str = "gamelift.status/terminating-at";
const DRAINING: &str = "gamelift.status/draining";

fn nodes(world: &World) -> Api<Node> {
    Api::all(world.client.clone())
}

async fn change_node(world: &World, change: Value) {
    let patch = Patch::Merge(change);
    nodes(world).patch(&world.node, &PatchParams::default(), &patch).await.expect("the Node is changed");
}

/// The agent makes the GameNode, in its own time.
async fn order(world: &World, order: Value) {
    let game_nodes: Api<GameNode> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "drain": order } }));
    let ordered = eventually(LIMIT, "an order to be taken", async || {
        game_nodes.patch(&world.node, &PatchParams::default(), &patch).await
    });
    ordered.await.expect("a GameNode");
}

fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == key)
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

async fn until_node(world: &World, what: &str, look: impl Fn(&Node) -> bool) -> Node {
    let waited = eventually(LIMIT, format!("the Node to be {what}"), async || {
        let node = nodes(world).get(&world.node).await.map_err(|error| error.to_string())?;
        if look(&node) { Ok(node) } else { Err(format!("{:?} {:?}", node.spec, node.metadata.annotations)) }
    });
    waited.await.expect("in time")
}

async fn until_phase(world: &World, phase: NodePhase) -> GameNode {
    let game_nodes: Api<GameNode> = Api::all(world.client.clone());
    let waited = eventually(LIMIT, format!("the GameNode to be {phase:?}"), async || {
        let node = game_nodes.get(&world.node).await.map_err(|error| error.to_string())?;
        let status = node.status.clone().unwrap_or_default();
        if status.phase == phase { Ok(node) } else { Err(format!("{:?} {:?}", status.phase, node.spec)) }
    });
    waited.await.expect("in time")
}

async fn until_status(world: &World, what: &str, look: impl Fn(&Status) -> bool) -> Status {
    let waited = eventually(LIMIT, format!("the status to be {what}"), async || {
        let status = world.status().await.map_err(|error| format!("{error:#}"))?;
        if look(&status) { Ok(status) } else { Err(format!("{} {:?}", status.phase, status.drain)) }
    });
    waited.await.expect("in time")
}

async fn drain(world: &World, request: &DrainRequest) -> DrainAnswer {
    client::drain(&world.place.folder.path().join("agent.sock"), request).await.expect("an answer")
}

async fn undrain(world: &World) -> DrainAnswer {
    client::undrain(&world.place.folder.path().join("agent.sock")).await.expect("an answer")
}

/// A server that its game has brought to a state.
async fn server(world: &World, game: &mut Game, name: &str, state: State) -> GameServer {
    let uid = world.hand_over(name, spec(one_port())).await.uid().expect("a UID");
    world.until_state(name, State::Scheduled).await;
    world.run_pod(name).await;
    game.asks(&uid, 1, Change::Ready).await;
    let ready = world.until_state(name, State::Ready).await;
    if state == State::Ready {
        return ready;
    }
    game.asks(&uid, 2, Change::Allocate { at: "2026-01-01T00:00:00Z".into() }).await;
    world.until_state(name, state).await
}

/// Whoever hands out servers, and knows of one only what it has seen.
async fn allocate(world: &World, server: &GameServer) -> Result<GameServer, kube::Error> {
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": server.resource_version() },
        "status": { "state": "Allocated" }
    }));
    world.servers().patch(&server.name_any(), &PatchParams::default(), &patch).await
}

async fn until_told(world: &World, name: &str) -> GameServer {
    world
        .until(name, "told", |server| {
            server.annotation(REASON).map(|_| server.clone()).ok_or_else(|| "not told".to_owned())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_drain_waits_for_the_session_and_goes_all_the_way_back() {
    let world = World::new().await;
    let agent = world.start().await;
    let before = nodes(&world).get(&world.node).await.expect("a Node");
    let mut game = world.connect(&[]).await;
    server(&world, &mut game, "lobby", State::Ready).await;
    let arena = server(&world, &mut game, "arena", State::Allocated).await;

    order(&world, json!({ "by": "ann", "reason": "a new kernel" })).await;
    let game_node = until_phase(&world, NodePhase::Draining).await;
    let status = game_node.status.expect("a status");
    assert_eq!(status.phase_reason.as_deref(), Some("ann ordered it: a new kernel"));
    world.end_pod("lobby").await;
    world.until_gone("lobby").await;
    let told = until_told(&world, "arena").await;
    assert_eq!(told.annotation(REASON), Some("ann ordered it: a new kernel"));
    assert_eq!(told.annotation(UNTIL), None, "nobody knows when");
    assert_eq!(told.labels().get(DRAINING).map(String::as_str), Some("true"));
    let node = until_node(&world, "tainted", |node| has_taint(node, DRAINING)).await;
    assert!(is_cordoned(&node));
    assert_eq!(node.annotations()["gamelift.status/cordoned-by"], "agent");
    assert_eq!(node.annotations()["gamelift.status/phase"], "Draining");
    // What comes now goes back at once.
    world.hand_over("late", spec(one_port())).await;
    world
        .until("late", "handed back", |server| {
            server.annotation("berth.dev/returned").map(drop).ok_or_else(|| "not yet".to_owned())
        })
        .await;

    game.asks(&arena.uid().expect("a UID"), 3, Change::Shutdown).await;
    world.end_pod("arena").await;
    until_phase(&world, NodePhase::Drained).await;
    until_node(&world, "marked", |node| {
        node.annotations().get("gamelift.status/phase").is_some_and(|phase| phase == "Drained")
    })
    .await;

    order(&world, Value::Null).await;
    until_phase(&world, NodePhase::Active).await;
    let after = until_node(&world, "unmarked", |node| {
        !node.annotations().keys().any(|name| name.starts_with("gamelift.status/"))
    })
    .await;
    assert_eq!((is_cordoned(&after), has_taint(&after, DRAINING)), (false, false));
    assert_eq!(after.annotations().get("berth.dev/notices"), None);
    assert_eq!(after.meta().labels, before.meta().labels);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_over_the_socket_outlives_the_agent_in_the_middle_of_a_drain() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    server(&world, &mut game, "arena", State::Allocated).await;
    server(&world, &mut game, "lobby", State::Ready).await;

    let plan = DrainRequest { plan: true, deadline: Some(Timestamp::MAX), ..DrainRequest::default() };
    let answer = drain(&world, &plan).await;
    assert_eq!((answer.drain.course.as_str(), answer.plan.at_risk()), ("open", 1));
    assert_eq!(answer.plan.leave, [format!("{}/lobby", world.namespace)]);
    assert_eq!(world.status().await.expect("a status").drain.course, "open", "a plan changes nothing");

    let request = DrainRequest { reason: Some("maintenance".into()), ..DrainRequest::default() };
    let answer = drain(&world, &request).await;
    assert_eq!(answer.drain.course, "draining");
    // Stopped as soon as it has answered: what it has said must hold.
    agent.stop().await;
    drop(game);

    let agent = world.launch();
    let status = until_status(&world, "draining", |status| status.phase == "Draining").await;
    assert_eq!(status.drain.reason.as_deref(), Some("maintenance"));
    until_node(&world, "tainted", |node| has_taint(node, DRAINING)).await;
    world.end_pod("lobby").await;
    world.until_gone("lobby").await;
    until_told(&world, "arena").await;

    let answer = undrain(&world).await;
    assert_eq!((answer.drain.course.as_str(), answer.drain.reason), ("open", None));
    until_phase(&world, NodePhase::Active).await;
    until_node(&world, "as before", |node| !is_cordoned(node) && !has_taint(node, DRAINING)).await;
    world
        .until("arena", "told that it is over", |server| {
            let is_told = server.annotation(REASON).is_some() || server.labels().contains_key(DRAINING);
            if is_told || server.state() != Some(State::Allocated) { Err("told".to_owned()) } else { Ok(()) }
        })
        .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_of_somebody_else_lets_servers_go_after_a_while_and_nothing_is_written_to_the_node() {
    let mut world = World::new().await;
    world.drain.cordon_grace = Duration::from_secs(2);
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    server(&world, &mut game, "lobby", State::Ready).await;
    server(&world, &mut game, "arena", State::Allocated).await;

    change_node(&world, json!({ "spec": { "unschedulable": true } })).await;
    until_phase(&world, NodePhase::Cordoned).await;
    let status = until_status(&world, "closed", |status| status.drain.course == "closed").await;
    assert_eq!(status.drain.source.as_deref(), Some("cordon"));
    assert!(world.servers().get("lobby").await.expect("it is there").metadata.deletion_timestamp.is_none());
    world.end_pod("lobby").await;
    world.until_gone("lobby").await;
    let arena = world.servers().get("arena").await.expect("it is there");
    assert_eq!((arena.state(), arena.annotation(REASON)), (Some(State::Allocated), None));
    let node = nodes(&world).get(&world.node).await.expect("a Node");
    assert!(!node.annotations().keys().any(|name| name.starts_with("gamelift.status/")), "{node:?}");
    assert!(!has_taint(&node, DRAINING));

    change_node(&world, json!({ "spec": { "unschedulable": null } })).await;
    until_phase(&world, NodePhase::Active).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_somebody_had_closed_stays_closed_when_a_drain_is_taken_back() {
    let world = World::new().await;
    let agent = world.start().await;
    change_node(&world, json!({ "spec": { "unschedulable": true } })).await;
    until_phase(&world, NodePhase::Cordoned).await;
    change_node(&world, json!({ "metadata": { "annotations": { "gamelift.status/drain": "requested" } } }))
        .await;
    until_phase(&world, NodePhase::Drained).await;
    change_node(&world, json!({ "metadata": { "annotations": { "gamelift.status/drain": null } } })).await;
    until_phase(&world, NodePhase::Cordoned).await;
    let node = until_node(&world, "without our taint", |node| !has_taint(node, DRAINING)).await;
    assert!(is_cordoned(&node));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_an_autoscaler_deletes_is_emptied_and_its_taints_are_left_alone() {
    let world = World::new().await;
    let agent = world.start().await;
    let taint =
        json!({ "key": "ToBeDeletedByClusterAutoscaler", "value": "1700000000", "effect": "NoSchedule" });
    change_node(&world, json!({ "spec": { "taints": [taint] } })).await;
    until_phase(&world, NodePhase::Drained).await;
    let node = until_node(&world, "tainted", |node| has_taint(node, DRAINING)).await;
    assert!(has_taint(&node, "ToBeDeletedByClusterAutoscaler"));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_that_races_the_drain_wins_or_fails_and_no_session_is_lost() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let (mut won, mut failed) = (0, 0);
    for round in 0..10 {
        let name = format!("racer-{round}");
        let ready = server(&world, &mut game, &name, State::Ready).await;
        let request = DrainRequest::default();
        let (answer, allocated) = tokio::join!(drain(&world, &request), async {
            // From both ends of what an order takes.
            for _ in 0..round * 20 {
                tokio::task::yield_now().await;
            }
            allocate(&world, &ready).await
        });
        assert_eq!(answer.drain.course, "draining");
        if allocated.is_ok() {
            let session = until_told(&world, &name).await;
            assert_eq!(session.state(), Some(State::Allocated));
            assert!(session.metadata.deletion_timestamp.is_none(), "a session was taken away");
            undrain(&world).await;
            let uid = ready.uid().expect("a UID");
            game.asks(&uid, 2, Change::Shutdown).await;
            won += 1;
        } else {
            undrain(&world).await;
            failed += 1;
        }
        world.end_pod(&name).await;
        world.until_gone(&name).await;
        until_phase(&world, NodePhase::Active).await;
    }
    println!("allocations that won: {won}, that failed: {failed}");
    assert_eq!(won + failed, 10);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_told_its_deadline_at_once_and_asked_to_end_at_the_computed_instant() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let arena = server(&world, &mut game, "arena", State::Allocated).await;
    // The pod has a grace of 30 s, which ends 5 s before the node: 15 s from now.
    let ordered_at = Timestamp::now();
    let deadline = ordered_at + Duration::from_secs(50);
    let request = DrainRequest { deadline: Some(deadline), ..DrainRequest::default() };
    drain(&world, &request).await;
    let uid = arena.uid().expect("a UID");
    let heard = game.hears(|frame| match frame {
        berth_api::link::ToSdk::Server { uid: of, view, .. } if of.0 == uid => {
            view.annotations.get(UNTIL).cloned()
        }
        _ => None,
    });
    let heard = tokio::time::timeout(LIMIT, heard).await.expect("the game is told");
    println!("the game was told {:?} after the order", Timestamp::now().duration_since(ordered_at));
    assert_eq!(heard.parse::<Timestamp>().expect("a time"), deadline);
    assert!(world.pod("arena").await.metadata.deletion_timestamp.is_none(), "too early");

    let deleted = eventually(LIMIT, "the pod to be asked to end", async || {
        let pod = world.pod("arena").await;
        pod.metadata.deletion_timestamp.clone().map(|_| pod).ok_or("not yet")
    });
    let pod = deleted.await.expect("in time");
    assert!(Timestamp::now() >= ordered_at + Duration::from_secs(15), "too early");
    let over = pod.metadata.deletion_timestamp.expect("a time").0;
    assert!(over <= deadline, "it ends at {over}, the node at {deadline}");
    assert!(pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| (1..=30).contains(&grace)));
    world.kill_pod("arena").await;
    let ended = world.until_state("arena", State::Unhealthy).await;
    assert!(
        ended.annotation("berth.dev/reason").is_some_and(|why| why.starts_with("NodeEnds: ")),
        "{ended:?}"
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_given_while_the_api_server_is_away_is_carried_out_when_it_is_back() {
    let world = World::alone().await;
    let agent = world.start().await;
    world.stop_api_server().await;
    let answer = drain(&world, &DrainRequest::default()).await;
    assert_eq!(answer.drain.course, "draining");
    world.start_api_server().await;
    until_phase(&world, NodePhase::Drained).await;
    until_node(&world, "tainted", |node| has_taint(node, DRAINING) && is_cordoned(node)).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_agones_made_gets_its_toleration_and_time_before_the_taint() {
    let world = World::new().await;
    let server = world.hand_over("arena", spec(one_port())).await;
    make_pod(&world.pods(), &server, &world.node, &bare_on(7002)).await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    world.until_state("arena", State::Scheduled).await;
    world.run_pod("arena").await;
    let uid = server.uid().expect("a UID");
    game.asks(&uid, 1, Change::Allocate { at: "2026-01-01T00:00:00Z".into() }).await;
    world.until_state("arena", State::Allocated).await;

    drain(&world, &DrainRequest::default()).await;
    let tolerating = eventually(LIMIT, "the pod to tolerate", async || {
        let spec = world.pod("arena").await.spec.expect("a spec");
        let all = spec.tolerations.unwrap_or_default();
        all.into_iter().find(|one| one.key.as_deref() == Some(DRAINING)).ok_or("not yet")
    });
    let toleration = tolerating.await.expect("in time");
    let tolerated_at = Timestamp::now();
    assert_eq!(toleration.toleration_seconds, None, "one with an end would end the session");
    assert_eq!(
        (toleration.operator.as_deref(), toleration.effect.as_deref()),
        (Some("Equal"), Some("NoExecute"))
    );
    until_node(&world, "tainted", |node| has_taint(node, DRAINING)).await;
    let waited = Timestamp::now().duration_since(tolerated_at);
    assert!(waited >= Duration::from_secs(4).try_into().expect("short"), "{waited:?}");
    let arena = world.servers().get("arena").await.expect("it is there");
    assert_eq!(arena.state(), Some(State::Allocated));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_says_why_and_refuses_with_a_sentence() {
    let world = World::new().await;
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    server(&world, &mut game, "lobby", State::Ready).await;
    let socket = world.place.folder.path().join("agent.sock");
    let asked = eventually(LIMIT, "the story of lobby", async || {
        let line = client::why(&socket, "lobby").await.map_err(|error| error.to_string())?;
        let states: Vec<State> = line.history.iter().map(|moment| moment.state).collect();
        if states == [State::Creating, State::Scheduled, State::Ready] {
            Ok(())
        } else {
            Err(format!("{states:?}"))
        }
    });
    asked.await.expect("in time");
    client::why(&socket, &format!("{}/lobby", world.namespace)).await.expect("the same");
    let nowhere = client::why(&socket, "nobody").await.expect_err("it is not here");
    assert!(nowhere.is_not_found() && nowhere.to_string().contains("no game server nobody"), "{nowhere}");
    let without = client::deregister(&socket).await.expect_err("nobody is there to do it");
    assert!(without.to_string().contains("FleetIQ is not configured"), "{without}");
    agent.stop().await;
}
