//! The task that runs the machine: it makes the calls, one at a time, and alone says how the instance stands.
//!
//! It waits for nothing but its own calls: neither Redis nor Kubernetes nor the metadata can hold up a sign of life. When the
//! agent stops it gives one more if the last is old, and never gives the instance back: what comes next is another agent.

use std::convert::Infallible;
use std::time::Duration;

use berth_api::events::EventReason;
use berth_api::game_node::Protection;
use berth_runtime::CancellationToken;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::health::Condition;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::call::{Answer, Call, Failure};
use super::client::FleetClient;
use super::identity::FleetIdentity;
use super::machine::{Due, Machine, Mark, News, Outside, Unprotected};
use super::retry::later;
use super::status::Observation;
use super::{FleetMetrics, Offers, Standing};
use crate::drain::Course;
use crate::events::NodeRecorder;
use crate::metadata::Lifecycle;

/// How long everything may take once the agent is asked to stop.
const SIGN_OFF: Duration = Duration::from_secs(4);
/// A sign of life that is older than this is followed by another when the agent stops.
const OLD: Duration = Duration::from_secs(20);
/// How long the first word of the metadata is waited for: an instance of a warm pool is not to be registered.
const FIRST_WORD: Duration = Duration::from_secs(3);

/// Somebody wants the instance given back, and waits for what comes of it.
pub type Order = oneshot::Sender<Result<String, String>>;

/// What the registrar hears.
#[derive(Debug)]
pub struct Inlets {
    /// The node's course.
    pub course: watch::Receiver<Course>,
    /// Auto Scaling's target state.
    pub lifecycle: watch::Receiver<Lifecycle>,
    /// Whether Auto Scaling protects the instance.
    pub protection: watch::Receiver<Option<bool>>,
    /// Orders to give the instance back.
    pub orders: mpsc::Receiver<Order>,
}

/// Where the registrar speaks.
#[derive(Clone, Debug)]
pub struct Outlets {
    /// How the instance stands.
    pub standing: watch::Sender<Standing>,
    /// What FleetIQ said of the instance in passing.
    pub observations: mpsc::Sender<Observation>,
    /// Where people read.
    pub tell: NodeRecorder,
    /// Whether the instance is kept.
    pub ready: Condition,
    /// Numbers.
    pub metrics: FleetMetrics,
}

/// Runs the machine of one instance.
#[derive(Debug)]
pub struct Registrar {
    client: FleetClient,
    identity: FleetIdentity,
    machine: Machine,
    policy: Unprotected,
    clock: Clock,
    inlets: Inlets,
    outlets: Outlets,
    waiting: Vec<Order>,
}

impl Registrar {
    /// A registrar that goes on from a mark.
    #[must_use]
    pub fn new(
        client: FleetClient,
        identity: FleetIdentity,
        (mark, policy): (Mark, Unprotected),
        inlets: Inlets,
        outlets: Outlets,
    ) -> Self {
        // A clock that only goes forward, whatever is done to the time of day.
        let clock = Clock::anchored_at(berth_runtime::clock::now());
        let machine = Machine::new(mark, clock.now(), rand::random());
        Self { client, identity, machine, policy, clock, inlets, outlets, waiting: Vec::new() }
    }

