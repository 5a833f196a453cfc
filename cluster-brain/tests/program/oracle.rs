//! A webhook of a studio's own: a real HTTPS server that says how many servers a Fleet shall have.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::cluster::Cluster;

/// What it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Scale(i32),
    Keep,
    Fail,
}

/// A question as it came.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

/// The server. It ends with its cluster.
pub(crate) struct Oracle {
    pub(crate) url: String,
    /// The certificate of its authority.
    pub(crate) bundle: ByteString,
    answer: watch::Sender<Answer>,
    asked: watch::Receiver<Vec<Question>>,
    connections: Arc<AtomicUsize>,
}

impl Oracle {
    pub(crate) async fn start(cluster: &Cluster, answer: Answer) -> Self {
        let (bundle, acceptor) = certificates();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (answer, answered) = watch::channel(answer);
        let (asking, asked) = watch::channel(Vec::new());
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, spawner, asking) = (Arc::clone(&connections), cluster.spawner.clone(), Arc::new(asking));
        let accept = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answered, asking) = (acceptor.clone(), answered.clone(), Arc::clone(&asking));
                let count = Arc::clone(&count);
                let _serving = spawner.spawn_child("oracle's connection", async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    count.fetch_add(1, Ordering::Relaxed);
                    let reply = |request| reply(request, &asking, *answered.borrow());
                    // A client that goes away is no fault of ours.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(reply)).await;
                });
            }
        };
        let _accepting = cluster.spawner.spawn_child("oracle", accept);
        Self { url: format!("https://localhost:{port}/scale/fleets"), bundle, answer, asked, connections }
    }

    pub(crate) fn say(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }

    /// Connections that have come to be, ever.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Waits for so many more questions, and gives the last.
    pub(crate) async fn wait_for_questions(&mut self, more: usize) -> Question {
        let wanted = self.asked.borrow().len() + more;
        let asked =
            tokio::time::timeout(crate::cluster::LIMIT, self.asked.wait_for(|asked| asked.len() >= wanted));
        let asked = asked.await.expect("questions in time").expect("a living oracle");
        asked.last().expect("a question").clone()
    }
}

async fn reply(
    request: Request<Incoming>,
    asking: &watch::Sender<Vec<Question>>,
    answer: Answer,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut question = Question {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: Value::Null,
    };
    let body = request.into_body().collect().await?.to_bytes();
    question.body = serde_json::from_slice(&body).unwrap_or_default();
    let uid = question.body["request"]["uid"].clone();
    asking.send_modify(|asked| asked.push(question));
    let (scale, replicas) = match answer {
        Answer::Scale(replicas) => (true, replicas),
        Answer::Keep => (false, 0),
        Answer::Fail => {
            let mut failed = Response::new(Full::new(Bytes::from_static(b"no")));
            *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return Ok(failed);
        }
    };
    let review = json!({"response": {"uid": uid, "scale": scale, "replicas": replicas}});
    Ok(Response::new(Full::new(Bytes::from(review.to_string()))))
}

/// An authority's certificate, and a server's that it signed.
fn certificates() -> (ByteString, TlsAcceptor) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let bundle = authority.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(authority, key);
    let mut server = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = server.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let configuration = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate of use");
    (ByteString(bundle.into_bytes()), TlsAcceptor::from(Arc::new(configuration)))
}
