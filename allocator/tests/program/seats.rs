//! Seats of games that are under way: servers in use are filled before another one is taken.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use berth_api::allocation::proto::{AllocationRequest, CounterAction, CounterSelector, GameServerSelector};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{WatchEvent, WatchParams};
use serde_json::json;

use super::cluster::Cluster;

/// Seats of a server.
const SEATS: usize = 300;
/// Players that come: four servers and a bit.
const PLAYERS: usize = 1300;
/// Servers that are there.
const SERVERS: usize = 16;

fn seat(cluster: &Cluster) -> AllocationRequest {
    let room = CounterSelector { min_available: 1, ..CounterSelector::default() };
    let selector = |state: i32| GameServerSelector {
        game_server_state: state,
        counters: [("seats".to_owned(), room)].into(),
        ..GameServerSelector::default()
    };
    let sit = CounterAction { action: Some("Increment".to_owned()), amount: Some(1), capacity: None };
    AllocationRequest {
        namespace: cluster.namespace.clone(),
        game_server_selectors: vec![selector(1), selector(0)],
        counters: [("seats".to_owned(), sit)].into(),
        ..AllocationRequest::default()
    }
}

/// The seats that are taken at a server in use.
fn seats(server: &GameServer) -> Option<usize> {
    let counters = server.status.as_ref().and_then(|status| status.counters.as_ref());
    let count = counters.and_then(|counters| counters["seats"].count).unwrap_or(0);
    (server.state() == Some(State::Allocated)).then_some(usize::try_from(count).expect("a count"))
}

/// Players come, some at the same time, to several replicas. Answers how many servers were in use beyond those that the
/// players needed, at the worst moment.
async fn fill(replicas: usize, at_once: usize, players: usize) -> usize {
    let cluster = &Cluster::start("seats").await;
    for number in 0..SERVERS {
        let seats = json!({ "counters": { "seats": { "count": 0, "capacity": SEATS } } });
        cluster.create(&format!("room-{number:02}"), State::Ready, seats).await;
    }
    let (mut allocators, mut services) = (Vec::new(), Vec::new());
    for number in 0..replicas {
        let allocator = cluster.allocator(&format!("allocator-{number}"), &[]).await;
        services.push(cluster.service(&allocator).await);
        allocators.push(allocator);
    }
    let servers = cluster.servers();
    let from = servers.list(&Default::default()).await.expect("a list").metadata.resource_version;
    // A player who has asked may be seated before anybody is told.
    let asked = &AtomicUsize::new(0);
    let ask = stream::iter(0..players)
        .map(|number| {
            let mut service = services[number % replicas].clone();
            async move {
                asked.fetch_add(1, Ordering::SeqCst);
                service.allocate(seat(cluster)).await.map(drop)
            }
        })
        .buffer_unordered(at_once)
        .collect::<Vec<_>>();
    // Each state that the API server has gone through.
    let look = async {
        let events =
            servers.watch(&WatchParams::default(), &from.expect("a version")).await.expect("a watch");
        let mut events = events.boxed();
        let (mut taken, mut beyond) = (BTreeMap::new(), 0);
        while taken.values().sum::<usize>() < players {
            let event = events.next().await.expect("a watch").expect("an event");
            let WatchEvent::Modified(server) = event else { continue };
            if let Some(seats) = seats(&server) {
                taken.insert(server.name_any(), seats);
            }
            // Whoever is not seated yet may be among those for whom another server had to be taken.
            let needed = asked.load(Ordering::SeqCst).div_ceil(SEATS);
            beyond = beyond.max(taken.len().saturating_sub(needed));
        }
        (taken, beyond)
    };
    let (answers, (taken, beyond)) = futures::join!(ask, look);
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    assert_eq!(taken.values().sum::<usize>(), players);
    assert!(taken.values().all(|seats| *seats <= SEATS), "{taken:?}");
    println!(
        "{players} players of {replicas} replicas, {at_once} at once: {} servers in use, {} needed, {beyond} beyond at \
         the worst moment",
        taken.len(),
        players.div_ceil(SEATS),
    );
    beyond.max(taken.len() - players.div_ceil(SEATS))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_never_uses_a_server_more_than_the_players_need() {
    assert_eq!(fill(1, 40, PLAYERS).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_who_come_one_by_one_are_seated_by_one_replica_one_by_one() {
    assert_eq!(fill(1, 1, SEATS + 20).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_and_nine_replicas_use_few_servers_more() {
    for replicas in [3, 9] {
        // Each may open one at the same moment as the others.
        let beyond = fill(replicas, 40, 2 * SEATS + 20).await;
        assert!(beyond < replicas, "{beyond} servers beyond what is needed");
    }
}
