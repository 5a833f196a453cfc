//! Connections: accepted, secured, told apart by their certificate, and asked to come back before they are too old.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use berth_runtime::CancellationToken;
use berth_runtime::backoff::jittered;
use berth_runtime::tasks::Spawner;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::tls::common_name;

/// How long a handshake, or the head of a request, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a silent HTTP/2 connection is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// The wait after a connection could not be accepted, such as for want of file descriptors.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

/// A listener that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}; choose another port or free it")]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

/// Who calls, as the connection shows.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Whose certificate the caller has shown, if any; it has been verified.
    pub subject: Option<Subject>,
}

/// Whom a certificate is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its common name, where it has one.
    pub common_name: Option<String>,
}

/// What answers requests.
pub trait Entrance: Clone + Send + Sync + 'static {
    /// Answers one request.
    fn answer(&self, request: Request<Body>, caller: Caller) -> impl Future<Output = Response> + Send;
}

/// A bound port.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    /// The newest certificates; absent for plain text.
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    max_age: Duration,
}

impl Listener {
    /// Binds it. Port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is taken or not of this machine.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<watch::Receiver<Arc<ServerConfig>>>,
        max_age: Duration,
    ) -> Result<Self, ListenError> {
        let bound = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bound.await.map_err(|source| ListenError { address, source })?;
        Ok(Self { listener, address, tls, max_age })
    }

    /// The address that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, and lets requests that are under way be answered.
    ///
    /// # Errors
    /// None.
    pub async fn serve<E: Entrance>(
        self,
        entrance: E,
        spawner: Spawner,
        stop: CancellationToken,
    ) -> Result<(), Infallible> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let connection = Connection {
                        tls: self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.borrow().clone())),
                        max_age: jittered(self.max_age, rand::random()),
                        stop: stop.clone(),
                    };
                    // Its end needs no look: what a connection has to say, it says itself.
                    drop(spawner.spawn_child("connection", connection.run(stream, entrance.clone())));
                }
                Err(error) => {
                    warn!(%error, "could not accept a connection");
                    sleep(ACCEPT_WAIT).await;
                }
            }
        }
    }
}

struct Connection {
    tls: Option<TlsAcceptor>,
    max_age: Duration,
    stop: CancellationToken,
}

impl Connection {
    async fn run<E: Entrance>(self, stream: TcpStream, entrance: E) {
        drop(stream.set_nodelay(true));
        let Some(acceptor) = &self.tls else {
            return self.talk(stream, entrance, Caller::default()).await;
        };
        match timeout(PATIENCE, acceptor.accept(stream)).await {
            Ok(Ok(secured)) => {
                let certificate = secured.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let subject =
                    certificate.map(|certificate| Subject { common_name: common_name(certificate) });
                let caller = Caller { subject };
                // In a place of its own: whoever never gets so far needs no room for it.
                Box::pin(self.talk(secured, entrance, caller)).await;
            }
            Ok(Err(error)) => debug!(%error, "a handshake failed"),
            Err(_) => debug!("a handshake took too long"),
        }
    }

    async fn talk<E, S>(&self, stream: S, entrance: E, caller: Caller)
    where
        E: Entrance,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request: Request<Incoming>| {
            let (entrance, caller) = (entrance.clone(), caller.clone());
            async move { Ok::<_, Infallible>(entrance.answer(request.map(Body::new), caller).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(KEEP_ALIVE));
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = async { tokio::select! { () = sleep(self.max_age) => {}, () = self.stop.cancelled() => {} } } => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(error = %error, "a connection ended");
        }
    }
}
