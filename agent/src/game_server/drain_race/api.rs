//! The objects of one node as an API server keeps them: versions, preconditions, finalizers, graceful deletion.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::game_server::GameServer;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Why a call was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Somebody wrote in between.
    Conflict,
    /// It is not there.
    NotFound,
}

pub(super) struct Api {
    version: u64,
    pub(super) servers: BTreeMap<String, Arc<GameServer>>,
    pub(super) pods: BTreeMap<String, Arc<Pod>>,
    pub(super) node: Node,
}

impl Api {
    pub(super) fn new(node: Node) -> Self {
        let mut api =
            Self { version: 0, servers: BTreeMap::new(), pods: BTreeMap::new(), node: Node::default() };
        api.node = Node { metadata: api.stamped(node.metadata), ..node };
        api
    }

    pub(super) fn add(&mut self, name: &str, mut server: GameServer, mut pod: Pod) {
        server.metadata = self.stamped(server.metadata);
        pod.metadata = self.stamped(pod.metadata);
        self.servers.insert(name.to_owned(), Arc::new(server));
        self.pods.insert(name.to_owned(), Arc::new(pod));
    }

    pub(super) fn patch_server(&mut self, name: &str, body: &Value) -> Result<Arc<GameServer>, Refused> {
        let known = self.servers.get(name).ok_or(Refused::NotFound)?;
        assert!(body.get("spec").is_none(), "no write of this world: {body}");
        let mut server = GameServer::clone(known);
        merge_metadata(&mut server.metadata, &body["metadata"])?;
        server.status = merged(&server.status, &body["status"]);
        server.metadata.generation = Some(known.metadata.generation.unwrap_or_default() + 1);
        server.metadata = self.stamped(server.metadata);
        let is_gone = server.metadata.deletion_timestamp.is_some()
            && server.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        let server = Arc::new(server);
        if is_gone {
            self.servers.remove(name);
        } else {
            self.servers.insert(name.to_owned(), Arc::clone(&server));
        }
        Ok(server)
    }

    /// Every server has a finalizer, so it stays.
    pub(super) fn delete_server(
        &mut self,
        name: &str,
        version: Option<&str>,
        now: Timestamp,
    ) -> Result<Arc<GameServer>, Refused> {
        let known = self.servers.get(name).cloned().ok_or(Refused::NotFound)?;
        if version.is_some() && version != known.metadata.resource_version.as_deref() {
            return Err(Refused::Conflict);
        }
        if known.metadata.deletion_timestamp.is_some() {
            return Ok(known);
        }
        let mut server = GameServer::clone(&known);
        server.metadata.deletion_timestamp = Some(Time(now));
        server.metadata = self.stamped(server.metadata);
        let server = Arc::new(server);
        self.servers.insert(name.to_owned(), Arc::clone(&server));
        Ok(server)
    }

    /// A JSON patch of the three operations by which a toleration is added.
    pub(super) fn patch_pod(&mut self, name: &str, operations: &Value) -> Result<Arc<Pod>, Refused> {
        let mut pod = Pod::clone(self.pods.get(name).ok_or(Refused::NotFound)?);
        let text = |name: &Option<String>| json!(name);
        for operation in operations.as_array().into_iter().flatten() {
            let value = &operation["value"];
            let word = |name: &str| operation[name].as_str().unwrap_or_default().to_owned();
            match (word("op").as_str(), word("path").as_str()) {
                ("test", "/metadata/uid") if text(&pod.metadata.uid) == *value => {}
                ("replace", "/metadata/resourceVersion")
                    if text(&pod.metadata.resource_version) == *value => {}
                ("test", "/metadata/uid") | ("replace", "/metadata/resourceVersion") => {
                    return Err(Refused::Conflict);
                }
                ("add", "/spec/tolerations") => {
                    let list = serde_json::from_value(value.clone()).expect("a list");
                    pod.spec.as_mut().expect("a spec").tolerations = Some(list);
                }
                ("add", "/spec/tolerations/-") => {
                    let one = serde_json::from_value(value.clone()).expect("a toleration");
                    pod.spec.as_mut().expect("a spec").tolerations.as_mut().expect("a list").push(one);
                }
                other => panic!("no operation of this world: {other:?}"),
            }
        }
        Ok(self.put_pod(name, pod))
    }

    /// Kubelet writes the pod's status.
    pub(super) fn touch_pod(&mut self, name: &str) -> bool {
        let known = self.pods.get(name).cloned();
        known.map(|pod| self.put_pod(name, Pod::clone(&pod))).is_some()
    }

    pub(super) fn delete_pod(
        &mut self,
        name: &str,
        uid: Option<&str>,
        now: Timestamp,
    ) -> Result<Arc<Pod>, Refused> {
        let known = self.pods.get(name).cloned().ok_or(Refused::NotFound)?;
        if uid.is_some() && uid != known.metadata.uid.as_deref() {
            return Err(Refused::Conflict);
        }
        if known.metadata.deletion_timestamp.is_some() {
            return Ok(known);
        }
        let mut pod = Pod::clone(&known);
        pod.metadata.deletion_timestamp = Some(Time(now + SignedDuration::from_secs(30)));
        pod.metadata.deletion_grace_period_seconds = Some(30);
        Ok(self.put_pod(name, pod))
    }

    pub(super) fn patch_node(&mut self, body: &Value) -> Result<Node, Refused> {
        let mut node = self.node.clone();
        merge_metadata(&mut node.metadata, &body["metadata"])?;
        node.spec = merged(&node.spec, &body["spec"]);
        self.node = Node { metadata: self.stamped(node.metadata), ..node };
        Ok(self.node.clone())
    }

    /// Kubelet writes the Node's status.
    pub(super) fn touch_node(&mut self) {
        let metadata = std::mem::take(&mut self.node.metadata);
        self.node.metadata = self.stamped(metadata);
    }

    fn put_pod(&mut self, name: &str, mut pod: Pod) -> Arc<Pod> {
        pod.metadata = self.stamped(pod.metadata);
        let pod = Arc::new(pod);
        self.pods.insert(name.to_owned(), Arc::clone(&pod));
        pod
    }

    fn stamped(&mut self, metadata: ObjectMeta) -> ObjectMeta {
        self.version += 1;
        ObjectMeta { resource_version: Some(self.version.to_string()), ..metadata }
    }
}

/// What is patched of the metadata, under the version that the patch names.
fn merge_metadata(metadata: &mut ObjectMeta, patch: &Value) -> Result<(), Refused> {
    let version = patch["resourceVersion"].as_str();
    if version.is_some() && version != metadata.resource_version.as_deref() {
        return Err(Refused::Conflict);
    }
    for (known, patch) in
        [(&mut metadata.annotations, &patch["annotations"]), (&mut metadata.labels, &patch["labels"])]
    {
        for (name, value) in patch.as_object().into_iter().flatten() {
            let known = known.get_or_insert_default();
            match value.as_str() {
                Some(text) => drop(known.insert(name.clone(), text.to_owned())),
                None => drop(known.remove(name)),
            }
        }
    }
    if !patch["finalizers"].is_null() {
        metadata.finalizers = serde_json::from_value(patch["finalizers"].clone()).expect("a list");
    }
    Ok(())
}

/// A part of an object after a merge patch of it.
fn merged<T: Clone + Serialize + DeserializeOwned>(part: &T, patch: &Value) -> T {
    if patch.is_null() {
        return part.clone();
    }
    let mut whole = json!(part);
    merge(&mut whole, patch);
    serde_json::from_value(whole).expect("a part of an object")
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().expect("an object").remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}
