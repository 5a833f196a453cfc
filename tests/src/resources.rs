//! Objects as a user sends them: strict, so that a misspelled field is an error.

use berth_dev::{eventually, install, source_folder};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use std::time::Duration;

/// Time within which an API server takes a new CRD or policy into service, many times over.
const ESTABLISHED: Duration = Duration::from_secs(60);

/// Applies every CRD of Berth and every policy that goes with it, and waits until they hold.
///
/// # Errors
/// One is refused or not in service in time.
pub async fn apply_crds(client: &kube::Client) -> anyhow::Result<()> {
    apply_definitions(client).await?;
    apply_policies(client).await
}

/// Applies every CRD of Berth, without the policies, and waits until the API server serves it.
///
/// # Errors
/// A CRD is refused or not established in time.
pub async fn apply_definitions(client: &kube::Client) -> anyhow::Result<()> {
    for crd in berth_api::crds::all() {
        apply_definition(client, &crd.definition).await?;
    }
    Ok(())
}

/// Applies one CRD and waits until the API server serves it.
///
/// # Errors
/// It is refused or not established in time.
pub async fn apply_definition(client: &kube::Client, definition: &Value) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    api.patch(name, &PatchParams::apply("berth-stories").force(), &Patch::Apply(definition)).await?;
    eventually(ESTABLISHED, format!("{name} established"), async || {
        let status = api.get(name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let established = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Established" && condition.status == "True");
        if established { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await?;
    Ok(())
}

/// Applies the policies for our resources and waits until they are enforced, which an API server does in its own time.
///
/// # Errors
/// A policy is refused or not enforced in time.
pub async fn apply_policies(client: &kube::Client) -> anyhow::Result<()> {
    install::apply(client, &source_folder().join("manifests/policies/templates.yaml")).await?;
    let servers =
        Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource("GameServer", "gameservers"));
    let probe = json!({
        "apiVersion": "agones.dev/v1",
        "kind": "GameServer",
        "metadata": { "name": "without-containers" },
        "spec": { "template": { "spec": { "containers": [] } } },
    });
    eventually(ESTABLISHED, "templates.berth.dev enforced", async || {
        let dry = PatchParams::apply("berth-stories").dry_run();
        match servers.patch("without-containers", &dry, &Patch::Apply(&probe)).await {
            Ok(_) => Err("a GameServer without containers was taken".to_owned()),
            Err(error) if error.to_string().contains("templates.berth.dev") => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    Ok(())
}

/// The kind of one of our resources, for dynamic objects.
pub fn resource(kind: &str, plural: &str) -> ApiResource {
    let group = match kind {
        "GameNode" => "berth.dev",
        "FleetAutoscaler" => "autoscaling.agones.dev",
        "GameServerAllocationPolicy" => "multicluster.agones.dev",
        _ => "agones.dev",
    };
    ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{group}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Applies an object the way `kubectl apply --server-side` does, strictly, and gives back what the API server made of it.
///
/// # Errors
/// Whatever the API server says.
pub async fn apply_strictly(api: &Api<DynamicObject>, object: &Value) -> kube::Result<DynamicObject> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let strict = PatchParams::apply("berth-stories").validation_strict();
    api.patch(name, &strict, &Patch::Apply(object)).await
}
