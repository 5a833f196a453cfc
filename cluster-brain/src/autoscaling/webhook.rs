//! Asks webhooks, over connections that are used again.
//!
//! There is one client for each set of trusted certificates, and a few are kept: autoscalers that trust the same share
//! connections. A redirection is no answer, as in `agones.dev`.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_api::fleet::Fleet;
use berth_api::fleet_autoscaler::WebhookPolicy;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use super::review::{self, ReviewError};
use super::{Desired, NoAnswer};

/// How long a webhook may take, from the connection to the last byte of its answer.
const LIMIT: Duration = Duration::from_secs(15);
/// Bytes of an answer that are read at most.
const LONGEST_ANSWER: usize = 1 << 20;
/// Sets of trusted certificates whose connections are kept.
const KEPT: usize = 64;

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A webhook that did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("its caBundle holds no certificate in PEM")]
    Bundle,
    #[error("its caBundle cannot be used")]
    Trust { source: rustls::Error },
    #[error("this program finds no certificates of the system to trust")]
    System { source: io::Error },
    #[error("could not ask {address}")]
    Send { address: String, source: hyper_util::client::legacy::Error },
    #[error("{address} took longer than {} ms", .limit.as_millis())]
    Late { address: String, limit: Duration },
    #[error("{address} answered {status}")]
    Status { address: String, status: StatusCode },
    #[error("could not read the answer of {address}")]
    Body { address: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("could not put the question")]
    Question(#[from] serde_json::Error),
    #[error("could not put the question to {address}")]
    Request { address: String, source: http::Error },
    #[error("could not use the answer of {address}")]
    Answer { address: String, source: ReviewError },
}

/// Whose certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trust {
    /// Nobody's: there is no TLS.
    Nobody,
    /// Those that the system trusts.
    System,
    /// Those of a bundle, in PEM.
    Bundle(Vec<u8>),
}

/// Asks webhooks.
pub(crate) struct Asker {
    limit: Duration,
    /// Guards the clients, used last first; held for a look only.
    clients: Mutex<VecDeque<(Trust, HttpClient)>>,
}

impl Asker {
    /// One without connections.
    pub(crate) fn new() -> Self {
        Self { limit: LIMIT, clients: Mutex::default() }
    }

    /// Asks how many servers the Fleet shall have.
    pub(super) async fn ask(&self, webhook: &WebhookPolicy, fleet: &Fleet) -> Result<Desired, NoAnswer> {
        let address = review::address(webhook)?;
        let question = review::question(fleet, rand::random());
        let body = serde_json::to_vec(&question).map_err(AskError::Question)?;
        let client = self.client(trust(webhook, &address)).map_err(NoAnswer::Webhook)?;
        let answer = timeout(self.limit, send(&client, &address, body)).await;
        let late = |_| AskError::Late { address: address.to_string(), limit: self.limit };
        let answer = answer.map_err(late)??;
        let unfit = |source| AskError::Answer { address: address.to_string(), source };
        Ok(review::read(&answer, fleet).map_err(unfit)?)
    }

    fn client(&self, trust: Trust) -> Result<HttpClient, AskError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clients.iter().position(|(known, _)| *known == trust);
        let entry = match known.and_then(|index| clients.remove(index)) {
            Some(entry) => entry,
            None => {
                let client = connect(&trust)?;
                (trust, client)
            }
        };
        let client = entry.1.clone();
        clients.push_front(entry);
        clients.truncate(KEPT);
        Ok(client)
    }
}

fn trust(webhook: &WebhookPolicy, address: &Uri) -> Trust {
    let bundle = webhook.ca_bundle.as_ref().filter(|bundle| !bundle.0.is_empty());
    match bundle {
        _ if address.scheme_str() != Some("https") => Trust::Nobody,
        Some(bundle) => Trust::Bundle(bundle.0.clone()),
        None => Trust::System,
    }
}

fn connect(trust: &Trust) -> Result<HttpClient, AskError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = HttpsConnectorBuilder::new();
    let builder = match trust {
        Trust::Nobody => builder.with_tls_config(trusting(provider, RootCertStore::empty())?),
        Trust::Bundle(pem) => builder.with_tls_config(trusting(provider, roots(pem)?)?),
        Trust::System => {
            builder.with_provider_and_native_roots(provider).map_err(|source| AskError::System { source })?
        }
    };
    let connector = builder.https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

fn trusting(provider: Arc<CryptoProvider>, roots: RootCertStore) -> Result<ClientConfig, AskError> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|source| AskError::Trust { source })?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn roots(pem: &[u8]) -> Result<RootCertStore, AskError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.ok().filter(|all| !all.is_empty()).ok_or(AskError::Bundle)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|source| AskError::Trust { source })?;
    }
    Ok(roots)
}

