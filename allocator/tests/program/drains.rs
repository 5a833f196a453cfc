//! A node closes while allocations go on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use berth_api::allocation::proto::{AllocationRequest, GameServerSelector};
use berth_api::game_node::GameNode;
use berth_api::lifecycle::State;
use berth_dev::eventually;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::cluster::{Cluster, LIMIT};

/// Servers on each of the two nodes: all of them in use, and allocated again and again.
const SERVERS: usize = 10;
/// Clients, each with one request after the other.
const CLIENTS: usize = 20;
/// Answers before the drain begins, and after the allocator knows of it.
const ANSWERS: usize = 300;

/// One answer: where the server is, and when it was taken.
struct Taken {
    node: String,
    at: Timestamp,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_is_taken_from_a_node_that_the_allocator_knows_to_be_draining() {
    let cluster = Cluster::start("drains").await;
    let node = |name: &str| format!("{}-{name}", cluster.namespace);
    let (drains, stays) = (node("drains"), node("stays"));
    for node in [&drains, &stays] {
        for number in 0..SERVERS {
            cluster.create(&format!("{node}-{number}"), State::Allocated, json!({ "nodeName": node })).await;
        }
        // What the node's agent does.
        set_phase(&cluster, node, "Active").await;
    }
    let allocator = cluster.allocator("allocator", &[]).await;
    let service = cluster.service(&allocator).await;
    let request = AllocationRequest {
        namespace: cluster.namespace.clone(),
        scheduling: 1,
        game_server_selectors: vec![GameServerSelector {
            game_server_state: 1,
            ..GameServerSelector::default()
        }],
        ..AllocationRequest::default()
    };

    let (taken, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let count = || taken.lock().expect("answers").len();
    let clients = join_all((0..CLIENTS).map(|_| async {
        let mut service = service.clone();
        while !stop.load(Ordering::Relaxed) {
            let answer = service.allocate(request.clone()).await.expect("a server").into_inner();
            let metadata = answer.metadata.expect("metadata");
            let at = metadata.annotations["agones.dev/last-allocated"].parse().expect("RFC 3339");
            taken.lock().expect("answers").push(Taken { node: answer.node_name, at });
        }
    }));
    let drain = async {
        let until = async |number: usize| {
            eventually(LIMIT, format!("{number} answers"), async || match count() {
                enough if enough >= number => Ok(enough),
                few => Err(format!("{few}")),
            })
            .await
        };
        until(ANSWERS).await.expect("answers before");
        let asked = Timestamp::now();
        set_phase(&cluster, &drains, "Draining").await;
        let known = eventually(LIMIT, "the allocator to know of the drain", async || {
            told(&allocator.words(), &drains).ok_or_else(|| "it says nothing".to_owned())
        })
        .await
        .expect("a word");
        let enough = until(count() + ANSWERS).await.expect("answers after");
        stop.store(true, Ordering::Relaxed);
        (asked, known, enough)
    };
    let (_, (asked, known, _)) = futures::join!(clients, drain);

    let taken = taken.into_inner().expect("answers");
    let first = taken.iter().map(|one| one.at).min().expect("answers");
    let last = taken.iter().map(|one| one.at).max().expect("answers");
    let there: Vec<Timestamp> = taken.iter().filter(|one| one.node == drains).map(|one| one.at).collect();
    let late = there.iter().filter(|at| **at > asked).count();
    println!(
        "{} allocations in {:#}; known {:#} after the phase was sent; {late} of them landed on the node \
         in between",
        taken.len(),
        last.duration_since(first),
        known.duration_since(asked),
    );
    assert!(there.iter().any(|at| *at < asked), "the node was in use before");
    // The log counts in microseconds, and cuts off what is less.
    let known = known.checked_add(SignedDuration::from_micros(1)).expect("a time");
    let newest = there.iter().max().expect("some");
    assert!(*newest <= known, "taken at {newest}, and known to be draining at {known}");
    let servers = cluster.all_servers().await;
    for server in servers
        .iter()
        .filter(|server| server.status.as_ref().is_some_and(|status| status.node_name == drains))
    {
        if let Some(at) = server.annotation("agones.dev/last-allocated") {
            let at: Timestamp = at.parse().expect("RFC 3339");
            assert!(at <= known, "a server bears {at}, and the node was known to be draining at {known}");
        }
    }
}

/// When the allocator learned that a node is draining, by its own words.
fn told(words: &str, node: &str) -> Option<Timestamp> {
    let line = words.lines().find(|line| line.contains(node) && line.contains("phase=Draining"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Writes a phase as a node's agent does.
async fn set_phase(cluster: &Cluster, node: &str, phase: &str) {
    let nodes = Api::<GameNode>::all(cluster.client.clone());
    if nodes.get_opt(node).await.expect("an answer").is_none() {
        let made = serde_json::from_value(json!({ "metadata": { "name": node }, "spec": {} }));
        nodes.create(&PostParams::default(), &made.expect("a GameNode")).await.expect("a created GameNode");
    }
    let status = Patch::Merge(json!({ "status": { "phase": phase } }));
    nodes.patch_status(node, &PatchParams::default(), &status).await.expect("a written phase");
}
