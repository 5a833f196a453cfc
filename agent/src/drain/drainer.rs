//! The task that hears what is said of the node's end, decides its course, and does to the Node what that asks for.
//!
//! It never touches a game server: workers do, by the course, and it waits for what comes of it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_api::game_node::Protection;
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::Course;
use super::backup::Backup;
use super::exposure::{Tolerations, expose};
use super::idle::{Idle, Sight};
use super::marks::{At, Marks};
use super::memory::Memory;
use super::metrics::{DrainMetrics, FailureLabels, SourceLabels, WriteLabels};
use super::node::{NodeError, NodeHand, word};
use super::notice::{Heard, Notice, Severity, Signal, Source};
use super::orders::{Ask, Order};
use super::plan::{Plan, Pods, Seen, Step, plan};
use super::sources::{self, Ordered};
use crate::events::Recorder;
use crate::events::build::{self, Stamp};
use crate::fleetiq::{Offers, Standing};
use crate::game_server::Board;
use crate::identity::Identity;
use crate::node::{NodeFacts, version};
use crate::pods::GamePod;

/// First and longest pause after a step that failed.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// More steps than any way takes in a row.
const STEPS: usize = 12;
/// After this time with sessions on, a drain is worth an Event.
const LONG: Duration = Duration::from_secs(2 * 60 * 60);

/// How a node is emptied.
#[derive(Clone, Copy, Debug)]
pub struct DrainSettings {
    /// How long servers without a session stay on a node that somebody else has closed.
    pub cordon_grace: Duration,
    /// How long a drain waits for sessions before the node counts as empty; without end where absent.
    pub max_wait: Option<Duration>,
    /// How long a node has had no session when it asks whether it is needed; never where absent.
    pub idle_release: Option<Duration>,
}

/// What the drainer hears and sees.
#[derive(Debug)]
pub struct Inputs {
    /// From everybody who may say something of the node's end.
    pub signals: mpsc::Receiver<Signal>,
    /// From the local socket.
    pub orders: mpsc::Receiver<Order>,
    /// Our Node object.
    pub node: watch::Receiver<Arc<NodeFacts>>,
    /// What our GameNode orders.
    pub ordered: watch::Receiver<Ordered>,
    /// The standing with FleetIQ.
    pub standing: watch::Receiver<Standing>,
    /// The pods of game servers.
    pub pods: watch::Receiver<BTreeMap<String, GamePod>>,
    /// Whether they are all known.
    pub adopted: watch::Receiver<bool>,
    /// The servers.
    pub board: Board,
}

/// What the drainer acts with.
#[derive(Debug)]
pub struct Means {
    /// The Node.
    pub hand: NodeHand,
    /// The copy of its marks.
    pub backup: Backup,
    /// Who we are.
    pub identity: Identity,
    /// Events.
    pub recorder: Recorder,
    /// Numbers.
    pub metrics: DrainMetrics,
}

/// What the drainer says.
#[derive(Clone, Debug)]
pub struct Words {
    /// What the node is for.
    pub course: watch::Receiver<Course>,
    /// Since when nobody has played, where the brain is asked whether the node is needed.
    pub question: watch::Receiver<Option<Timestamp>>,
}

/// Hears, decides, acts.
pub struct Drainer {
    means: Means,
    inputs: Inputs,
    settings: DrainSettings,
    clock: Clock,
    courses: watch::Sender<Course>,
    /// Since when nobody has played, where the brain is asked whether the node is needed.
    questions: watch::Sender<Option<Timestamp>>,
    memory: Memory,
    idle: Idle,
    tolerations: Tolerations,
    /// The Node after our last write, and before anybody else's.
    object: Option<Node>,
    /// The marks of which there is a copy.
    copied: Marks,
    orders: Vec<Order>,
    backoff: Backoff,
    next_try: Option<Instant>,
    /// What has been told of this drain already.
    told: Told,
}

#[derive(Debug, Default)]
struct Told {
    withheld: Option<String>,
    is_long: bool,
    is_cordoned: bool,
    failure: Option<String>,
}

