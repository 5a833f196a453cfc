//! The task of one listener: takes connections in and serves each in a task of its own, until the listener is closed.
//!
//! HTTP/2 pings of clients are answered and never held against them, and connections are never closed for being idle:
//! official clients keep one connection for a server's whole life.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::error::chain;
use berth_runtime::tasks::Spawner;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};

use super::{Desk, grpc, rest};
use crate::metrics::{OpenConnection, ServeMetrics, Transport};

/// Connections of one listener at a time. A game needs one; the bound keeps one game from taking everybody's memory.
const MOST_CONNECTIONS: usize = 256;
/// Calls under way on one connection.
const MOST_CALLS: u32 = 256;
/// Bytes that a client may send ahead on one call, and on one connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Bytes that wait for a client to read them, on one call.
const SEND_BUFFER: usize = 64 * 1024;
/// How long a connection may take to end once its server is gone: open streams end by themselves before that.
const FAREWELL: Duration = Duration::from_secs(1);
/// The wait after an accept that failed for want of files or memory.
const BREATH: Duration = Duration::from_millis(100);

/// One listener and what it needs to serve.
pub(crate) struct Acceptor {
    pub(crate) listener: Arc<TcpListener>,
    pub(crate) transport: Transport,
    pub(crate) desk: Desk,
    pub(crate) metrics: ServeMetrics,
    pub(crate) spawner: Spawner,
}

impl Acceptor {
    /// Accepts until `stop`. Connections end then as well.
    pub(crate) async fn accept(self, stop: CancellationToken) {
        let service = Service::new(self.transport, &self.desk);
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    warn!(game_server = %self.desk.seat.uid(), error = %chain(&error), "could not accept");
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(BREATH) => continue,
                    }
                }
            };
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                self.metrics.refused(self.transport);
                continue;
            };
            let open = self.metrics.opened(self.transport);
            let (service, stop) = (service.clone(), stop.clone());
            drop(self.spawner.spawn_child("connection", async move {
                service.serve(stream, Arc::new((place, open)), stop).await;
            }));
        }
    }
}

/// The connection is broken, not the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// What a connection occupies.
type Held = (OwnedSemaphorePermit, OpenConnection);

#[derive(Clone)]
enum Service {
    Grpc(tonic::service::Routes),
    Rest(Desk),
}

impl Service {
    fn new(transport: Transport, desk: &Desk) -> Self {
        match transport {
            Transport::Grpc => Self::Grpc(grpc::routes(desk.clone())),
            Transport::Rest => Self::Rest(desk.clone()),
        }
    }

    /// Serves one connection; `held` stays with it, also where it outlives this function as a WebSocket.
    async fn serve(self, stream: TcpStream, held: Arc<Held>, stop: CancellationToken) {
        // Answers are small and waited for. Without it they are late, not wrong.
        let _ = stream.set_nodelay(true);
        let ended = match self {
            Self::Grpc(routes) => serve_grpc(stream, routes, stop).await,
            Self::Rest(desk) => serve_rest(stream, desk, held, stop).await,
        };
        if let Err(error) = ended {
            debug!(error = %chain(&error), "connection ended");
        }
    }
}

async fn serve_grpc(
    stream: TcpStream,
    routes: tonic::service::Routes,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MOST_CALLS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        ended = connection.as_mut() => return ended,
    }
    tokio::time::timeout(FAREWELL, connection).await.unwrap_or(Ok(()))
}

async fn serve_rest(
    stream: TcpStream,
    desk: Desk,
    held: Arc<Held>,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let service = hyper::service::service_fn(move |request| {
        let (desk, held) = (desk.clone(), Arc::clone(&held));
        async move { Ok::<_, Infallible>(rest::answer(desk, request, held).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        ended = connection.as_mut() => return ended,
    }
    tokio::time::timeout(FAREWELL, connection).await.unwrap_or(Ok(()))
}
