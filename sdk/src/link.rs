//! The way to the node's agent: connect, say what is held and owed, take what comes, and do so again for ever.
//!
//! ```text
//!   connect ─▶ Hello ─▶ Hello ─▶ HandBack… HandBackEnds ─▶ changes and pulses as they come
//!      ▲                                                        │
//!      └──────────── backoff, 50 ms to 1 s ◀── broken ──────────┘
//! ```
//!
//! The servers and their listeners belong to the [`worker`] and outlive every connection. Whatever a connection was told
//! before it broke is told again to the next one, until the agent confirms it.

mod connection;
mod kept;
mod listeners;
pub(crate) mod worker;

use std::io;

use berth_api::link::FrameError;

/// Why a connection to the agent could not be made, or ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("could not connect to the agent's socket")]
    Connect(#[source] io::Error),
    #[error("could not read from the agent")]
    Receive(#[source] io::Error),
    #[error("could not write to the agent")]
    Send(#[source] io::Error),
    #[error("the agent has closed the connection")]
    Closed,
    #[error("the agent said something that cannot be read")]
    Incoming(#[source] FrameError),
    #[error("could not put a frame for the agent into words")]
    Outgoing(#[source] FrameError),
    #[error("a frame claims {claimed} sockets and {found} have come with it")]
    MissingSockets { claimed: usize, found: usize },
    #[error("the agent sent {count} sockets that no frame claims")]
    StraySockets { count: usize },
    #[error("sockets were lost on the way, because too many came at once or no more files may be open")]
    LostSockets,
    #[error("the agent did not say Hello within {seconds} s")]
    NoHello { seconds: u64 },
    #[error("the agent did not begin with Hello, or said it twice")]
    Impolite,
    #[error("servers were found in the journal; what is held is said once more")]
    Found,
    #[error(
        "the agent speaks versions {theirs:?} of the link and we speak {ours:?}; run versions that are at most one release apart"
    )]
    Version { ours: (u32, u32), theirs: (u32, u32) },
}

impl LinkError {
    /// A short fixed word for metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Receive(_) | Self::Send(_) => "io",
            Self::Closed => "closed",
            Self::Incoming(_) | Self::Outgoing(_) => "frame",
            Self::MissingSockets { .. } | Self::StraySockets { .. } | Self::LostSockets => "sockets",
            Self::NoHello { .. } | Self::Impolite => "hello",
            Self::Found => "found",
            Self::Version { .. } => "version",
        }
    }
}
