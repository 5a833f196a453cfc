//! The allocator service, over gRPC and REST.

use std::collections::BTreeSet;

use berth_api::allocation::proto::{AllocationRequest, CounterAction, MetaPatch};
use berth_api::lifecycle::State;
use serde_json::{Value, json};
use tonic::Code;

use super::certificates::{Authority, Signed};
use super::cluster::{Allocator, Cluster, allocate_if_let_in};

fn request(cluster: &Cluster) -> AllocationRequest {
    AllocationRequest { namespace: cluster.namespace.clone(), ..AllocationRequest::default() }
}

/// Asks the REST route with the certificate of a client.
async fn rest(
    cluster: &Cluster,
    allocator: &Allocator,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, Value) {
    let signed = cluster.client_certificate();
    rest_with(allocator, Some(&signed), None, method, path, body.as_bytes()).await
}

/// The same with a certificate, a token, or nothing.
pub(crate) async fn rest_with(
    allocator: &Allocator,
    signed: Option<&Signed>,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &[u8],
) -> (u16, Value) {
    let mut config =
        kube::Config::new(format!("https://127.0.0.1:{}", allocator.port).parse().expect("a URL"));
    config.accept_invalid_certs = true;
    // What is answered at once is what the test is about.
    config.default_retry = false;
    config.auth_info.client_certificate_data = signed.map(|signed| encoded(&signed.certificate));
    config.auth_info.client_key_data = signed.map(|signed| encoded(&signed.key).into());
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let client = kube::Client::try_from(config).expect("a client");
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(kube::client::Body::from(body.to_vec())).expect("a request");
    let answer = client.send(request).await.expect("an answer");
    let code = answer.status().as_u16();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.expect("a body").to_bytes();
    let value = serde_json::from_slice(&body);
    (code, value.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&body))))
}

