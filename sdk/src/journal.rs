//! The journal: what games were promised, on disk, so that a berth-sdk that dies loses none of it and gives no number
//! twice.
//!
//! One file, `journal.redb` in the state folder, opened by one process at a time. It promises that what
//! [`Store::commit`] has taken is there after any crash, and that a file that cannot be relied on is set aside under a
//! name that says why, never read and never deleted at once. What to write, and when, is for others to say.

mod store;

use std::io;
use std::path::PathBuf;

pub(crate) use store::{Opened, Store};

/// Why the journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error("could not make the folder {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("{path} is in use by another process")]
    Held { path: PathBuf },
    #[error("could not open {path}")]
    Open { path: PathBuf, source: redb::Error },
    #[error("could not read from the journal")]
    Read(#[source] redb::Error),
    #[error("could not write to the journal")]
    Write(#[source] redb::Error),
    #[error("the journal is corrupted: {what}")]
    Corrupt { what: String },
    #[error("the journal is of a format that this version cannot read: {what}")]
    Format { what: String },
    #[error("could not set {path} aside")]
    SetAside { path: PathBuf, source: io::Error },
    #[error("could not put a change into words")]
    Encode(#[source] serde_json::Error),
    #[error("the store failed in a way that it should not: {what}")]
    Panicked { what: String },
}

impl JournalError {
    /// A short fixed word for metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "folder",
            Self::Held { .. } => "held",
            Self::Open { .. } => "open",
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Corrupt { .. } => "corrupt",
            Self::Format { .. } => "format",
            Self::SetAside { .. } => "set_aside",
            Self::Encode(_) => "encode",
            Self::Panicked { .. } => "panic",
        }
    }
}
