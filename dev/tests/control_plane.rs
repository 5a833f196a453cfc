//! The API server alone: up in seconds, usable by anyone, breakable at will, gone with its owner.

use std::time::Duration;

use berth_dev::{ControlPlane, ControlPlaneOptions, Instance, eventually, instances};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn an_api_server_alone_stores_and_serves() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let version = cluster.client().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, berth_dev::kubernetes_version());
    let maps = Api::<ConfigMap>::namespaced(cluster.client(), "default");
    maps.create(&PostParams::default(), &config_map("one")).await.unwrap();
    assert!(maps.get("one").await.is_ok());
}

#[tokio::test]
async fn a_user_without_a_role_is_refused_and_named() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let client = cluster.client_for("berth:agent:a", &["berth:agents"]).await.unwrap();
    let refusal =
        Api::<ConfigMap>::namespaced(client, "default").list(&ListParams::default()).await.unwrap_err();
    assert!(refusal.to_string().contains("berth:agent:a"), "{refusal}");
}

#[tokio::test]
async fn a_shared_one_serves_each_test_in_a_namespace_of_its_own() {
    let cluster = ControlPlane::shared().await.unwrap();
    let (one, other) = (cluster.namespace("test").await.unwrap(), cluster.namespace("test").await.unwrap());
    assert_ne!(one, other);
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }));
    for namespace in [one, other] {
        let pods = Api::<Pod>::namespaced(cluster.client(), &namespace);
        pods.create(&PostParams::default(), pod.as_ref().unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_shared_one_outlives_the_runtime_of_the_test_that_started_it() {
    let cluster = ControlPlane::shared().await.unwrap();
    assert!(cluster.is_ready().await);
}

#[tokio::test]
async fn every_write_is_in_the_audit_log_when_asked_for() {
    let options = ControlPlaneOptions { audit: true, ..ControlPlaneOptions::default() };
    let cluster = ControlPlane::start(options).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(cluster.client(), "default");
    maps.create(&PostParams::default(), &config_map("counted")).await.unwrap();
    let log = cluster.audit_log().unwrap().to_owned();
    eventually(LIMIT, "the write in the audit log", async || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.contains("\"name\":\"counted\"") { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_was_stored_survives_the_death_of_both_daemons() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(cluster.client(), "default");
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    cluster.api_server().kill().await.unwrap();
    assert!(!cluster.is_ready().await);
    cluster.etcd().restart().await.unwrap();
    cluster.api_server().start_again().unwrap();
    cluster.wait_until_ready().await.unwrap();
    assert!(maps.get("kept").await.is_ok());
}

#[tokio::test]
async fn a_paused_api_server_answers_once_it_is_resumed() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    assert!(cluster.api_server().pause());
    let silent = tokio::time::timeout(Duration::from_millis(300), cluster.is_ready()).await;
    assert!(silent.is_err());
    assert!(cluster.api_server().resume());
    cluster.wait_until_ready().await.unwrap();
}

#[tokio::test]
async fn a_dropped_instance_leaves_no_process_and_no_file() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let (name, folder) = (cluster.instance().name().to_owned(), cluster.instance().folder().to_owned());
    let daemons = [cluster.etcd().identity(), cluster.api_server().identity()];
    assert!(instances().iter().any(|instance| instance.name == name));
    drop(cluster);
    assert!(!folder.exists());
    assert!(daemons.iter().all(|daemon| !daemon.is_alive()));
    assert!(instances().iter().all(|instance| instance.name != name));
}

#[test]
fn instances_side_by_side_share_no_number() {
    let (one, other) = (Instance::create("side").unwrap(), Instance::create("side").unwrap());
    assert_ne!(one.number(), other.number());
    assert_ne!(one.port("a").unwrap(), other.port("a").unwrap());
}
