//! Many at once: every server is given away once, and nobody is told of a conflict.

use std::collections::BTreeSet;
use std::time::Instant;

use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::allocation::proto::{AllocationRequest, CounterAction, CounterSelector, GameServerSelector};
use berth_api::lifecycle::State;
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tonic::transport::Channel;

use super::cluster::{Allocator, Cluster};

fn request(cluster: &Cluster) -> AllocationRequest {
    AllocationRequest { namespace: cluster.namespace.clone(), ..AllocationRequest::default() }
}

/// Clients that ask at the same time, each for one server after the other.
const CLIENTS: usize = 40;

/// Servers for each client: few here, and as many as `BERTH_SERVERS_EACH` says in the long run.
fn servers_each() -> usize {
    std::env::var("BERTH_SERVERS_EACH").map_or(3, |text| text.parse().expect("a number of servers"))
}

async fn all_are_given_away_once(replicas: usize) {
    let cluster = &Cluster::start("races").await;
    let (each, all) = (servers_each(), servers_each() * CLIENTS);
    cluster.create_many(all).await;
    let (allocators, services) = replicas_of(cluster, replicas).await;
    let began = Instant::now();
    let clients = (0..CLIENTS).map(|number| {
        let mut service = services[number % replicas].clone();
        async move {
            let mut answers = Vec::new();
            for _ in 0..each {
                answers.push(service.allocate(request(cluster)).await);
            }
            answers
        }
    });
    let answers: Vec<_> = join_all(clients).await.into_iter().flatten().collect();
    let took = began.elapsed();
    if let Some(Err(status)) = answers.iter().find(|answer| answer.is_err()) {
        let said: Vec<String> = allocators.iter().map(|allocator| allocator.daemon.last_words()).collect();
        panic!("no server: {status:?}\n{}", said.join("\n---\n"));
    }
    let names: BTreeSet<String> =
        answers.into_iter().map(|answer| answer.expect("a server").into_inner().game_server_name).collect();
    assert_eq!(names.len(), all, "some server was given away twice");
    let servers = cluster.all_servers().await;
    assert!(servers.iter().all(|server| server.state() == Some(State::Allocated)));
    for service in &services {
        let one_more = service.clone().allocate(request(cluster)).await.expect_err("none is left");
        assert_eq!(one_more.code(), tonic::Code::ResourceExhausted);
    }
    let conflicts = conflicts(&allocators).await;
    println!(
        "{all} servers by {CLIENTS} clients of {replicas} replicas in {took:.1?}: each once, no error, {} conflicts at \
         the API server per 1,000",
        conflicts * 1000 / u64::try_from(all).expect("small"),
    );
}

async fn replicas_of(
    cluster: &Cluster,
    replicas: usize,
) -> (Vec<Allocator>, Vec<AllocationServiceClient<Channel>>) {
    let (mut allocators, mut services) = (Vec::new(), Vec::new());
    for number in 0..replicas {
        let allocator = cluster.allocator(&format!("allocator-{number}"), &[]).await;
        services.push(cluster.service(&allocator).await);
        allocators.push(allocator);
    }
    (allocators, services)
}

async fn conflicts(allocators: &[Allocator]) -> u64 {
    let lost = allocators.iter().map(|allocator| allocator.counter("berth_allocator_lost_races_total"));
    join_all(lost).await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_is_given_away_once_by_one_replica() {
    all_are_given_away_once(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_is_given_away_once_by_three_replicas() {
    all_are_given_away_once(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_is_given_away_once_by_nine_replicas() {
    all_are_given_away_once(9).await;
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
