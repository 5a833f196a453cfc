//! The task of one game server: gather, decide, apply, until the last trace is gone.
//!
//! It owns all that is known of its server. One turn carries out steps until there is nothing to do but wait; a step
//! that fails is tried again after a pause, or after a fresh look where somebody wrote in between.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::link::{Pulse, ServerUid};
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::Instant;
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::apply::{Actor, ApplyError, key};
use super::container::Container;
use super::decide::{Step, decide};
use super::mailbox::{Ended, Mail, Mailbox};
use super::memory::{Memory, known_ports};
use super::observe::{Handed, Surroundings, handed, observe};
use super::sandbox::Sandbox;
use super::view::{amounts, players};
use super::view::{applied, view};
use super::{FailureLabels, Line, Moment};
use crate::drain::Course;
use crate::effects::Effect;
use crate::host::Host;
use crate::lease::Authority;
use crate::node::NodeFacts;
use crate::pods::is_pod_of;
use crate::ports::{Tenant, slots_of};

mod granting;
mod leaving;
mod steps;
mod watching;

/// First and longest pause after a step that failed.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// More steps than any server needs in a row: beyond, it pauses as after a failure, so that a mistake in a decision
/// costs little.
const STEPS: usize = 16;

/// Whether the server still has business here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Business {
    GoesOn,
    IsOver,
}

/// The worker of one server.
pub(super) struct Worker<H> {
    actor: Arc<Actor<H>>,
    mailbox: Arc<Mailbox>,
    authority: Authority,
    node: watch::Receiver<Arc<NodeFacts>>,
    course: watch::Receiver<Course>,
    uid: ServerUid,
    tenant: Tenant,
    server: Arc<GameServer>,
    pod: Option<Arc<Pod>>,
    memory: Memory,
    sandbox: Sandbox,
    container: Container,
    backoff: Backoff,
    /// No step before then.
    rests_until: Option<Instant>,
    /// What to look at again by itself.
    looks_at: Option<Timestamp>,
    /// The version that the game was last shown.
    shown: Option<String>,
    /// The container whose start the front was told.
    started: Option<String>,
    /// Lapses of the lease that the object in hand has been checked against.
    checked_lapses: u32,
    /// The object has to be looked at before the next step.
    is_stale: bool,
    /// The watch does not show the object any more.
    has_left: bool,
    /// The object does not exist any more.
    is_gone: bool,
}

impl<H: Host> Worker<H> {
    /// A worker for a server that was just seen, its ports entered in the ledger.
    pub(super) fn new(
        actor: &Arc<Actor<H>>,
        mailbox: &Arc<Mailbox>,
        server: Arc<GameServer>,
        pod: Option<Arc<Pod>>,
    ) -> Self {
        let uid = ServerUid(server.metadata.uid.clone().unwrap_or_default());
        let tenant = Tenant::Server(uid.clone());
        let mut memory = Memory::new(server.state().unwrap_or(State::Creating), actor.clock.now());
        memory.ports = known_ports(&server, pod.as_deref());
        if let Some(ports) = &memory.ports {
            actor.ports.enter(&tenant, slots_of(ports));
        }
        let worker = Self {
            mailbox: Arc::clone(mailbox),
            authority: actor.authority.clone(),
            node: actor.node.clone(),
            course: actor.course.clone(),
            uid,
            tenant,
            server,
            pod,
            memory,
            sandbox: Sandbox::new(),
            container: Container::new(),
            backoff: Backoff::new(WAITS.0, WAITS.1),
            rests_until: None,
            looks_at: None,
            shown: None,
            started: None,
            checked_lapses: actor.authority.last().map_or(0, |claim| claim.lapses),
            is_stale: false,
            has_left: false,
            is_gone: false,
            actor: Arc::clone(actor),
        };
        worker.show();
        worker
    }

    /// Looks at the object before the first step: it is not what the watch shows.
    pub(super) fn doubt(&mut self) {
        self.is_stale = true;
    }