fn encoded(pem: &str) -> String {
    let value = serde_json::to_value(k8s_openapi::ByteString(pem.as_bytes().to_vec())).expect("a value");
    value.as_str().expect("a string").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_allocated_through_the_service() {
    let cluster = Cluster::start("service").await;
    let more = json!({ "counters": { "rooms": { "count": 1, "capacity": 10 } } });
    cluster.create("gs1", State::Ready, more).await;
    let allocator = cluster.allocator("allocator", &["--allocation-limit", "5s"]).await;
    let mut service = cluster.service(&allocator).await;

    // gRPC.
    let asked = AllocationRequest {
        metadata: Some(MetaPatch {
            labels: [("mode".to_owned(), "x".to_owned())].into(),
            ..MetaPatch::default()
        }),
        meta_patch: Some(MetaPatch {
            labels: [("old".to_owned(), "y".to_owned())].into(),
            ..MetaPatch::default()
        }),
        counters: [(
            "rooms".to_owned(),
            CounterAction { action: Some("Increment".to_owned()), amount: Some(2), capacity: None },
        )]
        .into(),
        ..request(&cluster)
    };
    let answer = service.allocate(asked).await.expect("a server").into_inner();
    assert_eq!((answer.game_server_name.as_str(), answer.source.as_str()), ("gs1", "local"));
    assert_eq!((answer.ports[0].name.as_str(), answer.ports[0].port), ("default", 7000));
    assert_eq!(answer.counters["rooms"].count, Some(3));
    let metadata = answer.metadata.expect("metadata");
    assert_eq!(metadata.labels.get("mode").map(String::as_str), Some("x"));
    assert_eq!(metadata.labels.get("old"), None, "the newer field wins");

    let none = service.allocate(request(&cluster)).await.expect_err("no server");
    assert_eq!(none.code(), Code::ResourceExhausted);
    let bad = AllocationRequest {
        metadata: Some(MetaPatch {
            labels: [("a".to_owned(), "not valid!".to_owned())].into(),
            ..MetaPatch::default()
        }),
        ..request(&cluster)
    };
    let refused = service.allocate(bad).await.expect_err("a refusal");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("spec.metadata.labels"), "{refused:?}");
    let negative = AllocationRequest {
        counters: [("rooms".to_owned(), CounterAction { action: None, amount: Some(-1), capacity: None })]
            .into(),
        ..request(&cluster)
    };
    assert_eq!(service.allocate(negative).await.expect_err("a refusal").code(), Code::InvalidArgument);

    // REST, on the same port.
    let namespace = &cluster.namespace;
    let allocated = json!({
        "namespace": namespace,
        "gameServerSelectors": [{ "gameServerState": "ALLOCATED" }],
        "scheduling": "Nope",
        "unknown": 1,
    });
    let allocated = &allocated.to_string();
    let (code, told) = rest(&cluster, &allocator, "POST", "/gameserverallocation", allocated).await;
    assert_eq!(code, 200, "{told}");
    assert_eq!(told["gameServerName"], "gs1");
    assert_eq!(told["ports"], json!([{ "name": "default", "port": 7000 }]));
    assert_eq!(told["counters"]["rooms"], json!({ "count": "3", "capacity": "10" }));
    let ready = &json!({ "namespace": cluster.namespace }).to_string();
    let (code, told) = rest(&cluster, &allocator, "POST", "/gameserverallocation", ready).await;
    assert_eq!((code, &told["code"]), (429, &json!(8)));
    let (code, told) = rest(&cluster, &allocator, "GET", "/gameserverallocation", "").await;
    assert_eq!((code, &told["code"]), (501, &json!(12)));
    let (code, told) = rest(&cluster, &allocator, "POST", "/elsewhere", "{}").await;
    assert_eq!((code, &told["code"]), (404, &json!(5)));
    let (code, told) = rest(&cluster, &allocator, "POST", "/gameserverallocation", "{").await;
    assert_eq!((code, &told["code"]), (400, &json!(3)));

    // What is far too large is told so, and is no lack of servers.
    let huge = "x".repeat(2 * 1024 * 1024);
    let body = json!({ "namespace": huge }).to_string();
    let (code, told) = rest(&cluster, &allocator, "POST", "/gameserverallocation", &body).await;
    assert_eq!((code, &told["code"]), (400, &json!(11)), "{told}");
    let large = AllocationRequest { namespace: huge, ..AllocationRequest::default() };
    let refused = service.allocate(large).await.expect_err("a refusal");
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");

    // An enum's unknown number means its first word.
    let unknown = AllocationRequest { scheduling: 7, ..request(&cluster) };
    assert_eq!(service.allocate(unknown).await.expect_err("no server").code(), Code::ResourceExhausted);

    // Without a certificate, or with one of somebody else's, nobody gets in.
    for stranger in [None, Some(Authority::new("elsewhere").client("matchmaker"))] {
        assert!(!gets_in(&cluster, &allocator, stranger.as_ref()).await);
    }
    assert!(gets_in(&cluster, &allocator, Some(&cluster.client_certificate())).await);
    assert!(gets_in(&cluster, &allocator, Some(&cluster.client_certificate_of_a_team())).await);

    its_metrics_are_documented(&allocator).await;
}

/// Every metric is in the documentation, and every one in its section is there.
async fn its_metrics_are_documented(allocator: &Allocator) {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("the page of metrics");
    let (_, section) = page.split_once("## berth-allocator").expect("the allocator's section");
    let section = section.split("\n## ").next().expect("a section");
    let documented: BTreeSet<String> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|row| row.0.to_owned())
        .collect();
    let metrics = allocator.metrics().await;
    let registered: BTreeSet<String> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|(name, _)| *name != "berth_build_info")
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    assert_eq!(registered, documented);
}

pub(crate) async fn gets_in(cluster: &Cluster, allocator: &Allocator, signed: Option<&Signed>) -> bool {
    let Ok(channel) = cluster.channel(allocator, signed).await else { return false };
    match allocate_if_let_in(channel, request(cluster)).await {
        Ok(_) => true,
        Err(status) => status.code() == Code::ResourceExhausted,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_for_no_server_can_be_chosen() {
    let cluster = Cluster::start("status").await;
    let ready = &json!({ "namespace": cluster.namespace }).to_string();
    for (status, code, told_code) in [("409", 409, 6), ("500", 500, 13), ("418", 429, 8)] {
        let name = format!("allocator-{status}");
        let allocator = cluster.allocator(&name, &["--unallocated-status", status]).await;
        let (answered, told) = rest(&cluster, &allocator, "POST", "/gameserverallocation", ready).await;
        assert_eq!((answered, &told["code"]), (code, &json!(told_code)), "{status}");
    }
    let allocator = cluster.allocator("allocator-200", &["--unallocated-status", "200"]).await;
    let (answered, told) = rest(&cluster, &allocator, "POST", "/gameserverallocation", ready).await;
    assert_eq!((answered, &told["gameServerName"]), (200, &json!("")));
}