    /// Keeps the instance registered until asked to stop.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = sleep(FIRST_WORD) => {}
            _ = self.inlets.lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Unasked) => {}
        }
        let left = loop {
            self.note();
            let now = self.clock.now();
            let course = self.inlets.course.borrow().clone();
            let outside = Outside { course: &course, is_warmed: self.is_warmed() };
            match self.machine.next(&outside, now) {
                Some(due) if due.is_due(now) => {
                    let began = Instant::now();
                    let answer = self.call(due.call, &stop).await;
                    if let Some(answer) = answer {
                        self.hear(answer).await;
                    }
                    if stop.is_cancelled() {
                        // At most so long ago.
                        break SIGN_OFF.saturating_sub(began.elapsed());
                    }
                }
                due => {
                    if !self.wait(due, now, &stop).await {
                        break SIGN_OFF;
                    }
                }
            }
        };
        self.sign_off(left).await;
        Ok(())
    }

    /// Makes a call. One that is under way when the agent is to stop may end, within what is left.
    async fn call(&self, call: Call, stop: &CancellationToken) -> Option<Answer> {
        let overdue = async {
            stop.cancelled().await;
            sleep(SIGN_OFF).await;
        };
        tokio::select! {
            biased;
            answer = self.client.call(call) => Some(answer),
            () = overdue => None,
        }
    }

    /// Waits until something is due or new; false once asked to stop.
    async fn wait(&mut self, due: Option<Due>, now: Timestamp, stop: &CancellationToken) -> bool {
        let at = due
            .and_then(|due| due.at)
            .into_iter()
            .chain(self.machine.look_at(self.policy))
            .filter(|at| *at > now)
            .min();
        let pause = at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let rest = async {
            match pause {
                Some(pause) => sleep(pause.max(Duration::from_millis(1))).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return false,
            Some(order) = self.inlets.orders.recv() => self.obey(order),
            () = changed(&mut self.inlets.course) => {}
            () = changed(&mut self.inlets.lifecycle) => {}
            () = changed(&mut self.inlets.protection) => {
                let is_protected = *self.inlets.protection.borrow_and_update();
                let now = self.clock.now();
                let news = is_protected.and_then(|is_protected| self.machine.see_protection(is_protected, now));
                self.announce(news);
            }
            () = rest => {}
        }
        true
    }

    /// Takes in what is outside, and says how the instance stands.
    fn note(&mut self) {
        let now = self.clock.now();
        let course = self.inlets.course.borrow_and_update().clone();
        self.inlets.lifecycle.borrow_and_update();
        self.machine.follow(&course, now, rand::random());
        let outside = Outside { course: &course, is_warmed: self.is_warmed() };
        let news = self.machine.look(&outside, self.policy, now);
        let standing = Standing {
            protection: self.machine.protection(),
            group: Some(self.identity.group.clone()),
            instance: Some(self.identity.instance.clone()),
            last_beat: self.machine.last_beat(),
            offers: self.machine.offers(&outside, self.policy, now),
            problem: self.machine.problem(),
        };
        let metrics = &self.outlets.metrics;
        metrics.protected.set(i64::from(standing.protection == Protection::Protected));
        metrics.offers_withheld.set(i64::from(standing.offers != Offers::Allowed));
        metrics.last_beat.set(standing.last_beat.map_or(0, Timestamp::as_second));
        self.outlets.ready.set(self.machine.is_well(now));
        self.outlets.standing.send_if_modified(|last| {
            let is_new = *last != standing;
            *last = standing;
            is_new
        });
        self.announce(news);
    }

    async fn hear(&mut self, answer: Answer) {
        self.outlets.metrics.called(&answer);
        let news = self.machine.hear(answer, self.clock.now(), rand::random());
        match answer {
            Answer::AskStatus(Ok(status)) => {
                // Nobody listens any more: the agent stops.
                drop(self.outlets.observations.send(Observation::Asked(status)).await);
            }
            Answer::Deregister(outcome) => {
                let outcome = match outcome {
                    // No such server: it is given back.
                    Ok(()) | Err(Failure::NotFound) => Ok(self.given_back()),
                    Err(failure) => Err(format!("{failure}: {}; it is tried again", failure.advice())),
                };
                for order in self.waiting.drain(..) {
                    // Whoever asked may have gone.
                    drop(order.send(outcome.clone()));
                }
            }
            Answer::Register(_)
            | Answer::Claim(_)
            | Answer::Update(_)
            | Answer::Live(_)
            | Answer::Describe(_)
            | Answer::AskStatus(Err(_)) => {}
        }
        self.announce(news);
    }

    fn obey(&mut self, order: Order) {
        info!("asked to give the instance back to FleetIQ");
        self.machine.give_up();
        if self.machine.protection() == Protection::Released {
            drop(order.send(Ok(self.given_back())));
        } else {
            self.waiting.push(order);
        }
    }

    /// Says what somebody else should know.
    fn announce(&self, news: Option<News>) {
        let FleetIdentity { instance, group, .. } = &self.identity;
        let Some(news) = news else { return };
        let (reason, words) = match news {
            News::Protected => (
                EventReason::Registered,
                format!("FleetIQ keeps {instance} of game server group {group} while players are on it"),
            ),
            News::Reregistered => {
                self.outlets.metrics.reregistered.inc();
                (
                    EventReason::Reregistered,
                    format!("registered {instance} with game server group {group} again"),
                )
            }
            News::ProtectionLost => (
                EventReason::ProtectionLost,
                format!(
                    "FleetIQ no longer knows {instance} of game server group {group}; it is registered again"
                ),
            ),
            News::ProtectionMissing => (
                EventReason::ProtectionMissing,
                format!(
                    "Auto Scaling does not protect {instance} although it is in use; it is claimed again"
                ),
            ),
            News::Stolen | News::Hidden => {
                (EventReason::RegistrationFails, self.machine.problem().unwrap_or_default())
            }
            News::Deregistered => (EventReason::Deregistered, self.given_back()),
            News::Trouble(call, failure) => (
                EventReason::RegistrationFails,
                format!("{} fails ({failure}): {}", call.operation(), failure.advice()),
            ),
            News::Silent => (
                EventReason::RegistrationFails,
                "FleetIQ has taken no sign of life for two minutes, and may soon let go of the instance"
                    .to_owned(),
            ),
            News::OffersUnprotected => (
                EventReason::Unprotected,
                "servers are offered although FleetIQ does not keep the instance: it could not be registered"
                    .to_owned(),
            ),
        };
        if reason.is_warning() {
            warn!(reason = reason.as_str(), "{words}");
        } else {
            info!(reason = reason.as_str(), "{words}");
        }
        self.outlets.tell.record(reason, &words);
    }

    fn given_back(&self) -> String {
        let FleetIdentity { instance, group, .. } = &self.identity;
        format!("{instance} is given back to game server group {group}")
    }

    /// One more sign of life, if the last is old: the next agent needs some time.
    async fn sign_off(&self, limit: Duration) {
        let is_old = self.machine.last_beat().is_none_or(|beat| later(beat, OLD) <= self.clock.now());
        if self.machine.beats() && is_old {
            // No answer in time is no harm: the next agent gives another.
            if let Ok(answer) = timeout(limit, self.client.call(Call::Update)).await {
                self.outlets.metrics.called(&answer);
            }
        }
    }

    fn is_warmed(&self) -> bool {
        *self.inlets.lifecycle.borrow() == Lifecycle::Warmed
    }
}

/// Waits until a value is new. Never ends once nobody can send one.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
