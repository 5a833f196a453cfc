//! Simulated nodes: a kubelet's answers, real sandboxes, and nothing left.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and its helpers are no tests to clippy"
)]

use std::time::Duration;

use berth_dev::{Cluster, ClusterOptions, NodeKind, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);

async fn one_node(flags: &[&str]) -> Cluster {
    let kubelet_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let options =
        ClusterOptions { nodes: 1, kind: NodeKind::Simulated, kubelet_flags, ..ClusterOptions::default() };
    Cluster::start(options).await.unwrap()
}

fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client(), "default")
}

/// A pod put on the node by name; `fields` go into its container, and `more` into its spec.
async fn create(cluster: &Cluster, name: &str, fields: &Value, more: &Value) {
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": { "nodeName": cluster.node(0).name(), "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
                  "containers": [{ "name": "main", "image": "none" }] },
    });
    for (field, value) in fields.as_object().unwrap() {
        pod["spec"]["containers"][0][field] = value.clone();
    }
    for (field, value) in more.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    // A namespace gets its service account a moment after its birth.
    let made = eventually(LIMIT, format!("{name} to be taken"), async || {
        let pod = serde_json::from_value(pod.clone()).unwrap();
        pods(cluster).create(&PostParams::default(), &pod).await.map(drop)
    });
    made.await.unwrap();
}

async fn until(cluster: &Cluster, name: &str, phase: &str) -> Pod {
    let seen = eventually(LIMIT, format!("{name} to be {phase}"), async || {
        let pod = pods(cluster).get(name).await.map_err(|error| error.to_string())?;
        let status = pod.status.clone().unwrap_or_default();
        if status.phase.as_deref() == Some(phase) { Ok(pod) } else { Err(format!("{status:?}")) }
    });
    seen.await.unwrap()
}

async fn until_gone(cluster: &Cluster, name: &str) {
    let gone =
        eventually(LIMIT, format!("{name} to be gone"), async || match pods(cluster).get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(pod)) => Err(format!("{:?}", pod.status)),
            Err(error) => Err(error.to_string()),
        });
    gone.await.unwrap();
}

fn reason(pod: &Pod) -> String {
    pod.status.clone().and_then(|status| status.reason).unwrap_or_default()
}

#[tokio::test]
async fn pods_run_in_sandboxes_of_their_own_and_end_as_they_are_told() {
    let cluster = one_node(&[]).await;
    for name in ["first", "second"] {
        create(&cluster, name, &json!({}), &json!({})).await;
    }
    let mut addresses = Vec::new();
    for name in ["first", "second"] {
        let pod = until(&cluster, name, "Running").await;
        addresses.push(pod.status.unwrap().pod_ip.unwrap());
        let uid = pod.metadata.uid.unwrap();
        let group = format!("/sys/fs/cgroup/pids{}/kubepods/besteffort/pod{uid}", cluster.node(0).cgroup());
        let unified = group.replace("/cgroup/pids", "/cgroup");
        assert!([group, unified].iter().any(|path| std::path::Path::new(path).is_dir()), "{uid} has a group");
    }
    assert_ne!(addresses[0], addresses[1]);

    pods(&cluster).delete("first", &DeleteParams::default()).await.unwrap();
    until_gone(&cluster, "first").await;
    let order = json!({ "metadata": { "annotations": { "simulated.kubelet/order": "exit 3" } } });
    pods(&cluster).patch("second", &PatchParams::default(), &Patch::Merge(order)).await.unwrap();
    let ended = until(&cluster, "second", "Failed").await.status.unwrap();
    let state = ended.container_statuses.unwrap().remove(0).state.unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 3);

    create(&cluster, "wrong", &json!({ "args": ["--reddy"] }), &json!({})).await;
    until(&cluster, "wrong", "Failed").await;
    create(&cluster, "short", &json!({ "args": ["--exit-after=1ms"] }), &json!({})).await;
    until(&cluster, "short", "Succeeded").await;
}

#[tokio::test]
async fn a_pod_is_refused_in_every_way_that_kubelet_knows() {
    let cluster =
        one_node(&["--capacity=cpu=2", "--capacity=memory=1Gi", "--capacity=pods=3", "--label=zone=a"]).await;
    let asking = |resource: &str, amount: &str| json!({ "resources": { "requests": { resource: amount } } });
    let port = json!({ "ports": [{ "containerPort": 7000, "hostPort": 7000, "protocol": "UDP" }] });
    create(&cluster, "holder", &port, &json!({})).await;
    until(&cluster, "holder", "Running").await;

    let nothing = json!({});
    let refused = [
        ("cpu", asking("cpu", "2001m"), nothing.clone(), "OutOfcpu"),
        ("memory", asking("memory", "2Gi"), nothing.clone(), "OutOfmemory"),
        ("port", port.clone(), nothing.clone(), "NodePorts"),
        ("zone", nothing.clone(), json!({ "nodeSelector": { "zone": "b" } }), "NodeAffinity"),
    ];
    for (name, fields, more, expected) in &refused {
        create(&cluster, name, fields, more).await;
        assert_eq!(reason(&until(&cluster, name, "Failed").await), *expected);
    }
    std::fs::write(cluster.node(0).machine_path("/run/kubelet-refuses"), "UnexpectedAdmissionError\n")
        .unwrap();
    create(&cluster, "device", &nothing, &nothing).await;
    assert_eq!(reason(&until(&cluster, "device", "Failed").await), "UnexpectedAdmissionError");

    for name in ["more", "last"] {
        create(&cluster, name, &nothing, &nothing).await;
        until(&cluster, name, "Running").await;
    }
    create(&cluster, "full", &nothing, &nothing).await;
    assert_eq!(reason(&until(&cluster, "full", "Failed").await), "OutOfpods");

    // What has ended holds nothing.
    pods(&cluster).delete("holder", &DeleteParams::default()).await.unwrap();
    until_gone(&cluster, "holder").await;
    create(&cluster, "next", &port, &nothing).await;
    until(&cluster, "next", "Running").await;
}

#[tokio::test]
async fn a_pod_that_a_scheduler_places_runs_too() {
    let cluster = one_node(&[]).await;
    create(&cluster, "placed", &json!({}), &json!({ "nodeName": null })).await;
    let pod = until(&cluster, "placed", "Running").await;
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some(cluster.node(0).name()));
}
