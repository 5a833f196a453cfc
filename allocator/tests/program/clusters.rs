//! Allocation from several clusters.

use std::collections::BTreeMap;

use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::allocation::proto::{AllocationRequest, AllocationResponse, MultiClusterSetting};
use berth_api::allocation_policy::GameServerAllocationPolicy;
use berth_api::lifecycle::State;
use berth_dev::eventually;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::cluster::{Cluster, LIMIT};

const SECRET: &str = "allocator-client.elsewhere";

/// A policy of this name, with what is special about its connection.
async fn create_policy(cluster: &Cluster, name: &str, priority: i32, weight: i64, connection: Value) {
    let policy: GameServerAllocationPolicy = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "priority": priority, "weight": weight, "connectionInfo": connection },
    }))
    .expect("a policy");
    policies(cluster).create(&PostParams::default(), &policy).await.expect("a created policy");
}

fn policies(cluster: &Cluster) -> Api<GameServerAllocationPolicy> {
    Api::namespaced(cluster.client.clone(), &cluster.namespace)
}

/// Lets the allocators of one cluster into another one.
async fn introduce(here: &Cluster, there: &Cluster) {
    let certificate = there.client_certificate();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": SECRET },
        "stringData": {
            "tls.crt": certificate.certificate, "tls.key": certificate.key, "ca.crt": there.authority.pem,
        },
    }))
    .expect("a Secret");
    let secrets = Api::<Secret>::namespaced(here.client.clone(), &here.namespace);
    secrets.create(&PostParams::default(), &secret).await.expect("a created Secret");
}

async fn allocate(
    service: &mut AllocationServiceClient<Channel>,
    cluster: &Cluster,
) -> Result<AllocationResponse, Status> {
    let request = AllocationRequest {
        namespace: cluster.namespace.clone(),
        multi_cluster_setting: Some(MultiClusterSetting { enabled: true, policy_selector: None }),
        ..AllocationRequest::default()
    };
    service.allocate(request).await.map(tonic::Response::into_inner)
}

/// Policies come by a watch: asks until the answer shows that they are known.
async fn once_known(
    service: &AllocationServiceClient<Channel>,
    cluster: &Cluster,
    is_known: impl Fn(&Result<AllocationResponse, Status>) -> bool,
) -> Result<AllocationResponse, Status> {
    eventually(LIMIT, "the policies to be known", async || {
        let answer = allocate(&mut service.clone(), cluster).await;
        if is_known(&answer) { Ok(answer) } else { Err(format!("{answer:?}")) }
    })
    .await
    .expect("known policies")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_share_by_weight_and_make_up_for_each_other() {
    let (here, there) = (Cluster::start("here").await, Cluster::elsewhere("there").await);
    introduce(&here, &there).await;
    here.create_many(20).await;
    there.create_many(20).await;
    let remote = there.allocator("remote", &[]).await;
    let endpoint = format!("127.0.0.1:{}", remote.port);
    let local = here.allocator("local", &[]).await;
    let mut service = here.service(&local).await;

    // Nothing to go by.
    let refused = allocate(&mut service, &here).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unknown);
    assert!(refused.message().contains("no GameServerAllocationPolicy"), "{refused}");

    let of_there = json!({
        "clusterName": "there", "namespace": there.namespace, "secretName": SECRET,
        "allocationEndpoints": [endpoint],
    });
    create_policy(&here, "there", 1, 1, of_there).await;
    let first = once_known(&service, &here, Result::is_ok).await.expect("a server there");
    assert_eq!(first.source, endpoint);

    // Once both are known, both are asked; and in the end each server of both clusters is given away once.
    create_policy(&here, "here", 1, 1, json!({ "clusterName": "here", "namespace": here.namespace })).await;
    let mut taken: BTreeMap<(String, String), usize> = BTreeMap::new();
    taken.insert((first.source, first.game_server_name), 1);
    let mut note = |answer: AllocationResponse| {
        *taken.entry((answer.source, answer.game_server_name)).or_insert(0) += 1;
        taken.len()
    };
    while note(allocate(&mut service, &here).await.expect("a server")) < 40 {}
    let of = |source: &str| taken.keys().filter(|(from, _)| from == source).count();
    assert_eq!((of("local"), of(&endpoint)), (20, 20));
    assert!(taken.values().all(|times| *times == 1), "{taken:?}");

    // Both are empty now.
    let nothing = allocate(&mut service, &here).await.unwrap_err();
    assert_eq!(nothing.code(), Code::ResourceExhausted);

    // The policies of the namespace alone count, and only those that are picked.
    let picked = AllocationRequest {
        namespace: here.namespace.clone(),
        multi_cluster_setting: Some(MultiClusterSetting {
            enabled: true,
            policy_selector: Some(berth_api::allocation::proto::LabelSelector {
                match_labels: [("region".to_owned(), "nowhere".to_owned())].into(),
            }),
        }),
        ..AllocationRequest::default()
    };
    let refused = service.allocate(picked).await.unwrap_err();
    assert!(refused.message().contains("no GameServerAllocationPolicy"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_cluster_costs_its_timeout_once() {
    let (here, there) = (Cluster::start("alive").await, Cluster::elsewhere("dead").await);
    introduce(&here, &there).await;
    // It takes connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let endpoint = silent.local_addr().expect("an address").to_string();
    let of_there = json!({
        "clusterName": "there", "namespace": there.namespace, "secretName": SECRET,
        "allocationEndpoints": [endpoint],
    });
    create_policy(&here, "there", 1, 1, of_there).await;
    create_policy(&here, "here", 2, 1, json!({ "clusterName": "here", "namespace": here.namespace })).await;
    here.create_many(10).await;
    let local = here.allocator("local", &["--remote-allocation-timeout", "1s"]).await;
    let mut service = here.service(&local).await;
    for _ in 0..5 {
        let answer = allocate(&mut service, &here).await.expect("a server of our own");
        assert_eq!(answer.source, "local");
    }
    let metrics = local.metrics().await;
    let count = |outcome: &str| {
        let name = format!("berth_allocator_clusters_calls_total{{outcome=\"{outcome}\"}} ");
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(&name))
            .map(|count| count.parse::<u32>().expect("a count"))
    };
    // A machine that is so slow that the rest of 15 s is over may ask once more.
    let silent = count("Silent").expect("a silent call");
    assert!((1..=2).contains(&silent), "{metrics}");
    assert_eq!(silent + count("Skipped").expect("skipped calls"), 5, "{metrics}");

    // What a policy lacks is told by name where there is nobody else.
    policies(&here).delete("here", &DeleteParams::default()).await.expect("a deleted policy");
    let bare = json!({ "clusterName": "bare", "namespace": "x", "allocationEndpoints": ["127.0.0.1:1"] });
    create_policy(&here, "bare", 3, 1, bare).await;
    let told = |answer: &Result<AllocationResponse, Status>| {
        answer.as_ref().is_err_and(|status| status.message().contains("names no Secret"))
    };
    let refused = once_known(&service, &here, told).await.unwrap_err();
    assert!(refused.message().contains("\"bare\""), "{refused}");
    assert!(there.all_servers().await.is_empty());
    let free = here.all_servers().await.iter().filter(|one| one.state() == Some(State::Ready)).count();
    assert!(free <= 5, "{free}");
}
