//! What a game was promised and nobody has confirmed yet: changes, numbered and in order. Pure.
//!
//! ```text
//!   acknowledged │ handed over, unacknowledged │ fresh
//!   (forgotten)  │ never altered, said again   │ seen by nobody: merged, and renumbered when
//!                │ after a reconnect           │ the server's applied number has run ahead
//! ```
//!
//! Every answered call goes through [`Outbox::push`], so that a journal can sit under it. Only fresh changes are merged,
//! the last of a kind wins, and what has been handed over once keeps its number and its content for good. A window
//! bounds what is under way; behind it changes merge, so that neither a slow agent nor a chatty game fills the memory.

use std::collections::VecDeque;

use berth_api::link::{Change, Sequence};

/// Changes under way before metadata waits for acknowledgements.
const WINDOW: usize = 64;
/// Changes under way before a state waits as well: states go past a full window of metadata.
const WINDOW_FOR_STATES: usize = 256;
/// Bytes under way before metadata waits: one server's annotations twice over.
const WINDOW_BYTES: usize = 512 * 1024;
/// Fresh changes that are kept; a game reaches it only with a thousand different keys while nobody listens.
const MOST_FRESH: usize = 1024;

/// A change with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) sequence: Sequence,
    pub(crate) change: Change,
}

/// As many changes wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MOST_FRESH} changes wait for the node's agent; try again when it is back")]
pub(crate) struct Full;

/// The unconfirmed changes of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    /// Gap-free, oldest first; the first `handed` of them have been handed over at least once.
    changes: VecDeque<Numbered>,
    handed: usize,
    /// How many of those the present connection has been told.
    told: usize,
    /// The last number that was given.
    last: Sequence,
    /// The last number of a state.
    last_state: Sequence,
}

impl Outbox {
    /// Takes a change in: as a new one, or in the place of a fresh one of its kind.
    pub(crate) fn push(&mut self, change: Change) -> Result<(), Full> {
        if let Some(fresh) =
            self.changes.range_mut(self.handed..).find(|fresh| is_replaced(&fresh.change, &change))
        {
            // Shutdown beats every other state, also one that is asked for later.
            if fresh.change != Change::Shutdown {
                fresh.change = change;
            }
            return Ok(());
        }
        if self.changes.len() - self.handed >= MOST_FRESH {
            return Err(Full);
        }
        self.last = self.last.next();
        if is_state(&change) {
            self.last_state = self.last;
        }
        self.changes.push_back(Numbered { sequence: self.last, change });
        Ok(())
    }

    /// What may be handed over now; it counts as handed over from here on.
    pub(crate) fn hand_over(&mut self) -> Vec<Numbered> {
        let until = self.open_until();
        let now = self.changes.range(self.told..until).cloned().collect();
        self.told = until;
        self.handed = self.handed.max(until);
        now
    }

    /// Whether [`Outbox::hand_over`] would give anything.
    pub(crate) fn has_more(&self) -> bool {
        self.open_until() > self.told
    }

    /// A new connection begins, which has been told nothing.
    pub(crate) fn rewind(&mut self) {
        self.told = 0;
    }

    /// Changes up to this one are done with.
    pub(crate) fn acknowledge(&mut self, sequence: Sequence) {
        let done = self.changes.range(..self.handed).take_while(|change| change.sequence <= sequence).count();
        self.changes.drain(..done);
        self.handed -= done;
        self.told = self.told.saturating_sub(done);
    }

    /// The server as it is now contains changes up to this one. Where that runs ahead of what this process has handed
    /// over, an earlier process gave those numbers, and the fresh changes take the next ones.
    pub(crate) fn applied(&mut self, applied: Sequence) {
        self.acknowledge(applied);
        let before = self.handed.checked_sub(1).and_then(|index| self.changes.get(index));
        let next = match (before, self.changes.get(self.handed)) {
            (Some(before), _) => before.sequence.max(applied).next(),
            (None, Some(fresh)) => fresh.sequence.max(applied.next()),
            (None, None) => self.last.max(applied).next(),
        };
        let mut number = next;
        for fresh in self.changes.range_mut(self.handed..) {
            fresh.sequence = number;
            if is_state(&fresh.change) {
                self.last_state = number;
            }
            self.last = number;
            number = number.next();
        }
        self.last = self.last.max(applied);
    }

    /// The state asked for last, while it is unconfirmed.
    pub(crate) fn state(&self) -> Option<&Change> {
        self.changes.iter().rev().map(|numbered| &numbered.change).find(|change| is_state(change))
    }

    /// Number of the state asked for last, confirmed or not.
    pub(crate) fn last_state(&self) -> Sequence {
        self.last_state
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().map(|numbered| &numbered.change)
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// How far changes may be handed over: what was once, and fresh ones as far as the window reaches.
    fn open_until(&self) -> usize {
        let state = self.changes.range(self.handed..).position(|fresh| is_state(&fresh.change));
        let past_the_window = state.map_or(0, |position| (self.handed + position + 1).min(WINDOW_FOR_STATES));
        let mut bytes: usize = self.changes.range(..self.handed).map(|handed| size(&handed.change)).sum();
        let mut within = self.handed;
        while within < self.changes.len().min(WINDOW) && bytes < WINDOW_BYTES {
            bytes += size(&self.changes[within].change);
            within += 1;
        }
        within.max(past_the_window)
    }
}

fn is_state(change: &Change) -> bool {
    match change {
        Change::Ready | Change::Allocate { .. } | Change::Reserve { .. } | Change::Shutdown => true,
        Change::Label { .. } | Change::Annotation { .. } => false,
    }
}

fn is_replaced(old: &Change, new: &Change) -> bool {
    match (old, new) {
        (Change::Label { key: old, .. }, Change::Label { key: new, .. })
        | (Change::Annotation { key: old, .. }, Change::Annotation { key: new, .. }) => old == new,
        (old, new) => is_state(old) && is_state(new),
    }
}

fn size(change: &Change) -> usize {
    match change {
        Change::Label { key, value } | Change::Annotation { key, value } => key.len() + value.len(),
        Change::Ready | Change::Allocate { .. } | Change::Reserve { .. } | Change::Shutdown => 0,
    }
}

#[cfg(test)]
mod tests;