async fn send(client: &HttpClient, address: &Uri, body: Vec<u8>) -> Result<Bytes, AskError> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(address)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|source| AskError::Request { address: address.to_string(), source })?;
    let sent = client.request(request).await;
    let response = sent.map_err(|source| AskError::Send { address: address.to_string(), source })?;
    let status = response.status();
    // Read also where it is of no use: the connection is used again.
    let answer = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
    let answer = answer.map_err(|source| AskError::Body { address: address.to_string(), source })?;
    if status != StatusCode::OK {
        return Err(AskError::Status { address: address.to_string(), status });
    }
    Ok(answer.to_bytes())
}

#[cfg(test)]
mod tests {
    use berth_runtime::CancellationToken;
    use berth_runtime::tasks::TaskGroup;
    use k8s_openapi::ByteString;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn fleet() -> Fleet {
        serde_json::from_value(json!({
            "metadata": {"name": "lobby", "namespace": "games"},
            "spec": {"replicas": 3, "template": {"spec": {"template": {}}}},
        }))
        .expect("a Fleet")
    }

    fn at(url: String) -> WebhookPolicy {
        WebhookPolicy { url: Some(url), ..WebhookPolicy::default() }
    }

    /// A service that gives each connection this answer, and then nothing.
    async fn service(group: &TaskGroup, answer: Option<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/scale", listener.local_addr().expect("an address"));
        group.spawn("service", async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut question = [0_u8; 4096];
                let _ = stream.read(&mut question).await;
                if let Some(answer) = &answer {
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                open.push(stream);
            }
            Ok::<(), io::Error>(())
        });
        url
    }

    fn http(status: &str, body: &str) -> Option<String> {
        Some(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }

    #[tokio::test]
    async fn only_an_answer_as_agreed_counts() {
        let group = TaskGroup::new(CancellationToken::new());
        let scaled = r#"{"response": {"scale": true, "replicas": 7}}"#;
        let rows = [
            ("as agreed", http("200 OK", scaled), Ok(7)),
            ("created", http("201 Created", scaled), Err("answered 201")),
            ("elsewhere", http("302 Found", scaled), Err("answered 302")),
            ("out of order", http("500 Internal Server Error", scaled), Err("answered 500")),
            ("no response", http("200 OK", "{}"), Err("its answer has no response")),
            ("no JSON", http("200 OK", "seven"), Err("its answer is no JSON")),
            ("too long", http("200 OK", &" ".repeat(LONGEST_ANSWER + 1)), Err("could not read the answer")),
            ("no HTTP", Some("seven\r\n".to_owned()), Err("could not ask")),
        ];
        for (what, answer, expected) in rows {
            let url = service(&group, answer).await;
            let said = Asker::new().ask(&at(url), &fleet()).await;
            match (said, expected) {
                (Ok(desired), Ok(replicas)) => assert_eq!(desired, Desired::free(replicas), "{what}"),
                (Err(error), Err(words)) => {
                    let text = berth_runtime::error::chain(&error);
                    assert!(text.contains(words), "{what}: {text}");
                }
                (said, expected) => panic!("{what}: {said:?}, not {expected:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_silent_service_is_given_up() {
        let group = TaskGroup::new(CancellationToken::new());
        let asker = Asker { limit: Duration::from_millis(50), ..Asker::new() };
        let url = service(&group, None).await;
        let said = asker.ask(&at(url), &fleet()).await;
        assert!(matches!(said, Err(NoAnswer::Webhook(AskError::Late { .. }))), "{said:?}");
    }

    #[tokio::test]
    async fn a_bundle_that_is_none_is_told() {
        let bundle = |text: &str| WebhookPolicy {
            ca_bundle: Some(ByteString(text.as_bytes().to_vec())),
            ..at("https://127.0.0.1:1/".to_owned())
        };
        let said = Asker::new().ask(&bundle("certificates"), &fleet()).await;
        assert!(matches!(said, Err(NoAnswer::Webhook(AskError::Bundle))), "{said:?}");
    }

    #[test]
    fn few_clients_are_kept_and_those_used_last() {
        let asker = Asker::new();
        let count = || asker.clients.lock().expect("the clients").len();
        for _ in 0..3 {
            asker.client(Trust::Nobody).expect("a client");
        }
        assert_eq!(count(), 1);
        let made = |name: usize| {
            let key = rcgen::KeyPair::generate().expect("a key");
            let params = rcgen::CertificateParams::new(vec![format!("{name}.test")]).expect("a name");
            Trust::Bundle(params.self_signed(&key).expect("a certificate").pem().into_bytes())
        };
        for name in 0..KEPT {
            asker.client(made(name)).expect("a client");
        }
        assert_eq!(count(), KEPT);
        let is_kept =
            asker.clients.lock().expect("the clients").iter().any(|(trust, _)| *trust == Trust::Nobody);
        assert!(!is_kept, "the one not used for longest goes");
    }
}
