//! Certificates as `berth-allocator certs` makes them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use berth_api::allocation::proto::AllocationRequest;
use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::lifecycle::State;
use serde_json::json;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::cluster::Cluster;

fn certs(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_berth-allocator"));
    program.arg("certs").args(arguments).output().expect("runs")
}

fn read(folder: &Path, path: &str) -> String {
    fs::read_to_string(folder.join(path)).expect("a file")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_get_in_with_certificates_that_were_made_for_them() {
    let cluster = Cluster::start("certs").await;
    cluster.create("gs1", State::Ready, json!({})).await;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("made");
    let made = certs(&["--folder", &folder.to_string_lossy(), "--san", "allocator.example.com"]);
    assert!(made.status.success(), "{made:?}");
    let allocator = cluster.allocator_with(&folder, "allocator", &[]).await;
    for name in ["allocator.example.com", "berth-allocator.berth-system.svc"] {
        let tls = ClientTlsConfig::new()
            .domain_name(name)
            .ca_certificate(Certificate::from_pem(read(&folder, "tls-ca/tls-ca.crt")))
            .identity(Identity::from_pem(read(&folder, "client/tls.crt"), read(&folder, "client/tls.key")));
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", allocator.port)).expect("a URL");
        let channel =
            endpoint.tls_config(tls).expect("a configuration").connect().await.expect("a connection");
        let request =
            AllocationRequest { namespace: cluster.namespace.clone(), ..AllocationRequest::default() };
        let answer = AllocationServiceClient::new(channel).allocate(request).await;
        match answer {
            Ok(answer) => assert_eq!(answer.into_inner().game_server_name, "gs1"),
            Err(status) => assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}"),
        }
    }
}

#[test]
fn what_cannot_be_made_is_told_by_name() {
    for (arguments, code, says) in [
        (["--days", "0"], 64, "--days"),
        (["--san", "not\u{e9}.example"], 1, "names must be DNS names or IP addresses"),
        (["--folder", "/proc/nowhere"], 1, "/proc/nowhere/tls/tls.crt"),
    ] {
        let refused = certs(&arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(said.contains(says), "{said}");
    }
    let printed = certs(&["--client-namespace", "games"]);
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8_lossy(&printed.stdout);
    assert_eq!(text.matches("\nkind: Secret\n").count(), 5, "{text}");
    assert!(text.contains("name: allocator-client.default") && text.contains("caBundle: "), "{text}");
}
