//! Objects as a user sends them: strict, so that a misspelled field is an error.

use berth_dev::eventually;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::discovery::ApiResource;
use serde_json::Value;
use std::time::Duration;

/// Time within which an API server takes a new CRD into service, many times over.
const ESTABLISHED: Duration = Duration::from_secs(60);

/// Applies every CRD of Berth and waits until the API server serves it.
///
/// # Errors
/// A CRD is refused or not established in time.
pub async fn apply_crds(client: &kube::Client) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in berth_api::crds::all() {
        let name = crd.definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        api.patch(&name, &PatchParams::apply("berth-stories").force(), &Patch::Apply(&crd.definition))
            .await?;
        eventually(ESTABLISHED, &format!("{name} established"), async || {
            let status = api.get(&name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
            let established = status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.type_ == "Established" && condition.status == "True");
            if established { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await?;
    }
    Ok(())
}

/// The kind of one of our resources, for dynamic objects.
pub fn resource(kind: &str, plural: &str) -> ApiResource {
    let group = if kind == "GameNode" { "berth.dev" } else { "agones.dev" };
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
