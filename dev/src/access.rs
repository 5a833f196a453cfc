//! Ways into a cluster: kubeconfigs and clients for any user.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::certificates::{self, Authority, CertificateError, Credentials};

const ADMINISTRATOR: &str = "berth-dev:admin";
/// Whose certificate lets them do everything, by the server's own rule.
const ADMINISTRATORS: &str = "system:masters";

/// A way in that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The certificate, or the file.
    #[error("could not make a way in for {user}")]
    Certificate {
        /// For whom.
        user: String,
        /// Why.
        source: CertificateError,
    },
    /// The kubeconfig is not one.
    #[error("could not read the kubeconfig made for {user}")]
    Kubeconfig {
        /// For whom.
        user: String,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// The kubeconfig is not one, on a lower level.
    #[error("could not write the kubeconfig for {user}")]
    Format {
        /// For whom.
        user: String,
        /// Why.
        source: serde_json::Error,
    },
    /// There is no client for it.
    #[error("could not make a client")]
    Client(#[source] kube::Error),
}

/// Makes ways into one cluster, by signing certificates.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    server: SocketAddr,
    authority: Arc<Authority>,
}

impl Access {
    pub(crate) fn new(server: SocketAddr, authority: Arc<Authority>) -> Self {
        Self { server, authority }
    }

    /// The same, by another address.
    pub(crate) fn by_way_of(&self, server: SocketAddr) -> Self {
        Self::new(server, Arc::clone(&self.authority))
    }

    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// How to be somebody who may do everything.
    pub(crate) async fn administrator(&self) -> Result<kube::Config, AccessError> {
        self.config(ADMINISTRATOR, &[ADMINISTRATORS]).await
    }

    pub(crate) async fn client(&self, user: &str, groups: &[&str]) -> Result<kube::Client, AccessError> {
        self.client_from(&self.config(user, groups).await?)
    }

    pub(crate) fn client_from(&self, config: &kube::Config) -> Result<kube::Client, AccessError> {
        kube::Client::try_from(config.clone()).map_err(AccessError::Client)
    }

    async fn config(&self, user: &str, groups: &[&str]) -> Result<kube::Config, AccessError> {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.kubeconfig(user, groups)?)
            .map_err(|source| AccessError::Format { user: user.to_owned(), source })?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        config.map_err(|source| AccessError::Kubeconfig { user: user.to_owned(), source })
    }

    /// Writes a kubeconfig, which holds all it needs. Leaves one that is there.
    pub(crate) fn ensure_kubeconfig(
        &self,
        path: &Path,
        user: &str,
        groups: &[&str],
    ) -> Result<PathBuf, AccessError> {
        if !path.exists() {
            let text = serde_json::to_string_pretty(&self.kubeconfig(user, groups)?)
                .map_err(|source| AccessError::Format { user: user.to_owned(), source })?;
            certificates::write_private(path, &text)
                .map_err(|source| AccessError::Certificate { user: user.to_owned(), source })?;
        }
        Ok(path.to_owned())
    }

    pub(crate) fn ensure_administrators(&self, path: &Path) -> Result<PathBuf, AccessError> {
        self.ensure_kubeconfig(path, ADMINISTRATOR, &[ADMINISTRATORS])
    }

    /// A kubeconfig is YAML, and JSON is YAML.
    fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<serde_json::Value, AccessError> {
        let signed = self.authority.sign_user(user, groups);
        let Credentials { certificate, key } =
            signed.map_err(|source| AccessError::Certificate { user: user.to_owned(), source })?;
        let encoded = |text: &str| ByteString(text.as_bytes().to_vec());
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "berth-dev",
            "clusters": [{"name": "berth-dev", "cluster": {
                "server": format!("https://{}", self.server),
                "certificate-authority-data": encoded(self.authority.certificate()),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": encoded(&certificate),
                "client-key-data": encoded(&key),
            }}],
            "contexts": [{"name": "berth-dev", "context": {
                "cluster": "berth-dev", "user": user, "namespace": "default",
            }}],
        }))
    }
}
