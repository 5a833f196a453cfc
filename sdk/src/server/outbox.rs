//! What a game was promised and nobody has confirmed yet: changes, numbered and in order. Pure.
//!
//! ```text
//!   acknowledged │ released: on disk and fixed │ fresh: seen by nobody and merged, on disk or on
//!   (forgotten)  │ for good, said to the agent │ the way there; renumbered when the server's
//!                │ and again after a reconnect │ applied number has run ahead
//! ```
//!
//! Every call goes through [`Outbox::push`] and is answered when [`Outbox::written`] reaches its ticket. Nothing is told
//! to the agent before it is on disk, so that a number never means two things, whoever dies when. Only fresh changes are
//! merged, the last of a kind wins. A window bounds what is released; behind it changes merge, so that neither a slow
//! agent nor a chatty game fills memory or disk.
//!
//! The journal is behind it: [`Outbox::draft`] says what to write, one draft at a time, and hears what became of it.

use std::collections::VecDeque;
use std::sync::Arc;

use berth_api::link::{Change, Sequence};

use super::page::{Draft, Numbered, Past, Ticket, size};

/// Changes under way before metadata waits for acknowledgements.
const WINDOW: usize = 64;
/// Changes under way before a state waits as well: states go past a full window of metadata.
const WINDOW_FOR_STATES: usize = 256;
/// Bytes under way before metadata waits: one server's annotations twice over.
const WINDOW_BYTES: usize = 512 * 1024;
/// Changes that are kept; a game reaches it only with a thousand different keys while nobody listens.
const MOST_CHANGES: usize = 1024;

/// As many changes wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MOST_CHANGES} changes wait for the node's agent; try again when it is back")]
pub(crate) struct Full;

/// The unconfirmed changes of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    /// In the order of their numbers; the first `released` of them are on disk and fixed.
    changes: VecDeque<Kept>,
    released: usize,
    /// How many of those the present connection has been told.
    told: usize,
    /// The last number that was given.
    last: Sequence,
    /// The last number of a state that is done with.
    last_state_done: Sequence,
    /// The last number that the agent said is contained in the server.
    applied: Sequence,
    /// The journal has said what stands in it.
    is_read: bool,
    /// Where to go on counting when others have given numbers.
    above: Sequence,
    ticket: Ticket,
    /// What the next draft carries beside changes.
    trim: Option<Sequence>,
    must_rewrite: bool,
    /// The numbers on disk are not those here, until it is rewritten.
    is_renumbered: bool,
    generation: u64,
    /// A draft is on its way to the disk.
    is_writing: bool,
}

#[derive(Clone, Debug)]
struct Kept {
    sequence: Sequence,
    change: Arc<Change>,
    /// What is on disk in its place, which was promised whatever comes.
    written: Option<Arc<Change>>,
}

impl Kept {
    fn is_safe(&self) -> bool {
        self.written.as_ref().is_some_and(|written| Arc::ptr_eq(written, &self.change))
    }

    fn numbered(&self) -> Numbered {
        Numbered { sequence: self.sequence, change: Arc::clone(&self.change) }
    }

    fn size(&self) -> usize {
        size(&self.change)
    }
}

impl Outbox {
    /// The journal says what stood in it of this server. What did may have been told to an agent.
    pub(crate) fn read(&mut self, past: Past) {
        self.is_read = true;
        self.above = past.above;
        match past.record {
            Some(record) => {
                self.last = record.last;
                self.changes.extend(record.changes.into_iter().map(|numbered| Kept {
                    sequence: numbered.sequence,
                    written: Some(Arc::clone(&numbered.change)),
                    change: numbered.change,
                }));
                self.released = self.changes.len();
            }
            None if past.is_lost => self.last = past.above,
            None => {}
        }
        self.applied(self.applied);
    }

    /// Whether the journal has been read: before that nothing can be promised.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Takes a change in: as a new one, or in the place of a fresh one of its kind. Promised once it is written.
    pub(crate) fn push(&mut self, change: Change) -> Result<Ticket, Full> {
        if let Some(fresh) =
            self.changes.range_mut(self.released..).find(|fresh| is_replaced(&fresh.change, &change))
        {
            // Shutdown beats every other state, also one that is asked for later.
            if *fresh.change != Change::Shutdown {
                fresh.change = Arc::new(change);
                self.ticket.0 += 1;
            }
            return Ok(self.ticket);
        }
        if self.changes.len() >= MOST_CHANGES {
            return Err(Full);
        }
        self.append(Arc::new(change));
        self.ticket.0 += 1;
        Ok(self.ticket)
    }

