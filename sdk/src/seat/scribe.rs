//! The thread that owns the journal: takes what waits in the tray, writes all of it in one commit, and tells the seats.
//!
//! ```text
//!   calls ─▶ seat (draft) ─▶ tray ─▶ scribe ─▶ one commit ─▶ seats: written, or refused
//!                                      ▲                                       │
//!                                      └── closed; opened again every second ◀─┘
//! ```
//!
//! While it commits the next calls gather, so that a disk that is slow makes batches large. When the journal cannot be
//! written, calls are refused at once and everything else goes on; when it can be again, all that was promised and may
//! be missing is written anew from memory before anything else is promised.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use berth_api::link::{Sequence, ServerUid};
use berth_runtime::CancellationToken;
use berth_runtime::clock::Clock;
use berth_runtime::error::chain;
use berth_runtime::health::Condition;
use berth_runtime::kill_point::{Side, pass};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, error, info};

use super::Seat;
use super::tray::{Tray, Waiting};
use crate::effects::Effect;
use crate::journal::{JournalError, Opened, Store};
use crate::metrics::{FailureLabels, JournalMetrics};
use crate::server::page::{Draft, Past};

/// The wait before a journal that could not be written is opened again.
const RETRY: Duration = Duration::from_secs(1);
/// How long the same trouble is not told again.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes of all changes together. It bounds the file, and what is read back at the start.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// What the scribe is given.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) folder: PathBuf,
    pub(crate) clock: Clock,
    pub(crate) tray: Arc<Tray>,
    pub(crate) metrics: JournalMetrics,
    /// Met while the journal can be written.
    pub(crate) writable: Condition,
    /// Hears which servers stand in the journal: none when it could not be opened at first, and then again when it can.
    pub(crate) found: mpsc::Sender<Vec<ServerUid>>,
}

/// Why the scribe ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScribeError {
    #[error("could not start the journal's thread")]
    Start(#[source] io::Error),
    #[error("the journal's thread ended unasked")]
    Ended,
}

impl Desk {
    /// Keeps the journal until `stop`, and then writes what is there to write.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), ScribeError> {
        let tray = Arc::clone(&self.tray);
        let (alive, ended) = oneshot::channel::<()>();
        let keep = move || {
            let _alive = alive;
            Scribe::new(self).keep();
        };
        std::thread::Builder::new().name("journal".to_owned()).spawn(keep).map_err(ScribeError::Start)?;
        let mut ended = std::pin::pin!(ended);
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = &mut ended => return Err(ScribeError::Ended),
        }
        tray.close();
        let _ = ended.await;
        Ok(())
    }
}

struct Scribe {
    desk: Desk,
    store: Option<Store>,
    /// Seats that have been read.
    known: BTreeMap<ServerUid, Weak<Seat>>,
    /// Seats that wait to be read.
    unread: Vec<Arc<Seat>>,
    /// Servers that may still stand in the journal.
    forgotten: BTreeSet<ServerUid>,
    /// Why it cannot be written, as games are told.
    trouble: Arc<str>,
    retry_at: Instant,
    /// The trouble that was told last, and when.
    told: Option<(&'static str, Instant)>,
    has_announced: bool,
    has_found: bool,
}

impl Scribe {
    fn new(desk: Desk) -> Self {
        Self {
            desk,
            store: None,
            known: BTreeMap::new(),
            unread: Vec::new(),
            forgotten: BTreeSet::new(),
            trouble: Arc::from("the journal is not open yet"),
            retry_at: Instant::now(),
            told: None,
            has_announced: false,
            has_found: false,
        }
    }

    fn keep(mut self) {
        loop {
            let retry = self.store.is_none().then_some(self.retry_at);
            let waiting = self.desk.tray.take(retry);
            let is_closing = waiting.is_closing;
            self.turn(waiting);
            if is_closing {
                return;
            }
        }
    }

    fn turn(&mut self, waiting: Waiting) {
        for uid in waiting.forgotten {
            self.known.remove(&uid);
            self.unread.retain(|seat| *seat.uid() != uid);
            self.forgotten.insert(uid);
        }
        let (mut seats, unread): (Vec<_>, Vec<_>) =
            waiting.seats.into_iter().partition(|seat| seat.is_read());
        self.unread.extend(unread);
        if self.store.is_none() && Instant::now() >= self.retry_at {
            seats.extend(self.open());
        }
        if let Err(error) = self.read() {
            self.fail(&error);
        }
        self.write(seats);
        if self.store.is_none() {
            self.unread.iter().for_each(|seat| seat.refused(&self.trouble));
        }
    }

