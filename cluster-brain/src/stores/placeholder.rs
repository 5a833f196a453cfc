//! The pod that holds room for a server that waits, in small form. Pure.

use std::sync::Arc;

use berth_api::names;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use super::shelf::{Change, Kept};
use super::world::World;
use super::{Key, Wake};

/// What decisions need of a placeholder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placeholder {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// The server that it is for.
    pub(crate) server: Key,
    pub(crate) server_uid: String,
    /// Where the scheduler has put it.
    pub(crate) node: Option<String>,
    /// It is being deleted.
    pub(crate) is_ending: bool,
    /// It has ended, or kubelet would not take it.
    pub(crate) is_over: bool,
    /// What the scheduler says of it, while it finds no node.
    pub(crate) said: Option<String>,
}

impl Kept for Placeholder {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Placeholder {
    /// The small form; `None` for a pod that is none of ours.
    pub(crate) fn read(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let server_uid = metadata.labels.as_ref()?.get(names::PLACEHOLDER_LABEL)?.clone();
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.uid == server_uid)?;
        let status = pod.status.clone().unwrap_or_default();
        let is_refused = |one: &&PodCondition| one.type_ == "PodScheduled" && one.status == "False";
        let refused = status.conditions.iter().flatten().find(is_refused);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty());
        Some(Self {
            key: Key::of(metadata),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            server: Key::new(metadata.namespace.clone().unwrap_or_default(), &owner.name),
            server_uid,
            said: refused.filter(|_| node.is_none()).and_then(|refused| refused.message.clone()),
            node,
            is_ending: metadata.deletion_timestamp.is_some(),
            is_over: matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")),
        })
    }

    /// What a decision looks at.
    fn news(&self) -> (Option<&str>, bool, bool, Option<&str>) {
        (self.node.as_deref(), self.is_ending, self.is_over, self.said.as_deref())
    }
}

impl World {
    /// A placeholder came, changed or went: its server is looked at.
    pub(crate) fn note_placeholder(&mut self, change: Option<Change<Placeholder>>) {
        let Some(Change { before, after }) = change else { return };
        if let Some(before) = &before
            && let Some(keys) = self.by_waiting.get_mut(&before.server)
        {
            keys.remove(&before.key);
            if keys.is_empty() {
                self.by_waiting.remove(&before.server);
            }
        }
        if let Some(after) = &after {
            self.by_waiting.entry(after.server.clone()).or_default().insert(after.key.clone());
        }
        let is_news = match (&before, &after) {
            (Some(before), Some(after)) => before.news() != after.news(),
            _ => true,
        };
        if let Some(one) = after.or(before).filter(|_| is_news) {
            self.wake(Wake::Server(one.server.clone()));
        }
    }

    /// The placeholders that were made for a server of this name.
    pub(crate) fn placeholders_for(&self, server: &Key) -> Vec<Arc<Placeholder>> {
        let keys = self.by_waiting.get(server).into_iter().flatten();
        keys.filter_map(|key| self.placeholders.get(key)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(version: u32, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": "a-room", "namespace": "games", "uid": "p", "resourceVersion": version.to_string(),
                "labels": {names::PLACEHOLDER_LABEL: "uid-a"},
                "ownerReferences": [{
                    "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": "a", "uid": "uid-a",
                }],
            },
        });
        for (field, value) in more.as_object().expect("an object") {
            pod[field] = value.clone();
        }
        serde_json::from_value(pod).expect("a Pod")
    }

    #[test]
    fn a_placeholder_wakes_its_server_when_it_has_news() {
        let mut world = World::default();
        let server = Key::new("games", "a");
        let refused = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"},
        ]});
        let rows = [
            ("it is there", json!({}), true),
            ("nothing new", json!({"status": {"phase": "Pending"}}), false),
            ("no node", json!({ "status": refused }), true),
            ("a node", json!({"spec": {"containers": [], "nodeName": "n1"}, "status": refused}), true),
            (
                "it ended",
                json!({"spec": {"containers": [], "nodeName": "n1"}, "status": {"phase": "Failed"}}),
                true,
            ),
        ];
        for (version, (what, more, wakes)) in (1..).zip(rows) {
            let read = Placeholder::read(&pod(version, more)).expect("a placeholder");
            let change = world.placeholders.seen(read);
            world.note_placeholder(change);
            assert_eq!(world.take_wakes().contains(&Wake::Server(server.clone())), wakes, "{what}");
        }
        let kept = world.placeholders_for(&server).remove(0);
        assert_eq!((kept.node.as_deref(), kept.is_over, kept.said.as_deref()), (Some("n1"), true, None));
        let change = world.placeholders.gone(&kept.key, Some("p"));
        world.note_placeholder(change);
        assert_eq!(world.take_wakes(), [Wake::Server(server.clone())]);
        assert!(world.placeholders_for(&server).is_empty());
    }

    #[test]
    fn a_pod_of_somebody_else_is_no_placeholder() {
        let mut other = pod(1, json!({}));
        other.metadata.owner_references = None;
        assert_eq!(Placeholder::read(&other), None);
        other.metadata.labels = None;
        assert_eq!(Placeholder::read(&other), None);
    }
}
