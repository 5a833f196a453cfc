//! One game server, as this process knows it. Pure: calls and frames go in, changes and deadlines come out.

use std::sync::Arc;
use std::time::Instant;

use berth_api::game_server::counters::CounterError;
use berth_api::game_server::lists::{ListChange, ListError};
use berth_api::game_server::players::PlayersChange;
use berth_api::game_server::{Counter, List, PlayersStatus};
use berth_api::lifecycle::State;
use berth_api::link::{Asked, Change, Pulse, Seen, Sequence, ServerUid, ToAgent, View};
use jiff::{SignedDuration, Timestamp};

use super::amounts::{self, check_bytes};
use super::metadata::{check_key, check_label_value, check_room};
use super::outbox::Outbox;
use super::page::{Draft, Past, Ticket};
use super::ping::PingClock;
use super::{Answer, Moment, Refusal, Request};

/// The wait before the end of a reservation is tried again.
const BREATH: SignedDuration = SignedDuration::from_secs(1);

/// One game server.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    uid: ServerUid,
    view: Option<Box<View>>,
    /// Changes up to this one are contained in the view.
    applied: Sequence,
    outbox: Outbox,
    pings: PingClock,
    /// When a reservation ends and the server is to be Ready again.
    reserved_until: Option<Timestamp>,
    is_silent: bool,
    /// The agent has not heard yet whether the game is silent.
    owes_pulse: bool,
}

impl Session {
    /// A server of which nothing is known but its UID, in a process that hears pings since `listening_since`.
    pub(crate) fn new(uid: ServerUid, listening_since: Instant) -> Self {
        Self {
            uid,
            view: None,
            applied: Sequence::default(),
            outbox: Outbox::default(),
            pings: PingClock::new(listening_since),
            reserved_until: None,
            is_silent: false,
            owes_pulse: false,
        }
    }

    /// The game pings.
    pub(crate) fn ping(&mut self, now: Moment) {
        self.pings.ping(now.instant);
        self.note_pulse(now);
    }

    /// The journal says what stood in it of this server.
    pub(crate) fn read(&mut self, past: Past, now: Moment) {
        self.outbox.read(past);
        self.reserved_until = self.known_reservation();
        self.note_pulse(now);
    }

    /// The game asks for something; it is promised once everything up to the ticket is on disk.
    pub(crate) fn ask(&mut self, request: Request, now: Moment) -> Result<(Ticket, Answer), Refusal> {
        let view = self.view.as_ref().ok_or(Refusal::NotIntroduced)?;
        if !self.outbox.is_read() {
            return Err(Refusal::NotRead);
        }
        let until = self.reserved_until;
        let mut answer = Answer::Done;
        let (change, until) = match request {
            Request::Ready => (Change::Ready, None),
            Request::Allocate => (Change::Allocate { at: now.wall.to_string() }, None),
            Request::Shutdown => (Change::Shutdown, None),
            Request::Reserve { seconds } => {
                let until = end_of_reservation(now.wall, seconds);
                (Change::Reserve { until: until.map(|until| until.to_string()) }, until)
            }
            Request::Label { key, value } => {
                check_key(&key)?;
                check_label_value(&value)?;
                let pending = self.outbox.iter().filter_map(|change| match change {
                    Change::Label { key, value } => Some((key.as_str(), value.as_str())),
                    _ => None,
                });
                check_room(&view.labels, pending, (&key, &value))?;
                (Change::Label { key, value }, until)
            }
            Request::Annotation { key, value } => {
                check_key(&key)?;
                let pending = self.outbox.iter().filter_map(|change| match change {
                    Change::Annotation { key, value } => Some((key.as_str(), value.as_str())),
                    _ => None,
                });
                check_room(&view.annotations, pending, (&key, &value))?;
                (Change::Annotation { key, value }, until)
            }
            Request::Counter { name, by } => {
                answer = Answer::Counter(by.check(&self.counter(&name)?)?);
                (Change::Counter { name, by }, until)
            }
            Request::AddToList { name, value } => {
                let now = self.list(&name)?;
                let by = ListChange::adding(value, &now)?;
                (self.list_change(name, by, &now, &mut answer)?, until)
            }
            Request::RemoveFromList { name, value } => {
                let now = self.list(&name)?;
                let by = ListChange::removing(value, &now)?;
                (self.list_change(name, by, &now, &mut answer)?, until)
            }
            Request::UpdateList { name, capacity, values } => {
                let now = self.list(&name)?;
                let by = ListChange::replacing(capacity, values, &now)?;
                (self.list_change(name, by, &now, &mut answer)?, until)
            }
            Request::Connect { player } => match PlayersChange::connecting(player, &self.players()?)? {
                None => return Ok((self.outbox.ticket(), Answer::Changed(false))),
                Some(by) => {
                    check_bytes(view, &self.outbox, by.size())?;
                    answer = Answer::Changed(true);
                    (Change::Players { by }, until)
                }
            },
            Request::Disconnect { player } => match PlayersChange::disconnecting(player, &self.players()?) {
                None => return Ok((self.outbox.ticket(), Answer::Changed(false))),
                Some(by) => {
                    answer = Answer::Changed(true);
                    (Change::Players { by }, until)
                }
            },
            Request::PlayerCapacity { capacity } => {
                (Change::Players { by: PlayersChange::with_capacity(capacity)? }, until)
            }
        };
        // A server that has failed stays failed: what its game still asks for is heard and has no effect.
        if is_unhealthy(view) && change.is_state() {
            return Ok((self.outbox.ticket(), answer));
        }
        let ticket = self.outbox.push(Asked { change, seen: self.seen() })?;
        self.reserved_until = until;
        Ok((ticket, answer))
    }

