//! The task that draws the picture whenever something changed, and writes it at most once a second; a new phase at once.
//! A GameNode that somebody deletes is written anew.

use std::convert::Infallible;
use std::time::Duration;

use berth_api::game_node::{GameNode, GameNodeSpec, GameNodeStatus};
use berth_api::names;
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::error::chain;
use berth_runtime::kill_point::around;
use berth_runtime::kube_client::{CallError, Class, watch as watch_objects, within};
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{Seen, Sources, StatusMetrics, picture};
use crate::drain::sources::Ordered;
use crate::effects::Effect;
use crate::identity::Identity;
use crate::lease::Authority;
use crate::node::room::plus;

/// Shortest time between two writes that bring no new phase.
const PACE: Duration = Duration::from_secs(1);
/// First and longest pause after a write that failed.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Draws and writes.
pub struct Publisher {
    game_nodes: Api<GameNode>,
    identity: Identity,
    authority: Authority,
    sources: Sources,
    pictures: watch::Sender<GameNodeStatus>,
    ordered: watch::Sender<Ordered>,
    metrics: StatusMetrics,
    clock: Clock,
    limit: Duration,
    written: Option<GameNodeStatus>,
    /// The list of GameNodes that goes on has shown ours.
    is_listed: bool,
    next_write: Instant,
    backoff: Backoff,
}

impl Publisher {
    /// A publisher, and where its pictures can be seen, written or not. It passes on what the GameNode orders.
    pub fn new(
        client: Client,
        identity: &Identity,
        authority: Authority,
        sources: Sources,
        ordered: watch::Sender<Ordered>,
        (metrics, limit): (StatusMetrics, Duration),
    ) -> (Self, watch::Receiver<GameNodeStatus>) {
        let clock = Clock::system();
        let (pictures, seen) = watch::channel(GameNodeStatus::default());
        let publisher = Self {
            game_nodes: Api::all(client),
            identity: identity.clone(),
            authority,
            sources,
            pictures,
            ordered,
            metrics,
            next_write: clock.instant(),
            clock,
            limit,
            written: None,
            is_listed: false,
            backoff: Backoff::new(WAITS.0, WAITS.1),
        };
        (publisher, seen)
    }

