//! What is left of servers that have no agent: their pods and their finalizers.

use berth_api::names;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::stores::Server;
use crate::writes::{WriteError, Writer, under_version};

/// The UID of the server's own pod, where it has one.
pub(super) async fn pod_of(writer: &Writer, server: &Server) -> Result<Option<String>, WriteError> {
    let pod: Option<Pod> = writer.get(&server.key).await?;
    let pod =
        pod.filter(|pod| pod.metadata.owner_references.iter().flatten().any(|owner| owner.uid == server.uid));
    Ok(pod.and_then(|pod| pod.metadata.uid))
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
