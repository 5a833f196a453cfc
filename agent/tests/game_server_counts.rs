//! What a game counts, and what becomes of a wish that is older than a session, against a real API server.

#[path = "front_link/played.rs"]
#[allow(dead_code, reason = "the tests of the link use all of it")]
mod played;
#[path = "game_server_life/world.rs"]
#[allow(dead_code, reason = "the tests of a life use all of it")]
mod world;

use berth_api::game_server::counters::CounterChange;
use berth_api::game_server::lists::ListChange;
use berth_api::game_server::players::PlayersChange;
use berth_api::game_server::{Counter, GameServer};
use berth_api::lifecycle::State;
use berth_api::link::{Change, Seen, Sequence, ServerUid, ToAgent, ToSdk};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use self::world::{Agent, Game, World};

/// A server that runs, with things to count.
async fn counting(world: &World, name: &str) -> (Agent, Game, String) {
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    let spec = json!({
        "ports": [{ "name": "game", "containerPort": 7654 }],
        "template": { "spec": { "containers": [{ "name": "main", "image": "game:1" }] } }
    });
    let uid = world.hand_over(name, spec).await.uid().expect("a UID");
    world.until_state(name, State::Scheduled).await;
    write(
        world,
        name,
        json!({ "status": {
            "counters": { "rooms": { "count": 1, "capacity": 10 }, "score": { "count": 0, "capacity": i64::MAX } },
            "lists": { "maps": { "capacity": 3, "values": ["one", "two"] } },
        }}),
    )
    .await;
    world.run_pod(name).await;
    game.listeners(&uid).await;
    game.asks(&uid, 1, Change::Ready).await;
    game.acknowledged(&uid, 1).await;
    world.until_state(name, State::Ready).await;
    (agent, game, uid)
}

/// Somebody else writes to a server.
async fn write(world: &World, name: &str, body: Value) -> GameServer {
    let written = world.servers().patch(name, &PatchParams::default(), &Patch::Merge(body)).await;
    written.expect("it is written")
}

fn counter(server: &GameServer, name: &str) -> (i64, i64) {
    let counters = server.status.as_ref().and_then(|status| status.counters.as_ref()).expect("counters");
    let Counter { count, capacity } = &counters[name];
    (count.expect("a count"), capacity.expect("a capacity"))
}

