//! A small client for the instance's metadata, version 2.
//!
//! A token that is refused is thrown away and another one asked for, once: tokens die early when the service restarts. The
//! clients at hand keep such a token until it runs out by their own clock, hours later.

use std::fmt;
use std::time::Duration;

use berth_runtime::clock::Instant;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use berth_runtime::error::BoxError;

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(1);
/// How long a token is asked to live.
const TTL: &str = "300";
/// How long it is used.
const USED_FOR: Duration = Duration::from_secs(270);
/// Answers are short.
const LONGEST_ANSWER: usize = 64 << 10;
const TTL_HEADER: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";

/// Where the metadata are: a URL without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base(String);

impl Default for Base {
    fn default() -> Self {
        Self("http://169.254.169.254".to_owned())
    }
}

impl fmt::Display for Base {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Base {
    /// Reads a URL, with a path or without.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches('/');
        let uri: Uri = text.parse().ok()?;
        (uri.scheme_str() == Some("http") && uri.host().is_some()).then(|| Self(text.to_owned()))
    }
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// No answer in time. For a token alone this is what a hop limit that is too low looks like.
    #[error("no answer from the instance's metadata within {LIMIT:?}")]
    Timeout,
    /// No connection, or one that broke.
    #[error("could not reach the instance's metadata")]
    Unreachable(#[source] BoxError),
    /// Another status than those that mean something.
    #[error("the instance's metadata answer {0}")]
    Status(StatusCode),
    /// No text, or too much of it.
    #[error("what the instance's metadata answer cannot be read")]
    Unreadable(#[source] BoxError),
}

impl MetadataError {
    /// A short fixed word.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Status(StatusCode::UNAUTHORIZED) => "unauthorized",
            Self::Status(StatusCode::FORBIDDEN) => "forbidden",
            Self::Status(status) if status.is_server_error() => "busy",
            Self::Status(_) => "status",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

/// Reads one instance's metadata, one thing at a time.
#[derive(Debug)]
pub struct MetadataClient {
    http: Client<HttpConnector, Empty<Bytes>>,
    base: Base,
    token: Option<(HeaderValue, Instant)>,
}

impl MetadataClient {
    /// A client that has asked for nothing yet.
    #[must_use]
    pub fn new(base: Base) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(LIMIT));
        let http = Client::builder(TokioExecutor::new()).build(connector);
        Self { http, base, token: None }
    }

    /// What stands below `/latest/meta-data/`; none where there is nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn get(&mut self, path: &str) -> Result<Option<String>, MetadataError> {
        let had_token = self.token.is_some();
        match self.try_get(path).await {
            Err(MetadataError::Status(StatusCode::UNAUTHORIZED)) if had_token => {
                self.token = None;
                self.try_get(path).await
            }
            answer => answer,
        }
    }

    async fn try_get(&mut self, path: &str) -> Result<Option<String>, MetadataError> {
        let token = self.token().await?;
        let (status, text) =
            self.send(Method::GET, &format!("/latest/meta-data/{path}"), (TOKEN_HEADER, token)).await?;
        match status {
            StatusCode::OK => Ok(Some(text)),
            StatusCode::NOT_FOUND => Ok(None),
            status => {
                if status == StatusCode::UNAUTHORIZED {
                    self.token = None;
                }
                Err(MetadataError::Status(status))
            }
        }
    }

    async fn token(&mut self) -> Result<HeaderValue, MetadataError> {
        let now = Instant::now();
        if let Some((token, until)) = &self.token
            && now < *until
        {
            return Ok(token.clone());
        }
        let ttl = HeaderValue::from_static(TTL);
        let (status, text) = self.send(Method::PUT, "/latest/api/token", (TTL_HEADER, ttl)).await?;
        if status != StatusCode::OK {
            return Err(MetadataError::Status(status));
        }
        let mut token =
            HeaderValue::from_str(text.trim()).map_err(|error| MetadataError::Unreadable(error.into()))?;
        token.set_sensitive(true);
        self.token = Some((token.clone(), now + USED_FOR));
        Ok(token)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        (name, value): (&'static str, HeaderValue),
    ) -> Result<(StatusCode, String), MetadataError> {
        let unreadable = |error: BoxError| MetadataError::Unreadable(error);
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(name, value)
            .body(Empty::new())
            .map_err(|error| unreadable(error.into()))?;
        let exchange = async {
            let answer = self.http.request(request).await;
            let answer = answer.map_err(|error| MetadataError::Unreachable(error.into()))?;
            let status = answer.status();
            let body =
                Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await.map_err(unreadable)?;
            let text =
                String::from_utf8(body.to_bytes().to_vec()).map_err(|error| unreadable(error.into()))?;
            Ok((status, text))
        };
        timeout(LIMIT, exchange).await.map_err(|_| MetadataError::Timeout)?
    }
}

#[cfg(test)]
mod tests {
    use super::Base;

    #[test]
    fn a_base_is_an_http_url_with_or_without_a_path() {
        let table = [
            ("http://169.254.169.254", Some("http://169.254.169.254")),
            ("http://127.0.0.1:9169/i-0f3a9c2b7d1e45680/", Some("http://127.0.0.1:9169/i-0f3a9c2b7d1e45680")),
            ("http://[fd00:ec2::254]", Some("http://[fd00:ec2::254]")),
            ("https://169.254.169.254", None),
            ("169.254.169.254", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(Base::parse(text).map(|base| base.to_string()).as_deref(), expected, "{text}");
        }
    }
}