    /// The count of what has been promised or is about to be.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Whether somebody waits for a draft: a change is not on disk.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.changes.range(self.released..).any(|fresh| !fresh.is_safe())
    }

    /// Whether there is anything to write, be it that something goes, and no draft is under way.
    pub(crate) fn has_draft(&self) -> bool {
        let is_different = self.trim.is_some() || self.must_rewrite || self.is_renumbered;
        !self.is_writing && (is_different || self.has_unwritten())
    }

    /// What is to be written now. The next one may be asked for when it is known what became of this one.
    pub(crate) fn draft(&mut self) -> Draft {
        self.is_writing = true;
        let is_rewrite = self.must_rewrite || self.is_renumbered;
        let puts = self.changes.iter().filter(|kept| is_rewrite || !kept.is_safe()).map(Kept::numbered);
        Draft {
            is_rewrite,
            trim: self.trim,
            puts: puts.collect(),
            last: self.last,
            ticket: self.ticket,
            generation: self.generation,
        }
    }

    /// A draft is on disk: everything promised up to the answer holds.
    pub(crate) fn written(&mut self, draft: &Draft) -> Option<Ticket> {
        self.is_writing = false;
        if self.trim == draft.trim {
            self.trim = None;
        }
        if draft.generation != self.generation {
            return None;
        }
        for put in &draft.puts {
            if let Ok(index) = self.changes.binary_search_by_key(&put.sequence, |kept| kept.sequence) {
                self.changes[index].written = Some(Arc::clone(&put.change));
            }
        }
        if draft.is_rewrite {
            (self.must_rewrite, self.is_renumbered) = (false, false);
        }
        self.release();
        Some(draft.ticket)
    }

    /// A draft could not be written: what is not on disk was never promised. Numbers that go with it were told to nobody.
    pub(crate) fn refused(&mut self) {
        self.is_writing = false;
        for fresh in self.changes.range_mut(self.released..) {
            if let Some(written) = &fresh.written {
                fresh.change = Arc::clone(written);
            }
        }
        while let Some(unwritten) = self.changes.pop_back_if(|kept| kept.written.is_none()) {
            self.last = Sequence(unwritten.sequence.0 - 1);
        }
        self.release();
    }

    /// What is on disk cannot be relied on any more: all of it is to be written anew.
    pub(crate) fn distrust(&mut self) {
        self.must_rewrite = self.is_read;
    }

    /// What the agent must hear now; it counts as told.
    pub(crate) fn hand_over(&mut self) -> Vec<Numbered> {
        let now = self.changes.range(self.told..self.released).map(Kept::numbered).collect();
        self.told = self.released;
        now
    }

    /// Whether [`Outbox::hand_over`] would give anything.
    pub(crate) fn has_more(&self) -> bool {
        self.released > self.told
    }

    /// A new connection begins, which has been told nothing.
    pub(crate) fn rewind(&mut self) {
        self.told = 0;
    }

    /// Changes up to this one are done with.
    pub(crate) fn acknowledge(&mut self, sequence: Sequence) {
        let released = self.changes.range(..self.released);
        let done = released.take_while(|kept| kept.sequence <= sequence).count();
        for kept in self.changes.drain(..done) {
            self.trim = Some(kept.sequence);
            if is_state(&kept.change) {
                self.last_state_done = kept.sequence;
            }
        }
        self.released -= done;
        self.told = self.told.saturating_sub(done);
        self.release();
    }

    /// The server as it is now contains changes up to this one. Where that runs ahead of the numbers given here, somebody
    /// else gave some, of which the agent may hold more: counting goes on above them, fresh changes included.
    pub(crate) fn applied(&mut self, applied: Sequence) {
        self.applied = self.applied.max(applied);
        if !self.is_read {
            return;
        }
        self.acknowledge(applied);
        if applied > self.last {
            self.last = self.above.max(applied);
        }
        let is_taken = self.changes.get(self.released).is_some_and(|fresh| fresh.sequence <= applied);
        if !is_taken {
            return;
        }
        for fresh in self.changes.range_mut(self.released..) {
            self.last = self.last.next();
            fresh.sequence = self.last;
        }
        self.is_renumbered = true;
        self.generation += 1;
    }

    /// The state asked for last, while it is unconfirmed.
    pub(crate) fn state(&self) -> Option<&Change> {
        self.states().next_back().map(|kept| &*kept.change)
    }

    /// Number of the state asked for last, confirmed or not.
    pub(crate) fn last_state(&self) -> Sequence {
        self.states().next_back().map_or(self.last_state_done, |kept| kept.sequence)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().map(|kept| &*kept.change)
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    fn states(&self) -> impl DoubleEndedIterator<Item = &Kept> {
        self.changes.iter().filter(|kept| is_state(&kept.change))
    }

    fn append(&mut self, change: Arc<Change>) {
        self.last = self.last.next();
        self.changes.push_back(Kept { sequence: self.last, change, written: None });
    }

    /// Fixes what is on disk, as far as the window reaches. Where something newer is to take the place of what is on
    /// disk, that becomes a change of its own, or a game that calls without a pause would never be heard.
    fn release(&mut self) {
        if self.is_renumbered {
            return;
        }
        let until = self.open_until();
        while self.released < until {
            let next = &mut self.changes[self.released];
            if !next.is_safe() {
                let Some(written) = next.written.clone().filter(|_| !self.is_writing) else { return };
                let newer = std::mem::replace(&mut next.change, written);
                self.append(newer);
            }
            self.released += 1;
        }
    }

    /// How far changes may be released: what is, and fresh ones as far as the window reaches.
    fn open_until(&self) -> usize {
        let state = self.changes.range(self.released..).position(|fresh| is_state(&fresh.change));
        let past_the_window =
            state.map_or(0, |position| (self.released + position + 1).min(WINDOW_FOR_STATES));
        let mut bytes: usize = self.changes.range(..self.released).map(Kept::size).sum();
        let mut within = self.released;
        while within < self.changes.len().min(WINDOW) && bytes < WINDOW_BYTES {
            bytes += self.changes[within].size();
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

#[cfg(test)]
mod tests;
