//! Where calls, the link and time meet over one game server: a [`Seat`] wraps the pure session for concurrent use.
//!
//! A seat promises that a call waits for the disk and never for the agent, that news for the agent is announced once it
//! exists, and that one task per server keeps its deadlines ([`keeper`]). One thread writes for all of them ([`scribe`]).
//! It leaves listening to `link` and speaking to `serve`.

pub(crate) mod keeper;
pub(crate) mod local;
mod news;
pub(crate) mod scribe;
mod tray;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use berth_api::link::{Sequence, ServerUid, ToAgent, View};
use berth_api::sdk::v1::GameServer;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Clock;
use berth_runtime::kill_point::{Side, pass};
use tokio::sync::{Notify, oneshot, watch};

pub(crate) use news::News;
pub(crate) use tray::Tray;

use crate::effects::Effect;
use crate::metrics::SeatMetrics;
use crate::server::page::{Draft, Past, Ticket};
use crate::server::session::Session;
use crate::server::{Answer, Moment, Refusal, Request, shape};

/// How long a call waits for the agent to introduce a server: the time official clients give a connection.
const INTRODUCTION: Duration = Duration::from_secs(30);

/// How long a call waits for the disk. What a disk does after that is still told to the agent.
const DISK: Duration = Duration::from_secs(10);

/// A deadline on the wall clock comes out a little different each time it is asked for; that wakes nobody.
const CLOCK_NOISE: Duration = Duration::from_millis(1);

/// One game server, for everybody who speaks with or about it.
#[derive(Debug)]
pub(crate) struct Seat {
    uid: ServerUid,
    /// To put itself into the tray.
    me: Weak<Seat>,
    /// Guards the session; held for the time of one pure step, never across a wait.
    inner: Mutex<Inner>,
    shown: watch::Sender<Option<Arc<GameServer>>>,
    journal: watch::Sender<Footing>,
    /// Wakes the keeper when a deadline came nearer.
    nearer: Notify,
    surroundings: Surroundings,
    gone: CancellationToken,
}

/// What all seats share.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) clock: Clock,
    pub(crate) news: Arc<News>,
    pub(crate) tray: Arc<Tray>,
    pub(crate) metrics: SeatMetrics,
    /// Since when this process hears pings.
    pub(crate) listening_since: Instant,
}

/// Where a seat stands with the journal.
#[derive(Clone, Debug)]
enum Footing {
    /// What stands there of the server is not known yet.
    Unread,
    /// It is not known, and cannot be found out now.
    Unreadable(Arc<str>),
    Read,
}

#[derive(Debug)]
struct Inner {
    session: Session,
    /// Calls that are answered once everything up to their tickets is on disk, in order.
    callers: VecDeque<(Ticket, oneshot::Sender<Result<(), Refusal>>)>,
    /// It is in the tray, or a draft of it is under way.
    is_queued: bool,
    /// The journal cannot be written, and comes back by itself for all but new changes.
    is_parked: bool,
    /// Nothing is promised any more.
    is_forgotten: bool,
    /// What the keeper sleeps until.
    armed: Option<Instant>,
    /// Unconfirmed changes as last counted.
    counted: usize,
}

impl Seat {
    /// A server that nobody has introduced yet. It ends when `gone` is cancelled.
    pub(crate) fn new(uid: ServerUid, surroundings: Surroundings, gone: CancellationToken) -> Arc<Self> {
        surroundings.metrics.servers.inc();
        let seat = Arc::new_cyclic(|me| Self {
            inner: Mutex::new(Inner {
                session: Session::new(uid.clone(), surroundings.listening_since),
                callers: VecDeque::new(),
                is_queued: true,
                is_parked: false,
                is_forgotten: false,
                armed: None,
                counted: 0,
            }),
            uid,
            me: me.clone(),
            shown: watch::Sender::new(None),
            journal: watch::Sender::new(Footing::Unread),
            nearer: Notify::new(),
            surroundings,
            gone,
        });
        seat.surroundings.tray.put(Arc::clone(&seat));
        seat.surroundings.tray.hurry();
        seat
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
        self.surroundings.metrics.pings.inc();
        self.step(|session, now| session.ping(now));
    }

    /// The game asks for something. Waits for the introduction, and until the change is on disk.
    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, Refusal> {
        self.game_server().await?;
        self.journal_is_read().await?;
        let (answer, written) = self.step_with(|inner, now| {
            // Nobody would hear of what is promised from here on.
            if inner.is_forgotten || self.gone.is_cancelled() {
                return Err(Refusal::Gone);
            }
            let (ticket, answer) = inner.session.ask(request, now)?;
            if !inner.session.has_unwritten() {
                return Ok((answer, None));
            }
            let (caller, written) = oneshot::channel();
            inner.callers.push_back((ticket, caller));
            Ok((answer, Some(written)))
        })?;
        let Some(written) = written else { return Ok(answer) };
        match tokio::time::timeout(DISK, written).await {
            Ok(written) => written.unwrap_or(Err(Refusal::Gone)).map(|()| answer),
            Err(_) => Err(Refusal::NotWrittenInTime { seconds: DISK.as_secs() }),
        }
    }

    /// Reads something that the game may have changed. What stands in the journal belongs to it; where that cannot be
    /// read, what the agent says must do.
    pub(crate) async fn look<T>(
        &self,
        read: impl FnOnce(&Session) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.game_server().await?;
        match self.journal_is_read().await {
            Err(Refusal::Gone) => Err(Refusal::Gone),
            Ok(()) | Err(_) => read(&self.lock().session),
        }
    }

