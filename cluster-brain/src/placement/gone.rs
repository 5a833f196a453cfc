//! Letting go of servers that have no agent. Pure but for the question whether there is a pod.

use berth_api::names;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::stores::Server;
use crate::writes::{WriteError, Writer, under_version};

/// Whether the server still has a pod of its own.
pub(super) async fn has_pod(writer: &Writer, server: &Server) -> Result<bool, WriteError> {
    let pod: Option<Pod> = writer.get(&server.key).await?;
    Ok(pod.is_some_and(|pod| {
        pod.metadata.owner_references.iter().flatten().any(|owner| owner.uid == server.uid)
    }))
}

/// The write that removes our finalizers; foreign ones stay.
pub(super) fn without_finalizers(server: &Server) -> Value {
    let kept: Vec<_> = server
        .finalizers
        .iter()
        .filter(|one| *one != names::FINALIZER && *one != names::LEGACY_FINALIZER)
        .collect();
    under_version(json!({ "metadata": { "finalizers": kept } }), &server.resource_version)
}
