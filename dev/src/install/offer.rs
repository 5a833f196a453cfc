//! Whether a node takes game servers, by its own word.

use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;

/// Ends well when the node's agent says that it takes game servers; otherwise with what it says instead.
pub(super) async fn check(client: &kube::Client, node: &str) -> Result<(), String> {
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("berth.dev", "v1", "GameNode"), "gamenodes");
    let nodes = Api::<DynamicObject>::all_with(client.clone(), &kind);
    let node = nodes.get(node).await.map_err(|error| error.to_string())?;
    match node.data["status"]["phase"].as_str() {
        Some("Active") => Ok(()),
        Some(phase) => Err(format!("phase {phase}")),
        None => Err("no phase".to_owned()),
    }
}
