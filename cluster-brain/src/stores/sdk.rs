//! The pods of `berth-sdk` and the revisions of its DaemonSet, in small form. Pure.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;

use berth_api::names::REVISION_LABEL;

use super::shelf::Kept;
use super::world::World;
use super::{Key, Wake};

/// What decisions need of a pod of `berth-sdk`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SdkPod {
    pub(crate) key: Key,
    pub(crate) uid: String,
    resource_version: String,
    pub(crate) node: String,
    pub(crate) revision: String,
    pub(crate) is_ready: bool,
    pub(crate) is_ending: bool,
}

/// What decisions need of a revision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SdkRevision {
    key: Key,
    uid: String,
    resource_version: String,
    number: i64,
    name: String,
}

impl Kept for SdkPod {
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

impl Kept for SdkRevision {
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

impl SdkPod {
    /// The small form; `None` for a pod that has no node or is of no DaemonSet.
    pub(crate) fn read(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        Some(Self {
            key: Key::of(metadata),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            node: pod.spec.as_ref()?.node_name.clone()?,
            revision: metadata.labels.as_ref()?.get(REVISION_LABEL)?.clone(),
            is_ready: conditions
                .into_iter()
                .flatten()
                .any(|one| one.type_ == "Ready" && one.status == "True"),
            is_ending: metadata.deletion_timestamp.is_some(),
        })
    }
}

impl SdkRevision {
    /// The small form.
    pub(crate) fn read(revision: &ControllerRevision) -> Option<Self> {
        let metadata = &revision.metadata;
        Some(Self {
            key: Key::of(metadata),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            number: revision.revision,
            name: metadata.labels.as_ref()?.get(REVISION_LABEL)?.clone(),
        })
    }
}

impl World {
    /// The revision that pods shall be of.
    pub(crate) fn newest_sdk(&self) -> Option<String> {
        let newest = self.sdk_revisions.iter().max_by_key(|revision| revision.number)?;
        Some(newest.name.clone())
    }

    /// How many pods are of an older revision.
    pub(crate) fn sdk_due(&self) -> usize {
        let Some(newest) = self.newest_sdk() else { return 0 };
        self.sdk_pods.iter().filter(|pod| pod.revision != newest).count()
    }

    /// Nodes whose pod is of an older revision.
    pub(crate) fn nodes_due_for_sdk(&self) -> std::collections::BTreeSet<String> {
        let Some(newest) = self.newest_sdk() else { return std::collections::BTreeSet::new() };
        self.sdk_pods.iter().filter(|pod| pod.revision != newest).map(|pod| pod.node.clone()).collect()
    }

    /// Whether the node that was closed is still there and has no new pod that is ready.
    pub(crate) fn is_sdk_awaited(&self) -> bool {
        let Some(node) = self.closed_for_sdk.as_ref().filter(|node| self.cluster.nodes.contains_key(*node))
        else {
            return false;
        };
        // Without a DaemonSet none will come.
        let Some(newest) = self.newest_sdk() else { return false };
        let has_come = |pod: &SdkPod| pod.node == *node && pod.is_ready && pod.revision == newest;
        !self.sdk_pods.iter().any(|pod| has_come(pod))
    }

    /// A node takes no servers while its pod is replaced.
    pub(crate) fn close_for_sdk(&mut self, node: &str) {
        self.closed_for_sdk = Some(node.to_owned());
    }

    /// It does again.
    pub(crate) fn open_after_sdk(&mut self) {
        if self.closed_for_sdk.take().is_some() {
            self.wake(Wake::Waiting);
        }
    }
}