fn plus(name: &str, diff: i64) -> Change {
    Change::Counter { name: name.to_owned(), by: CounterChange { diff, ..CounterChange::default() } }
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_applied_once_to_whatever_is_there() {
    let world = World::new().await;
    let (agent, mut game, uid) = counting(&world, "lobby").await;
    // What a game asked for and what somebody else has written meet: neither is lost.
    write(&world, "lobby", json!({ "status": { "counters": { "rooms": { "count": 5 } } } })).await;
    game.asks(&uid, 2, plus("rooms", 2)).await;
    game.asks(&uid, 3, plus("score", i64::MAX)).await;
    let add = ListChange { add: vec!["three".into()], remove: vec!["one".into()], capacity: None };
    game.asks(&uid, 4, Change::List { name: "maps".into(), by: add }).await;
    let come =
        PlayersChange { capacity: Some(4), connect: vec!["u1".into(), "u2".into()], disconnect: vec![] };
    game.asks(&uid, 5, Change::Players { by: come }).await;
    game.asks(&uid, 6, plus("nobody-has-it", 1)).await;
    game.acknowledged(&uid, 6).await;
    let server = world.servers().get("lobby").await.expect("the server");
    assert_eq!(counter(&server, "rooms"), (7, 10));
    assert_eq!(counter(&server, "score"), (i64::MAX, i64::MAX), "to the last bit");
    let status = server.status.clone().expect("a status");
    let maps = status.lists.expect("lists")["maps"].values.clone().expect("values");
    assert_eq!(maps, ["two", "three"]);
    let players = status.players.expect("players");
    assert_eq!((players.count, players.capacity, players.ids.expect("names").len()), (2, 4, 2));
    assert_eq!(server.annotation("berth.dev/sdk-applied"), Some("6"));
    agent.stop().await;
    drop(game);

    // Said again to the next agent, as everything is that was not trimmed: nothing is counted twice.
    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    game.asks(&uid, 2, plus("rooms", 2)).await;
    game.asks(&uid, 6, plus("nobody-has-it", 1)).await;
    game.asks(&uid, 7, plus("rooms", 1)).await;
    game.acknowledged(&uid, 7).await;
    let server = world.servers().get("lobby").await.expect("the server");
    assert_eq!(counter(&server, "rooms"), (8, 10));
    // What does not fit any more, because somebody else was faster, is held within the capacity.
    write(&world, "lobby", json!({ "status": { "counters": { "rooms": { "count": 9 } } } })).await;
    game.asks(&uid, 8, plus("rooms", 5)).await;
    game.acknowledged(&uid, 8).await;
    let server = world.servers().get("lobby").await.expect("the server");
    assert_eq!(counter(&server, "rooms"), (10, 10));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_game_that_counts_without_a_pause_makes_few_writes_and_its_state_does_not_wait() {
    let world = World::new().await;
    let (agent, mut game, uid) = counting(&world, "lobby").await;
    let begun = std::time::Instant::now();
    let before =
        world.servers().get("lobby").await.expect("the server").metadata.generation.expect("counted");
    // Some come while a write is under way, some after it.
    for last in [11, 21, 31, 41, 51, 61] {
        for number in last - 9..=last {
            game.asks(&uid, number, plus("score", 1)).await;
        }
        game.acknowledged(&uid, last).await;
    }
    let server = world.servers().get("lobby").await.expect("the server");
    let writes = server.metadata.generation.expect("counted") - before;
    // Every write of what is no state is a quarter of a second after the one before.
    let most = i64::try_from(begun.elapsed().as_millis() / 250).expect("small") + 2;
    assert!(writes <= most, "{writes} writes, {most} allowed");
    assert_eq!(counter(&server, "score"), (60, i64::MAX));
    game.asks(&uid, 62, plus("score", 1)).await;
    game.asks(&uid, 63, Change::Allocate { at: "2026-01-01T00:00:00Z".into() }).await;
    game.acknowledged(&uid, 63).await;
    world.until_state("lobby", State::Allocated).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_game_counts_is_told_by_events() {
    let world = World::new().await;
    let (agent, mut game, uid) = counting(&world, "lobby").await;
    game.asks(&uid, 2, plus("rooms", 2)).await;
    game.acknowledged(&uid, 2).await;
    let add = ListChange { add: vec!["three".into()], ..ListChange::default() };
    game.asks(&uid, 3, Change::List { name: "maps".into(), by: add }).await;
    game.acknowledged(&uid, 3).await;
    let room = PlayersChange { capacity: Some(4), ..PlayersChange::default() };
    game.asks(&uid, 4, Change::Players { by: room }).await;
    game.acknowledged(&uid, 4).await;
    let come = PlayersChange { connect: vec!["u1".into()], ..PlayersChange::default() };
    game.asks(&uid, 5, Change::Players { by: come }).await;
    game.acknowledged(&uid, 5).await;
    let expected = ["Scheduled", "Ready", "UpdateCounter", "UpdateList", "PlayerCapacity", "PlayerCount"];
    world.until_events("lobby", &expected).await;
    agent.stop().await;
}

/// The game asks for something, having been shown this.
async fn asks_having_seen(game: &mut Game, uid: &str, number: u64, change: Change, seen: Seen) {
    let uid = ServerUid(uid.to_owned());
    game.says(ToAgent::Change { uid, sequence: Sequence(number), change, seen }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_is_older_than_a_session_does_not_end_it_now_or_when_it_is_said_again() {
    let world = World::new().await;
    let (agent, game, uid) = counting(&world, "lobby").await;
    let shown = world.servers().get("lobby").await.expect("the server").metadata.generation.expect("counted");
    agent.stop().await;
    drop(game);
    // While no agent is there, somebody begins a session, and the game calls Ready, of which it cannot know.
    let session = json!({
        "metadata": { "annotations": { "agones.dev/last-allocated": "t1" } },
        "status": { "state": "Allocated" },
    });
    write(&world, "lobby", session).await;
    let before = Seen { generation: shown, sessions: Vec::new() };

    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    asks_having_seen(&mut game, &uid, 2, Change::Ready, before.clone()).await;
    asks_having_seen(&mut game, &uid, 3, plus("rooms", 1), before.clone()).await;
    game.acknowledged(&uid, 3).await;
    let server = world.servers().get("lobby").await.expect("the server");
    assert_eq!((server.state(), counter(&server, "rooms")), (Some(State::Allocated), (2, 10)));
    world.until_events("lobby", &["Scheduled", "Ready", "ChangeDropped", "UpdateCounter"]).await;
    // The session is over for somebody else; what was dropped stays dropped.
    write(&world, "lobby", json!({ "status": { "state": "Reserved" } })).await;
    agent.stop().await;
    drop(game);

    let agent = world.start().await;
    let mut game = world.connect(&[]).await;
    asks_having_seen(&mut game, &uid, 2, Change::Ready, before).await;
    game.acknowledged(&uid, 3).await;
    world.until_state("lobby", State::Reserved).await;
    // A session that the game knows of is its own to end, whatever else was written meanwhile.
    write(&world, "lobby", json!({ "status": { "state": "Allocated" } })).await;
    let seen = game
        .hears(|frame| match frame {
            ToSdk::Server { view, .. } if view.status.state == Some(State::Allocated) => {
                Some(Seen { generation: view.generation, sessions: view.session().into_iter().collect() })
            }
            _ => None,
        })
        .await;
    write(&world, "lobby", json!({ "status": { "counters": { "rooms": { "count": 9 } } } })).await;
    asks_having_seen(&mut game, &uid, 4, Change::Ready, seen).await;
    world.until_state("lobby", State::Ready).await;
    agent.stop().await;
}