    /// A counter: as the API server has it, and what is pending.
    pub(crate) fn counter(&self, name: &str) -> Result<Counter, Refusal> {
        let view = self.view.as_ref().ok_or(Refusal::NotIntroduced)?;
        let unknown = || CounterError::Unknown { name: name.to_owned() };
        Ok(amounts::counter(view, &self.outbox, name).ok_or_else(unknown)?)
    }

    /// A list: as the API server has it, and what is pending.
    pub(crate) fn list(&self, name: &str) -> Result<List, Refusal> {
        let view = self.view.as_ref().ok_or(Refusal::NotIntroduced)?;
        let unknown = || ListError::Unknown { name: name.to_owned() };
        Ok(amounts::list(view, &self.outbox, name).ok_or_else(unknown)?)
    }

    /// The players: as the API server has them, and what is pending.
    pub(crate) fn players(&self) -> Result<PlayersStatus, Refusal> {
        let view = self.view.as_ref().ok_or(Refusal::NotIntroduced)?;
        Ok(amounts::players(view, &self.outbox))
    }

    fn list_change(
        &self,
        name: String,
        by: ListChange,
        now: &List,
        answer: &mut Answer,
    ) -> Result<Change, Refusal> {
        if let Some(view) = &self.view {
            check_bytes(view, &self.outbox, by.add.iter().map(String::len).sum())?;
        }
        *answer = Answer::List(by.apply(now));
        Ok(Change::List { name, by })
    }

    /// What the game can see now, and the sessions that it has asked for itself.
    fn seen(&self) -> Seen {
        let asked_for = self.outbox.iter().filter_map(|change| match change {
            Change::Allocate { at } => Some(at.clone()),
            _ => None,
        });
        let view = self.view.as_deref();
        let mut sessions: Vec<String> = view.and_then(View::session).into_iter().collect();
        sessions.extend(asked_for);
        sessions.dedup();
        Seen { generation: view.map_or(0, |view| view.generation), sessions }
    }

