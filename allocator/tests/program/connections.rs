//! Connections: many that do nothing, and certificates that are renewed under load.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::allocation::proto::{AllocationRequest, GameServerSelector};
use berth_api::lifecycle::State;
use berth_dev::eventually;
use futures::future::join_all;
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::cluster::{Allocator, Cluster, LIMIT};
use super::service::gets_in;

/// Clients under whose calls certificates are renewed; each second one makes a new connection for each call.
const CLIENTS: usize = 8;
/// Connections with a certificate, and without a word, that do nothing.
const IDLE: (usize, usize) = (300, 2000);

/// Of the one server, which is in use and is had again and again.
fn again(cluster: &Cluster) -> AllocationRequest {
    AllocationRequest {
        namespace: cluster.namespace.clone(),
        game_server_selectors: vec![GameServerSelector {
            game_server_state: 1,
            ..GameServerSelector::default()
        }],
        ..AllocationRequest::default()
    }
}

async fn renewed(allocator: &Allocator, times: usize) {
    eventually(LIMIT, "the new certificates to be in use", async || {
        let seen = allocator.words().matches("new certificates in use").count();
        if seen >= times { Ok(()) } else { Err(format!("{seen} times")) }
    })
    .await
    .expect("new certificates");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_renewed_under_load_without_a_failed_call() {
    let mut cluster = Cluster::start("renewal").await;
    cluster.create("gs1", State::Allocated, json!({})).await;
    let allocator = cluster.allocator("allocator", &[]).await;
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let old = cluster.client_certificate();
    {
        let (cluster, allocator) = (&cluster, &allocator);
        let clients = join_all((0..CLIENTS).map(|number| {
            let (stop, calls) = (&stop, &calls);
            async move {
                let mut service = cluster.service(allocator).await;
                while !stop.load(Ordering::Relaxed) {
                    if number % 2 == 1 {
                        service = cluster.service(allocator).await;
                    }
                    let answer = service.allocate(again(cluster)).await;
                    assert_eq!(answer.expect("a server").into_inner().game_server_name, "gs1");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
        let renewals = async {
            let more = async || {
                let wanted = calls.load(Ordering::Relaxed) + 4 * CLIENTS;
                eventually(LIMIT, format!("{wanted} calls"), async || {
                    let made = calls.load(Ordering::Relaxed);
                    if made >= wanted { Ok(()) } else { Err(format!("{made}")) }
                })
                .await
            };
            for times in 1..=2 {
                more().await.expect("calls before");
                cluster.renew_server_certificate();
                renewed(allocator, times).await;
                more().await.expect("calls after");
            }
            stop.store(true, Ordering::Relaxed);
        };
        futures::join!(clients, renewals);
    }
    println!("{} calls, none failed", calls.into_inner());

    // Another authority of clients: whoever is connected stays so, and new ones need its certificates.
    let mut connected = cluster.service(&allocator).await;
    connected.allocate(again(&cluster)).await.expect("a server");
    let before = allocator.words().matches("new certificates in use").count();
    cluster.renew_client_authority();
    renewed(&allocator, before + 1).await;
    connected.allocate(again(&cluster)).await.expect("a server over a connection that was there");
    assert!(gets_in(&cluster, &allocator, Some(&cluster.client_certificate())).await);
    assert!(!gets_in(&cluster, &allocator, Some(&old)).await);
}

/// Connections that do nothing are in nobody's way, and those that never say who they are end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_connections_are_in_nobodys_way() {
    let cluster = &Cluster::start("idle").await;
    cluster.create("gs1", State::Allocated, json!({})).await;
    let allocator = &cluster.allocator("allocator", &[]).await;
    let certificate = &cluster.client_certificate();
    let known: Vec<_> = stream::iter(0..IDLE.0)
        .map(async |_| cluster.channel(allocator, Some(certificate)).await.expect("a connection"))
        .buffer_unordered(16)
        .collect()
        .await;
    let mut silent: Vec<TcpStream> = stream::iter(0..IDLE.1)
        .map(async |_| TcpStream::connect(("127.0.0.1", allocator.port)).await.expect("a connection"))
        .buffer_unordered(64)
        .collect()
        .await;
    let mut service = cluster.service(allocator).await;
    service.allocate(again(cluster)).await.expect("a server");
    let status = std::fs::read_to_string(format!("/proc/{}/status", allocator.daemon.pid()));
    let status = status.expect("the allocator's status");
    let memory = status.lines().find(|line| line.starts_with("VmRSS")).expect("its memory");
    println!("{} connections with a certificate, {} without a word: {memory}", known.len(), silent.len());
    let mut ended = 0;
    for stream in &mut silent {
        let read = timeout(LIMIT, stream.read(&mut [0; 16])).await.expect("an end of a silent connection");
        ended += usize::from(matches!(read, Ok(0) | Err(_)));
    }
    assert_eq!(ended, IDLE.1);
    // Those that said who they are live on.
    let channel = known.into_iter().next().expect("a connection");
    let mut early = AllocationServiceClient::new(channel);
    let answer = timeout(Duration::from_secs(60), early.allocate(again(cluster))).await;
    answer.expect("an answer").expect("a server");
}
