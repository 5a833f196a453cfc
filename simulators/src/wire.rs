//! AWS on the wire: requests of three protocols in, answers in the same protocol out, and what goes wrong on the way.

pub(crate) mod calls;
mod cbor;
mod desk;
mod json;
mod query;
mod route;
mod scaling;
pub(crate) mod signature;
mod style;
#[cfg(test)]
mod tests;
mod value;

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use crate::faults::ResetAt;

pub(crate) use desk::answer;
pub(crate) use style::WireStyle;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Incoming {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(status: u16, text: impl Into<String>) -> Self {
        let headers = vec![("content-type", "text/plain".to_owned())];
        Self { status, headers, body: text.into().into_bytes() }
    }
}

/// What is done with a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    Reply(Reply),
    /// The body ends after so many bytes of those that were announced.
    Cut(Reply, usize),
    Hang,
    Reset(ResetAt),
}

/// What is done, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) wait: Duration,
    pub(crate) conduct: Conduct,
}

impl Outgoing {
    pub(crate) fn now(conduct: Conduct) -> Self {
        Self { wait: Duration::ZERO, conduct }
    }
}
