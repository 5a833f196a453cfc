//! One game server's SDK talk, pure: what its game asks for, what it is answered, and what the agent must hear of it.
//!
//! Time comes in as a [`Moment`]; what goes out is read from the [`Session`](session::Session) afterwards.

pub(crate) mod amounts;
pub(crate) mod local;
pub(crate) mod metadata;
pub(crate) mod outbox;
pub(crate) mod page;
pub(crate) mod ping;
pub(crate) mod session;
pub(crate) mod shape;

use std::sync::Arc;
use std::time::Instant;

use berth_api::game_server::counters::{CounterChange, CounterError};
use berth_api::game_server::lists::ListError;
use berth_api::game_server::players::PlayersError;
use berth_api::game_server::{Counter, List};
use jiff::Timestamp;

/// Now, on both clocks: the monotonic one decides, the wall clock is written down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) instant: Instant,
    pub(crate) wall: Timestamp,
}

/// What a game asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Ready,
    Allocate,
    /// For so many seconds; zero or less means without end.
    Reserve {
        seconds: i64,
    },
    Shutdown,
    Label {
        key: String,
        value: String,
    },
    Annotation {
        key: String,
        value: String,
    },
    Counter {
        name: String,
        by: CounterChange,
    },
    AddToList {
        name: String,
        value: String,
    },
    RemoveFromList {
        name: String,
        value: String,
    },
    /// Another capacity or other values, as far as they are given.
    UpdateList {
        name: String,
        capacity: Option<i64>,
        values: Option<Vec<String>>,
    },
    Connect {
        player: String,
    },
    Disconnect {
        player: String,
    },
    PlayerCapacity {
        capacity: i64,
    },
}

/// What a game is told when it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// The counter as it is with that.
    Counter(Counter),
    /// The list as it is with that.
    List(List),
    /// Whether there was anything to do.
    Changed(bool),
}

/// Why a call is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The game asked for something that cannot be.
    #[error(transparent)]
    Metadata(#[from] metadata::MetadataError),
    /// The counter cannot be changed so.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// The list cannot be changed so.
    #[error(transparent)]
    List(#[from] ListError),
    /// The players cannot be changed so.
    #[error(transparent)]
    Players(#[from] PlayersError),
    /// No object has room for so much.
    #[error(transparent)]
    TooMuch(#[from] amounts::TooMuch),
    /// The agent has been away for very long.
    #[error(transparent)]
    Full(#[from] outbox::Full),
    /// The agent has not said yet what this server is.
    #[error("the node's agent has not introduced this game server yet; try again")]
    NotIntroduced,
    /// The journal has not been read yet; nothing can be promised before.
    #[error("the node's journal has not been read yet; try again")]
    NotRead,
    /// The change could not be written down.
    #[error("the change could not be written down, and nothing was done: {reason}; try again")]
    NotWritten { reason: Arc<str> },
    /// The disk has not answered for long.
    #[error("the change is not on disk after {seconds} s; it may still get there")]
    NotWrittenInTime { seconds: u64 },
    /// The server is gone, or this process ends.
    #[error("this game server is no longer served here")]
    Gone,
}