impl Drainer {
    /// A drainer that goes on where an earlier one stopped, and where its course and its question can be read.
    pub fn new(means: Means, inputs: Inputs, settings: DrainSettings) -> (Self, Words) {
        let clock = Clock::system();
        let now = clock.now();
        let node = inputs.node.borrow().clone();
        let standing = inputs.standing.borrow().clone();
        // The copy is written first, so it is never behind the Node.
        let copied = means.backup.read(standing.instance.as_deref());
        let marks = copied.clone().unwrap_or_else(|| node.marks.clone());
        let (courses, course) = watch::channel(Course::Open);
        let (questions, question) = watch::channel(None);
        let mut drainer = Self {
            memory: Memory::resume(&marks, &means.identity.boot_id, now),
            copied: copied.unwrap_or_default(),
            means,
            inputs,
            settings,
            clock,
            courses,
            questions,
            idle: Idle::new(settings.idle_release),
            tolerations: Tolerations::default(),
            object: None,
            orders: Vec::new(),
            backoff: Backoff::new(WAITS.0, WAITS.1),
            next_try: None,
            told: Told::default(),
        };
        drainer.hear_node();
        let first = drainer.plan().course;
        drainer.means.metrics.show(&first);
        drainer.courses.send_replace(first);
        (drainer, Words { course, question })
    }

