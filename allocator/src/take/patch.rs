//! The write that allocates, and the answer that it gives. Pure.

use std::collections::BTreeMap;

use berth_api::allocation::{AllocationState, AllocationStatus, MetadataPatch};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names::LAST_ALLOCATED_ANNOTATION;
use serde_json::{Value, json};

use super::desk::Batch;
use crate::actions::Done;

/// Where an answer comes from that is not from another cluster.
const LOCAL: &str = "local";

/// The merge patch for all who sit at a server. It holds only for the version that the choice saw.
pub(super) fn body(batch: &Batch, stamp: &str) -> Value {
    let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
    let mut annotations: BTreeMap<&str, &str> = BTreeMap::new();
    for (seat, _) in &batch.seats {
        let MetadataPatch { labels: own_labels, annotations: own_annotations } = &seat.request.metadata;
        labels.extend(own_labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        annotations.extend(own_annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    }
    annotations.insert(LAST_ALLOCATED_ANNOTATION, stamp);
    let mut metadata = json!({
        "uid": batch.before.version.uid,
        "resourceVersion": batch.before.version.resource,
        "annotations": annotations,
    });
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    let mut status = json!({ "state": State::Allocated });
    let counters = changed(&batch.before.counters, &batch.after.counters);
    if !counters.is_empty() {
        status["counters"] = json!(counters);
    }
    let lists = changed(&batch.before.lists, &batch.after.lists);
    if !lists.is_empty() {
        status["lists"] = json!(lists);
    }
    json!({ "metadata": metadata, "status": status })
}

fn changed<'a, T: PartialEq>(
    before: &BTreeMap<String, T>,
    after: &'a BTreeMap<String, T>,
) -> BTreeMap<&'a str, &'a T> {
    let is_changed = |(name, value): &(&String, &T)| before.get(*name) != Some(*value);
    after.iter().filter(is_changed).map(|(name, value)| (name.as_str(), value)).collect()
}

/// The answer for one of them, whose own counters and lists are shown as they were after its turn.
pub(super) fn status(server: &GameServer, done: &Done) -> AllocationStatus {
    let status = server.status.clone().unwrap_or_default();
    let mut counters = status.counters.unwrap_or_default();
    counters.extend(done.counters.clone());
    let mut lists = status.lists.unwrap_or_default();
    lists.extend(done.lists.clone());
    AllocationStatus {
        state: Some(AllocationState::Allocated),
        game_server_name: server.metadata.name.clone().unwrap_or_default(),
        ports: status.ports.unwrap_or_default(),
        address: status.address,
        addresses: status.addresses.unwrap_or_default(),
        node_name: status.node_name,
        source: LOCAL.to_owned(),
        metadata: Some(MetadataPatch {
            labels: server.metadata.labels.clone().unwrap_or_default(),
            annotations: server.metadata.annotations.clone().unwrap_or_default(),
        }),
        counters,
        lists,
    }
}

/// Whether a server bears the mark of this very write.
pub(super) fn bears(server: &GameServer, stamp: &str) -> bool {
    server.annotation(LAST_ALLOCATED_ANNOTATION) == Some(stamp)
}
