//! Where requests are chosen a server and sit down at it. Everything under its lock is pure and short.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_api::allocation::Request;
use berth_runtime::clock::Instant;
use tokio::sync::oneshot;

use super::{Answer, Seat};
use crate::actions::{Done, allocate};
use crate::book::{Book, Candidate, ServerKey, Version};
use crate::choose::{Tie, choose, fits};

/// How long after a lost race we keep out of the way of other replicas.
const WARY: Duration = Duration::from_secs(30);

/// The book, and who sits where.
#[derive(Debug)]
pub struct Desk {
    /// Guards book and seats; held for one choice, one turn or one event.
    state: Mutex<State>,
    /// A number of this replica's own.
    replica: u64,
}

#[derive(Debug, Default)]
struct State {
    book: Book,
    /// For each server that is being taken, who waits for its next write.
    seats: HashMap<ServerKey, Vec<Seat>>,
    lost_at: Option<Instant>,
}

/// A request has a server.
pub(super) struct Seated {
    pub(super) key: ServerKey,
    /// Nobody is writing that server yet.
    pub(super) is_first: bool,
}

/// Those who sit at a server, and what they make of it together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) before: Candidate,
    pub(super) after: Candidate,
    pub(super) seats: Vec<(Seat, Done)>,
}

impl Desk {
    /// An empty desk. `replica` tells this process from other allocators.
    pub fn new(replica: u64) -> Self {
        Self { state: Mutex::default(), replica }
    }

    /// Changes the book.
    pub fn change<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        change(&mut self.lock().book)
    }

    pub(super) fn seat(
        &self,
        request: &Arc<Request>,
        reply: oneshot::Sender<Answer>,
        now: Instant,
    ) -> Option<Seated> {
        let mut state = self.lock();
        let is_wary = state.lost_at.is_some_and(|lost| now < lost + WARY);
        let tie = if is_wary { Tie::Replica(self.replica) } else { Tie::Name };
        let choice = choose(&state.book, request, tie, now, rand::random())?;
        let key = ServerKey::new(request.namespace.as_str(), choice.name);
        let mut expected = state.book.shown(&key)?.clone();
        allocate(&mut expected, request);
        state.book.take(&key, expected);
        let seat = Seat { request: Arc::clone(request), selector: choice.selector, reply };
        let is_first = match state.seats.get_mut(&key) {
            Some(seats) => {
                seats.push(seat);
                false
            }
            None => state.seats.insert(key.clone(), vec![seat]).is_none(),
        };
        Some(Seated { key, is_first })
    }

    /// The writer's next turn: those who sit at the server now. `None` when nobody does; then the server is free.
    pub(super) fn next(&self, key: &ServerKey) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            let waiting = std::mem::take(state.seats.get_mut(key)?);
            let before = state.book.look(key).cloned();
            let Some(before) = before.filter(|_| !waiting.is_empty()) else {
                state.seats.remove(key);
                state.book.release(key);
                // Whoever sat at a server that is gone chooses again.
                waiting.into_iter().for_each(|seat| drop(seat.reply.send(Answer::Lost)));
                return None;
            };
            let mut after = before.clone();
            let mut seats = Vec::with_capacity(waiting.len());
            // Nobody is served who has hung up: a server would be in use for nothing.
            for seat in waiting.into_iter().filter(|seat| !seat.reply.is_closed()) {
                let is_fit = seat.request.selectors.get(seat.selector).is_some_and(|rule| fits(rule, &after));
                if is_fit {
                    let done = allocate(&mut after, &seat.request);
                    seats.push((seat, done));
                } else {
                    drop(seat.reply.send(Answer::Lost));
                }
            }
            if !seats.is_empty() {
                state.book.take(key, after.clone());
                return Some(Batch { before, after, seats });
            }
        }
    }

    /// The server is so now, after a write or a look; `None` where it can not be had.
    pub(super) fn rebase(&self, key: &ServerKey, version: &Version, now: Option<Candidate>) {
        self.lock().book.rebase(key, version, now);
    }

    /// A race was lost to somebody else.
    pub(super) fn note_lost(&self, now: Instant) {
        self.lock().lost_at = Some(now);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; and if it did, the watch would put the book right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