    /// Runs until asked to stop. The Node stays as it is: the next agent goes on.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut lines = self.inputs.board.lines();
        loop {
            let wake = self.turn().await;
            lines.borrow_and_update();
            let is_held = self.means.hand.may_act();
            let mut authority = self.means.hand.authority();
            let inputs = &mut self.inputs;
            // Orders and signals first: whoever gives an order waits. The order of the rest does not matter, and who
            // has nothing more to say, since nobody is configured to say it, says nothing.
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(order) = inputs.orders.recv() => self.note_order(order),
                Some(signal) = inputs.signals.recv() => self.hear(signal),
                Ok(()) = inputs.node.changed() => {}
                Ok(()) = inputs.ordered.changed() => {}
                Ok(()) = inputs.standing.changed() => {}
                Ok(()) = inputs.pods.changed() => {}
                Ok(()) = inputs.adopted.changed() => {}
                Ok(()) = lines.changed() => {}
                _ = authority.held(), if !is_held => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    fn note_order(&mut self, order: Order) {
        let signal = match &order.ask {
            Ask::Drain { reason, deadline } => Signal::Raised(Notice {
                source: Source::Socket,
                severity: Severity::Ordered,
                reason: reason.clone(),
                deadline: *deadline,
            }),
            Ask::Undrain => Signal::Cleared(Source::Socket),
        };
        self.hear(signal);
        self.orders.push(order);
    }

    fn hear(&mut self, signal: Signal) {
        let now = self.clock.now();
        let (Signal::Raised(Notice { source, .. }) | Signal::Cleared(source)) = &signal;
        let word = source.word();
        match self.memory.hear(signal.clone(), now) {
            Heard::News => {
                match &signal {
                    Signal::Raised(notice) => {
                        info!(source = word, severity = ?notice.severity, reason = notice.reason, "notice");
                    }
                    Signal::Cleared(_) => info!(source = word, "notice taken back"),
                }
                // A step that failed is not worth waiting for when something is new.
                self.next_try = None;
            }
            Heard::Known => {}
            Heard::Denied => {
                warn!(source = word, "a notice that is never taken back was taken back; it stands");
                self.means.metrics.denied.inc();
            }
        }
    }

    fn hear_node(&mut self) {
        let node = self.facts();
        let ordered = self.inputs.ordered.borrow_and_update().clone();
        let mut signals = sources::of_node(&node, self.memory.notices());
        signals.extend(sources::of_game_node(&ordered, self.memory.notices()));
        for signal in signals {
            self.hear(signal);
        }
        let now = self.clock.now();
        self.idle.note(self.sight(), now);
        if let Some(signal) = self.idle.signal(&ordered, self.memory.notices(), now) {
            self.hear(signal);
        }
    }

    fn sight(&self) -> Sight {
        let standing = self.inputs.standing.borrow();
        let lines = self.inputs.board.lines();
        let lines = lines.borrow();
        Sight {
            are_known: *self.inputs.adopted.borrow(),
            has_session: lines.values().any(|line| line.state.is_protected()),
            may_ask: standing.protection == Protection::Protected
                && standing.offers == Offers::Allowed
                && *self.courses.borrow() == Course::Open,
        }
    }

    /// The Node: as the watch shows it, or after our own write where the watch lags behind.
    fn facts(&mut self) -> Arc<NodeFacts> {
        let seen = self.inputs.node.borrow_and_update().clone();
        match &self.object {
            Some(object) if version(object) > seen.version => Arc::new(NodeFacts::read(object)),
            Some(_) | None => {
                self.object = self.object.take().filter(|object| version(object) == seen.version);
                seen
            }
        }
    }

    fn plan(&mut self) -> Plan {
        let now = self.clock.now();
        let node = self.facts();
        let standing = self.inputs.standing.borrow_and_update().clone();
        if !node.marks.is_about(standing.instance.as_deref()) {
            self.memory.forget_restored(now);
        }
        let gravest = self.memory.gravest();
        let pods = self.pods(now);
        let after = |time: Timestamp, length: Duration| time.saturating_add(length).unwrap_or(Timestamp::MAX);
        plan(Seen {
            gravest: gravest.as_ref(),
            kept: &self.memory.notices().kept(),
            let_go_at: after(self.memory.closed_since().unwrap_or(now), self.settings.cordon_grace),
            given_up_at: self
                .settings
                .max_wait
                .and_then(|wait| Some(after(self.memory.drains_since()?, wait))),
            before: &self.courses.borrow().clone(),
            node: &node,
            standing: &standing,
            pods: &pods,
            at: At { boot_id: &self.means.identity.boot_id, now },
        })
    }

    fn pods(&mut self, now: Timestamp) -> Pods {
        let pods = self.inputs.pods.borrow_and_update().clone();
        self.tolerations.note(&pods, now);
        let are_known = *self.inputs.adopted.borrow_and_update();
        expose(&pods, &self.inputs.board.lines().borrow(), &self.tolerations, are_known)
    }

    /// Everybody hears of the course first; then a copy of the marks is kept, so that who ordered can be answered; then
    /// the Node. Answers when to come back by itself.
    async fn turn(&mut self) -> Option<Instant> {
        for _ in 0..STEPS {
            let now = self.clock.now();
            let expires = self.memory.expire(now);
            self.hear_node();
            let plan = self.plan();
            self.publish(&plan.course);
            self.ask(now);
            self.keep(&plan).await;
            self.tell(&plan, now);
            let wake = match &plan.step {
                Step::Wait(until) => {
                    self.backoff.reset();
                    self.next_try = None;
                    let waits = matches!(plan.course, Course::Draining { .. }) && !self.told.is_long;
                    let long = self.memory.drains_since().filter(|_| waits).map(long_after);
                    let times = [*until, expires, long, self.idle.look_at(now)].into_iter().flatten();
                    return times.min().map(|time| self.instant_of(time));
                }
                _ if !self.means.hand.may_act() => return None,
                _ => self.next_try.filter(|time| self.clock.instant() < *time),
            };
            if wake.is_some() {
                return wake;
            }
            match Box::pin(self.step(&plan)).await {
                Ok(()) => self.told.failure = None,
                // Somebody wrote in between: look again, and decide anew.
                Err(error) if error.class() == Some(Class::Conflict) => self.object = None,
                Err(error) => return self.rest(&error),
            }
        }
        warn!("too many steps in a row; pausing");
        Some(self.pause())
    }

    fn rest(&mut self, error: &NodeError) -> Option<Instant> {
        self.object = None;
        let class = error.class()?;
        self.means.metrics.failures.get_or_create(&FailureLabels { category: class.category() }).inc();
        let told = chain(error);
        // Once for each thing that is wrong: it may take long.
        if self.told.failure.as_ref() != Some(&told) {
            warn!(error = told, "a step of the drain failed; trying again");
            self.told.failure = Some(told);
        }
        Some(self.pause())
    }

    fn pause(&mut self) -> Instant {
        let until = self.clock.instant() + self.backoff.next();
        self.next_try = Some(until);
        until
    }

    fn instant_of(&self, time: Timestamp) -> Instant {
        let ahead = Duration::try_from(time.duration_since(self.clock.now())).unwrap_or_default();
        self.clock.instant() + ahead
    }

    /// Takes the step on the Node as it is, if it is still the step to take then.
    async fn step(&mut self, plan: &Plan) -> Result<(), NodeError> {
        if self.object.is_none() {
            self.object = Some(self.means.hand.look().await?);
            if self.plan().step != plan.step {
                return Ok(());
            }
        }
        let Some(object) = &self.object else { return Ok(()) };
        let step = &plan.step;
        let Some(written) = self.means.hand.take(step, object).await? else { return Ok(()) };
        self.object = Some(written);
        self.backoff.reset();
        self.means.metrics.node_writes.get_or_create(&WriteLabels { step: word(step) }).inc();
        info!(step = word(step), "wrote the Node");
        if *step == Step::Cordon && !self.told.is_cordoned {
            self.told.is_cordoned = true;
            self.observe_cordon();
        }
        Ok(())
    }

    fn observe_cordon(&self) {
        if let Some(since) = self.memory.drains_since() {
            self.means.metrics.until_cordoned.observe(self.seconds_since(since));
        }
    }

    fn seconds_since(&self, since: Timestamp) -> f64 {
        self.clock.now().duration_since(since).as_secs_f64().max(0.0)
    }

    fn publish(&mut self, course: &Course) {
        let before = self.courses.borrow().clone();
        if before == *course {
            return;
        }
        self.courses.send_replace(course.clone());
        self.means.metrics.show(course);
        let why = course.notice().map_or("nothing is said any more", |notice| notice.reason.as_str());
        info!(course = course.word(), reason = why, "the node has another course");
        let was_draining = matches!(before, Course::Draining { .. } | Course::Drained { .. });
        match course {
            Course::Draining { notice } if !was_draining => {
                let labels = SourceLabels { source: notice.source.word() };
                self.means.metrics.started.get_or_create(&labels).inc();
                self.told = Told { failure: self.told.failure.take(), ..Told::default() };
            }
            Course::Drained { .. } => {
                if let Some(since) = self.memory.drains_since() {
                    self.means.metrics.until_drained.observe(self.seconds_since(since));
                }
            }
            Course::Spare { .. } if !before.is_spare() => {
                self.means.metrics.spared.inc();
            }
            Course::Open | Course::Closed { .. } | Course::Spare { .. } | Course::Draining { .. } => {}
        }
        if before.word() != course.word() || course.is_terminating() != before.is_terminating() {
            self.means.recorder.record(build::node_course(&self.means.identity, course, self.stamp()));
        }
    }

    /// Asks the brain, once with each idle time, whether the node is needed.
    fn ask(&self, now: Timestamp) {
        let question = self.idle.asks(now).filter(|_| *self.courses.borrow() == Course::Open);
        self.questions.send_if_modified(|asked| {
            let is_new = *asked != question;
            *asked = question;
            is_new
        });
    }

    async fn keep(&mut self, plan: &Plan) {
        let mut failure = None;
        if self.copied != plan.marks {
            match self.means.backup.write(&plan.marks).await {
                Ok(()) => self.copied = plan.marks.clone(),
                Err(error) => {
                    let told = chain(&error);
                    if self.told.failure.as_ref() != Some(&told) {
                        warn!(error = told, "the node's marks have no copy on disk");
                        self.told.failure = Some(told.clone());
                    }
                    failure = Some(told);
                }
            }
        }
        for order in self.orders.drain(..) {
            let answer = failure.clone().map_or_else(|| Ok(plan.course.clone()), Err);
            // Nobody waits any more: the order stands all the same.
            let _ = order.answer.send(answer);
        }
    }

    fn tell(&mut self, plan: &Plan, now: Timestamp) {
        let withheld = plan.withheld.as_ref().map(|(taint, pod)| {
            format!("taint {} is withheld: it would evict {pod}, which does not tolerate it", taint.key())
        });
        if withheld.is_some() && self.told.withheld != withheld {
            self.means.metrics.withheld.inc();
            let message = withheld.clone().unwrap_or_default();
            warn!(message, "a taint is withheld");
            self.means.recorder.record(build::taint_withheld(&self.means.identity, message, self.stamp()));
        }
        self.told.withheld = withheld;
        let is_draining = matches!(plan.course, Course::Draining { .. });
        if let Some(since) = self.memory.drains_since()
            && is_draining
            && !self.told.is_long
            && now >= long_after(since)
        {
            self.told.is_long = true;
            let pods = self.inputs.pods.borrow().len();
            self.means.recorder.record(build::drain_is_long(&self.means.identity, pods, self.stamp()));
        }
    }

    fn stamp(&self) -> Stamp<'_> {
        Stamp { node: &self.means.identity.node, now: self.clock.now(), number: rand::random() }
    }
}

fn long_after(since: Timestamp) -> Timestamp {
    since.saturating_add(LONG).unwrap_or(Timestamp::MAX)
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}
