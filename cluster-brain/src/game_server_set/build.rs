//! The servers of a set. Pure.

use berth_api::game_server::{GameServer, GameServerSpec};
use berth_api::game_server_set::GameServerSet;
use berth_api::names;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::placement::{Birth, first_status, hand_over_annotations, with_container};
use crate::stores::{Key, Server};
use crate::writes::under_version;

/// Longest name of a server: it is its pod's, and that one's host name.
const LONGEST_NAME: usize = 63;

/// What the servers of a set have in common.
#[derive(Clone, Debug)]
pub(super) struct Mould {
    namespace: String,
    base: String,
    metadata: ObjectMeta,
    spec: GameServerSpec,
}

impl Mould {
    pub(super) fn of(set: &GameServerSet) -> Self {
        let name = set.metadata.name.clone().unwrap_or_default();
        let fleet = set.metadata.labels.as_ref().and_then(|labels| labels.get(names::FLEET_LABEL));
        let mut labels = set.spec.template.labels();
        labels.insert(names::GAME_SERVER_SET_LABEL.to_owned(), name.clone());
        labels.insert(names::FLEET_LABEL.to_owned(), fleet.cloned().unwrap_or_default());
        let mut annotations = set.spec.template.annotations();
        annotations.insert(names::SDK_VERSION_ANNOTATION.to_owned(), crate::placement::VERSION.to_owned());
        let mut spec = with_container(set.spec.template.spec.clone());
        spec.scheduling = Some(set.spec.scheduling());
        let namespace = set.metadata.namespace.clone().unwrap_or_default();
        let metadata = ObjectMeta {
            namespace: Some(namespace.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            finalizers: Some(vec![names::FINALIZER.to_owned()]),
            owner_references: Some(vec![owner(set)]),
            ..ObjectMeta::default()
        };
        Self { namespace, base: name, metadata, spec }
    }

    /// The spec of each server.
    pub(super) fn spec(&self) -> &GameServerSpec {
        &self.spec
    }

    /// The servers have an address that their author gave, and no pod: they go to no node.
    pub(super) fn is_development(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(names::DEV_ADDRESS_ANNOTATION))
    }

    /// The key of a server with this random ending.
    pub(super) fn key(&self, ending: &str) -> Key {
        let room = LONGEST_NAME - 1 - ending.len();
        let base = self.base.get(..room).unwrap_or(&self.base).trim_end_matches(['-', '.']);
        Key::new(&self.namespace, format!("{base}-{ending}"))
    }

    /// One server, handed to a node where there is one.
    pub(super) fn cast(&self, key: &Key, node: Option<&Birth>) -> GameServer {
        let mut metadata = self.metadata.clone();
        metadata.name = Some(key.name.clone());
        metadata.annotations.get_or_insert_default().extend(hand_over_annotations(node));
        let status = first_status(&self.spec, node);
        GameServer { metadata, spec: self.spec.clone(), status: Some(status) }
    }
}

fn owner(set: &GameServerSet) -> OwnerReference {
    OwnerReference {
        api_version: "agones.dev/v1".to_owned(),
        kind: "GameServerSet".to_owned(),
        name: set.metadata.name.clone().unwrap_or_default(),
        uid: set.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The write that marks a server for deletion.
pub(super) fn shutdown(server: &Server) -> Value {
    under_version(json!({ "status": { "state": "Shutdown" } }), &server.resource_version)
}

/// The write that marks an allocated server as beyond the target.
pub(super) fn overflow_marks(server: &Server, set: &GameServerSet) -> Value {
    let marks = set.spec.allocation_overflow.clone().unwrap_or_default();
    let mut metadata = Map::new();
    metadata.extend(marks.labels.map(|labels| ("labels".to_owned(), json!(labels))));
    metadata.extend(marks.annotations.map(|annotations| ("annotations".to_owned(), json!(annotations))));
    under_version(json!({ "metadata": metadata }), &server.resource_version)
}

/// For Events.
pub(super) fn reference(set: &GameServerSet) -> ObjectReference {
    ObjectReference {
        api_version: Some("agones.dev/v1".to_owned()),
        kind: Some("GameServerSet".to_owned()),
        namespace: set.metadata.namespace.clone(),
        name: set.metadata.name.clone(),
        uid: set.metadata.uid.clone(),
        resource_version: set.metadata.resource_version.clone(),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    use berth_api::node_lease::HandOver;

    use super::*;

    fn set(name: &str) -> GameServerSet {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "games", "uid": "u-1",
                         "labels": {names::FLEET_LABEL: "lobby", "of-the-set": "1"}},
            "spec": {"replicas": 3, "scheduling": "Distributed", "template": {
                "metadata": {"labels": {"mode": "duel"}, "annotations": {"note": "x"}},
                "spec": {
                    "ports": [{"name": "game", "containerPort": 7000}],
                    "counters": {"rooms": {"count": 1}},
                    "template": {"spec": {"containers": [{"name": "game", "image": "i"}], "newField": true}},
                },
            }},
        }))
        .expect("a set")
    }

    #[test]
    fn one_write_makes_a_server_and_hands_it_over() {
        let birth = Birth { node: "n1".to_owned(), hand_over: HandOver::new("n1", "node-uid", "boot") };
        let mould = Mould::of(&set("lobby-abcde"));
        let server = json!(mould.cast(&mould.key("fghij"), Some(&birth)));
        let metadata = &server["metadata"];
        assert_eq!(metadata["name"], "lobby-abcde-fghij");
        assert_eq!(metadata["namespace"], "games");
        assert_eq!(
            metadata["labels"],
            json!({"mode": "duel", names::GAME_SERVER_SET_LABEL: "lobby-abcde", names::FLEET_LABEL: "lobby"})
        );
        assert_eq!(metadata["annotations"]["note"], "x");
        assert_eq!(metadata["annotations"][names::LEASE_ANNOTATION], birth.hand_over.to_annotation());
        assert_eq!(metadata["finalizers"], json!([names::FINALIZER]));
        let owner = &metadata["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("GameServerSet"), &json!("u-1")));
        assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));
        assert_eq!(server["spec"]["scheduling"], "Distributed");
        assert_eq!(server["spec"]["container"], "game");
        assert_eq!(server["spec"]["template"]["spec"]["newField"], true, "carried as it is");
        assert_eq!(server["status"]["state"], "Creating");
        assert_eq!(server["status"]["nodeName"], "n1");
        assert_eq!(server["status"]["eviction"]["safe"], "Never");
        assert_eq!(server["status"]["counters"]["rooms"], json!({"count": 1, "capacity": 1000}));
    }

    #[test]
    fn a_lone_set_has_no_fleet_and_long_names_are_cut() {
        let mut lone = set(&"x".repeat(63));
        lone.metadata.labels = None;
        let mould = Mould::of(&lone);
        let server = mould.cast(&mould.key("abcde"), None);
        assert_eq!(server.metadata.name.as_ref().map(String::len), Some(63));
        let labels = server.metadata.labels.expect("labels");
        assert_eq!(labels[names::FLEET_LABEL], "");
        let annotations = server.metadata.annotations.expect("annotations");
        assert!(!annotations.contains_key(names::LEASE_ANNOTATION));
        assert_eq!(server.status.expect("a status").node_name, "");
    }
}
