//! Work to do, by key: each key waits once however often it is asked for, and is never worked on twice at a time.
//!
//! What is asked for during its own turn is done again after it. A key whose turn failed comes back after a wait that
//! grows. The queue is unbounded, since it holds each existing object at most once.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::Instant;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;

/// The first wait after a failed turn.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do until something changes.
    Done,
    /// More is to be done, now.
    Again,
    /// To be looked at again after a while, though nothing may have changed.
    After(Duration),
    /// It failed; to be tried again, ever less often.
    Failed,
}

/// Keys that wait for their turn.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    /// Guards the keys; held for a few instructions only.
    keys: Mutex<Keys<K>>,
    added: Notify,
}

#[derive(Debug)]
struct Keys<K> {
    ready: VecDeque<K>,
    waiting: HashSet<K>,
    running: HashSet<K>,
    again: HashSet<K>,
    later: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
}

impl<K: Clone + Eq + Ord + Hash> Queue<K> {
    pub(crate) fn new() -> Self {
        let keys = Keys {
            ready: VecDeque::new(),
            waiting: HashSet::new(),
            running: HashSet::new(),
            again: HashSet::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
        };
        Self { keys: Mutex::new(keys), added: Notify::new() }
    }

    /// Asks for a turn of this key, now.
    pub(crate) fn add(&self, key: K) {
        self.lock().add(key);
        self.added.notify_one();
    }

    /// Asks for a turn of this key after a while; an earlier one that was asked for stays.
    pub(crate) fn add_after(&self, key: K, wait: Duration) {
        let due = Instant::now() + wait;
        self.lock().add_later(key, due);
        self.added.notify_one();
    }

    /// Forgets everything that waits.
    pub(crate) fn clear(&self) {
        let mut keys = self.lock();
        keys.ready.clear();
        keys.waiting.clear();
        keys.again.clear();
        keys.later.clear();
        keys.due.clear();
        keys.running.clear();
    }

    /// Keys that wait or run.
    pub(crate) fn len(&self) -> usize {
        let keys = self.lock();
        keys.ready.len() + keys.later.len() + keys.running.len()
    }

    /// Gives turns to keys, `parallel` at a time, until `stop`; then waits for the turns that run.
    pub(crate) async fn work<F>(
        &self,
        parallel: usize,
        stop: &CancellationToken,
        mut turn: impl FnMut(K) -> F,
    ) where
        F: Future<Output = Outcome>,
    {
        let mut running = FuturesUnordered::new();
        let mut waits: HashMap<K, Backoff> = HashMap::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Finish before starting more, so that `again` is seen early.
                Some((key, outcome)) = running.next(), if !running.is_empty() => {
                    self.finish(key, outcome, &mut waits);
                }
                key = self.next(), if running.len() < parallel => {
                    let work = turn(key.clone());
                    running.push(async move { (key, work.await) });
                }
            }
        }
        while let Some((key, outcome)) = running.next().await {
            self.finish(key, outcome, &mut waits);
        }
    }

    async fn next(&self) -> K {
        loop {
            let added = self.added.notified();
            let due = {
                let mut keys = self.lock();
                keys.ripen(Instant::now());
                if let Some(key) = keys.take() {
                    return key;
                }
                keys.later.first().map(|(due, _)| *due)
            };
            match due {
                Some(due) => {
                    // Whichever comes first; both are looked at above.
                    let _ = tokio::time::timeout_at(due, added).await;
                }
                None => added.await,
            }
        }
    }

    fn finish(&self, key: K, outcome: Outcome, waits: &mut HashMap<K, Backoff>) {
        let now = Instant::now();
        let mut keys = self.lock();
        keys.running.remove(&key);
        let again = keys.again.remove(&key);
        if outcome == Outcome::Failed {
            let wait =
                waits.entry(key.clone()).or_insert_with(|| Backoff::new(FIRST_WAIT, LONGEST_WAIT)).next();
            keys.add_later(key, now + wait);
            return;
        }
        waits.remove(&key);
        match outcome {
            Outcome::Again => keys.add(key),
            _ if again => keys.add(key),
            Outcome::After(wait) => keys.add_later(key, now + wait),
            Outcome::Done | Outcome::Failed => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Keys<K>> {
        // Nothing panics while it is held; and if it did, the sets would still be whole.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Ord + Hash> Keys<K> {
    fn add(&mut self, key: K) {
        if let Some(due) = self.due.remove(&key) {
            self.later.remove(&(due, key.clone()));
        }
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn add_later(&mut self, key: K, due: Instant) {
        if self.waiting.contains(&key) {
            return;
        }
        match self.due.get(&key) {
            Some(earlier) if *earlier <= due => return,
            Some(later) => {
                let later = *later;
                self.later.remove(&(later, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), due);
        self.later.insert((due, key));
    }

    fn ripen(&mut self, now: Instant) {
        while let Some((due, key)) = self.later.first().cloned() {
            if due > now {
                return;
            }
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_is_done_again_when_asked_during_its_turn() {
        let queue = Queue::new();
        let stop = CancellationToken::new();
        let turns = RefCell::new(Vec::new());
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        queue
            .work(2, &stop, |key| {
                turns.borrow_mut().push(key);
                let count = turns.borrow().len();
                let (queue, stop) = (&queue, &stop);
                async move {
                    match count {
                        1 => queue.add("a"),
                        3 => stop.cancel(),
                        _ => {}
                    }
                    Outcome::Done
                }
            })
            .await;
        assert_eq!(*turns.borrow(), ["a", "b", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_key_comes_back_later_and_later() {
        let queue = Queue::new();
        let stop = CancellationToken::new();
        queue.add(1);
        let started = Instant::now();
        let mut turns = 0;
        queue
            .work(1, &stop, |_| {
                turns += 1;
                if turns == 4 {
                    stop.cancel();
                }
                std::future::ready(Outcome::Failed)
            })
            .await;
        let spent = started.elapsed();
        // Waits of 50, 100 and 200 ms, each at least half of that.
        assert!(spent >= Duration::from_millis(175) && spent <= Duration::from_millis(360), "{spent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_waits_holds() {
        let queue = Queue::new();
        let stop = CancellationToken::new();
        queue.add_after(1, Duration::from_secs(5));
        queue.add_after(1, Duration::from_secs(1));
        queue.add_after(1, Duration::from_secs(9));
        let started = Instant::now();
        queue
            .work(1, &stop, |_| {
                stop.cancel();
                std::future::ready(Outcome::Done)
            })
            .await;
        assert_eq!(started.elapsed().as_secs(), 1);
        assert_eq!(queue.len(), 0);
    }
}
