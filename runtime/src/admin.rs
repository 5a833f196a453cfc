//! The admin endpoint: `/livez`, `/readyz` and `/metrics`, and nothing else.
//!
//! Binding and serving are two steps, so that a busy port is an error at start and port 0 can be asked for its number.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::health::Readiness;
use crate::metrics::{CONTENT_TYPE, Metrics};

/// Why the admin endpoint failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("could not listen for admin requests on {address}; choose another address or free the port")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
    /// The listener failed while serving.
    #[error("could not serve admin requests")]
    Serve {
        /// What the kernel says.
        source: io::Error,
    },
}

/// A bound admin endpoint that does not answer yet.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
}

#[derive(Clone)]
struct Seen {
    readiness: Readiness,
    metrics: Arc<Metrics>,
}

impl Admin {
    /// Listens on the address; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is taken or not of this machine.
    pub async fn bind(address: SocketAddr) -> Result<Self, AdminError> {
        let bind_error = |source| AdminError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        Ok(Self { listener, address })
    }

    /// The address that was bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`. Connections that are open then are not waited for: nobody's work depends on a scrape.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(
        self,
        readiness: Readiness,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Result<(), AdminError> {
        let service = routes(readiness, metrics);
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            ended = std::future::IntoFuture::into_future(axum::serve(self.listener, service)) => {
                ended.map_err(|source| AdminError::Serve { source })
            }
        }
    }
}

fn routes(readiness: Readiness, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .with_state(Seen { readiness, metrics })
}

async fn readyz(State(seen): State<Seen>) -> Response {
    let unmet = seen.readiness.unmet();
    if unmet.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", unmet.join(", "))).into_response()
}

async fn scrape(State(seen): State<Seen>) -> Response {
    match seen.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{}\n", crate::error::chain(&error))).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::health::Conditions;

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
        let exchange = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        tokio::time::timeout(Duration::from_secs(10), exchange).await.expect("an answer within ten seconds")
    }

    #[tokio::test]
    async fn it_answers_three_paths_and_nothing_else() {
        let admin = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = admin.address();
        let mut conditions = Conditions::default();
        let lease = conditions.name("lease");
        let metrics = Arc::new(Metrics::new("program", "1"));
        let stop = CancellationToken::new();
        let requests = async {
            assert!(fetch(address, "/livez").await.starts_with("HTTP/1.1 200"));
            let waiting = fetch(address, "/readyz").await;
            assert!(
                waiting.starts_with("HTTP/1.1 503") && waiting.ends_with("not ready: lease\n"),
                "{waiting}"
            );
            lease.set(true);
            assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.1 200"));
            assert!(fetch(address, "/metrics").await.contains("berth_build_info"));
            for path in ["/", "/debug", "/metrics/", "/livez/x"] {
                assert!(fetch(address, path).await.starts_with("HTTP/1.1 404"), "{path}");
            }
            stop.cancel();
        };
        let (served, ()) =
            tokio::join!(admin.serve(conditions.close(), Arc::clone(&metrics), stop.clone()), requests);
        served.unwrap();
    }

    #[tokio::test]
    async fn a_busy_port_is_named() {
        let first = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let error = Admin::bind(first.address()).await.unwrap_err();
        assert!(error.to_string().contains(&first.address().to_string()), "{error}");
    }
}