    /// Runs until asked to stop. The last picture stays: a node whose agent is being replaced is still what it was.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut lines = self.sources.board.lines();
        let ours = Config::default().fields(&format!("metadata.name={}", self.identity.node));
        let mut events = std::pin::pin!(watch_objects(self.game_nodes.clone(), ours));
        loop {
            let wake = self.turn().await;
            let sources = &mut self.sources;
            let is_held = self.authority.check(self.clock.instant()).is_ok();
            // Any change is a reason to draw again; which comes first does not matter.
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                _ = self.authority.held(), if !is_held => {}
                event = events.next() => match event {
                    Some(event) => self.note_object(event),
                    None => stop.cancelled().await,
                },
                changed = lines.changed() => ended(changed.is_err(), &stop).await,
                changed = sources.node.changed() => ended(changed.is_err(), &stop).await,
                changed = sources.ports.changed() => ended(changed.is_err(), &stop).await,
                changed = sources.others.changed() => ended(changed.is_err(), &stop).await,
                changed = sources.games.changed() => ended(changed.is_err(), &stop).await,
                changed = sources.course.changed() => ended(changed.is_err(), &stop).await,
                changed = sources.question.changed() => ended(changed.is_err(), &stop).await,
                // Without FleetIQ nobody ever says anything else.
                Ok(()) = sources.standing.changed() => {}
                changed = sources.adopted.changed() => ended(changed.is_err(), &stop).await,
                () = tokio::time::sleep_until(wake.unwrap_or_else(far)), if wake.is_some() => {}
            }
        }
    }

    fn note_object(&mut self, event: Result<Event<GameNode>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.is_listed = false,
            Ok(Event::InitApply(node)) => {
                self.is_listed = true;
                self.note_order(node.spec);
            }
            Ok(Event::InitDone) if self.is_listed => {}
            // Who reads it would not know of us until something changes.
            Ok(Event::InitDone | Event::Delete(_)) => {
                self.written = None;
                self.note_order(GameNodeSpec::default());
            }
            Ok(Event::Apply(node)) => self.note_order(node.spec),
            Err(error) => {
                warn!(node = %self.identity.node, error = %chain(&error), "could not watch the GameNode")
            }
        }
    }

    fn note_order(&mut self, order: GameNodeSpec) {
        let order = Ordered::Known(order);
        self.ordered.send_if_modified(|known| {
            let changed = *known != order;
            *known = order;
            changed
        });
    }

    /// Draws, and writes what is due; answers when to come back by itself.
    async fn turn(&mut self) -> Option<Instant> {
        let drawn = self.draw();
        let now = self.clock.instant();
        if self.written.as_ref() == Some(&drawn) || self.authority.check(now).is_err() {
            return None;
        }
        let is_new_phase = self.written.as_ref().is_none_or(|written| written.phase != drawn.phase);
        let is_failing = self.backoff.attempts() > 0;
        if now < self.next_write && (!is_new_phase || is_failing) {
            return Some(self.next_write);
        }
        match Box::pin(self.write(&drawn)).await {
            Ok(()) => {
                if is_new_phase {
                    info!(node = %self.identity.node, phase = ?drawn.phase, reason = drawn.phase_reason, "phase");
                }
                self.metrics.writes.inc();
                self.metrics.last_success.set(self.clock.now().as_second());
                self.backoff.reset();
                self.written = Some(drawn);
                self.next_write = now + PACE;
                None
            }
            Err(error) => {
                self.metrics.failures.inc();
                warn!(node = %self.identity.node, error = %chain(&error), "could not write the GameNode");
                self.next_write = self.clock.instant() + self.backoff.next();
                Some(self.next_write)
            }
        }
    }

    fn draw(&mut self) -> GameNodeStatus {
        let before = self.pictures.borrow().clone();
        let claim = self.authority.check(self.clock.instant()).ok();
        let lines = self.sources.board.lines();
        // Marked as seen here, so that only what comes after this picture wakes us.
        let node = self.sources.node.borrow_and_update().clone();
        let ports = self.sources.ports.borrow_and_update().clone();
        let others = plus(*self.sources.others.borrow_and_update(), self.sources.reserve);
        let games = *self.sources.games.borrow_and_update();
        let adopted = *self.sources.adopted.borrow_and_update();
        let course = self.sources.course.borrow_and_update().clone();
        let question = *self.sources.question.borrow_and_update();
        let standing = self.sources.standing.borrow_and_update().clone();
        let seen = Seen {
            identity: &self.identity,
            node: &node,
            course: &course,
            question,
            releases_idle: self.sources.releases_idle,
            standing: &standing,
            epoch: claim.map(|claim| claim.epoch),
            adopted,
            ports: &ports,
            others,
            games,
            servers: &lines.borrow(),
        };
        let drawn = picture(seen, &before, self.clock.now());
        if drawn != before {
            self.pictures.send_replace(drawn.clone());
        }
        drawn
    }

    async fn write(&self, status: &GameNodeStatus) -> Result<(), CallError> {
        match self.write_status(status).await {
            Err(error) if error.class() == Class::NotFound => {}
            answer => return answer,
        }
        let mut node = GameNode::new(&self.identity.node, GameNodeSpec::default());
        node.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.identity.node.clone(),
            uid: self.identity.node_uid.clone(),
            ..OwnerReference::default()
        }]);
        let params =
            PostParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PostParams::default() };
        let created = within(self.limit, self.game_nodes.create(&params, &node));
        match around(Effect::CreateGameNode, created).await {
            Ok(_) => {}
            Err(error) if error.class() == Class::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        self.write_status(status).await
    }

    /// The whole status is replaced: it has one writer, and a merge would keep what has gone from its maps.
    async fn write_status(&self, status: &GameNodeStatus) -> Result<(), CallError> {
        let params =
            PatchParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        let body = json!({ "status": status });
        // A JSON patch of one operation; `add` replaces what is there.
        let operations = json!([{ "op": "add", "path": "/status", "value": body["status"] }]);
        let patch: Patch<GameNode> = match serde_json::from_value(operations) {
            Ok(operations) => Patch::Json(operations),
            Err(source) => return Err(CallError::from(kube::Error::SerdeError(source))),
        };
        let written = self.game_nodes.patch_status(&self.identity.node, &params, &patch);
        around(Effect::PublishGameNode, within(self.limit, written)).await.map(drop)
    }
}

/// A source that has ended has ended with the program.
async fn ended(is_over: bool, stop: &CancellationToken) {
    if is_over {
        stop.cancelled().await;
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