    /// Whether somebody waits for what is not on disk.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.outbox.has_unwritten()
    }

    /// Whether there is anything to write.
    pub(crate) fn has_draft(&self) -> bool {
        self.outbox.has_draft()
    }

    /// What is to be written now.
    pub(crate) fn draft(&mut self) -> Draft {
        self.outbox.draft()
    }

    /// A draft is on disk.
    pub(crate) fn written(&mut self, draft: &Draft) -> Option<Ticket> {
        self.outbox.written(draft)
    }

    /// A draft could not be written.
    pub(crate) fn refused(&mut self, now: Moment) {
        self.outbox.refused();
        // An end that is due already is tried again, but not at once.
        let soon = now.wall.checked_add(BREATH).unwrap_or(now.wall);
        self.reserved_until = self.known_reservation().map(|until| until.max(soon));
    }

    /// What is on disk cannot be relied on any more.
    pub(crate) fn distrust(&mut self) {
        self.outbox.distrust();
    }

    /// The agent tells what the server is; changes up to `applied` are contained in it.
    pub(crate) fn introduce(&mut self, view: Box<View>, applied: Sequence, now: Moment) {
        self.outbox.applied(applied);
        self.pings.set_rule(view.health);
        // An older view says nothing about a reservation that this process has asked for or ended since.
        let is_news = self.outbox.state().is_none() && applied >= self.outbox.last_state();
        (self.view, self.applied) = (Some(view), applied);
        if is_news {
            self.reserved_until = self.known_reservation();
        }
        self.note_pulse(now);
    }

    /// The game's container started.
    pub(crate) fn started(&mut self, start: Instant, now: Moment) {
        self.pings.started(start);
        self.note_pulse(now);
    }

    /// The game can be heard from now on.
    pub(crate) fn opened(&mut self, now: Moment) {
        self.pings.opened(now.instant);
        self.note_pulse(now);
    }

    /// The agent is done with changes up to this one.
    pub(crate) fn acknowledge(&mut self, sequence: Sequence) {
        self.outbox.acknowledge(sequence);
    }

    /// A new connection to the agent begins, which speaks this version.
    pub(crate) fn rewind(&mut self, version: u32) {
        self.outbox.rewind(version);
        self.owes_pulse = self.is_silent;
    }

    /// Time has passed.
    pub(crate) fn turn(&mut self, now: Moment) {
        self.note_pulse(now);
        if self.reserved_until.is_some_and(|until| until <= now.wall) {
            self.reserved_until = None;
            if self.is_reserved()
                && self.outbox.push(Asked { change: Change::Ready, seen: self.seen() }).is_err()
            {
                // No room for it now; there is soon, or the agent's own word ends the reservation.
                self.reserved_until = now.wall.checked_add(BREATH).ok();
            }
        }
    }

    /// When [`Session::turn`] is due, unless something else happens before.
    pub(crate) fn next_turn(&self, now: Moment) -> Option<Instant> {
        let silence = if self.is_silent { None } else { self.pings.deadline() };
        let reservation = self.reserved_until.and_then(|until| {
            let wait = until.duration_since(now.wall).max(SignedDuration::ZERO).unsigned_abs();
            now.instant.checked_add(wait)
        });
        match (silence, reservation) {
            (Some(silence), Some(reservation)) => Some(silence.min(reservation)),
            (silence, reservation) => silence.or(reservation),
        }
    }

    /// Whether the agent must hear something.
    pub(crate) fn has_news(&self) -> bool {
        self.owes_pulse || self.outbox.has_more()
    }

    /// What the agent must hear now; it counts as said.
    pub(crate) fn take_news(&mut self, now: Moment) -> Vec<ToAgent> {
        let mut news = Vec::new();
        if std::mem::take(&mut self.owes_pulse) {
            let pulse = if self.is_silent { self.pings.pulse(now.instant) } else { Pulse::Alive };
            news.push(ToAgent::Pings { uid: self.uid.clone(), pulse });
        }
        news.extend(self.outbox.hand_over().into_iter().map(|numbered| {
            let Asked { change, seen } = Arc::unwrap_or_clone(numbered.asked);
            ToAgent::Change { uid: self.uid.clone(), sequence: numbered.sequence, change, seen }
        }));
        news
    }

    /// Changes that are not confirmed yet.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.outbox.len()
    }

    fn note_pulse(&mut self, now: Moment) {
        let is_silent = match self.pings.pulse(now.instant) {
            Pulse::Silent { .. } => true,
            Pulse::Alive => false,
        };
        if is_silent != self.is_silent {
            self.is_silent = is_silent;
            self.owes_pulse = true;
        }
    }

    /// The end of the reservation: of the state asked for last, or else of a view that is not older than that.
    fn known_reservation(&self) -> Option<Timestamp> {
        match self.outbox.state() {
            Some(Change::Reserve { until }) => until.as_deref()?.parse().ok(),
            Some(_) => None,
            None if self.applied < self.outbox.last_state() => None,
            None => self.view.as_deref().and_then(reservation),
        }
    }

    /// Reserved as far as anybody here knows: by the state asked for last, or else by the agent's view.
    fn is_reserved(&self) -> bool {
        match self.outbox.state() {
            Some(asked) => matches!(asked, Change::Reserve { .. }),
            None => self.view.as_ref().is_some_and(|view| view.status.state == Some(State::Reserved)),
        }
    }
}

fn end_of_reservation(now: Timestamp, seconds: i64) -> Option<Timestamp> {
    if seconds <= 0 {
        return None;
    }
    // An end beyond the end of time is none.
    now.checked_add(SignedDuration::from_secs(seconds)).ok()
}

fn reservation(view: &View) -> Option<Timestamp> {
    let until = view.status.reserved_until.as_deref()?;
    let is_reserved = view.status.state == Some(State::Reserved);
    until.parse().ok().filter(|_| is_reserved)
}

fn is_unhealthy(view: &View) -> bool {
    view.status.state == Some(State::Unhealthy)
}

#[cfg(test)]
mod tests;
