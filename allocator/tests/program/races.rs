//! Many at once: every server is given away once, and nobody is told of a conflict.

use std::collections::BTreeSet;

use berth_api::allocation::proto::{AllocationRequest, CounterAction, CounterSelector, GameServerSelector};
use berth_api::lifecycle::State;
use futures::{StreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::cluster::Cluster;

fn request(cluster: &Cluster) -> AllocationRequest {
    AllocationRequest { namespace: cluster.namespace.clone(), ..AllocationRequest::default() }
}

/// Servers that are given away in one test; the bench takes more.
const SERVERS: usize = 120;

async fn all_are_given_away_once(replicas: usize) {
    let cluster = &Cluster::start("races").await;
    cluster.create_many(SERVERS).await;
    let mut services = Vec::new();
    let mut allocators = Vec::new();
    for number in 0..replicas {
        let allocator = cluster.allocator(&format!("allocator-{number}"), &[]).await;
        services.push(cluster.service(&allocator).await);
        allocators.push(allocator);
    }
    let answers: Vec<_> = stream::iter(0..SERVERS)
        .map(|number| {
            let mut service = services[number % replicas].clone();
            async move { service.allocate(request(cluster)).await }
        })
        .buffer_unordered(40)
        .collect()
        .await;
    if let Some(Err(status)) = answers.iter().find(|answer| answer.is_err()) {
        let said: Vec<String> = allocators.iter().map(|allocator| allocator.daemon.last_words()).collect();
        panic!("no server: {status:?}\n{}", said.join("\n---\n"));
    }
    let names: Vec<String> =
        answers.into_iter().map(|answer| answer.expect("a server").into_inner().game_server_name).collect();
    let different: BTreeSet<&String> = names.iter().collect();
    assert_eq!(different.len(), SERVERS, "some server was given away twice");
    let servers = cluster.all_servers().await;
    assert!(servers.iter().all(|server| server.state() == Some(State::Allocated)));
    let one_more = services[0].allocate(request(cluster)).await.expect_err("none is left");
    assert_eq!(one_more.code(), tonic::Code::ResourceExhausted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_is_given_away_once_by_one_replica() {
    all_are_given_away_once(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_is_given_away_once_by_three_replicas() {
    all_are_given_away_once(3).await;
}

/// Seats: a server in use is filled before another is taken, whatever is under way at the moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_fill_one_server_before_the_next() {
    const SEATS: i64 = 20;
    const PLAYERS: usize = 90;
    let cluster = Cluster::start("seats").await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        let seats = json!({ "counters": { "seats": { "count": 0, "capacity": SEATS } } });
        cluster.create(name, State::Ready, seats).await;
    }
    let allocator = cluster.allocator("allocator", &[]).await;
    let service = cluster.service(&allocator).await;
    let room = CounterSelector { min_available: 1, ..CounterSelector::default() };
    let selector = |state: i32| GameServerSelector {
        game_server_state: state,
        counters: [("seats".to_owned(), room)].into(),
        ..GameServerSelector::default()
    };
    let seat = AllocationRequest {
        game_server_selectors: vec![selector(1), selector(0)],
        counters: [(
            "seats".to_owned(),
            CounterAction { action: Some("Increment".to_owned()), amount: Some(1), capacity: None },
        )]
        .into(),
        ..request(&cluster)
    };
    let answers: Vec<_> = stream::iter(0..PLAYERS)
        .map(|_| {
            let (mut service, seat) = (service.clone(), seat.clone());
            async move { service.allocate(seat).await }
        })
        .buffer_unordered(30)
        .collect()
        .await;
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    let counts: Vec<i64> = cluster
        .all_servers()
        .await
        .iter()
        .filter(|server| server.state() == Some(State::Allocated))
        .map(|server| {
            let counters = server.status.as_ref().and_then(|status| status.counters.as_ref());
            counters.and_then(|counters| counters["seats"].count).unwrap_or(0)
        })
        .collect();
    assert_eq!(counts.len(), PLAYERS.div_ceil(usize::try_from(SEATS).expect("small")), "{counts:?}");
    assert_eq!(counts.iter().sum::<i64>(), i64::try_from(PLAYERS).expect("small"));
}

/// Somebody else writes the server all the time, as a game that counts does: no call fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_others_write_is_allocated_all_the_same() {
    let cluster = Cluster::start("busy").await;
    let rooms = json!({ "counters": { "rooms": { "count": 0, "capacity": 999_999 } } });
    cluster.create("busy", State::Allocated, rooms).await;
    let allocator = cluster.allocator("allocator", &[]).await;
    let service = cluster.service(&allocator).await;
    let room = AllocationRequest {
        game_server_selectors: vec![GameServerSelector {
            game_server_state: 1,
            counters: [(
                "rooms".to_owned(),
                CounterSelector { min_available: 1, ..CounterSelector::default() },
            )]
            .into(),
            ..GameServerSelector::default()
        }],
        counters: [(
            "rooms".to_owned(),
            CounterAction { action: Some("Increment".to_owned()), amount: Some(1), capacity: None },
        )]
        .into(),
        ..request(&cluster)
    };
    let clients = stream::iter(0..100).map(|_| {
        let (mut service, room) = (service.clone(), room.clone());
        async move { service.allocate(room).await.map(drop) }
    });
    let others = async {
        for number in 0..40 {
            let note = json!({ "metadata": { "labels": { "turn": number.to_string() } } });
            let servers = cluster.servers();
            servers.patch("busy", &PatchParams::default(), &Patch::Merge(note)).await.expect("a write");
        }
    };
    let (answers, ()) = futures::join!(clients.buffer_unordered(5).collect::<Vec<_>>(), others);
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    let server = cluster.servers().get("busy").await.expect("the server");
    let counters = server.status.and_then(|status| status.counters).expect("counters");
    assert_eq!(counters["rooms"].count, Some(100), "each call counted once");
}
