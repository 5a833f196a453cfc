//! The REST gateway: the same calls over HTTP/1.1, and each of them over a WebSocket.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request as HttpRequest, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tonic::Code;

use super::failure::{Failure, http_status};
use super::grpc::shown;
use super::json;
use super::route::{Found, HEALTH, Target, find};
use super::unary::{serve, take_pings_from};
use super::{Desk, LARGEST_MESSAGE, websocket};
use crate::metrics::Call;
use crate::server::Refusal;

/// Tells the gateway's clients that a call was made; they find it on answers of calls, and not on those of routing.
const CALLED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("grpc-metadata-content-type"), HeaderValue::from_static("application/grpc"));

/// Answers one request. `held` stays with the request for as long as it lives.
pub(super) async fn answer<H>(desk: Desk, request: HttpRequest<Incoming>, held: Arc<H>) -> Response
where
    H: Send + Sync + 'static,
{
    let (mut parts, body) = request.into_parts();
    if websocket::is_asked_for(&parts) {
        return match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
            Ok(upgrade) => websocket::talk(desk, &parts, upgrade, held),
            Err(refused) => refused.into_response(),
        };
    }
    let mut pings = Pings { body, bytes: Vec::new(), is_over: false };
    if parts.uri.path() == HEALTH && !pings.begin().await {
        desk.ended(Call::Health, Code::InvalidArgument);
        return StatusCode::BAD_REQUEST.into_response();
    }
    let target = match route(&desk, &parts) {
        Ok(target) => target,
        Err(failure) => return refuse(&failure),
    };
    let answered = match target.call {
        Call::Health => take_pings(&desk, pings).await,
        Call::WatchGameServer => return called(watch(&desk)),
        call => match whole(pings.body).await {
            Ok(body) => serve(&desk, &target, parts.uri.query(), &body).await,
            Err(failure) => {
                desk.ended(call, failure.code);
                Err(failure)
            }
        },
    };
    called(match answered {
        Ok(text) => told(StatusCode::OK, text),
        Err(failure) => refuse(&failure),
    })
}

/// The call that a request means.
fn route(desk: &Desk, parts: &Parts) -> Result<Target, Failure> {
    let failure = match find(&parts.method, parts.uri.path(), &parts.headers) {
        Found::Call(target) => return Ok(target),
        Found::NoSuchPath => Failure { code: Code::NotFound, message: "Not Found".to_owned() },
        Found::NoSuchMethod => {
            Failure { code: Code::Unimplemented, message: "Method Not Allowed".to_owned() }
        }
    };
    desk.ended(Call::Unknown, failure.code);
    Err(failure)
}

async fn take_pings(desk: &Desk, mut pings: Pings) -> Result<String, Failure> {
    let counted = async {
        loop {
            take_pings_from(desk, &mut pings.bytes)?;
            if !pings.more().await? {
                break;
            }
        }
        if pings.bytes.is_empty() {
            return Ok(json::EMPTY.to_owned());
        }
        Err(Failure { code: Code::InvalidArgument, message: "the last ping is not whole".to_owned() })
    };
    let ended = tokio::select! {
        biased;
        () = desk.seat.gone().cancelled() => Err(Refusal::Gone.into()),
        ended = counted => ended,
    };
    desk.ended(Call::Health, ended.as_ref().map_or_else(|failure: &Failure| failure.code, |_| Code::Ok));
    ended
}

/// The body of a health call, which may be open for as long as the game runs.
struct Pings {
    body: Incoming,
    bytes: Vec<u8>,
    is_over: bool,
}

impl Pings {
    /// Waits for the first byte; false when there is none.
    async fn begin(&mut self) -> bool {
        while self.bytes.is_empty() {
            if !self.more().await.unwrap_or(false) {
                return false;
            }
        }
        true
    }

    /// Waits for more bytes; false when there are none.
    async fn more(&mut self) -> Result<bool, Failure> {
        if self.is_over {
            return Ok(false);
        }
        match self.body.frame().await {
            None => self.is_over = true,
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.bytes.extend_from_slice(&data);
                }
            }
            Some(Err(error)) => {
                return Err(Failure {
                    code: Code::Cancelled,
                    message: format!("the body broke off: {error}"),
                });
            }
        }
        Ok(!self.is_over)
    }
}

async fn whole(body: Incoming) -> Result<Bytes, Failure> {
    let collected = Limited::new(body, LARGEST_MESSAGE).collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("the body has more than {LARGEST_MESSAGE} bytes");
            return Failure { code: Code::ResourceExhausted, message };
        }
        Failure { code: Code::Cancelled, message: format!("the body broke off: {error}") }
    })
}

fn watch(desk: &Desk) -> Response {
    let lines = shown(desk).map(|shown| Ok::<_, Infallible>(json::result(&shown) + "\n"));
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refuse(failure: &Failure) -> Response {
    told(http_status(failure.code), json::error(failure.code, &failure.message))
}

fn told(status: StatusCode, text: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

fn called(mut response: Response) -> Response {
    let (name, value) = CALLED;
    response.headers_mut().insert(name, value);
    response
}
