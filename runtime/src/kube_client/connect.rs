//! From settings to a client: kubeconfig or the pod's own account, with limits on every call.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::{HeaderValue, header::USER_AGENT};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config, client::ClientBuilder};
use tower::timeout::TimeoutLayer;

/// How long a connection may take to be made, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the head of an answer may take. A watch answers its head at once, so this bounds every call and cuts none.
const ANSWER: Duration = Duration::from_secs(30);
/// How long an open answer may be silent. An API server sends a bookmark to every watch about once a minute, so a watch that
/// misses two is dead: after a cut of the network nobody else would notice before it is begun again, five minutes later.
const SILENCE: Duration = Duration::from_secs(130);

/// Where the API server is; flatten this into a program's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct KubeSettings {
    /// Kubeconfig file, or several separated by colons; without it the pod's service account is used
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use instead of its current one
    #[arg(long, env = "BERTH_KUBE_CONTEXT")]
    pub kube_context: Option<String>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("could not use kubeconfig {path}")]
    Kubeconfig {
        /// The file, or the list of files.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// No kubeconfig was given and this is no pod.
    #[error("no kubeconfig given and not running in a pod; set --kubeconfig or KUBECONFIG")]
    NotInCluster {
        /// What is missing.
        source: InClusterError,
    },
    /// The user agent is no header value.
    #[error("user agent {user_agent:?} is not printable text")]
    UserAgent {
        /// What was given.
        user_agent: String,
    },
    /// Keys, certificates or the address do not do.
    #[error("could not build a client from the configuration")]
    Build {
        /// What the client says.
        source: kube::Error,
    },
}

/// A client for the API server that the settings name. It does not connect yet.
///
/// It retries nothing by itself: a hidden retry could outlive the caller's deadline and hide a throttling server.
///
/// # Errors
/// When the configuration cannot be used.
pub async fn client(settings: &KubeSettings, user_agent: &str) -> Result<Client, ConnectError> {
    let mut config = configuration(settings).await?;
    let agent = HeaderValue::from_str(user_agent)
        .map_err(|_| ConnectError::UserAgent { user_agent: user_agent.to_owned() })?;
    config.headers.push((USER_AGENT, agent));
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config).map_err(|source| ConnectError::Build { source })?;
    Ok(builder.with_layer(&TimeoutLayer::new(ANSWER)).build())
}

async fn configuration(settings: &KubeSettings) -> Result<Config, ConnectError> {
    let Some(path) = settings.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty()) else {
        return Config::incluster().map_err(|source| ConnectError::NotInCluster { source });
    };
    let options =
        KubeConfigOptions { context: settings.kube_context.clone(), ..KubeConfigOptions::default() };
    let loaded = async { Config::from_custom_kubeconfig(read(path)?, &options).await };
    loaded.await.map_err(|source| ConnectError::Kubeconfig { path: path.to_owned(), source })
}

/// Reads the file, or merges the files of a list as kubectl does.
fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let mut merged: Option<Kubeconfig> = None;
    for file in std::env::split_paths(path).filter(|file| !file.as_os_str().is_empty()) {
        let next = Kubeconfig::read_from(file)?;
        merged = Some(match merged {
            None => next,
            Some(earlier) => earlier.merge(next)?,
        });
    }
    merged.ok_or(KubeconfigError::FindPath)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn kubeconfig(server: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: local\n\
             clusters: [{{name: local, cluster: {{server: \"{server}\"}}}}]\n\
             contexts: [{{name: local, context: {{cluster: local, user: me}}}}]\n\
             users: [{{name: me, user: {{token: secret}}}}]\n"
        )
    }

    fn settings(path: impl Into<PathBuf>, context: Option<&str>) -> KubeSettings {
        KubeSettings { kubeconfig: Some(path.into()), kube_context: context.map(str::to_owned) }
    }

    #[tokio::test]
    async fn a_kubeconfig_makes_a_client() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, kubeconfig("http://127.0.0.1:1")).unwrap();
        client(&settings(&path, None), "test/1").await.unwrap();
    }

    #[tokio::test]
    async fn a_list_of_files_is_merged() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&first, "apiVersion: v1\nkind: Config\ncurrent-context: local\n").unwrap();
        fs::write(&second, kubeconfig("http://127.0.0.1:1")).unwrap();
        let list = std::env::join_paths([first, second]).unwrap();
        client(&settings(list, None), "test/1").await.unwrap();
    }

    #[tokio::test]
    async fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let missing = client(&settings(&path, None), "test/1").await.err().unwrap();
        assert!(missing.to_string().contains(&path.display().to_string()), "{missing}");
        fs::write(&path, kubeconfig("http://127.0.0.1:1")).unwrap();
        let context = client(&settings(&path, Some("other")), "test/1").await.err().unwrap();
        assert!(crate::error::chain(&context).contains("other"), "{context}");
        let agent = client(&settings(&path, None), "line\nbreak").await.err().unwrap();
        assert!(matches!(agent, ConnectError::UserAgent { .. }), "{agent}");
    }
}
