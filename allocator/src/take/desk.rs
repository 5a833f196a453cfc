//! Where requests are chosen a server and sit down at it. Everything under its lock is pure and short.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_api::allocation::Request;
use berth_runtime::clock::Instant;
use tokio::sync::{oneshot, watch};

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
    /// Told whenever what became of a server that was being taken is known; told under the lock.
    settled: watch::Sender<()>,
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

/// What a request got.
#[derive(Debug)]
pub(super) enum Seating {
    /// A server.
    Seated {
        key: ServerKey,
        /// Nobody is writing that server yet.
        is_first: bool,
    },
    /// None fits but for those that others are taking: when it is known what became of one of them, it is time to look
    /// again.
    Wait(watch::Receiver<()>),
    /// None fits.
    Nothing,
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
        Self { state: Mutex::default(), settled: watch::Sender::new(()), replica }
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
    ) -> Seating {
        let mut state = self.lock();
        let is_wary = state.lost_at.is_some_and(|lost| now < lost + WARY);
        let tie = if is_wary { Tie::Replica(self.replica) } else { Tie::Name };
        let chosen = choose(&state.book, request, tie, now, rand::random()).and_then(|choice| {
            let key = ServerKey::new(request.namespace.as_str(), choice.name);
            state.book.shown(&key).cloned().map(|expected| (key, expected, choice.selector))
        });
        let Some((key, mut expected, selector)) = chosen else {
            // Whoever sits at a server may leave it as it was.
            let is_waiting = state.could_be_left(request, now);
            return if is_waiting { Seating::Wait(self.settled.subscribe()) } else { Seating::Nothing };
        };
        allocate(&mut expected, request);
        state.book.take(&key, expected);
        let seat = Seat { request: Arc::clone(request), selector, reply };
        let is_first = match state.seats.get_mut(&key) {
            Some(seats) => {
                seats.push(seat);
                false
            }
            None => state.seats.insert(key.clone(), vec![seat]).is_none(),
        };
        Seating::Seated { key, is_first }
    }

    /// The writer's next turn: those who sit at the server now. `None` when nobody does; then the server is free.
    ///
    /// Whoever sat at a server that is gone meanwhile, or whose node has closed, chooses again.
    pub(super) fn next(&self, key: &ServerKey, now: Instant) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            let waiting = std::mem::take(state.seats.get_mut(key)?);
            let closed = state.book.nodes.closed(now);
            let open = state.book.look(key).filter(|server| !closed.contains(&server.node)).cloned();
            let Some(before) = open.filter(|_| !waiting.is_empty()) else {
                state.seats.remove(key);
                state.book.release(key);
                self.settled.send_replace(());
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
        let mut state = self.lock();
        state.book.rebase(key, version, now);
        self.settled.send_replace(());
        drop(state);
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

impl State {
    /// Whether a server that is being taken fits as it is, and may be had again if that fails.
    fn could_be_left(&self, request: &Request, now: Instant) -> bool {
        let closed = self.book.nodes.closed(now);
        let here = self.seats.keys().filter(|key| key.namespace == request.namespace);
        here.filter_map(|key| self.book.look(key)).any(|server| {
            !closed.contains(&server.node) && request.selectors.iter().any(|rule| fits(rule, server))
        })
    }
}

#[cfg(test)]
mod tests {
    use berth_api::game_node::NodePhase;
    use berth_runtime::clock::Clock;
    use serde_json::json;

    use super::*;
    use crate::testing::{key, on, request};

    fn desk() -> Desk {
        let desk = Desk::new(1);
        for name in ["a", "b"] {
            let server = on(name);
            desk.change(|book| book.see(&key(name), server.version.clone(), Some(server)));
        }
        desk
    }

    type Sitting = (ServerKey, bool, oneshot::Receiver<Answer>);

    fn try_to_sit_down(desk: &Desk) -> (Seating, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        (desk.seat(&Arc::new(request(json!({}))), reply, Clock::system().instant()), answer)
    }

    fn sit_down(desk: &Desk) -> Option<Sitting> {
        match try_to_sit_down(desk) {
            (Seating::Seated { key, is_first }, answer) => Some((key, is_first, answer)),
            (Seating::Wait(_) | Seating::Nothing, _) => None,
        }
    }

    fn names(batch: Option<Batch>) -> Option<(usize, String)> {
        batch.map(|batch| (batch.seats.len(), batch.before.node))
    }

    #[test]
    fn a_node_that_closes_while_a_request_sits_at_one_of_its_servers_sends_it_away() {
        let (desk, now) = (desk(), Clock::system().instant());
        let (seat, is_first, mut answer) = sit_down(&desk).expect("a server");
        assert_eq!((seat, is_first), (key("a"), true));
        desk.change(|book| book.nodes.set_phase("a", NodePhase::Draining));
        assert_eq!(names(desk.next(&key("a"), now)), None);
        assert!(matches!(answer.try_recv(), Ok(Answer::Lost)));
        let (seat, _, _answer) = sit_down(&desk).expect("another server");
        assert_eq!(seat, key("b"));
        assert_eq!(names(desk.next(&key("b"), now)), Some((1, "b".to_owned())));
    }

    #[test]
    fn two_requests_never_sit_at_one_idle_server() {
        let desk = desk();
        let seats: Vec<_> = (0..3).map(|_| sit_down(&desk)).collect();
        let keys: Vec<_> = seats.iter().map(|seat| seat.as_ref().map(|(key, _, _)| key.clone())).collect();
        assert_eq!(keys, [Some(key("a")), Some(key("b")), None]);
    }

    #[test]
    fn nobody_is_served_who_has_hung_up() {
        let (desk, now) = (desk(), Clock::system().instant());
        drop(sit_down(&desk).expect("a server"));
        assert_eq!(names(desk.next(&key("a"), now)), None);
        let (seat, is_first, _answer) = sit_down(&desk).expect("the same server");
        assert_eq!((seat, is_first), (key("a"), true));
    }

    #[test]
    fn a_server_stays_in_sight_until_it_is_known_that_it_is_taken() {
        let (desk, now) = (desk(), Clock::system().instant());
        let _seats = [sit_down(&desk), sit_down(&desk)];
        let (Seating::Wait(settled), _) = try_to_sit_down(&desk) else { panic!("both may be left") };
        assert!(!settled.has_changed().expect("a desk"));
        let batch = desk.next(&key("a"), now).expect("a turn");
        assert!(matches!(try_to_sit_down(&desk).0, Seating::Wait(_)), "it is not written yet");
        // The write fails: the server is as it was.
        desk.rebase(&key("a"), &batch.before.version, Some(batch.before.clone()));
        assert!(settled.has_changed().expect("a desk"), "whoever waits is told");
        let (seat, is_first, _answer) = sit_down(&desk).expect("the server that was left");
        assert_eq!((seat, is_first), (key("a"), false));
        desk.change(|book| book.nodes.set_phase("b", NodePhase::Draining));
        assert!(matches!(try_to_sit_down(&desk).0, Seating::Wait(_)), "that one may be left again");
        desk.change(|book| book.nodes.set_phase("a", NodePhase::Draining));
        assert!(matches!(try_to_sit_down(&desk).0, Seating::Nothing), "and on closed nodes nobody waits");
    }
}
