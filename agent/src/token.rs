//! A new token for the agent of a node, where it runs outside of pods: `berth-agent renew-token`.
//!
//! The token is of the agents' account and bound to the Node, which is how the API server knows whose agent it is; it is
//! void once that Node object is gone. A running agent reads the file again by itself, within a minute.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_api::names;
use berth_runtime::kube_client::{self, CallError, ConnectError, within};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;

use crate::config::TokenFlags;

/// How long the API server may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Root's, and nobody else's.
const MODE: u32 = 0o600;

/// Why there is no new token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The API server cannot be spoken to.
    #[error("could not use the present credentials")]
    Connect(#[from] ConnectError),
    /// It gives none.
    #[error("could not get a token for node {node}; is manifests/systemd applied?")]
    Ask {
        /// The node.
        node: String,
        /// Why.
        source: CallError,
    },
    /// It answered with something else.
    #[error("the API server answered without a token")]
    Empty,
    /// The file.
    #[error("could not write {path}; the old token is still there")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Asks for a token by the present credentials and puts it in the place of the old one. Answers when it ends.
///
/// # Errors
/// Why there is none; nothing is changed then.
pub async fn renew(flags: &TokenFlags) -> Result<Timestamp, TokenError> {
    let user_agent = concat!("berth-agent/", env!("CARGO_PKG_VERSION"));
    let client = kube_client::client(&flags.kube, user_agent).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, names::SYSTEM_NAMESPACE);
    let params = PostParams::default();
    let request = request(&flags.node_name, flags.lifetime);
    let asked = accounts.create_token_request(names::AGENT_MANAGER, &params, &request);
    let made = within(LIMIT, asked)
        .await
        .map_err(|source| TokenError::Ask { node: flags.node_name.clone(), source })?;
    let status = made.status.filter(|status| !status.token.is_empty()).ok_or(TokenError::Empty)?;
    replace(&flags.file, &status.token)
        .map_err(|source| TokenError::Write { path: flags.file.clone(), source })?;
    Ok(status.expiration_timestamp.0)
}

fn request(node: &str, lifetime: Duration) -> TokenRequest {
    TokenRequest {
        spec: TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                uid: None,
            }),
            expiration_seconds: i64::try_from(lifetime.as_secs()).ok(),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    }
}

/// Whole or not at all: whoever reads the file meanwhile finds the old token or the new one.
fn replace(path: &Path, token: &str) -> io::Result<()> {
    let partial = path.with_extension("new");
    // What an earlier try left may be anybody's to read.
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(MODE).open(&partial)?;
    file.write_all(token.as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{fs, replace};

    #[test]
    fn a_token_takes_the_place_of_the_old_one_and_is_nobody_elses_to_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(folder.path().join("token.new"), "half").expect("what an earlier try left");
        for token in ["first", "second"] {
            replace(&path, token).expect("replaced");
            assert_eq!(fs::read_to_string(&path).expect("a token"), token);
            assert_eq!(path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing is left beside it");
        assert!(replace(&folder.path().join("nowhere/token"), "third").is_err());
    }
}
