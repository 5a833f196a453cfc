//! What of one server stands in the journal: the words between its outbox, which decides, and the journal, which writes.
//! Pure.

use std::sync::Arc;

use berth_api::link::{Asked, Sequence};

/// A change with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) sequence: Sequence,
    /// Shared, because a change is in memory, on its way to the disk and on its way to the agent at once.
    pub(crate) asked: Arc<Asked>,
}

/// Counts what a server's game was promised: whoever asked holds the count as it was then, and is answered once
/// everything up to it is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(super) u64);

/// What is to be written of a server, all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    /// Whatever stands there of the server goes first.
    pub(crate) is_rewrite: bool,
    /// Changes up to this one go.
    pub(crate) trim: Option<Sequence>,
    /// Written, in the place of what has the same number.
    pub(crate) puts: Vec<Numbered>,
    /// The last number that was given.
    pub(crate) last: Sequence,
    /// Everything promised up to here is in it.
    pub(super) ticket: Ticket,
    /// Counts renumberings: a draft from before one says nothing any more.
    pub(super) generation: u64,
}

/// What stood in the journal of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The last number that was given.
    pub(crate) last: Sequence,
    /// What is not confirmed, oldest first.
    pub(crate) changes: Vec<Numbered>,
}

/// What the journal knows of a server's past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) record: Option<Record>,
    /// An earlier journal is lost: where there is no record there may have been one.
    pub(crate) is_lost: bool,
    /// Above every number that an earlier journal can have given.
    pub(crate) above: Sequence,
}
