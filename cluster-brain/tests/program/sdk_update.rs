//! The update of `berth-sdk`, whose pods are replaced on nodes without servers.

use berth_api::lifecycle::State;
use berth_api::names::{REVISION_LABEL, SYSTEM_NAMESPACE};
use berth_dev::eventually;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT};

fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client.clone(), SYSTEM_NAMESPACE)
}

/// A pod as the DaemonSet's controller would make it.
async fn make_pod(cluster: &Cluster, node: &str, revision: &str) {
    let name = format!("sdk-{revision}-{node}");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "berth-sdk", REVISION_LABEL: revision}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{"name": "sdk", "image": "sdk"}],
        },
    }))
    .expect("a pod");
    pods(cluster).create(&PostParams::default(), &pod).await.expect("a created pod");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    pods(cluster)
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(ready))
        .await
        .expect("a ready pod");
}

async fn make_revision(cluster: &Cluster, number: i64, revision: &str) {
    let revisions = Api::<ControllerRevision>::namespaced(cluster.client.clone(), SYSTEM_NAMESPACE);
    let revision: ControllerRevision = serde_json::from_value(json!({
        "metadata": {
            "name": format!("berth-sdk-{revision}"),
            "labels": {"app.kubernetes.io/name": "berth-sdk", REVISION_LABEL: revision},
        },
        "revision": number,
        "data": {},
    }))
    .expect("a revision");
    revisions.create(&PostParams::default(), &revision).await.expect("a created revision");
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let all = pods(cluster).list(&Default::default()).await.expect("the pods").items;
    all.iter().map(ResourceExt::name_any).collect()
}

async fn wait_for_pods(cluster: &Cluster, wanted: &[&str]) {
    eventually(LIMIT, format!("pods {wanted:?}"), async || {
        let seen = names(cluster).await;
        if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
    .expect("the pods as asked");
}

#[tokio::test]
async fn an_older_sdk_goes_when_its_node_is_empty_and_new_servers_keep_away_from_it() {
    let cluster = Cluster::start().await;
    let _first = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    make_revision(&cluster, 1, "a").await;
    make_pod(&cluster, "n1", "a").await;
    cluster.create_fleet("lobby", 2, json!({})).await;
    cluster.wait_for_ready("lobby", 2).await;
    let _second = cluster.agent("n2", Manner::default()).await;
    make_pod(&cluster, "n2", "a").await;
    make_revision(&cluster, 2, "b").await;
    wait_for_pods(&cluster, &["sdk-a-n1"]).await;
    // The DaemonSet makes another; until that is ready nothing goes on, and then servers go there.
    make_pod(&cluster, "n2", "b").await;
    let there = json!({"template": {"spec": {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}},
        "containers": [{"name": "game", "image": "game:one"}],
    }}});
    cluster.create_server("probe", json!({}), there).await;
    cluster.wait_for_server("probe", "Ready", |server| server.state() == Some(State::Ready)).await;
    cluster.change_fleet("lobby", json!({ "replicas": 5 })).await;
    eventually(LIMIT, "five servers of the Fleet", async || {
        let status = cluster.fleets().get("lobby").await.map_err(|error| error.to_string())?.status;
        let ready = status.map(|status| status.ready_replicas);
        if ready == Some(5) { Ok(()) } else { Err(format!("{ready:?} Ready")) }
    })
    .await
    .expect("a larger Fleet");
    let servers = cluster.all_servers().await;
    let on_old = servers.iter().filter(|server| server.node_name() == Some("n1")).count();
    assert_eq!(on_old, 2, "no more on a node that shall become empty");
    wait_for_pods(&cluster, &["sdk-a-n1", "sdk-b-n2"]).await;
    cluster.change_fleet("lobby", json!({ "replicas": 0 })).await;
    wait_for_pods(&cluster, &["sdk-b-n2"]).await;
}
