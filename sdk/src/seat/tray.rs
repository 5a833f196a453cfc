//! Which servers wait for the journal: a set rather than a queue, with a place for each server, so that it cannot fill
//! and that everybody who waits shares one commit.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_api::link::ServerUid;

use super::Seat;

/// How long what nobody waits for may wait for company.
const LINGER: Duration = Duration::from_millis(200);

/// What waits for the scribe.
#[derive(Debug, Default)]
pub(crate) struct Tray {
    /// Guards what waits; held to put one thing in or to take all of it out.
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

/// What was in the tray.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) seats: Vec<Arc<Seat>>,
    pub(super) forgotten: Vec<ServerUid>,
    is_urgent: bool,
    pub(super) is_closing: bool,
}

impl Tray {
    /// A server has something to write or to read. A seat puts itself in once until it is taken out.
    pub(super) fn put(&self, seat: Arc<Seat>) {
        self.lock().seats.push(seat);
        self.arrived.notify_one();
    }

    /// Somebody waits for what is in the tray.
    pub(super) fn hurry(&self) {
        let mut waiting = self.lock();
        if !std::mem::replace(&mut waiting.is_urgent, true) {
            self.arrived.notify_one();
        }
    }

    /// A server is gone; what stands of it in the journal may go.
    pub(crate) fn forget(&self, uid: ServerUid) {
        self.lock().forgotten.push(uid);
        self.arrived.notify_one();
    }

    /// The scribe is to write what there is and to end.
    pub(super) fn close(&self) {
        self.lock().is_closing = true;
        self.arrived.notify_one();
    }

    /// Waits for something that somebody waits for, or for anything for a while, or until a time.
    pub(super) fn take(&self, until: Option<Instant>) -> Waiting {
        let mut waiting = self.lock();
        let mut patience = until;
        loop {
            let is_empty = waiting.seats.is_empty() && waiting.forgotten.is_empty();
            if waiting.is_urgent || waiting.is_closing {
                break;
            }
            let now = Instant::now();
            if !is_empty && patience == until {
                patience = Some(until.map_or(now + LINGER, |until| until.min(now + LINGER)));
            }
            let wait = patience.map(|patience| patience.saturating_duration_since(now));
            waiting = match wait {
                Some(Duration::ZERO) => break,
                Some(wait) => {
                    let woken = self.arrived.wait_timeout(waiting, wait);
                    woken.map_or_else(|poisoned| poisoned.into_inner().0, |woken| woken.0)
                }
                None => self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let is_closing = waiting.is_closing;
        std::mem::replace(&mut *waiting, Waiting { is_closing, ..Waiting::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
