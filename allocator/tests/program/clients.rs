//! Clients that people have: curl, and a matchmaker on grpc-go. kubectl is in `installation`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use berth_api::lifecycle::State;
use berth_dev::{go, source_folder};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::process::Command;

use super::cluster::{Allocator, Cluster, HOST};

/// Runs a program to its end.
pub(crate) async fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().await.expect("an output")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with a client's certificate, as its Secret is mounted.
fn identity(cluster: &Cluster) -> PathBuf {
    let folder = cluster.subfolder("client");
    cluster.client_certificate().write(&folder);
    fs::write(folder.join("ca.crt"), &cluster.authority.pem).expect("a certificate");
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_allocates_over_rest() {
    let cluster = Cluster::start("curl").await;
    cluster.create("gs1", State::Ready, json!({})).await;
    let allocator = cluster.allocator("allocator", &[]).await;
    let folder = identity(&cluster);
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (certificate, key, authority) = (path("tls.crt"), path("tls.key"), path("ca.crt"));
    let url = format!("https://{HOST}:{}/gameserverallocation", allocator.port);
    let resolve = format!("{HOST}:{}:127.0.0.1", allocator.port);
    let body = json!({ "namespace": cluster.namespace }).to_string();
    let ask = async |more: &[&str]| -> (String, String) {
        let mut all = vec!["--silent", "--show-error", "--max-time", "120", "--resolve", &resolve];
        all.extend(["--cacert", &authority, "--write-out", "\n%{http_code}", "--data", &body]);
        all.extend_from_slice(more);
        all.push(&url);
        let answer = run(Path::new("curl"), &all).await;
        let said = text(&answer.stdout);
        let (told, code) = said.rsplit_once('\n').unwrap_or_default();
        (code.to_owned(), format!("{told}{}", text(&answer.stderr)))
    };
    let with_key = ["--cert", &certificate, "--key", &key];
    let (code, told) = ask(&with_key).await;
    assert_eq!(code, "200", "{told}");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["gameServerName"], &told["source"]), (&json!("gs1"), &json!("local")));
    let (code, told) = ask(&with_key).await;
    assert_eq!(code, "429", "{told}");
    // HTTP/1.1 or 2: both are spoken.
    for version in ["--http1.1", "--http2"] {
        let (code, told) = ask(&[&with_key[..], &[version]].concat()).await;
        assert_eq!(code, "429", "{version}: {told}");
    }
    let (code, told) = ask(&[]).await;
    assert_eq!(code, "000", "nobody gets in without a certificate: {told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_matchmaker_on_grpc_go_allocates() {
    let cluster = Cluster::start("grpc-go").await;
    let rooms = json!({ "counters": { "rooms": { "count": 1, "capacity": 3 } } });
    cluster.create("gs1", State::Ready, rooms).await;
    let allocator = cluster.allocator("allocator", &[]).await;
    let ready = json!({ "namespace": cluster.namespace, "metadata": { "labels": { "mode": "x" } } });
    let room = json!({
        "namespace": cluster.namespace,
        "gameServerSelectors": [{ "gameServerState": "ALLOCATED", "counters": { "rooms": { "minAvailable": "1" } } }],
        "counters": { "rooms": { "action": "Increment", "amount": "2" } },
    });
    let answers = matchmaker(&cluster, &allocator, &[&ready, &room, &room]).await;
    let [first, second, third] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((&first["gameServerName"], &first["source"]), (&json!("gs1"), &json!("local")));
    assert_eq!(first["ports"], json!([{ "name": "default", "port": 7000 }]));
    assert_eq!(first["metadata"]["labels"]["mode"], "x");
    assert_eq!(second["counters"]["rooms"], json!({ "count": "3", "capacity": "3" }));
    assert_eq!(third["code"], "ResourceExhausted");
}

/// Lets the program in Go ask; its answers.
async fn matchmaker(cluster: &Cluster, allocator: &Allocator, requests: &[&Value]) -> Vec<Value> {
    let folder = identity(cluster);
    let descriptors = folder.join("allocation.descriptors");
    let compiled = protox::compile(["allocation.proto"], [source_folder().join("api/proto")]);
    fs::write(&descriptors, compiled.expect("descriptors").encode_to_vec()).expect("a file");
    let source = source_folder().join("tests/clients/go-allocation");
    let program = tokio::task::spawn_blocking(move || go::program(&source)).await.expect("a build");
    let mut arguments = vec![descriptors.to_string_lossy().into_owned()];
    arguments.push(format!("127.0.0.1:{}", allocator.port));
    arguments.extend([HOST.to_owned(), folder.to_string_lossy().into_owned()]);
    arguments.extend(requests.iter().map(|request| request.to_string()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = run(&program.expect("a matchmaker"), &arguments).await;
    assert!(answer.status.success(), "{answer:?}");
    text(&answer.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}
