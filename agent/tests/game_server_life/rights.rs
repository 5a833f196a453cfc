//! What an agent may do, as it ships: roles, bindings and admission policies, and an agent that is known by the name of its
//! node. A step that they do not allow fails here as it would in a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_dev::{ControlPlane, eventually, install, source_folder};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

/// The group of agents outside of pods.
const GROUPS: [&str; 1] = ["berth:agents"];
/// Time within which an API server takes roles and policies into service, many times over.
const LIMIT: Duration = Duration::from_secs(60);

/// Applies our resources, and all that [`install_roles`] does.
pub(crate) async fn install(control_plane: &ControlPlane) {
    for file in ["gameservers.yaml", "gamenodes.yaml"] {
        let file = source_folder().join("manifests/crds").join(file);
        install::apply(&control_plane.client(), &file).await.expect("a resource");
    }
    install_roles(control_plane).await;
}

/// Applies the namespace, roles and the policies that look at who asks. What a template may say is none of these: tests hand
/// over bad ones.
pub(crate) async fn install_roles(control_plane: &ControlPlane) {
    let manifests = source_folder().join("manifests");
    let policies = std::fs::read_dir(manifests.join("policies")).expect("the folder of the policies");
    let policies = policies.map(|file| file.expect("a file").path());
    let policies = policies.filter(|path| !path.ends_with("templates.yaml"));
    for file in [manifests.join("namespace.yaml"), manifests.join("rbac.yaml")].into_iter().chain(policies) {
        install::apply(&control_plane.client(), &file).await.expect("a manifest");
    }
}

/// Lets games into the namespace, and answers the kubeconfig of the node's agent, once both roles and policies hold.
pub(crate) async fn agent_of(
    control_plane: &ControlPlane,
    node: &str,
    namespace: &str,
    folder: &Path,
) -> PathBuf {
    install::enable_namespace(&control_plane.client(), namespace).await.expect("bindings");
    let user = format!("berth:agent:{node}");
    let agent = control_plane.client_for(&user, &GROUPS).await.expect("an agent");
    let other = control_plane.client_for("berth:agent:another", &GROUPS).await.expect("another agent");
    let taken = eventually(LIMIT, "roles and policies to hold", async || {
        may_place(&agent, namespace).await?;
        is_held_to_its_node(&other, node).await
    });
    taken.await.expect("in time");
    let path = folder.join("kubeconfig");
    control_plane.kubeconfig_for(&user, &GROUPS, &path).expect("a kubeconfig")
}

async fn may_place(agent: &Client, namespace: &str) -> Result<(), String> {
    let asked = json!({ "spec": { "resourceAttributes": {
        "verb": "update", "group": "berth.dev", "resource": "placements", "namespace": namespace
    }}});
    let asked: SelfSubjectAccessReview = serde_json::from_value(asked).expect("a question");
    let reviews = Api::<SelfSubjectAccessReview>::all(agent.clone());
    let answer = reviews.create(&PostParams::default(), &asked).await.map_err(|error| error.to_string())?;
    let status = answer.status.unwrap_or_default();
    if status.allowed { Ok(()) } else { Err(format!("{status:?}")) }
}

async fn is_held_to_its_node(other: &Client, node: &str) -> Result<(), String> {
    let nodes = Api::<Node>::all(other.clone());
    let rehearsal = PatchParams { dry_run: true, ..PatchParams::default() };
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    match nodes.patch(node, &rehearsal, &cordon).await {
        Err(error) if error.to_string().contains("nodes.agents.berth.dev") => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(_) => Err("allowed".to_owned()),
    }
}
