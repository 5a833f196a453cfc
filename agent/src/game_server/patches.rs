//! The writes to a GameServer, as merge patches under the version that was seen. Pure.

use berth_api::conditions::{ConditionKind, Trouble, told, whole_seconds};
use berth_api::game_server::{GameServer, NodeAddress, PortSpec};
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::{FORMAT_VERSION, Returned};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::Reason;
use super::addresses::Shown;
use super::observe::{DrainWord, is_our_finalizer, times_returned};
use super::pod::status_ports;
use crate::node::NodeFacts;
use crate::ports::ledger::without_host_ports;

mod grant;

pub(super) use grant::{Verdict, grant, judge};

/// A patch in the making.
struct Patch {
    annotations: Map<String, Value>,
    labels: Map<String, Value>,
    metadata: Map<String, Value>,
    spec: Map<String, Value>,
    status: Map<String, Value>,
}

impl Patch {
    fn under(server: &GameServer) -> Self {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), json!(server.metadata.resource_version));
        Self { annotations: Map::new(), labels: Map::new(), metadata, spec: Map::new(), status: Map::new() }
    }

    fn annotate(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.annotations.insert(name.into(), value.into());
    }

    fn status(&mut self, field: &str, value: Value) {
        self.status.insert(field.to_owned(), value);
    }

    fn finish(mut self) -> Value {
        let mut body = Map::new();
        for (name, part) in [("annotations", self.annotations), ("labels", self.labels)] {
            if !part.is_empty() {
                self.metadata.insert(name.to_owned(), Value::Object(part));
            }
        }
        for (name, part) in [("metadata", self.metadata), ("spec", self.spec), ("status", self.status)] {
            if !part.is_empty() {
                body.insert(name.to_owned(), Value::Object(part));
            }
        }
        Value::Object(body)
    }
}

/// The place of a server: what Scheduled shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// The server.
    pub(super) server: &'a GameServer,
    /// Our node.
    pub(super) name: &'a str,
    /// What is known of it.
    pub(super) node: &'a NodeFacts,
    /// The server's ports.
    pub(super) ports: &'a [PortSpec],
    /// Addresses of the pod, where they are known.
    pub(super) pod_addresses: &'a [String],
}

impl Place<'_> {
    fn shown(&self) -> Shown {
        Shown::new(self.server, self.node, self.pod_addresses)
    }

    fn addresses(&self) -> Vec<NodeAddress> {
        self.shown().all
    }

    fn write(&self, patch: &mut Patch) {
        if self.server.spec.ports() != self.ports {
            patch.spec.insert("ports".to_owned(), json!(self.ports));
        }
        let shown = self.shown();
        patch.status("ports", json!(status_ports(self.ports)));
        patch.status("address", json!(shown.address));
        patch.status("addresses", json!(shown.all));
        patch.status("nodeName", json!(self.name));
    }
}

/// Scheduled, with the pod recorded.
pub(super) fn schedule(server: &GameServer, place: Place<'_>, pod_uid: &str) -> Value {
    let mut patch = Patch::under(server);
    patch.annotate(names::POD_UID_ANNOTATION, pod_uid);
    patch.status("state", json!(State::Scheduled));
    place.write(&mut patch);
    patch.finish()
}

/// The whole place and the last state, after somebody wiped them.
pub(super) fn restore(server: &GameServer, place: Place<'_>, state: State, pod_uid: &str) -> Value {
    let mut patch = Patch::under(server);
    patch.annotate(names::POD_UID_ANNOTATION, pod_uid);
    patch.status("state", json!(state));
    place.write(&mut patch);
    patch.finish()
}

/// The addresses that players reach the server by now.
pub(super) fn readdress(place: Place<'_>) -> Value {
    let mut patch = Patch::under(place.server);
    let shown = place.shown();
    patch.status("address", json!(shown.address));
    patch.status("addresses", json!(shown.all));
    patch.finish()
}

/// Why the server does not go on, or that it does again.
pub(super) fn tell(server: &GameServer, trouble: Option<&Trouble>, now: Timestamp) -> Value {
    let mut patch = Patch::under(server);
    let known = server.status.as_ref().and_then(|status| status.conditions.as_deref());
    patch.status("conditions", json!(told(known, ConditionKind::Progressing, trouble, now)));
    patch.finish()
}

/// What the pod adds to a server that becomes Ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtReady<'a> {
    /// The node's addresses and the pod's.
    pub(super) place: Place<'a>,
    /// The game's container, where its pod may restart it.
    pub(super) container: Option<&'a str>,
}

