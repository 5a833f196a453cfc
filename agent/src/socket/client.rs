//! Asking the agent of this node.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::views::{DrainAnswer, DrainRequest, Status, Told};
use crate::game_server::Line;

/// How long the agent may take: it answers from memory, or after a write to its disk.
const LIMIT: Duration = Duration::from_secs(5);
/// How long it may take where FleetIQ has to answer.
const LONG_LIMIT: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("could not reach the agent at {path}; is it running on this node, and are you root?")]
    Connect {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The conversation broke off.
    #[error("could not talk to the agent")]
    Talk(#[source] hyper::Error),
    /// The request could not be put together.
    #[error("could not put the request together")]
    Request(#[source] hyper::http::Error),
    /// The question could not be put into words.
    #[error("could not put the question into words")]
    Encode(#[source] serde_json::Error),
    /// It refused.
    #[error("the agent answered {status}: {message}")]
    Refused {
        /// With this.
        status: StatusCode,
        /// And these words.
        message: String,
    },
    /// The answer cannot be read.
    #[error("could not read the agent's answer; is it of another version?")]
    Decode(#[source] serde_json::Error),
    /// It took too long.
    #[error("no answer from the agent within {limit:?}")]
    TooSlow {
        /// How long it had.
        limit: Duration,
    },
}

impl ClientError {
    /// Whether there is no such thing on this node.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: StatusCode::NOT_FOUND, .. })
    }
}

/// Asks for the status.
///
/// # Errors
/// Why there is none.
pub async fn status(path: &Path) -> Result<Status, ClientError> {
    ask(path, Method::GET, "/v1/status", Bytes::new(), LIMIT).await
}

/// Orders a drain, or asks what one would mean.
///
/// # Errors
/// Why it is not done.
pub async fn drain(path: &Path, request: &DrainRequest) -> Result<DrainAnswer, ClientError> {
    ask(path, Method::POST, "/v1/drain", words(request)?, LIMIT).await
}

/// Takes an order to drain back.
///
/// # Errors
/// Why it is not done.
pub async fn undrain(path: &Path) -> Result<DrainAnswer, ClientError> {
    ask(path, Method::POST, "/v1/undrain", Bytes::new(), LIMIT).await
}

/// Gives the instance back to FleetIQ.
///
/// # Errors
/// Why it is not done.
pub async fn deregister(path: &Path) -> Result<Told, ClientError> {
    ask(path, Method::POST, "/v1/deregister", Bytes::new(), LONG_LIMIT).await
}

/// Asks for all that is known of a server, by its name or by its namespace and name.
///
/// # Errors
/// Why there is no answer.
pub async fn why(path: &Path, server: &str) -> Result<Line, ClientError> {
    ask(path, Method::GET, &format!("/v1/why/{server}"), Bytes::new(), LIMIT).await
}

fn words(body: &impl Serialize) -> Result<Bytes, ClientError> {
    serde_json::to_vec(body).map(Bytes::from).map_err(ClientError::Encode)
}

async fn ask<T: DeserializeOwned>(
    path: &Path,
    method: Method,
    route: &str,
    body: Bytes,
    limit: Duration,
) -> Result<T, ClientError> {
    let talk = talk(path, method, route, body);
    let (status, body) =
        tokio::time::timeout(limit, talk).await.unwrap_or(Err(ClientError::TooSlow { limit }))?;
    if status != StatusCode::OK {
        let told = serde_json::from_slice::<Told>(&body).map(|told| told.message);
        let message = told.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
        return Err(ClientError::Refused { status, message });
    }
    serde_json::from_slice(&body).map_err(ClientError::Decode)
}

async fn talk(
    path: &Path,
    method: Method,
    route: &str,
    body: Bytes,
) -> Result<(StatusCode, Bytes), ClientError> {
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| ClientError::Connect { path: path.to_owned(), source })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::Talk)?;
    let request = Request::builder()
        .method(method)
        .uri(route)
        .header(HOST, "agent")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(ClientError::Request)?;
    let conversation = async {
        let answer = sender.send_request(request).await.map_err(ClientError::Talk)?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(ClientError::Talk)?.to_bytes();
        Ok::<_, ClientError>((status, body))
    };
    // The connection makes progress only while it is polled; it ends after the conversation.
    let mut connection = std::pin::pin!(connection);
    let mut conversation = std::pin::pin!(conversation);
    loop {
        tokio::select! {
            biased;
            answer = &mut conversation => return answer,
            ended = &mut connection => ended.map_err(ClientError::Talk)?,
        }
    }
}
