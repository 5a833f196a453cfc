//! Connections: accepted, secured where they should be, answered, and treated as badly as a fault wants it.

mod stream;

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::tasks::Spawner;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming as IncomingBody, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use crate::faults::ResetAt;
use crate::services::Shared;
use crate::wire::{Conduct, Incoming, Outgoing, Reply};
use crate::{metadata, wire};

use stream::{Budget, Cuttable};

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// No request here is larger.
const LARGEST_BODY: usize = 1 << 20;
/// The wait after a connection could not be accepted, such as for want of file descriptors.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);
/// What of an answer gets through when its headers are cut.
const CUT_HEADERS: usize = 12;

/// What a listener speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Aws,
    Metadata,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Metadata => "imds",
        }
    }
}

/// A listener and what its connections need.
pub(crate) struct Listener {
    pub(crate) side: Side,
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) shared: Shared,
    pub(crate) spawner: Spawner,
}

impl Listener {
    /// Accepts connections until `stop`.
    ///
    /// # Errors
    /// None.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer, stop.clone()),
                Err(error) => {
                    debug!(error = %error, "could not accept a connection");
                    sleep(ACCEPT_WAIT).await;
                }
            }
        }
    }

    fn take(&self, stream: TcpStream, peer: SocketAddr, stop: CancellationToken) {
        let is_blacked_out = {
            let mut services = self.shared.lock();
            let now = services.bring_up();
            services.faults.blacks_out(self.side.name(), now)
        };
        if is_blacked_out {
            // As close to a refused connection as a listener gets. When it cannot be had, closing has to do.
            let _ = stream.set_zero_linger();
            return;
        }
        let _ = stream.set_nodelay(true);
        let desk = Desk { side: self.side, shared: self.shared.clone(), peer };
        let tls = self.tls.clone();
        drop(self.spawner.spawn_child("connection", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = desk.secure_and_serve(stream, tls) => {}
            }
        }));
    }
}

/// Answers the requests of one connection.
#[derive(Clone)]
struct Desk {
    side: Side,
    shared: Shared,
    peer: SocketAddr,
}

impl Desk {
    async fn secure_and_serve(self, stream: TcpStream, tls: Option<Arc<ServerConfig>>) {
        match tls {
            None => self.serve(stream).await,
            Some(tls) => match timeout(PATIENCE, TlsAcceptor::from(tls).accept(stream)).await {
                Ok(Ok(stream)) => self.serve(stream).await,
                Ok(Err(error)) => debug!(error = %error, "a client broke off the handshake"),
                Err(_) => debug!("a client did not finish the handshake"),
            },
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let (stream, budget) = Cuttable::new(stream);
        let service = service_fn(move |request| self.clone().answer(request, budget.clone()));
        let served = http1::Builder::new()
            // Clients take their clock from a Date, and ours may be of another day.
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            debug!(error = %error, "a connection ended in disorder");
        }
    }

    async fn answer(self, request: Request<IncomingBody>, budget: Budget) -> io::Result<Response<CutBody>> {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, LARGEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return respond(Reply::text(413, "too large\n"), None),
        };
        let incoming = Incoming {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers,
            body,
        };
        let wall = berth_runtime::clock::now();
        let Outgoing { wait, conduct } = {
            let mut services = self.shared.lock();
            match self.side {
                Side::Aws => wire::answer(&mut services, &incoming, wall),
                Side::Metadata => metadata::answer(&mut services, &incoming, self.peer.ip(), wall),
            }
        };
        if !wait.is_zero() {
            sleep(wait).await;
        }
        match conduct {
            Conduct::Reply(reply) => respond(reply, None),
            Conduct::Cut(reply, after) => respond(reply, Some(after)),
            Conduct::Hang => pending().await,
            Conduct::Reset(ResetAt::Before) => Err(io::ErrorKind::ConnectionReset.into()),
            Conduct::Reset(ResetAt::DuringHeaders) => {
                budget.set(CUT_HEADERS);
                respond(Reply::text(200, ""), None)
            }
            Conduct::Reset(ResetAt::AfterHeaders) => respond(Reply::text(200, "cut"), Some(0)),
        }
    }
}

fn respond(reply: Reply, cut_after: Option<usize>) -> io::Result<Response<CutBody>> {
    let body = Bytes::from(reply.body);
    let whole = body.len();
    let sent = cut_after.map_or(whole, |after| after.min(whole));
    let end = if cut_after.is_some() { End::Flush } else { End::Orderly };
    let body = CutBody { whole: whole as u64, rest: Some(body.slice(..sent)), end };
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(body).map_err(io::Error::other)
}

/// A body that may end before what was announced.
struct CutBody {
    whole: u64,
    rest: Option<Bytes>,
    end: End,
}

/// How a body ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Orderly,
    /// Cut, once what was said so far is on its way: an error at once would take the headers with it.
    Flush,
    Cut,
}

impl Body for CutBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(rest) = self.rest.take().filter(|rest| !rest.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
        match self.end {
            End::Orderly => Poll::Ready(None),
            End::Flush => {
                self.end = End::Cut;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            End::Cut => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.end == End::Orderly && self.rest.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.whole)
    }
}