    async fn journal_is_read(&self) -> Result<(), Refusal> {
        let mut footing = self.journal.subscribe();
        let known = footing.wait_for(|footing| !matches!(footing, Footing::Unread));
        tokio::select! {
            biased;
            () = self.gone.cancelled() => Err(Refusal::Gone),
            known = tokio::time::timeout(DISK, known) => match known {
                Ok(Ok(footing)) => match &*footing {
                    Footing::Read => Ok(()),
                    Footing::Unreadable(reason) => Err(Refusal::NotWritten { reason: Arc::clone(reason) }),
                    Footing::Unread => Err(Refusal::NotRead),
                },
                Ok(Err(_)) => Err(Refusal::Gone),
                Err(_) => Err(Refusal::NotRead),
            },
        }
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

    /// A new connection to the agent begins, which speaks this version.
    pub(crate) fn rewind(&self, version: u32) {
        self.step(|session, _| session.rewind(version));
    }

    /// What the agent must hear now; it counts as said.
    pub(crate) fn take_news(&self) -> Vec<ToAgent> {
        self.step(Session::take_news)
    }

    /// Whether it is known what stands in the journal.
    fn is_read(&self) -> bool {
        matches!(*self.journal.borrow(), Footing::Read)
    }

    /// The journal says what stood in it.
    fn read(&self, past: Past) {
        self.step_with(|inner, now| {
            inner.is_queued = false;
            inner.session.read(past, now);
        });
        self.journal.send_replace(Footing::Read);
    }

    /// What is on disk of it cannot be relied on any more.
    fn distrust(&self) {
        // Not a step: whoever says so asks for the draft next.
        self.lock().session.distrust();
    }

    /// What is to be written now, if anything is.
    fn draft(&self) -> Option<Draft> {
        let mut inner = self.lock();
        inner.is_parked = false;
        inner.is_queued = !inner.is_forgotten && inner.session.has_draft();
        inner.is_queued.then(|| inner.session.draft())
    }

    /// A draft is on disk: who waited for it is answered.
    fn written(&self, draft: &Draft) {
        self.written_then(draft, || ());
    }

    /// The same, where something is to happen before anybody is answered.
    fn written_then(&self, draft: &Draft, then: impl FnOnce()) {
        let callers = self.step_with(|inner, _| {
            inner.is_queued = false;
            let done = inner.session.written(draft);
            let is_done = |(ticket, _): &(Ticket, _)| done.is_some_and(|done| *ticket <= done);
            let count = inner.callers.iter().take_while(|caller| is_done(caller)).count();
            inner.callers.drain(..count).collect::<Vec<_>>()
        });
        then();
        // Only now, when the agent's news are announced: an answer is the last thing that can be lost.
        for (_, caller) in callers {
            pass(Effect::Answer, Side::Before);
            // A caller that has gone away was promised nothing.
            let _ = caller.send(Ok(()));
            pass(Effect::Answer, Side::After);
        }
    }

    /// The journal cannot be written, or not be read: who waits for it is told.
    fn refused(&self, reason: &Arc<str>) {
        self.journal.send_if_modified(|footing| {
            let is_unread = !matches!(footing, Footing::Read);
            if is_unread {
                *footing = Footing::Unreadable(Arc::clone(reason));
            }
            is_unread
        });
        self.step_with(|inner, now| {
            (inner.is_queued, inner.is_parked) = (false, true);
            inner.session.refused(now);
            for (_, caller) in inner.callers.drain(..) {
                let _ = caller.send(Err(Refusal::NotWritten { reason: Arc::clone(reason) }));
            }
        });
    }

    /// The server is forgotten: nothing is promised or written any more.
    pub(crate) fn forget(&self) {
        self.gone.cancel();
        let mut inner = self.lock();
        inner.is_forgotten = true;
        for (_, caller) in inner.callers.drain(..) {
            let _ = caller.send(Err(Refusal::Gone));
        }
    }

    /// One turn of the keeper: does what is due and says when the next turn is.
    fn turn(&self) -> Option<Instant> {
        self.step(Session::turn);
        let mut inner = self.lock();
        inner.armed = inner.session.next_turn(self.now());
        inner.armed
    }

    fn step<T>(&self, step: impl FnOnce(&mut Session, Moment) -> T) -> T {
        self.step_with(|inner, now| step(&mut inner.session, now))
    }

    fn step_with<T>(&self, step: impl FnOnce(&mut Inner, Moment) -> T) -> T {
        let mut inner = self.lock();
        let now = self.now();
        let outcome = step(&mut inner, now);
        let count = inner.session.unconfirmed();
        self.surroundings.metrics.count_changes(inner.counted, count);
        inner.counted = count;
        let has_news = inner.session.has_news();
        let is_nearer = match (inner.session.next_turn(now), inner.armed) {
            (Some(next), Some(armed)) => next + CLOCK_NOISE < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let is_waited_for = inner.session.has_unwritten();
        let is_wanting = is_waited_for || (!inner.is_parked && inner.session.has_draft());
        let is_new_in_tray = is_wanting && !inner.is_queued && !inner.is_forgotten;
        inner.is_queued |= is_new_in_tray;
        drop(inner);
        if has_news {
            self.surroundings.news.announce(&self.uid);
        }
        if let Some(seat) = self.me.upgrade().filter(|_| is_new_in_tray) {
            self.surroundings.tray.put(seat);
        }
        if is_waited_for {
            self.surroundings.tray.hurry();
        }
        if is_nearer {
            self.nearer.notify_one();
        }
        outcome
    }

    fn now(&self) -> Moment {
        Moment { instant: self.surroundings.clock.instant().into_std(), wall: self.surroundings.clock.now() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in a pure step would leave the session as it was before or after it; both are whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let counted = self.lock().counted;
        self.surroundings.metrics.count_changes(counted, 0);
        self.surroundings.metrics.servers.dec();
    }
}