    /// Shows the game its server for the first time. The supervisor waits for this before it lets the front forget
    /// what nobody claims.
    pub(super) async fn introduce(&mut self) {
        self.tell_front().await;
        let held = self.actor.front.held(self.uid.clone()).await;
        self.note_held(&held);
    }

    /// Works until the server is gone or the agent is asked to stop.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            if self.turn(&stop).await == Business::IsOver {
                self.actor.board.remove(&self.uid);
                let version = self.server.metadata.resource_version.clone().unwrap_or_default();
                self.mailbox.close(if self.is_gone { Ended::Gone } else { Ended::At(version) });
                return;
            }
            let is_held = self.actor.claim().is_ok();
            let wake = self.next_wake().filter(|_| is_held);
            let clock = &self.actor.clock;
            // Mail first: what is new makes the rest moot. The order of the others does not matter.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                mail = self.mailbox.take() => self.read(mail).await,
                opened = self.sandbox.opened(|| clock.instant()) => self.note_opened(opened).await,
                news = self.container.news(|| clock.instant()) => self.note_container(news),
                _ = self.authority.held(), if !is_held => {}
                changed = self.course.changed() => match changed {
                    // A step that failed is not worth waiting for when the node is to go.
                    Ok(()) => self.rests_until = None,
                    Err(_) => stop.cancelled().await,
                },
                changed = self.node.changed() => if changed.is_err() { stop.cancelled().await },
                () = sleep_until(wake) => {}
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let now = self.actor.clock.instant();
        let looks_at = self.looks_at.map(|time| {
            let ahead = time.duration_since(self.actor.clock.now());
            now + Duration::try_from(ahead).unwrap_or_default()
        });
        let tries = [self.sandbox.next_try(), self.container.next_look()];
        [self.rests_until, looks_at].into_iter().chain(tries).flatten().min()
    }

    /// Steps until there is nothing to do but wait.
    async fn turn(&mut self, stop: &CancellationToken) -> Business {
        self.tend_pod();
        let now = self.actor.clock.instant();
        if self.rests_until.is_some_and(|until| now < until) {
            return Business::GoesOn;
        }
        self.rests_until = None;
        for _ in 0..STEPS {
            if stop.is_cancelled() {
                return Business::GoesOn;
            }
            let Ok(claim) = self.actor.claim() else {
                // A new claim wakes us.
                return Business::GoesOn;
            };
            let is_unchecked = claim.lapses > self.checked_lapses;
            if self.has_left || self.is_stale || is_unchecked {
                match Box::pin(self.look_again()).await {
                    Ok(Business::IsOver) => return Business::IsOver,
                    Ok(Business::GoesOn) => self.checked_lapses = claim.lapses,
                    Err(error) => return self.rest("look", &error),
                }
            }
            self.tell_front().await;
            self.tend_pod();
            self.show();
            let step = self.decide();
            debug!(game_server = %self.name(), step = step.word(), state = %self.memory.state, "decided");
            self.looks_at = None;
            if let Step::Wait(until) = step {
                self.looks_at = until;
                return Business::GoesOn;
            }
            let word = step.word();
            match Box::pin(self.perform(step)).await {
                Ok(Business::IsOver) => return Business::IsOver,
                Ok(Business::GoesOn) => {
                    self.backoff.reset();
                    self.memory.last_error = None;
                }
                Err(error) => match error.class() {
                    // Somebody wrote in between: look again and decide anew, at once.
                    Some(Class::Conflict | Class::NotFound) => self.is_stale = true,
                    _ => return self.rest(word, &error),
                },
            }
        }
        warn!(game_server = %self.name(), state = %self.memory.state, "too many steps in a row; pausing");
        self.rests_until = Some(self.actor.clock.instant() + self.backoff.next());
        Business::GoesOn
    }

    fn rest(&mut self, step: &'static str, error: &ApplyError) -> Business {
        if matches!(error, ApplyError::NotHeld(_)) {
            return Business::GoesOn;
        }
        let labels = FailureLabels { step, category: error.category() };
        self.actor.metrics.failures.get_or_create(&labels).inc();
        let told = chain(error);
        warn!(game_server = %self.name(), step, error = told, "step failed; trying again");
        self.memory.last_error = Some(told);
        self.rests_until = Some(self.actor.clock.instant() + self.backoff.next());
        self.show();
        Business::GoesOn
    }

    fn decide(&self) -> Step {
        let node = self.node.borrow().clone();
        let course = self.course.borrow().clone();
        let around = Surroundings {
            identity: &self.actor.identity,
            node: &node,
            taken: self.actor.taken.all(),
            course: &course,
            ends_sessions: self.actor.ends_sessions,
        };
        decide(&observe(&self.server, self.pod.as_deref(), &self.memory, around), self.actor.clock.now())
    }

    async fn read(&mut self, mail: Mail) {
        if let Some(server) = mail.server {
            self.has_left = false;
            self.note_server(server);
        }
        if mail.left {
            self.has_left = true;
        }
        if let Some(pod) = mail.pod {
            self.note_pod(pod);
        }
        if let Some(gone) = mail.gone_pod
            && self.has_pod(&gone)
        {
            self.pod = None;
            self.memory.pod_is_gone = true;
        }
        if let Some(unlisted) = mail.unlisted_pod
            && self.has_pod(&unlisted)
        {
            self.pod = None;
            self.memory.pod_is_gone = false;
        }
        let done = applied(&self.server);
        for (sequence, asked) in mail.changes {
            // One told again although it is done has lost its acknowledgement.
            if sequence <= done {
                self.actor.front.acknowledge(self.uid.clone(), done).await;
            } else {
                if asked.change.is_state() {
                    // A state waits for nothing, least of all behind what its game counts.
                    self.rests_until = None;
                }
                self.memory.pending.note(sequence, asked);
            }
        }
        match mail.pulse {
            Some(Pulse::Alive) => self.memory.missed = None,
            Some(Pulse::Silent { missed }) => self.memory.missed = Some(missed),
            None => {}
        }
        if let Some(keys) = mail.handed_back {
            self.note_held(&keys);
        }
    }

    fn has_pod(&self, uid: &str) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.metadata.uid.as_deref() == Some(uid))
    }

    /// Takes a newer object; an older one, from a watch that lags behind our own writes, is nothing new.
    fn note_server(&mut self, server: Arc<GameServer>) {
        let versions =
            (server.metadata.resource_version.as_deref(), self.server.metadata.resource_version.as_deref());
        if !is_newer(versions.0, versions.1) {
            return;
        }
        // Where somebody has wiped the status, the state it had is what will be restored.
        if server.node_name().is_some() {
            let state = server.state().unwrap_or(State::Creating);
            self.memory.note_state(state, self.actor.clock.now());
        }
        self.server = server;
        // News may be what a failed step waits for.
        self.rests_until = None;
    }

    fn note_pod(&mut self, pod: Arc<Pod>) {
        if let Some(known) = &self.pod
            && known.metadata.uid == pod.metadata.uid
            && !is_newer(pod.metadata.resource_version.as_deref(), known.metadata.resource_version.as_deref())
        {
            return;
        }
        self.memory.pod_is_gone = false;
        self.pod = Some(pod);
    }

    /// Shows the game what is new, and acknowledges what the object contains.
    async fn tell_front(&mut self) {
        let version = self.server.metadata.resource_version.clone();
        let done = applied(&self.server);
        if self.shown != version {
            self.actor.front.serve(self.uid.clone(), view(&self.server), done).await;
            self.shown = version;
            if self.memory.pending.forget(done) {
                self.actor.front.acknowledge(self.uid.clone(), done).await;
            }
        }
        self.tell_start().await;
    }

    /// Looks at the object itself, past the watch.
    async fn look_again(&mut self) -> Result<Business, ApplyError> {
        let (namespace, name) = key(&self.server);
        let found = self.actor.look(namespace, name).await?;
        let found = found.filter(|server| server.metadata.uid == self.server.metadata.uid);
        let has_left = std::mem::take(&mut self.has_left);
        self.is_stale = false;
        let Some(server) = found else {
            self.is_gone = true;
            return self.let_go("it is gone").await;
        };
        self.note_server(Arc::new(server));
        match self.server.node_name() {
            Some(node) if node == self.actor.identity.node => Ok(Business::GoesOn),
            // Whoever changed the status did not hand the server over, and its pod is here.
            place if self.has_own_pod() && (place.is_none() || self.is_handed_to_us()) => {
                warn!(game_server = %self.name(), has_left, node = place, "its place was changed while its pod is here; restoring it");
                self.restore().await
            }
            Some(node) => {
                let why = format!("it belongs to node {node}");
                self.let_go(&why).await
            }
            None => self.let_go("no node has it").await,
        }
    }

    fn has_own_pod(&self) -> bool {
        self.pod.as_deref().is_some_and(|pod| is_pod_of(pod, &self.server))
    }

    fn is_handed_to_us(&self) -> bool {
        handed(&self.server, &self.actor.identity) == Handed::ToUs
    }

    /// Nothing of the server stays with us. A pod whose server is gone or elsewhere has nobody to delete it but us.
    async fn let_go(&mut self, why: &str) -> Result<Business, ApplyError> {
        if self.has_own_pod()
            && let Some(pod) = self.pod.clone()
            && pod.metadata.deletion_timestamp.is_none()
        {
            self.actor.delete_pod(Effect::LetGo, &pod).await?;
        }
        info!(game_server = %self.name(), reason = why, "let go");
        self.forget().await;
        Ok(Business::IsOver)
    }

    /// Ports and SDK. The ports of a pod that still exists stay taken by the pod itself.
    async fn forget(&mut self) {
        self.sandbox.close();
        self.actor.front.forget(self.uid.clone()).await;
        self.actor.ports.release(&self.tenant);
        self.memory.ports = None;
    }

    fn name(&self) -> String {
        let (namespace, name) = key(&self.server);
        format!("{namespace}/{name}")
    }

    fn show(&self) {
        let status = self.server.status.clone().unwrap_or_default();
        let (namespace, name) = key(&self.server);
        let reason = self
            .memory
            .last_error
            .clone()
            .or_else(|| self.server.annotation(berth_api::names::REFUSED_ANNOTATION).map(str::to_owned))
            .or_else(|| self.server.annotation(berth_api::names::REASON_ANNOTATION).map(str::to_owned))
            .or_else(|| self.server.annotation(berth_api::names::DRAIN_REASON_ANNOTATION).map(node_goes));
        let history = self.memory.history.iter();
        self.actor.board.show(
            &self.uid,
            Line {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: self.uid.0.clone(),
                state: self.memory.state,
                since: self.memory.since.to_string(),
                deleting: self.server.metadata.deletion_timestamp.is_some(),
                address: status.address,
                ports: status.ports.unwrap_or_default(),
                pod: self.pod.as_ref().and_then(|pod| pod.metadata.uid.clone()),
                sdk: self.sandbox.word(),
                reason,
                players: players(status.players.as_ref()),
                amounts: amounts(status.counters, status.lists),
                history: history
                    .map(|(state, since)| Moment { state: *state, since: since.to_string() })
                    .collect(),
            },
        );
    }
}

fn node_goes(why: &str) -> String {
    format!("the node is being emptied: {why}")
}

/// Whether a version is newer than a known one. Where they are not numbers, whatever comes is news.
fn is_newer(new: Option<&str>, known: Option<&str>) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    match (number(new), number(known)) {
        (Some(new), Some(known)) => new > known,
        _ => true,
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
    }
}
