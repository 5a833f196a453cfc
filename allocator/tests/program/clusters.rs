//! Allocation from several clusters.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::allocation::proto::allocation_service_server::{AllocationService, AllocationServiceServer};
use berth_api::allocation::proto::{AllocationRequest, AllocationResponse, MultiClusterSetting};
use berth_api::allocation_policy::GameServerAllocationPolicy;
use berth_api::lifecycle::State;
use berth_dev::eventually;
use berth_runtime::CancellationToken;
use berth_runtime::tasks::TaskGroup;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};

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
    let silent = count("silent").expect("a silent call");
    assert!((1..=2).contains(&silent), "{metrics}");
    assert_eq!(silent + count("skipped").expect("skipped calls"), 5, "{metrics}");

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

/// An allocator service that answers by a script, and in the end the same again.
#[derive(Clone)]
struct Scripted(Arc<Mutex<(VecDeque<Code>, u32)>>);

impl Scripted {
    fn new(answers: &[Code]) -> Self {
        Self(Arc::new(Mutex::new((answers.iter().copied().collect(), 0))))
    }

    fn calls(&self) -> u32 {
        self.0.lock().expect("the script").1
    }

    /// Serves it as the allocator service of a cluster.
    async fn serve(&self, cluster: &Cluster, group: &TaskGroup) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let signed = cluster.authority.server(&["127.0.0.1"]);
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(signed.certificate, signed.key));
        let mut server = Server::builder().tls_config(tls).expect("a configuration");
        let service = server.add_service(AllocationServiceServer::new(self.clone()));
        let stop = group.token().cancelled_owned();
        group.spawn(
            "a scripted service",
            service.serve_with_incoming_shutdown(TcpIncoming::from(listener), stop),
        );
        address.to_string()
    }
}

#[tonic::async_trait]
impl AllocationService for Scripted {
    async fn allocate(&self, _: Request<AllocationRequest>) -> Result<Response<AllocationResponse>, Status> {
        let mut script = self.0.lock().expect("the script");
        script.1 += 1;
        let code = if script.0.len() > 1 { script.0.pop_front() } else { script.0.front().copied() };
        match code.expect("an answer") {
            Code::Ok => Ok(Response::new(AllocationResponse {
                game_server_name: "far".to_owned(),
                ..AllocationResponse::default()
            })),
            code => Err(Status::new(code, "as the script says")),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_of_another_cluster_is_taken_for_what_it_is() {
    let (here, there) = (Cluster::start("asks").await, Cluster::elsewhere("answers").await);
    introduce(&here, &there).await;
    let local = here.allocator("local", &["--total-remote-allocation-timeout", "5s"]).await;
    let service = here.service(&local).await;
    let group = TaskGroup::new(CancellationToken::new());
    for (name, script, expected, calls) in [
        ("a-server", [Code::Ok, Code::Ok], Code::Ok, Some(1)),
        ("a-server-at-the-second-try", [Code::Unknown, Code::Ok], Code::Ok, Some(2)),
        ("none", [Code::ResourceExhausted, Code::Ok], Code::ResourceExhausted, Some(1)),
        ("a-refusal", [Code::InvalidArgument, Code::Ok], Code::Unknown, Some(1)),
        // Others are faster each time: tried again and again, while there is time.
        ("contention", [Code::Aborted, Code::Aborted], Code::Aborted, None),
    ] {
        let scripted = Scripted::new(&script);
        let endpoint = scripted.serve(&there, &group).await;
        let connection = json!({
            "clusterName": name, "namespace": "far-away", "secretName": SECRET,
            "allocationEndpoints": [endpoint],
        });
        create_policy(&here, name, 1, 1, connection).await;
        // Whoever asks before the policy is known is told that there is none.
        let answer = once_known(&service, &here, |answer| {
            !answer.as_ref().is_err_and(|status| status.message().contains("no GameServerAllocationPolicy"))
        })
        .await;
        assert_eq!(answer.as_ref().map_or_else(Status::code, |_| Code::Ok), expected, "{name}: {answer:?}");
        if let Ok(answer) = &answer {
            assert_eq!((answer.game_server_name.as_str(), &answer.source), ("far", &endpoint), "{name}");
        }
        match calls {
            Some(calls) => assert_eq!(scripted.calls(), calls, "{name}"),
            None => assert!(scripted.calls() > 1, "{name}"),
        }
        policies(&here).delete(name, &DeleteParams::default()).await.expect("a deleted policy");
        eventually(LIMIT, "the policy to be forgotten", async || {
            match allocate(&mut service.clone(), &here).await {
                Err(status) if status.message().contains("no GameServerAllocationPolicy") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .expect("a forgotten policy");
    }
    group.token().cancel();
}
