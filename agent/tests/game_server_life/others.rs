//! What others than the agent have made.

use berth_api::game_server::GameServer;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// Makes the pod of a server as another program does, or an agent that died right after it.
pub(crate) async fn make_pod(pods: &Api<Pod>, server: &GameServer, node: &str, spec: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": server.name_any(),
            "labels": { "agones.dev/role": "gameserver" },
            "annotations": { "agones.dev/container": "main" },
            "ownerReferences": [{
                "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": server.name_any(),
                "uid": server.uid(), "controller": true, "blockOwnerDeletion": true
            }]
        },
        "spec": spec
    });
    pod["spec"]["nodeName"] = json!(node);
    let pod = serde_json::from_value(pod).expect("a pod");
    pods.create(&PostParams::default(), &pod).await.expect("made")
}

/// One container, that Kubernetes does not start again.
pub(crate) fn bare() -> Value {
    json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": "game:1" }] })
}

/// The same with a host port.
pub(crate) fn bare_on(host_port: u16) -> Value {
    let mut spec = bare();
    spec["containers"][0]["ports"] =
        json!([{ "containerPort": 7654, "hostPort": host_port, "protocol": "UDP" }]);
    spec
}
