//! Every call over a WebSocket: each text from the client is a part of the request's body, each line of the answer is a
//! text to the client.

use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures::StreamExt as _;
use http::request::Parts;
use http::{Method, header};
use tonic::Code;

use super::failure::Failure;
use super::grpc::shown;
use super::route::{Found, Target, find, method_in_query};
use super::unary::{has_body, serve, take_pings_from};
use super::{Desk, json};
use crate::metrics::Call;

/// Largest text from a client.
const LARGEST_TEXT: usize = 64 * 1024;

/// Whether a request asks for a WebSocket.
pub(super) fn is_asked_for(parts: &Parts) -> bool {
    let upgrade = parts.headers.get(header::UPGRADE).and_then(|upgrade| upgrade.to_str().ok());
    parts.method == Method::GET && upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// Accepts the upgrade and speaks. `held` stays with the conversation.
pub(super) fn talk<H>(desk: Desk, parts: &Parts, upgrade: WebSocketUpgrade, held: Arc<H>) -> Response
where
    H: Send + Sync + 'static,
{
    let method = parts.uri.query().and_then(method_in_query).unwrap_or_else(|| parts.method.clone());
    let found = find(&method, parts.uri.path(), &parts.headers);
    let query = parts.uri.query().map(str::to_owned);
    upgrade.max_message_size(LARGEST_TEXT).max_frame_size(LARGEST_TEXT).on_upgrade(move |socket| async move {
        converse(&desk, found, query.as_deref(), socket).await;
        drop(held);
    })
}

async fn converse(desk: &Desk, found: Found, query: Option<&str>, mut socket: WebSocket) {
    // A client that has gone away is no failure: whatever it was told last, it is not there any more.
    let last = match found {
        Found::NoSuchPath => Some(unknown(desk, Code::NotFound, "Not Found")),
        Found::NoSuchMethod => Some(unknown(desk, Code::Unimplemented, "Method Not Allowed")),
        Found::Call(Target { call: Call::WatchGameServer, .. }) => return watch(desk, socket).await,
        Found::Call(Target { call: Call::Health, .. }) => take_pings(desk, &mut socket).await,
        Found::Call(target) if !has_body(target.call) => Some(answer(serve(desk, &target, query, b"").await)),
        Found::Call(target) => match next_text(desk, &mut socket).await {
            Some(body) => Some(answer(serve(desk, &target, query, &body).await)),
            None => None,
        },
    };
    if let Some(last) = last {
        let _ = socket.send(Message::Text(last.into())).await;
    }
    let _ = socket.send(Message::Close(None)).await;
}

async fn watch(desk: &Desk, mut socket: WebSocket) {
    let mut shown = std::pin::pin!(shown(desk));
    loop {
        tokio::select! {
            biased;
            // What a client says into a watch means nothing, but its end does.
            said = socket.recv() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            next = shown.next() => match next {
                Some(next) => {
                    if socket.send(Message::Text(json::result(&next).into())).await.is_err() {
                        return;
                    }
                }
                None => break,
            },
        }
    }
    let _ = socket.send(Message::Close(None)).await;
}

async fn take_pings(desk: &Desk, socket: &mut WebSocket) -> Option<String> {
    let mut bytes = Vec::new();
    while let Some(text) = next_text(desk, socket).await {
        bytes.extend_from_slice(&text);
        if let Err(failure) = take_pings_from(desk, &mut bytes) {
            desk.ended(Call::Health, failure.code);
            return Some(answer(Err(failure)));
        }
    }
    desk.ended(Call::Health, Code::Ok);
    None
}

/// Waits for the next text; `None` when there is none any more.
async fn next_text(desk: &Desk, socket: &mut WebSocket) -> Option<Vec<u8>> {
    loop {
        let said = tokio::select! {
            biased;
            () = desk.seat.gone().cancelled() => return None,
            said = socket.recv() => said,
        };
        match said?.ok()? {
            Message::Text(text) => return Some(text.as_bytes().to_vec()),
            Message::Binary(bytes) => return Some(bytes.to_vec()),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return None,
        }
    }
}

fn unknown(desk: &Desk, code: Code, message: &str) -> String {
    desk.ended(Call::Unknown, code);
    json::error(code, message)
}

fn answer(answered: Result<String, Failure>) -> String {
    answered.unwrap_or_else(|failure| json::error(failure.code, &failure.message))
}
