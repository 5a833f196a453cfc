//! How the API server speaks for its users: the certificate that it shows, and the headers that carry the user.
//!
//! The API server publishes it as the ConfigMap `extension-apiserver-authentication` in `kube-system`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::error::chain;
use berth_runtime::kube_client::{CallError, watch, within};
use futures::StreamExt as _;
use http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use tokio::sync::watch as newest;
use tracing::{info, warn};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// How long the first look may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What the API server has not published as it should.
#[derive(Debug, thiserror::Error)]
pub enum FrontProxyError {
    /// It could not be read.
    #[error(
        "could not read the ConfigMap {NAMESPACE}/{NAME}; the allocator needs the Role \
         extension-apiserver-authentication-reader there"
    )]
    Read(#[source] CallError),
    /// A part of it is missing.
    #[error(
        "the ConfigMap {NAMESPACE}/{NAME} has no {key}; start kube-apiserver with --requestheader-client-ca-file, \
         or turn the aggregated API off with --api-port=-1"
    )]
    Missing {
        /// Which.
        key: &'static str,
    },
    /// A part of it is not a list of words.
    #[error("{key} in the ConfigMap {NAMESPACE}/{NAME} is not a list of words")]
    Words {
        /// Which.
        key: &'static str,
        /// What the decoder says.
        source: serde_json::Error,
    },
}

/// How the API server speaks for its users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// CA of its certificate, in PEM.
    pub authority: Vec<u8>,
    /// The certificate's common names that count; empty means any that the CA has signed.
    allowed_names: Vec<String>,
    user_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

/// The user for whom a request is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Name.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
    /// What else the API server knows of the user.
    pub extra: Vec<(String, Vec<String>)>,
}

impl FrontProxy {
    fn read(map: &ConfigMap) -> Result<Self, FrontProxyError> {
        let value = |key: &'static str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        let words = |key: &'static str| {
            let text = value(key).unwrap_or("[]");
            serde_json::from_str::<Vec<String>>(text).map_err(|source| FrontProxyError::Words { key, source })
        };
        let authority = "requestheader-client-ca-file";
        Ok(Self {
            authority: value(authority)
                .ok_or(FrontProxyError::Missing { key: authority })?
                .as_bytes()
                .to_vec(),
            allowed_names: words("requestheader-allowed-names")?,
            user_headers: words("requestheader-username-headers")?,
            group_headers: words("requestheader-group-headers")?,
            extra_prefixes: words("requestheader-extra-headers-prefix")?,
        })
    }

    /// The user for whom a caller with a certificate of this common name speaks; `None` where it is not the API server,
    /// or names nobody.
    pub fn user(&self, common_name: Option<&str>, headers: &HeaderMap) -> Option<User> {
        let name = common_name?;
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|allowed| allowed == name) {
            return None;
        }
        let values = |header: &str| {
            headers.get_all(header).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned)
        };
        let user =
            self.user_headers.iter().flat_map(|header| values(header)).find(|name| !name.is_empty())?;
        let groups = self.group_headers.iter().flat_map(|header| values(header)).collect();
        let mut extra: Vec<(String, Vec<String>)> = Vec::new();
        for header in headers.keys() {
            let key = self.extra_prefixes.iter().find_map(|prefix| {
                let prefix = prefix.to_ascii_lowercase();
                header.as_str().strip_prefix(prefix.as_str())
            });
            if let Some(key) = key.filter(|key| !key.is_empty()) {
                extra.push((unescaped(key), values(header.as_str()).collect()));
            }
        }
        extra.sort();
        Some(User { name: user, groups, extra })
    }
}

/// Keys of extra headers are percent-encoded.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [first, after @ ..] = rest {
        let decoded = match after {
            [high, low, ..] if *first == b'%' => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
            }
            _ => None,
        };
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads what the API server publishes.
///
/// # Errors
/// It cannot be read, or is not complete.
pub async fn read_front_proxy(client: &Client) -> Result<FrontProxy, FrontProxyError> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let map = within(LIMIT, maps.get(NAME)).await.map_err(FrontProxyError::Read)?;
    FrontProxy::read(&map)
}

/// Follows it until `stop`.
///
/// # Errors
/// None.
pub async fn watch_front_proxy(
    client: Client,
    sender: newest::Sender<Arc<FrontProxy>>,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let maps = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let only = Config::default().fields(&format!("metadata.name={NAME}"));
    let mut events = watch(maps, only).boxed();
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            event = events.next() => event,
        };
        match event {
            Some(Ok(Event::Apply(map) | Event::InitApply(map))) => match FrontProxy::read(&map) {
                Ok(read) if read == **sender.borrow() => {}
                Ok(read) => {
                    sender.send_replace(Arc::new(read));
                    info!("the API server speaks for its users in a new way");
                }
                Err(error) => warn!(error = %chain(&error), "the old way stays"),
            },
            Some(Ok(Event::Init | Event::InitDone | Event::Delete(_))) => {}
            Some(Err(error)) => warn!(error = %chain(&error), "a watch failed; it goes on"),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::HeaderValue;

    use super::*;

    fn published() -> ConfigMap {
        let data = [
            ("requestheader-client-ca-file", "PEM"),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ];
        let data: BTreeMap<_, _> =
            data.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter()
            .map(|(name, value)| {
                (http::HeaderName::from_lowercase(name.as_bytes()).unwrap(), HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn only_the_api_server_speaks_for_others() {
        let front = FrontProxy::read(&published()).unwrap();
        let headers = headers(&[("x-remote-user", "ann")]);
        assert_eq!(front.user(Some("front-proxy-client"), &headers).unwrap().name, "ann");
        assert_eq!(front.user(Some("somebody"), &headers), None);
        assert_eq!(front.user(None, &headers), None);
        assert_eq!(front.user(Some("front-proxy-client"), &HeaderMap::new()), None);
    }

    #[test]
    fn groups_and_extras_are_read() {
        let front = FrontProxy::read(&published()).unwrap();
        let mut headers = headers(&[
            ("x-remote-user", "ann"),
            ("x-remote-extra-authentication.kubernetes.io%2fnode-name", "node-a"),
        ]);
        headers.append("x-remote-group", HeaderValue::from_static("one"));
        headers.append("x-remote-group", HeaderValue::from_static("two"));
        let user = front.user(Some("front-proxy-client"), &headers).unwrap();
        assert_eq!(user.groups, ["one", "two"]);
        let node = ("authentication.kubernetes.io/node-name".to_owned(), vec!["node-a".to_owned()]);
        assert_eq!(user.extra, [node]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = FrontProxy::read(&ConfigMap::default()).unwrap_err();
        assert!(error.to_string().contains("requestheader-client-ca-file"), "{error}");
        let mut broken = published();
        broken.data.as_mut().unwrap().insert("requestheader-allowed-names".to_owned(), "x".to_owned());
        assert!(FrontProxy::read(&broken).unwrap_err().to_string().contains("requestheader-allowed-names"));
    }
}
