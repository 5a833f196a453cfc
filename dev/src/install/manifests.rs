//! Applying manifests as `kubectl apply --server-side` does, and waiting until new kinds are served.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use serde::Deserialize;

use super::{InstallError, at};
use crate::eventually::eventually;
use crate::places;

const FIELD_MANAGER: &str = "berth-dev";
/// A kind is served a second after its definition was stored.
const ESTABLISH_LIMIT: Duration = Duration::from_secs(60);

/// Applies every object in a file. Objects without a namespace go to `default`, where their kind has namespaces.
///
/// # Errors
/// When the file cannot be read, or the cluster refuses an object.
pub async fn apply(client: &kube::Client, path: &Path) -> Result<(), InstallError> {
    let text = fs::read_to_string(path).map_err(at(path))?;
    Origin { path, namespace: "default" }.apply(client, &text).await
}

/// Makes a namespace one that Berth's programs may run game servers in, as `manifests/game-namespace` does for anybody.
///
/// # Errors
/// When the cluster refuses.
pub async fn enable_namespace(client: &kube::Client, namespace: &str) -> Result<(), InstallError> {
    let path = places::source_folder().join("manifests/game-namespace/bindings.yaml");
    let text = fs::read_to_string(&path).map_err(at(&path))?;
    Origin { path: &path, namespace }.apply(client, &text).await
}

/// Applies the `*.yaml` files of a folder by name.
pub(super) async fn apply_folder(client: &kube::Client, folder: &Path) -> Result<(), InstallError> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    for file in &files {
        apply(client, file).await?;
    }
    Ok(())
}

/// Where objects come from, and where those go that do not say.
pub(super) struct Origin<'a> {
    pub(super) path: &'a Path,
    pub(super) namespace: &'a str,
}

impl Origin<'_> {
    /// Applies every object in a text, in its order.
    pub(super) async fn apply(&self, client: &kube::Client, text: &str) -> Result<(), InstallError> {
        for document in serde_yaml_ng::Deserializer::from_str(text) {
            let object = Option::<DynamicObject>::deserialize(document)
                .map_err(|source| InstallError::Manifest { path: self.path.to_owned(), source })?;
            if let Some(object) = object {
                self.apply_object(client, &object).await?;
            }
        }
        Ok(())
    }

    async fn apply_object(&self, client: &kube::Client, object: &DynamicObject) -> Result<(), InstallError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let types = object.types.clone().unwrap_or_default();
        let title = format!("{} {name}", types.kind);
        let failed =
            |source| InstallError::Apply { object: title.clone(), path: self.path.to_owned(), source };
        let kind = GroupVersionKind::try_from(&types)
            .map_err(|error| failed(kube::Error::Service(Box::new(error))))?;
        let (resource, capabilities) = discovery::pinned_kind(client, &kind).await.map_err(failed)?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.metadata.namespace.as_deref().unwrap_or(self.namespace);
                Api::namespaced_with(client.clone(), namespace, &resource)
            }
        };
        let settings = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(&name, &settings, &Patch::Apply(object)).await.map_err(failed)?;
        if kind.kind == "CustomResourceDefinition" {
            wait_until_served(client, &name).await?;
        }
        Ok(())
    }
}

async fn wait_until_served(client: &kube::Client, name: &str) -> Result<(), InstallError> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let served = eventually(ESTABLISH_LIMIT, format!("{name} to be served"), async || {
        let definition = definitions.get(name).await.map_err(|error| error.to_string())?;
        let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_served =
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
        let seen: Vec<String> =
            conditions.iter().map(|condition| format!("{}={}", condition.type_, condition.status)).collect();
        if is_served { Ok(()) } else { Err(seen.join(" ")) }
    });
    let hint = format!("`kubectl describe crd {name}` says why");
    served.await.map_err(|source| InstallError::Late { hint, source })
}