fn make_ready_in(patch: &mut Patch, at: AtReady<'_>) {
    patch.status("state", json!(State::Ready));
    patch.status("reservedUntil", Value::Null);
    patch.status("addresses", json!(at.place.addresses()));
    if let Some(container) = at.container {
        patch.annotate(names::READY_CONTAINER_ANNOTATION, container);
    }
}

/// Ready, without the game's having asked through the link.
pub(super) fn make_ready(server: &GameServer, at: AtReady<'_>) -> Value {
    let mut patch = Patch::under(server);
    make_ready_in(&mut patch, at);
    patch.finish()
}

/// A state that ends the server.
pub(super) fn end(server: &GameServer, to: State, reason: &Reason, now: Timestamp) -> Value {
    let mut patch = Patch::under(server);
    patch.status("state", json!(to));
    patch.annotate(names::REASON_ANNOTATION, reason_text(reason));
    if to == State::Error {
        let seconds = whole_seconds(now);
        patch.annotate(names::ERRORED_AT_ANNOTATION, seconds.to_string());
    }
    patch.finish()
}

fn reason_text(reason: &Reason) -> String {
    format!("{}: {reason}", reason.word())
}

/// Why kubelet would not run the pod, while it can still be seen.
pub(super) fn note_refusal(server: &GameServer, message: &str) -> Value {
    let mut patch = Patch::under(server);
    patch.annotate(names::REFUSED_ANNOTATION, json!(message));
    patch.finish()
}

/// Back to the brain: as if no node had ever had it.
pub(super) fn hand_back(server: &GameServer, node: &str, why: &str) -> Value {
    let mut patch = Patch::under(server);
    let returned = Returned {
        version: FORMAT_VERSION,
        node: node.to_owned(),
        reason: why.to_owned(),
        times: times_returned(server).saturating_add(1),
    };
    patch.annotate(names::RETURNED_ANNOTATION, returned.to_annotation());
    // The next node begins with a pod and with changes of its own.
    for name in [names::POD_UID_ANNOTATION, names::SDK_APPLIED_ANNOTATION, names::REFUSED_ANNOTATION] {
        if server.annotation(name).is_some() {
            patch.annotate(name, Value::Null);
        }
    }
    let ports = without_host_ports(server.spec.ports());
    if server.spec.ports() != ports {
        patch.spec.insert("ports".to_owned(), json!(ports));
    }
    patch.status("state", json!(State::Creating));
    patch.status("nodeName", json!(""));
    patch.status("address", json!(""));
    patch.status("addresses", Value::Null);
    patch.status("ports", Value::Null);
    patch.finish()
}

/// What the game is to know of its node's end, in one write.
pub(super) fn tell_drain(server: &GameServer, word: &DrainWord) -> Value {
    let mut patch = Patch::under(server);
    patch.annotate(names::DRAIN_REASON_ANNOTATION, word.reason.clone());
    patch.annotate(names::TERMINATING_AT_ANNOTATION, word.deadline.clone());
    let label = if word.is_labelled { json!(names::TAINT_VALUE) } else { Value::Null };
    patch.labels.insert(names::DRAINING_LABEL.to_owned(), label);
    patch.finish()
}

/// The operations by which this very pod, in the version that was seen, gets to tolerate the taint of a node that is being
/// emptied. Where it has no list of tolerations, another's new one must not be lost.
pub(super) fn tolerate(pod: &Pod) -> Value {
    let toleration = json!({
        "key": names::DRAINING_TAINT,
        "operator": "Equal",
        "value": names::TAINT_VALUE,
        "effect": "NoExecute",
    });
    let add = match pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref()) {
        Some(_) => json!({ "op": "add", "path": "/spec/tolerations/-", "value": toleration }),
        None => json!({ "op": "add", "path": "/spec/tolerations", "value": [toleration] }),
    };
    json!([
        { "op": "test", "path": "/metadata/uid", "value": pod.metadata.uid },
        { "op": "replace", "path": "/metadata/resourceVersion", "value": pod.metadata.resource_version },
        add,
    ])
}

/// Without the finalizers that are ours.
pub(super) fn finish(server: &GameServer) -> Value {
    let mut patch = Patch::under(server);
    let others: Vec<&String> =
        server.metadata.finalizers.iter().flatten().filter(|name| !is_our_finalizer(name)).collect();
    patch.metadata.insert("finalizers".to_owned(), json!(others));
    patch.finish()
}

#[cfg(test)]
mod tests;
