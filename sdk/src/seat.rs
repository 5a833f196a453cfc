//! Where calls, the link and time meet over one game server: a [`Seat`] wraps the pure session for concurrent use.
//!
//! A seat promises that a call never waits for the agent, that news for the agent is announced once it exists, and that
//! one task per server keeps its deadlines ([`keeper`]). It leaves listening to `link` and speaking to `serve`.

pub(crate) mod keeper;
mod news;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_api::link::{Sequence, ServerUid, ToAgent, View};
use berth_api::sdk::v1::GameServer;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Clock;
use tokio::sync::{Notify, watch};

pub(crate) use news::News;

use crate::metrics::SeatMetrics;
use crate::server::session::Session;
use crate::server::{Moment, Refusal, Request, shape};

/// How long a call waits for the agent to introduce a server: the time official clients give a connection.
const INTRODUCTION: Duration = Duration::from_secs(30);

/// A deadline on the wall clock comes out a little different each time it is asked for; that wakes nobody.
const CLOCK_NOISE: Duration = Duration::from_millis(1);

/// One game server, for everybody who speaks with or about it.
#[derive(Debug)]
pub(crate) struct Seat {
    uid: ServerUid,
    clock: Clock,
    /// Guards the session; held for the time of one pure step, never across a wait.
    inner: Mutex<Inner>,
    shown: watch::Sender<Option<Arc<GameServer>>>,
    /// Wakes the keeper when a deadline came nearer.
    nearer: Notify,
    news: Arc<News>,
    metrics: SeatMetrics,
    gone: CancellationToken,
}

#[derive(Debug)]
struct Inner {
    session: Session,
    /// What the keeper sleeps until.
    armed: Option<Instant>,
    /// Unconfirmed changes as last counted.
    counted: usize,
}

impl Seat {
    /// A server that nobody has introduced yet. It ends when `gone` is cancelled.
    pub(crate) fn new(
        uid: ServerUid,
        listening_since: Instant,
        clock: Clock,
        news: Arc<News>,
        metrics: SeatMetrics,
        gone: CancellationToken,
    ) -> Self {
        let session = Session::new(uid.clone(), listening_since);
        metrics.servers.inc();
        Self {
            uid,
            clock,
            inner: Mutex::new(Inner { session, armed: None, counted: 0 }),
            shown: watch::Sender::new(None),
            nearer: Notify::new(),
            news,
            metrics,
            gone,
        }
    }

    pub(crate) fn uid(&self) -> &ServerUid {
        &self.uid
    }

    /// Cancelled when the server is forgotten or the process ends.
    pub(crate) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// The game pings.
    pub(crate) fn ping(&self) {
        self.metrics.pings.inc();
        self.step(|session, now| session.ping(now));
    }

    /// The game asks for something. Waits for the introduction, and for nothing else.
    pub(crate) async fn ask(&self, request: Request) -> Result<(), Refusal> {
        self.game_server().await?;
        // Nobody would hear of what is promised from here on.
        if self.gone.is_cancelled() {
            return Err(Refusal::Gone);
        }
        self.step(|session, now| session.ask(request, now))
    }

    /// The server as it is now.
    pub(crate) async fn game_server(&self) -> Result<Arc<GameServer>, Refusal> {
        if let Some(shown) = &*self.shown.borrow() {
            return Ok(Arc::clone(shown));
        }
        let mut shown = self.shown.subscribe();
        let introduced = tokio::time::timeout(INTRODUCTION, shown.wait_for(Option::is_some));
        tokio::select! {
            biased;
            () = self.gone.cancelled() => Err(Refusal::Gone),
            introduced = introduced => match introduced {
                Ok(Ok(shown)) => shown.clone().ok_or(Refusal::NotIntroduced),
                Ok(Err(_)) => Err(Refusal::Gone),
                Err(_) => Err(Refusal::NotIntroduced),
            },
        }
    }

    /// The server as it is now and whenever it changes; only the newest is kept for a slow reader.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<GameServer>>> {
        self.shown.subscribe()
    }

    /// The agent introduces the server, or tells what has become of it.
    pub(crate) fn introduce(&self, view: Box<View>, applied: Sequence) {
        let message = shape::message(&view);
        self.step(|session, now| session.introduce(view, applied, now));
        self.shown.send_if_modified(|shown| {
            let is_new = shown.as_deref() != Some(&message);
            if is_new {
                *shown = Some(Arc::new(message));
            }
            is_new
        });
    }

    /// The game's container started so long ago.
    pub(crate) fn started(&self, ago: Duration) {
        self.step(|session, now| {
            // A start so long ago that no clock can tell it is nonsense; the game then starts now.
            session.started(now.instant.checked_sub(ago).unwrap_or(now.instant), now);
        });
    }

    /// The game can be heard from now on.
    pub(crate) fn opened(&self) {
        self.step(|session, now| session.opened(now));
    }

    /// The agent is done with changes up to this one.
    pub(crate) fn acknowledge(&self, sequence: Sequence) {
        self.step(|session, _| session.acknowledge(sequence));
    }

    /// A new connection to the agent begins.
    pub(crate) fn rewind(&self) {
        self.step(|session, _| session.rewind());
    }

    /// What the agent must hear now; it counts as said.
    pub(crate) fn take_news(&self) -> Vec<ToAgent> {
        self.step(Session::take_news)
    }

    /// One turn of the keeper: does what is due and says when the next turn is.
    fn turn(&self) -> Option<Instant> {
        self.step(Session::turn);
        let mut inner = self.lock();
        inner.armed = inner.session.next_turn(self.now());
        inner.armed
    }

    fn step<T>(&self, step: impl FnOnce(&mut Session, Moment) -> T) -> T {
        let mut inner = self.lock();
        let now = self.now();
        let outcome = step(&mut inner.session, now);
        let count = inner.session.unconfirmed();
        self.metrics.count_changes(inner.counted, count);
        inner.counted = count;
        let has_news = inner.session.has_news();
        let is_nearer = match (inner.session.next_turn(now), inner.armed) {
            (Some(next), Some(armed)) => next + CLOCK_NOISE < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        drop(inner);
        if has_news {
            self.news.announce(&self.uid);
        }
        if is_nearer {
            self.nearer.notify_one();
        }
        outcome
    }

    fn now(&self) -> Moment {
        Moment { instant: self.clock.instant().into_std(), wall: self.clock.now() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in a pure step would leave the session as it was before or after it; both are whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let counted = self.lock().counted;
        self.metrics.count_changes(counted, 0);
        self.metrics.servers.dec();
    }
}
