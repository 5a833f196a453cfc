//! Where the text of `fleetiq.conf` comes from: a mounted file, or the ConfigMap by the API. Read anew each time.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use berth_runtime::kube_client::{CallError, within};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::config::ConfigMapName;
use crate::groups::{FILE_NAME, Groups, GroupsError, read};

/// How long the API may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Why the groups are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("could not read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("could not read ConfigMap {name}")]
    Api { name: ConfigMapName, source: CallError },
    #[error("ConfigMap {name} is not there")]
    Missing { name: ConfigMapName },
    #[error("ConfigMap {name} has no key {FILE_NAME}")]
    NoKey { name: ConfigMapName },
    #[error("could not use what {place} says")]
    Text { place: String, source: GroupsError },
}

/// A place that names groups.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A mount is swapped by a link, so the path is opened each time.
    File(PathBuf),
    ConfigMap {
        api: Box<Api<ConfigMap>>,
        name: ConfigMapName,
    },
}

impl Source {
    /// What it says now.
    pub(crate) async fn groups(&self) -> Result<Groups, SourceError> {
        let (text, place) = match self {
            Self::File(path) => {
                let text = tokio::fs::read_to_string(path).await;
                let text = text.map_err(|source| SourceError::File { path: path.clone(), source })?;
                (text, path.display().to_string())
            }
            Self::ConfigMap { api, name } => {
                let map = within(LIMIT, api.get_opt(&name.name)).await;
                let map = map.map_err(|source| SourceError::Api { name: name.clone(), source })?;
                let map = map.ok_or_else(|| SourceError::Missing { name: name.clone() })?;
                let text = map.data.and_then(|mut data| data.remove(FILE_NAME));
                let text = text.ok_or_else(|| SourceError::NoKey { name: name.clone() })?;
                (text, format!("ConfigMap {name}"))
            }
        };
        read(&text).map_err(|source| SourceError::Text { place, source })
    }
}
