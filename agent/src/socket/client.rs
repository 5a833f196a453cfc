//! Asking the agent of this node.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::views::Status;

/// How long the agent may take: it answers from memory.
const LIMIT: Duration = Duration::from_secs(5);

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
    /// It refused.
    #[error("the agent answered {status}")]
    Refused {
        /// With this.
        status: StatusCode,
    },
    /// The answer cannot be read.
    #[error("could not read the agent's answer; is it of another version?")]
    Decode(#[source] serde_json::Error),
    /// It took too long.
    #[error("no answer from the agent within {LIMIT:?}")]
    TooSlow,
}

/// Asks for the status.
///
/// # Errors
/// Why there is none.
pub async fn status(path: &Path) -> Result<Status, ClientError> {
    tokio::time::timeout(LIMIT, ask(path)).await.unwrap_or(Err(ClientError::TooSlow))
}

async fn ask(path: &Path) -> Result<Status, ClientError> {
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| ClientError::Connect { path: path.to_owned(), source })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::Talk)?;
    let request = Request::get("/v1/status")
        .header(HOST, "agent")
        .body(Empty::<Bytes>::new())
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
    let (status, body) = loop {
        tokio::select! {
            biased;
            answer = &mut conversation => break answer?,
            ended = &mut connection => ended.map_err(ClientError::Talk)?,
        }
    };
    if status != StatusCode::OK {
        return Err(ClientError::Refused { status });
    }
    serde_json::from_slice(&body).map_err(ClientError::Decode)
}
