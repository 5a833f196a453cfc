//! The task that takes on, places and lets go of servers that have no agent.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_api::conditions::{ConditionKind, Trouble};
use berth_api::events::EventReason;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_runtime::CancellationToken;
use berth_runtime::clock::{self, Instant};
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::birth::{Birth, adoption, development, hand_over, no_node};
use super::decide::{Step, decide};
use super::memory::Memory;
use super::nodes::views;
use super::place::{NoRoom, Request};
use super::placeholder::Placeholders;
use super::room::{Way, choose, told};
use super::{Needs, PlacementMetrics};
use crate::announce::{Announcement, Announcer, Speaker};
use crate::effects::Effect;
use crate::eviction::{Guard, pod_labels, several};
use crate::fencing::{FencingMetrics, Site};
use crate::namespaces::Gate;
use crate::queue::Outcome;
use crate::stores::{InFlight, Key, Server, Stores, World};
use crate::writes::{WriteError, Writer, under_version};

/// Servers worked on at the same time.
const PARALLEL: usize = 16;
/// How often to look whether the pod of a server without a node is gone at last.
pub(super) const POD_LOOK: Duration = Duration::from_secs(5);

/// Takes on, places and lets go.
pub(crate) struct PlacementReconciler {
    pub(crate) stores: Arc<Stores>,
    pub(crate) writer: Writer,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: PlacementMetrics,
    pub(crate) fencing: FencingMetrics,
    pub(crate) guard: Guard,
    pub(crate) gate: Gate,
    /// Held for one look or one change.
    pub(crate) memory: Mutex<Memory>,
    /// Nothing where no placeholders are to be made.
    pub(crate) placeholders: Option<Placeholders>,
}

/// Where a server may go.
enum Found {
    On(Birth),
    Nowhere {
        /// What is done about it.
        way: Way,
        trouble: Trouble,
    },
    /// Not all leases have been heard of yet.
    Later(Duration),
}

