//! The objects that a round begins with.

use berth_api::game_server::{GameServer, GameServerSpec, GameServerStatus, NodeAddress};
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::HandOver;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::Make;
use crate::identity::Identity;

const ADDRESS: &str = "10.0.0.1";
const NODE: &str = "n";

pub(super) fn identity() -> Identity {
    Identity {
        node: NODE.into(),
        node_uid: "node-uid".into(),
        boot_id: "boot".into(),
        process_id: "p".into(),
    }
}

pub(super) fn node() -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": NODE, "uid": "node-uid" },
        "spec": {},
        "status": { "addresses": [{ "type": "InternalIP", "address": ADDRESS }] }
    }))
    .expect("a Node")
}

pub(super) fn server(name: &str, state: State, reserved_until: Option<Timestamp>) -> GameServer {
    let mut server = GameServer::new(name, GameServerSpec::default());
    server.metadata.namespace = Some("games".into());
    server.metadata.uid = Some(format!("{name}-uid"));
    server.metadata.generation = Some(1);
    server.metadata.finalizers = Some(vec![names::FINALIZER.into()]);
    let handed = HandOver::new(NODE, "node-uid", "boot").to_annotation();
    server.metadata.annotations = Some(
        [
            (names::LEASE_ANNOTATION.to_owned(), handed),
            (names::POD_UID_ANNOTATION.to_owned(), format!("{name}-pod")),
        ]
        .into(),
    );
    if state == State::Allocated {
        // A session that nobody dated would be taken for one that its game does not know.
        let annotations = server.metadata.annotations.get_or_insert_default();
        annotations.insert(names::LAST_ALLOCATED_ANNOTATION.to_owned(), "before".to_owned());
    }
    server.status = Some(GameServerStatus {
        state: Some(state),
        address: ADDRESS.into(),
        addresses: Some(vec![NodeAddress { kind: "InternalIP".into(), address: ADDRESS.into() }]),
        node_name: NODE.into(),
        reserved_until: reserved_until.map(|until| until.to_string()),
        ..GameServerStatus::default()
    });
    server
}

pub(super) fn pod(name: &str, make: Make) -> Pod {
    let tolerations = match make {
        Make::Berth => json!([{ "key": names::DRAINING_TAINT, "operator": "Exists" }]),
        Make::Bare => Value::Null,
        Make::Agones => json!([{
            "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300
        }]),
    };
    let mut containers = vec![json!({ "name": "main" })];
    if make == Make::Agones {
        containers.push(json!({ "name": "agones-gameserver-sidecar" }));
    }
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "games", "uid": format!("{name}-pod"),
            "labels": { names::ROLE_LABEL: names::ROLE_GAME_SERVER },
            "annotations": { names::CONTAINER_ANNOTATION: "main" },
            "ownerReferences": [{
                "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": name, "uid": format!("{name}-uid"),
                "controller": true
            }]
        },
        "spec": {
            "nodeName": NODE, "restartPolicy": "Never", "tolerations": tolerations, "containers": containers
        },
        "status": { "phase": "Running", "podIPs": [{ "ip": "10.1.0.5" }] }
    }))
    .expect("a pod")
}
