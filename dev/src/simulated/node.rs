//! The Node object of a simulated node, and its heart.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Settings;

/// Where the leases of nodes are, and how long they last.
const LEASES: (&str, i32) = ("kube-node-lease", 40);
/// How often kubelet renews one.
const BEAT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Registers the node and keeps it alive; does not return.
pub(super) async fn keep(client: Client, settings: &Settings) -> std::convert::Infallible {
    let uid = loop {
        match timeout(CALL_LIMIT, register(&client, settings)).await {
            Ok(Ok(uid)) => break uid,
            Ok(Err(error)) => warn!(%error, "could not register the node"),
            Err(_) => warn!("registering the node took too long"),
        }
        sleep(AGAIN).await;
    };
    info!(node = settings.node_name, "registered");
    let leases: Api<Lease> = Api::namespaced(client, LEASES.0);
    loop {
        match timeout(CALL_LIMIT, beat(&leases, settings, &uid)).await {
            Ok(Ok(())) => sleep(BEAT).await,
            Ok(Err(error)) => {
                warn!(%error, "could not renew the node's lease");
                sleep(AGAIN).await;
            }
            Err(_) => warn!("renewing the node's lease took too long"),
        }
    }
}

async fn register(client: &Client, settings: &Settings) -> kube::Result<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let name = &settings.node_name;
    let mut labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": std::env::consts::ARCH,
    });
    for (label, value) in &settings.labels {
        labels[label] = json!(value);
    }
    let object = json!({ "metadata": { "name": name, "labels": labels } });
    let node: Node = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let node = match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => nodes.get(name).await?,
        other => other?,
    };
    let status = Patch::Merge(json!({ "status": status(settings) }));
    nodes.patch_status(name, &PatchParams::default(), &status).await?;
    Ok(node.metadata.uid.unwrap_or_default())
}

fn status(settings: &Settings) -> Value {
    let now = Timestamp::now().to_string();
    let capacity = settings.capacity();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({ "type": kind, "status": status, "reason": reason, "message": reason,
                "lastHeartbeatTime": now, "lastTransitionTime": now })
    };
    json!({
        "addresses": [
            { "type": "InternalIP", "address": settings.node_address },
            { "type": "Hostname", "address": settings.node_name },
        ],
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "nodeInfo": {
            "kubeletVersion": "v0.0.0-simulated", "kubeProxyVersion": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "simulated://0", "architecture": std::env::consts::ARCH,
            "operatingSystem": "linux", "bootID": "", "machineID": "", "systemUUID": "",
        },
    })
}

async fn beat(leases: &Api<Lease>, settings: &Settings, node_uid: &str) -> kube::Result<()> {
    let name = &settings.node_name;
    let renewed = format!("{:.6}", Timestamp::now());
    let spec = json!({ "holderIdentity": name, "leaseDurationSeconds": LEASES.1, "renewTime": renewed });
    let patch = Patch::Merge(json!({ "spec": spec }));
    match leases.patch(name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid });
            let object = json!({ "metadata": { "name": name, "ownerReferences": [owner] }, "spec": spec });
            let lease = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
            leases.create(&PostParams::default(), &lease).await.map(drop)
        }
        other => other.map(drop),
    }
}
