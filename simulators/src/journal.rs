//! Requests that came, for tests that count calls and attempts.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::Serialize;

/// Requests that are kept.
const KEPT: usize = 20_000;

/// One request and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
    pub(crate) protocol: &'static str,
    pub(crate) operation: String,
    pub(crate) access_key: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) subjects: Vec<String>,
    /// The same for all attempts of one call.
    pub(crate) invocation: Option<String>,
    pub(crate) attempt: Option<String>,
    pub(crate) decision: String,
    pub(crate) faults: Vec<String>,
}

/// The last requests.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: VecDeque<Entry>,
    number: u64,
}

impl Journal {
    /// The number of the next request.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn add(&mut self, entry: Entry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Those of an operation, and about a subject, if these are said.
    pub(crate) fn about<'a>(
        &'a self,
        operation: Option<&'a str>,
        subject: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| {
            operation.is_none_or(|operation| entry.operation == operation)
                && subject.is_none_or(|subject| entry.subjects.iter().any(|one| one == subject))
        })
    }
}
