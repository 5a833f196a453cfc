//! The task that takes on, places and lets go of servers that have no agent.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_api::events::EventReason;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::birth::{Birth, adoption, development, hand_over};
use super::decide::{Step, decide};
use super::gone::{has_pod, without_finalizers};
use super::nodes::views;
use super::place::{NoRoom, Request, place};
use super::{Needs, PlacementMetrics};
use crate::announce::{Announcement, Announcer, Speaker};
use crate::queue::Outcome;
use crate::stores::{InFlight, Key, Server, Stores, World};
use crate::writes::{WriteError, Writer, under_version};

/// Servers worked on at the same time.
const PARALLEL: usize = 16;
/// How often to look whether the pod of a server without a node is gone at last.
const POD_LOOK: Duration = Duration::from_secs(5);

/// Takes on, places and lets go.
pub(crate) struct PlacementReconciler {
    pub(crate) stores: Arc<Stores>,
    pub(crate) writer: Writer,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: PlacementMetrics,
    /// UIDs of the servers of which was said that no node fits; held for one look or one change.
    said: Mutex<HashSet<String>>,
}

/// Where a server may go.
enum Found {
    On(Birth),
    Nowhere(NoRoom),
    /// Not all leases have been heard of yet.
    Later(Duration),
}

impl PlacementReconciler {
    pub(crate) fn new(
        stores: Arc<Stores>,
        writer: Writer,
        announcer: Announcer,
        metrics: PlacementMetrics,
    ) -> Self {
        Self { stores, writer, announcer, metrics, said: Mutex::new(HashSet::new()) }
    }

    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let this = &self;
        self.stores.queues.servers.work(PARALLEL, &stop, |key| this.turn(key)).await;
        Ok(())
    }

    async fn turn(&self, key: Key) -> Outcome {
        let outcome = match self.try_turn(&key).await {
            Ok(outcome) => {
                self.metrics.last_turn.set(berth_runtime::clock::now().as_second());
                outcome
            }
            Err(error) if matches!(error.class(), Some(Class::Conflict | Class::NotFound)) => {
                // Somebody else wrote; the watch brings it.
                debug!(game_server = %key, error = %chain(&error), "looking again");
                Outcome::Failed
            }
            Err(error) => {
                self.metrics.failed_turns.inc();
                warn!(game_server = %key, error = %chain(&error), "turn failed");
                Outcome::Failed
            }
        };
        let waiting = self.stores.read(|world| world.waiting().len());
        self.metrics.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        outcome
    }

    async fn try_turn(&self, key: &Key) -> Result<Outcome, WriteError> {
        let seen = self.stores.read(|world| {
            let server = world.servers.get(key)?;
            let has_node = server.node.as_ref().is_some_and(|node| world.cluster.nodes.contains_key(node));
            Some((Arc::clone(server), has_node))
        });
        let Some((server, has_node)) = seen else { return Ok(Outcome::Done) };
        if !server.is_waiting() {
            self.forget(&server.uid);
        }
        match decide(&server, has_node) {
            Step::Leave => Ok(Outcome::Done),
            Step::Adopt => self.adopt(&server).await,
            Step::Place { not_on } => self.place(&server, not_on.as_deref()).await,
            Step::MakeReady => self.make_ready(&server).await,
            Step::GiveUp { has_set, reason } => self.give_up(&server, has_set, &reason).await,
            Step::Delete => {
                self.writer.delete::<GameServer>(key, &server.uid).await?;
                Ok(Outcome::Done)
            }
            Step::LetGo { is_podless } => self.let_go(&server, is_podless).await,
        }
    }

    async fn adopt(&self, server: &Server) -> Result<Outcome, WriteError> {
        // The small form lacks the spec; and what is written must rest on what is there now.
        let read = self.writer.get::<GameServer>(&server.key).await?;
        let Some(object) = read.filter(|object| object.metadata.uid.as_deref() == Some(&server.uid)) else {
            return Ok(Outcome::Done);
        };
        if object.node_name().is_some() || object.is_being_deleted() {
            return Ok(Outcome::Done);
        }
        if object.dev_address().is_some() {
            self.change(&server.key, &adoption(&object, None)).await?;
            self.metrics.adopted.inc();
            return Ok(Outcome::Done);
        }
        let (birth, no_room) = match self.find(server, &Needs::of(&object.spec), None) {
            Found::On(birth) => (Some(birth), None),
            Found::Nowhere(no_room) => (None, Some(no_room)),
            Found::Later(wait) => return Ok(Outcome::After(wait)),
        };
        let changed = self.change(&server.key, &adoption(&object, birth.as_ref())).await;
        self.stores.change(|world, _| world.end(&server.key));
        changed?;
        self.metrics.adopted.inc();
        info!(game_server = %server.key, node = birth.map(|birth| birth.node), "adopted");
        if let Some(no_room) = no_room {
            self.say_no_room(server, &no_room);
        }
        Ok(Outcome::Done)
    }

    async fn place(&self, server: &Server, not_on: Option<&str>) -> Result<Outcome, WriteError> {
        match self.find(server, &server.needs, not_on) {
            Found::On(birth) => {
                let changed = self.change(&server.key, &hand_over(&server.resource_version, &birth)).await;
                self.stores.change(|world, _| world.end(&server.key));
                changed?;
                self.metrics.placed.inc();
                info!(game_server = %server.key, node = birth.node, "placed");
                Ok(Outcome::Done)
            }
            Found::Nowhere(no_room) => {
                self.metrics.refused.inc();
                self.say_no_room(server, &no_room);
                Ok(Outcome::Done)
            }
            Found::Later(wait) => Ok(Outcome::After(wait)),
        }
    }

    /// Chooses a node and counts the server there at once.
    fn find(&self, server: &Server, needs: &Needs, not_on: Option<&str>) -> Found {
        let request = Request { needs, scheduling: server.scheduling, not_on };
        self.stores.change(|world: &mut World, now: Instant| {
            let nodes = views(world, now);
            match place(&request, &nodes) {
                Ok(index) => {
                    let node = &nodes[index];
                    let Ok(hand_over) = node.offer.clone() else {
                        // `place` takes no closed node.
                        return Found::Nowhere(NoRoom::default());
                    };
                    let flight = InFlight {
                        set: None,
                        node: Some(node.name.clone()),
                        needs: Arc::new(needs.clone()),
                        object: None,
                    };
                    world.begin(server.key.clone(), flight);
                    Found::On(Birth { node: node.name.clone(), hand_over })
                }
                Err(no_room) => match world.cluster.unsettled(now) {
                    Some(wait) => Found::Later(wait.min(Duration::from_millis(500))),
                    None => Found::Nowhere(no_room),
                },
            }
        })
    }

    async fn make_ready(&self, server: &Server) -> Result<Outcome, WriteError> {
        let Some(object) = self.writer.get::<GameServer>(&server.key).await? else {
            return Ok(Outcome::Done);
        };
        if let Some(address) = object.dev_address() {
            self.change(&server.key, &development(&object, address)).await?;
        }
        Ok(Outcome::Done)
    }

    async fn give_up(&self, server: &Server, has_set: bool, reason: &str) -> Result<Outcome, WriteError> {
        let (state, errored_at) = if has_set {
            (State::Shutdown, None)
        } else {
            let now = berth_runtime::clock::now();
            (State::Error, Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
        };
        let mut annotations = serde_json::Map::new();
        annotations.insert(names::REASON_ANNOTATION.to_owned(), json!(format!("HandedBack: {reason}")));
        annotations.extend(errored_at.map(|time| (names::ERRORED_AT_ANNOTATION.to_owned(), json!(time))));
        let change = json!({ "metadata": { "annotations": annotations }, "status": { "state": state } });
        self.change(&server.key, &under_version(change, &server.resource_version)).await?;
        self.metrics.given_up.inc();
        info!(game_server = %server.key, state = %state, reason, "given up");
        if !has_set {
            self.say(server, EventReason::State(State::Error), reason.to_owned());
        }
        Ok(Outcome::Done)
    }

    async fn let_go(&self, server: &Server, is_podless: bool) -> Result<Outcome, WriteError> {
        if !is_podless && has_pod(&self.writer, server).await? {
            return Ok(Outcome::After(POD_LOOK));
        }
        self.change(&server.key, &without_finalizers(server)).await?;
        self.metrics.let_go.inc();
        debug!(game_server = %server.key, "let go");
        Ok(Outcome::Done)
    }

    async fn change(&self, key: &Key, change: &Value) -> Result<(), WriteError> {
        let object = self.writer.patch::<GameServer>(key, change).await?;
        // The last finalizer gone, the answer shows an object that is no more.
        let is_gone = object.metadata.deletion_timestamp.is_some()
            && object.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        if !is_gone {
            self.stores.change(|world, _| world.server_changed(&object));
        }
        Ok(())
    }

    fn say_no_room(&self, server: &Server, no_room: &NoRoom) {
        let is_new = self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(server.uid.clone());
        if is_new {
            let reason = no_room.to_string();
            info!(game_server = %server.key, reason, "no node fits");
            self.say(server, EventReason::NoRoom, format!("no node fits: {reason}"));
        }
    }

    fn forget(&self, uid: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn say(&self, server: &Server, reason: EventReason, message: String) {
        let about = server.reference();
        self.announcer.say(Announcement { about, speaker: Speaker::Placement, reason, message });
    }
}