impl PlacementReconciler {
    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let this = &self;
        self.stores.queues.servers.work(PARALLEL, &stop, |key| this.turn(key)).await;
        Ok(())
    }

    async fn turn(&self, key: Key) -> Outcome {
        let outcome = match self.try_turn(&key).await {
            Ok(outcome) => {
                self.metrics.last_turn.set(clock::now().as_second());
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
                self.explain(&key, &error).await;
                Outcome::Failed
            }
        };
        let waiting = self.stores.read(|world| world.waiting().len());
        self.metrics.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        outcome
    }

    async fn try_turn(&self, key: &Key) -> Result<Outcome, WriteError> {
        let seen = self.stores.read(|world| {
            let server = Arc::clone(world.servers.get(key)?);
            let site = Site::of(&server, world);
            Some((server, site))
        });
        let Some((server, site)) = seen else {
            self.memory().forget(key);
            self.give_room_back(key, None).await?;
            return Ok(Outcome::Done);
        };
        if !matches!(server.state, None | Some(State::PortAllocation | State::Creating)) {
            self.memory().forget(key);
        }
        let step = decide(&server, site);
        let waits = matches!(step, Step::Adopt | Step::Place { .. });
        // Those of an earlier server of the name are of no use in any case.
        self.give_room_back(key, waits.then_some(server.uid.as_str())).await?;
        match step {
            Step::Leave => Ok(Outcome::Done),
            Step::Adopt => self.adopt(&server).await,
            Step::Place { returned: None } => self.place(&server, None, false).await,
            Step::Place { returned: Some(returned) } => {
                self.memory().note_returned(&server, &returned);
                self.place(&server, Some((&returned.node, &returned.reason)), false).await
            }
            Step::MakeReady => self.make_ready(&server).await,
            Step::GiveUp { has_set, returned } => {
                self.memory().note_returned(&server, &returned);
                let told = self.memory().told_by_nodes(&server);
                let reason = format!("handed back {} times: {told}", returned.times);
                self.give_up(&server, has_set, &reason).await
            }
            Step::TakeBack { has_set } => self.take_back(&server, has_set).await,
            Step::Lose => self.lose(&server).await,
            Step::LetSurplusGo => self.let_surplus_go(&server).await,
            Step::Keep => self.keep(&server).await,
            Step::Fail(death) => self.fail(&server, death).await,
            Step::Delete => {
                self.writer.delete::<GameServer>(Effect::DeleteServer, key, &server.uid).await?;
                Ok(Outcome::Done)
            }
            Step::LetGo(remains) => self.let_go(&server, remains).await,
        }
    }

    async fn adopt(&self, server: &Server) -> Result<Outcome, WriteError> {
        self.guard.ensure(&server.key.namespace).await?;
        // The small form lacks the spec; and what is written must rest on what is there now.
        let read = self.writer.get::<GameServer>(&server.key).await?;
        let Some(object) = read.filter(|object| object.metadata.uid.as_deref() == Some(&server.uid)) else {
            return Ok(Outcome::Done);
        };
        if object.node_name().is_some() || object.is_being_deleted() {
            return Ok(Outcome::Done);
        }
        let now = clock::now();
        if object.dev_address().is_some() {
            self.change(Effect::Adopt, &server.key, &adoption(&object, None, None, now)).await?;
            self.metrics.adopted.inc();
            return Ok(Outcome::Done);
        }
        let (birth, trouble) = match self.find(server, &Needs::of(&object.spec), None) {
            Found::On(birth) => (Some(birth), None),
            // A placeholder is asked for at the next turn, when it is ours.
            Found::Nowhere { trouble, .. } => (None, Some(trouble)),
            Found::Later(wait) => return Ok(Outcome::After(wait)),
        };
        let changed = self
            .change(Effect::Adopt, &server.key, &adoption(&object, birth.as_ref(), trouble.as_ref(), now))
            .await;
        self.stores.change(|world, _| world.end(&server.key));
        changed?;
        self.metrics.adopted.inc();
        info!(game_server = %server.key, node = birth.map(|birth| birth.node), "adopted");
        if let Some(trouble) = trouble {
            self.metrics.refused.inc();
            self.tell_no_room(server, &trouble);
        }
        self.tell_several_budgets(server, &object);
        Ok(Outcome::Done)
    }

    /// Hands a server to a node; where none fits it waits, and `leaves` the one that it was handed to.
    pub(super) async fn place(
        &self,
        server: &Server,
        not_on: Option<(&str, &str)>,
        leaves: bool,
    ) -> Result<Outcome, WriteError> {
        self.guard.ensure(&server.key.namespace).await?;
        match self.find(server, &server.needs, not_on) {
            Found::On(birth) => {
                let handed = self.hand_over(server, &birth).await;
                self.stores.change(|world, _| world.end(&server.key));
                handed?;
                self.metrics.placed.inc();
                info!(game_server = %server.key, node = birth.node, "placed");
                Ok(Outcome::Done)
            }
            Found::Nowhere { way, trouble } => {
                self.metrics.refused.inc();
                if leaves {
                    return self.wait_for_room(server, &trouble, true).await;
                }
                let wait = self.see_to_room(server, way).await;
                // What it waits for is said, also when nothing could be done about it.
                let outcome = self.wait_for_room(server, &trouble, false).await?;
                Ok(match (outcome, wait?) {
                    (Outcome::Done, Some(wait)) => Outcome::After(wait),
                    (outcome, _) => outcome,
                })
            }
            Found::Later(wait) => Ok(Outcome::After(wait)),
        }
    }

    /// The room that was held for it goes to it.
    async fn hand_over(&self, server: &Server, birth: &Birth) -> Result<(), WriteError> {
        self.give_room_back(&server.key, None).await?;
        self.change(Effect::HandOver, &server.key, &hand_over(server, birth, clock::now())).await
    }

    /// Says why a server waits, where it does not say so already, and not with every node that changes.
    async fn wait_for_room(
        &self,
        server: &Server,
        trouble: &Trouble,
        leaves: bool,
    ) -> Result<Outcome, WriteError> {
        let known = server.trouble(ConditionKind::Placed);
        if !leaves && known.is_some_and(|known| known.message == trouble.message) {
            return Ok(Outcome::Done);
        }
        if !leaves && let Some(wait) = self.memory().wait(server, Instant::now()) {
            return Ok(Outcome::After(wait));
        }
        self.change(Effect::TellNoRoom, &server.key, &no_node(server, trouble, leaves, clock::now())).await?;
        if known.is_none() {
            self.tell_no_room(server, trouble);
        }
        Ok(Outcome::Done)
    }

    /// Chooses a node and counts the server there at once.
    fn find(&self, server: &Server, needs: &Needs, not_on: Option<(&str, &str)>) -> Found {
        let request = Request { needs, scheduling: server.scheduling, not_on };
        let placeholder = self.placeholder_of(server);
        let held = placeholder.as_deref().map(|placeholder| self.held(server, placeholder));
        self.stores.change(|world: &mut World, now: Instant| {
            let nodes = views(world, now);
            let nowhere = |way, no_room: Option<NoRoom>| {
                let message = told(&no_room.unwrap_or_default(), placeholder.as_deref());
                Found::Nowhere { way, trouble: Trouble { reason: "NoRoom", message } }
            };
            match choose(&request, &nodes, held) {
                (Way::To(index), no_room) => {
                    let node = &nodes[index];
                    let Ok(hand_over) = node.offer.clone() else {
                        // No closed node is chosen.
                        return nowhere(Way::Wait(None), no_room);
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
                (way, no_room) => match world.cluster.unsettled(now) {
                    Some(wait) => Found::Later(wait.min(Duration::from_millis(500))),
                    None => nowhere(way, no_room),
                },
            }
        })
    }

    async fn make_ready(&self, server: &Server) -> Result<Outcome, WriteError> {
        let Some(object) = self.writer.get::<GameServer>(&server.key).await? else {
            return Ok(Outcome::Done);
        };
        if let Some(address) = object.dev_address() {
            self.change(Effect::Develop, &server.key, &development(&object, address)).await?;
        }
        Ok(Outcome::Done)
    }

    async fn give_up(&self, server: &Server, has_set: bool, reason: &str) -> Result<Outcome, WriteError> {
        let (state, errored_at) = if has_set {
            (State::Shutdown, None)
        } else {
            let now = clock::now();
            (State::Error, Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
        };
        let mut annotations = serde_json::Map::new();
        annotations.insert(names::REASON_ANNOTATION.to_owned(), json!(format!("HandedBack: {reason}")));
        annotations.extend(errored_at.map(|time| (names::ERRORED_AT_ANNOTATION.to_owned(), json!(time))));
        let change = json!({ "metadata": { "annotations": annotations }, "status": { "state": state } });
        self.change(Effect::GiveUp, &server.key, &under_version(change, &server.resource_version)).await?;
        self.metrics.given_up.inc();
        info!(game_server = %server.key, state = %state, reason, "given up");
        if !has_set {
            self.say(server, EventReason::State(State::Error), reason.to_owned());
        }
        Ok(Outcome::Done)
    }

    pub(super) async fn change(&self, effect: Effect, key: &Key, change: &Value) -> Result<(), WriteError> {
        let object = self.writer.patch::<GameServer>(effect, key, change).await?;
        // The last finalizer gone, the answer shows an object that is no more.
        let is_gone = object.metadata.deletion_timestamp.is_some()
            && object.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        if !is_gone {
            self.stores.change(|world, _| world.server_changed(&object));
        }
        Ok(())
    }

    fn tell_no_room(&self, server: &Server, trouble: &Trouble) {
        info!(game_server = %server.key, reason = trouble.message, "no node fits");
        self.say(server, EventReason::NoRoom, trouble.message.clone());
    }

    /// Its pods would be matched by more than one budget. Servers of a set are told of there.
    fn tell_several_budgets(&self, server: &Server, object: &GameServer) {
        let labels = pod_labels(&object.spec);
        let named = self.stores.read(|world| {
            let budgets = world.budgets.within(&server.key.namespace).map(|budget| &**budget);
            several(&labels, budgets).map(|names| names.join(", "))
        });
        if let Some(named) = named {
            let message =
                format!("several disruption budgets match its pod, so no eviction can be decided: {named}");
            self.say(server, EventReason::SeveralDisruptionBudgets, message);
        }
    }

    /// Tells, once, where games were not let into the server's namespace.
    async fn explain(&self, key: &Key, error: &WriteError) {
        let Some(trouble) = self.gate.explain(error, &key.namespace).await else { return };
        let server = self.stores.read(|world| world.servers.get(key).cloned());
        if let Some(server) = server.filter(|server| self.memory().tells_forbidden(server)) {
            self.say(&server, EventReason::NamespaceNotEnabled, trouble.message);
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing panics while it is held.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn say(&self, server: &Server, reason: EventReason, message: String) {
        let about = server.reference();
        self.announcer.say(Announcement { about, speaker: Speaker::Placement, reason, message });
    }
}