    /// Opens the journal, if it can be; answers the seats whose changes must be written anew.
    fn open(&mut self) -> Vec<Arc<Seat>> {
        pass(Effect::OpenJournal, Side::Before);
        let opened = match Store::open(&self.desk.folder, self.desk.clock.now()) {
            Ok(opened) => opened,
            Err(error) => {
                self.fail(&error);
                return Vec::new();
            }
        };
        pass(Effect::OpenJournal, Side::After);
        let Opened { store, servers, was_set_aside } = opened;
        if was_set_aside {
            self.desk.metrics.set_aside.inc();
        }
        info!(servers = servers.len(), bytes = store.bytes(), "journal opened");
        self.desk.metrics.bytes.set(i64::try_from(store.bytes()).unwrap_or(i64::MAX));
        self.store = Some(store);
        self.desk.metrics.writable.set(1);
        self.desk.writable.set(true);
        if !self.has_found {
            self.has_found = true;
            let servers = servers.into_iter().filter(|uid| !self.forgotten.contains(uid)).collect();
            self.announce(servers);
        }
        let known: Vec<_> = self.known.values().filter_map(Weak::upgrade).collect();
        known.into_iter().inspect(|seat| seat.distrust()).collect()
    }

    /// Tells the worker what was found. It hears of it twice at most, and has room for that.
    fn announce(&mut self, servers: Vec<ServerUid>) {
        self.has_announced = true;
        if self.desk.found.try_send(servers).is_err() {
            debug!("nobody asks any more which servers stand in the journal");
        }
    }

    /// Reads what stands there of seats that are new.
    fn read(&mut self) -> Result<(), JournalError> {
        let Some(store) = &self.store else { return Ok(()) };
        while let Some(seat) = self.unread.last() {
            let uid = seat.uid();
            let is_forgotten = self.forgotten.contains(uid);
            let record = if is_forgotten { None } else { store.record(uid)? };
            let micros = u64::try_from(self.desk.clock.now().as_microsecond()).unwrap_or_default();
            seat.read(Past { record, is_lost: store.is_lost(), above: Sequence(micros) });
            self.known.insert(uid.clone(), Arc::downgrade(seat));
            self.unread.pop();
        }
        Ok(())
    }

    /// Writes what there is, once for all of them.
    fn write(&mut self, seats: Vec<Arc<Seat>>) {
        let Some(store) = &mut self.store else {
            return seats.iter().for_each(|seat| seat.refused(&self.trouble));
        };
        let mut drafted: Vec<Arc<Seat>> = Vec::new();
        let mut drafts: Vec<(ServerUid, Draft)> = Vec::new();
        let mut bytes = store.bytes();
        for seat in seats {
            let Some(draft) = seat.draft().and_then(|draft| admit(&seat, draft, &mut bytes)) else {
                continue;
            };
            drafts.push((seat.uid().clone(), draft));
            drafted.push(seat);
        }
        if drafts.is_empty() && self.forgotten.is_empty() {
            return;
        }
        pass(Effect::Commit, Side::Before);
        if let Err(error) = store.commit(self.forgotten.iter().cloned(), &drafts) {
            // Closed and opened again, it is checked: it knows best what it has on disk.
            self.fail(&error);
            return drafted.iter().for_each(|seat| seat.refused(&self.trouble));
        }
        pass(Effect::Commit, Side::After);
        self.forgotten.clear();
        let changes: usize = drafts.iter().map(|(_, draft)| draft.puts.len()).sum();
        self.desk.metrics.commits.inc();
        self.desk.metrics.changes.inc_by(changes as u64);
        self.desk.metrics.bytes.set(i64::try_from(store.bytes()).unwrap_or(i64::MAX));
        if changes > 0 && self.told.take().is_some() {
            info!("the journal is written again");
        }
        for (seat, (_, draft)) in drafted.iter().zip(&drafts) {
            seat.written(draft);
        }
    }

    fn fail(&mut self, error: &JournalError) {
        self.store = None;
        self.retry_at = Instant::now() + RETRY;
        self.trouble = chain(error).to_string().into();
        self.desk.metrics.writable.set(0);
        self.desk.writable.set(false);
        self.desk.metrics.failures.get_or_create(&FailureLabels { reason: error.category() }).inc();
        let is_told = self
            .told
            .is_some_and(|(category, when)| category == error.category() && when.elapsed() < SILENCE);
        if is_told {
            debug!(error = %chain(error), "the journal cannot be written");
        } else {
            error!(
                error = %chain(error),
                folder = %self.desk.folder.display(),
                "the journal cannot be written; changes are refused, and it is tried again every second"
            );
            self.told = Some((error.category(), Instant::now()));
        }
        if !self.has_announced {
            self.announce(Vec::new());
        }
    }
}

/// Admits what there is room for; what there is none for is refused, and what goes is written all the same.
fn admit(seat: &Seat, draft: Draft, bytes: &mut u64) -> Option<Draft> {
    let more: u64 = draft.puts.iter().map(|put| put.asked.change.size() as u64).sum();
    // What is written anew was admitted before.
    if draft.is_rewrite || *bytes + more <= MOST_BYTES {
        *bytes += more;
        return Some(draft);
    }
    seat.refused(&Arc::from("the journal is full of changes that the node's agent has not confirmed"));
    seat.draft()
}
