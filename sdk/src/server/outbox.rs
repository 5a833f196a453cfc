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
//! merged: of states and metadata the last of a kind wins, operations add up ([`Meeting`]). A window bounds what is
//! released; behind it changes merge, so that neither a slow agent nor a chatty game fills memory or disk.
//!
//! The journal is behind it: [`Outbox::draft`] says what to write, one draft at a time, and hears what became of it.

use std::collections::VecDeque;
use std::sync::Arc;

use berth_api::link::{Asked, Change, Sequence, VERSIONS};

use self::merge::{Meeting, meet};
use super::page::{Draft, Numbered, Past, Ticket};

mod merge;

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
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    /// In the order of their numbers; the first `released` of them are on disk and fixed.
    changes: VecDeque<Kept>,
    released: usize,
    /// How many of those the present connection has been told.
    told: usize,
    /// The version that the present connection speaks. It is told nothing from the first change on that it cannot read.
    version: u32,
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
    /// The last number that was in it.
    drafted: Sequence,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            changes: VecDeque::new(),
            released: 0,
            told: 0,
            version: VERSIONS.1,
            last: Sequence::default(),
            last_state_done: Sequence::default(),
            applied: Sequence::default(),
            is_read: false,
            above: Sequence::default(),
            ticket: Ticket::default(),
            trim: None,
            must_rewrite: false,
            is_renumbered: false,
            generation: 0,
            is_writing: false,
            drafted: Sequence::default(),
        }
    }
}

#[derive(Clone, Debug)]
struct Kept {
    sequence: Sequence,
    asked: Arc<Asked>,
    /// What is on disk in its place, which was promised whatever comes.
    written: Option<Arc<Asked>>,
}

impl Kept {
    fn is_safe(&self) -> bool {
        self.written.as_ref().is_some_and(|written| Arc::ptr_eq(written, &self.asked))
    }

    fn numbered(&self) -> Numbered {
        Numbered { sequence: self.sequence, asked: Arc::clone(&self.asked) }
    }

    fn size(&self) -> usize {
        self.asked.change.size()
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
                    written: Some(Arc::clone(&numbered.asked)),
                    asked: numbered.asked,
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

    /// Takes a change in: as a new one, or into a fresh one of its kind. Promised once it is written.
    pub(crate) fn push(&mut self, asked: Asked) -> Result<Ticket, Full> {
        let met = (self.released..self.changes.len()).rev().find_map(|index| {
            match meet(&self.changes[index].asked.change, &asked.change) {
                Meeting::Strangers => None,
                meeting => Some((index, meeting)),
            }
        });
        match met {
            Some((_, Meeting::Stands)) => return Ok(self.ticket),
            Some((index, Meeting::Replaced)) => self.changes[index].asked = Arc::new(asked),
            Some((index, Meeting::Joined(change))) if self.may_join(index) => {
                self.changes[index].asked = Arc::new(Asked { change, seen: asked.seen });
            }
            Some((_, Meeting::Strangers | Meeting::Joined(_) | Meeting::Apart)) | None => {
                if self.changes.len() >= MOST_CHANGES {
                    return Err(Full);
                }
                self.append(Arc::new(asked));
            }
        }
        self.ticket.0 += 1;
        Ok(self.ticket)
    }

    /// Whether an operation may be joined to a fresh one: only as long as that one cannot be released with what is on
    /// disk in its place, because what was joined to it would then have to be taken out again.
    fn may_join(&self, index: usize) -> bool {
        let kept = &self.changes[index];
        let is_drafted = self.is_writing && kept.sequence <= self.drafted;
        (kept.written.is_none() && !is_drafted) || index >= self.open_until()
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
        (self.is_writing, self.drafted) = (true, self.last);
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
                self.changes[index].written = Some(Arc::clone(&put.asked));
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
                fresh.asked = Arc::clone(written);
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
        let now: Vec<_> = self.untold().map(Kept::numbered).collect();
        self.told += now.len();
        now
    }

    /// Whether [`Outbox::hand_over`] would give anything.
    pub(crate) fn has_more(&self) -> bool {
        self.untold().next().is_some()
    }

    fn untold(&self) -> impl Iterator<Item = &Kept> {
        let is_spoken = |kept: &&Kept| kept.asked.change.since() <= self.version;
        self.changes.range(self.told..self.released).take_while(is_spoken)
    }

    /// A new connection begins, which has been told nothing.
    pub(crate) fn rewind(&mut self, version: u32) {
        (self.told, self.version) = (0, version);
    }

    /// Changes up to this one are done with.
    pub(crate) fn acknowledge(&mut self, sequence: Sequence) {
        let released = self.changes.range(..self.released);
        let done = released.take_while(|kept| kept.sequence <= sequence).count();
        for kept in self.changes.drain(..done) {
            self.trim = Some(kept.sequence);
            if kept.asked.change.is_state() {
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
        self.states().next_back().map(|kept| &kept.asked.change)
    }

    /// Number of the state asked for last, confirmed or not.
    pub(crate) fn last_state(&self) -> Sequence {
        self.states().next_back().map_or(self.last_state_done, |kept| kept.sequence)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().map(|kept| &kept.asked.change)
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    fn states(&self) -> impl DoubleEndedIterator<Item = &Kept> {
        self.changes.iter().filter(|kept| kept.asked.change.is_state())
    }

    fn append(&mut self, asked: Arc<Asked>) {
        self.last = self.last.next();
        self.changes.push_back(Kept { sequence: self.last, asked, written: None });
    }

    /// Fixes what is on disk, as far as the window reaches. Where something newer is to take the place of what is on
    /// disk, that becomes a change of its own, or a game that calls without a pause would never be heard. An operation
    /// that others were joined to waits until it is on disk as it is; none is joined to it any more.
    fn release(&mut self) {
        if self.is_renumbered {
            return;
        }
        let until = self.open_until();
        while self.released < until {
            let next = &mut self.changes[self.released];
            if !next.is_safe() {
                let may_split = !self.is_writing && !merge::is_operation(&next.asked.change);
                let Some(written) = next.written.clone().filter(|_| may_split) else { return };
                let newer = std::mem::replace(&mut next.asked, written);
                self.append(newer);
            }
            self.released += 1;
        }
    }

    /// How far changes may be released: what is, and fresh ones as far as the window reaches.
    fn open_until(&self) -> usize {
        let state = self.changes.range(self.released..).position(|fresh| fresh.asked.change.is_state());
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

#[cfg(test)]
mod tests;
