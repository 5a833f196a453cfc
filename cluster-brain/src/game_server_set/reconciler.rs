//! The task that keeps each set at its number.
//!
//! A server is counted from the moment its creation is decided. When no answer comes, the same object is sent again under
//! the same name until it is known to be there or refused, so that there is never one too many.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_api::conditions::ConditionKind;
use berth_api::events::EventReason;
use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_runtime::CancellationToken;
use berth_runtime::clock::{self, Instant};
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use futures::{StreamExt, stream};
use rand::Rng;
use serde_json::json;
use tracing::{debug, info, warn};

use super::SetMetrics;
use super::build::{Mould, overflow_marks, reference, shutdown};
use super::conditions::{Circumstances, conditions};
use super::count::count;
use super::decide::{Limits, Seen, decide};
use crate::announce::{Announcement, Announcer, Speaker};
use crate::autoscaling::ceiling;
use crate::config::BatchSettings;
use crate::effects::Effect;
use crate::eviction::{Guard, pod_labels, several};
use crate::namespaces::{Entry, Gate};
use crate::placement::{Birth, Needs, Request, place, views};
use crate::queue::Outcome;
use crate::stores::{InFlight, Key, Server, Stores, World};
use crate::writes::{WriteError, Writer, difference, under_version};

/// Sets worked on at the same time.
const PARALLEL: usize = 16;
/// How often to look whether it is known by now which nodes are live.
const LEASE_LOOK: Duration = Duration::from_millis(200);
/// What random names are made of: no vowels, so no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Names that an Event lists.
const NAMES_SAID: usize = 5;

/// Keeps sets at their number.
pub(crate) struct SetReconciler {
    pub(crate) stores: Arc<Stores>,
    pub(crate) writer: Writer,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: SetMetrics,
    pub(crate) settings: BatchSettings,
    pub(crate) guard: Guard,
    pub(crate) gate: Gate,
}

/// What one turn sees.
struct Picture {
    set: Arc<GameServerSet>,
    ceiling: Option<usize>,
    servers: Vec<Arc<Server>>,
    being_created: usize,
    unanswered: Vec<(Key, Arc<GameServer>)>,
    tallies: BTreeMap<String, usize>,
}

impl SetReconciler {
    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let this = &self;
        self.stores.queues.sets.work(PARALLEL, &stop, |key| this.turn(key)).await;
        Ok(())
    }

    async fn turn(&self, key: Key) -> Outcome {
        let queued = self.stores.queues.sets.len();
        self.metrics.queued.set(i64::try_from(queued).unwrap_or(i64::MAX));
        match self.try_turn(&key).await {
            Ok(outcome) => {
                self.metrics.last_turn.set(clock::now().as_second());
                outcome
            }
            Err(error) if matches!(error.class(), Some(Class::Conflict | Class::NotFound)) => {
                debug!(game_server_set = %key, error = %chain(&error), "looking again");
                Outcome::Failed
            }
            Err(error) => {
                self.metrics.failed_turns.inc();
                warn!(game_server_set = %key, error = %chain(&error), "turn failed");
                Outcome::Failed
            }
        }
    }

    async fn try_turn(&self, key: &Key) -> Result<Outcome, WriteError> {
        let Some(picture) = self.look(key) else { return Ok(Outcome::Done) };
        let done = self.act(picture).await;
        // What was done is reported, also when the rest failed.
        let entry = self.gate.entry(&done, &key.namespace).await;
        let reported = self.report(key, entry).await;
        let outcome = done?;
        reported?;
        Ok(outcome)
    }

    async fn act(&self, picture: Picture) -> Result<Outcome, WriteError> {
        if !picture.unanswered.is_empty() {
            self.send_again(picture.unanswered).await?;
            return Ok(Outcome::Again);
        }
        let Picture { set, ceiling, servers, being_created, tallies, .. } = picture;
        let seen = Seen {
            target: usize::try_from(set.spec.replicas).unwrap_or(0),
            ceiling,
            scheduling: set.spec.scheduling(),
            priorities: set.spec.priorities.as_deref().unwrap_or_default(),
            overflow: set.spec.allocation_overflow.as_ref(),
            servers: &servers,
            being_created,
            tallies: &tallies,
        };
        let decision = decide(&seen, self.limits(), clock::now());
        let by_key = |key: &Key| servers.iter().find(|server| server.key == *key).cloned();

        let created = self.create(&set, decision.create).await;
        let deleted = self.delete(&set, decision.delete.iter().filter_map(by_key).collect()).await;
        let marked = self.mark(&set, decision.mark.iter().filter_map(by_key).collect()).await;
        let wait = created?;
        deleted?;
        marked?;
        Ok(match (wait, decision.is_partial, decision.look_again) {
            (Some(wait), _, _) => Outcome::After(wait),
            (None, true, _) => Outcome::Again,
            (None, false, Some(wait)) => Outcome::After(wait),
            (None, false, None) => Outcome::Done,
        })
    }

    fn look(&self, key: &Key) -> Option<Picture> {
        self.stores.read(|world| {
            let set = Arc::clone(world.sets.get(key)?);
            if set.metadata.deletion_timestamp.is_some() {
                return None;
            }
            let uid = set.metadata.uid.as_deref()?;
            Some(Picture {
                ceiling: ceiling(world, &set),
                servers: world.servers_of(uid),
                being_created: world.being_created(uid),
                unanswered: world.unanswered(uid),
                tallies: world.tallies(),
                set,
            })
        })
    }

    fn limits(&self) -> Limits {
        let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Limits {
            creations: whole(self.settings.max_game_server_creations_per_batch),
            deletions: whole(self.settings.max_game_server_deletions_per_batch),
            pending: whole(self.settings.max_pod_pending_count),
        }
    }

    /// Creates servers; gives a wait when not all were, since it is not known yet which nodes are live, or since those
    /// before them fail.
    async fn create(&self, set: &GameServerSet, wanted: usize) -> Result<Option<Duration>, WriteError> {
        if wanted == 0 {
            return Ok(None);
        }
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let (pause, _) = self.stores.change(|world, now| world.strain(&uid, now));
        if pause.is_some() {
            self.metrics.paused.inc();
            return Ok(pause);
        }
        self.guard.ensure(&Key::of(&set.metadata).namespace).await?;
        let mould = Mould::of(set);
        let servers = self.stores.change(|world, now| begin(world, set, &mould, wanted, now));
        let wait = (servers.len() < wanted).then_some(LEASE_LOOK);
        let sent = self.send(servers).await;
        if !sent.names.is_empty() {
            self.metrics.created.inc_by(u64::try_from(sent.names.len()).unwrap_or(u64::MAX));
            self.say(set, EventReason::SuccessfulCreate, said("created", &sent.names));
        }
        sent.first_error.map_or(Ok(wait), Err)
    }

    async fn send_again(&self, unanswered: Vec<(Key, Arc<GameServer>)>) -> Result<(), WriteError> {
        self.metrics.repeated.inc_by(u64::try_from(unanswered.len()).unwrap_or(u64::MAX));
        let sent = self.send(unanswered).await;
        self.metrics.created.inc_by(u64::try_from(sent.names.len()).unwrap_or(u64::MAX));
        sent.first_error.map_or(Ok(()), Err)
    }

    async fn send(&self, servers: Vec<(Key, Arc<GameServer>)>) -> Sent {
        let parallel = usize::try_from(self.settings.max_creation_parallelism).unwrap_or(1);
        let mut results = stream::iter(servers)
            .map(|(key, server)| async move { (self.send_one(&key, &server).await, key) })
            .buffer_unordered(parallel);
        let mut sent = Sent::default();
        while let Some((result, key)) = results.next().await {
            match result {
                Ok(()) => sent.names.push(key.name),
                Err(error) => drop(sent.first_error.get_or_insert(error)),
            }
        }
        sent
    }

    async fn send_one(&self, key: &Key, server: &GameServer) -> Result<(), WriteError> {
        let refused = match self.writer.create(Effect::CreateServer, key, server).await {
            Ok(created) => {
                self.stores.change(|world, _| world.server_created(&created));
                return Ok(());
            }
            // It stays in flight, and is sent again.
            Err(error) if error.may_have_happened() => return Err(error),
            Err(error) => error,
        };
        let is_there = refused.class() == Some(Class::AlreadyExists) && self.is_there(key, server).await?;
        if is_there {
            return Ok(());
        }
        self.stores.change(|world, _| world.end(key));
        Err(refused)
    }

    /// Whether the object of this name is the one we sent.
    async fn is_there(&self, key: &Key, sent: &GameServer) -> Result<bool, WriteError> {
        let owners = |server: &GameServer| server.metadata.owner_references.clone();
        let Some(found) = self.writer.get::<GameServer>(key).await? else { return Ok(false) };
        if owners(&found) != owners(sent) {
            return Ok(false);
        }
        self.stores.change(|world, _| world.server_created(&found));
        Ok(true)
    }

    async fn delete(&self, set: &GameServerSet, servers: Vec<Arc<Server>>) -> Result<(), WriteError> {
        let changes = servers.iter().map(|server| (Arc::clone(server), shutdown(server))).collect();
        let sent = self.change_servers(Effect::EndServer, changes).await;
        if !sent.names.is_empty() {
            self.metrics.deleted.inc_by(u64::try_from(sent.names.len()).unwrap_or(u64::MAX));
            self.say(set, EventReason::SuccessfulDelete, said("marked for deletion", &sent.names));
        }
        sent.first_error.map_or(Ok(()), Err)
    }

    async fn mark(&self, set: &GameServerSet, servers: Vec<Arc<Server>>) -> Result<(), WriteError> {
        let changes =
            servers.iter().map(|server| (Arc::clone(server), overflow_marks(server, set))).collect();
        self.change_servers(Effect::MarkOverflow, changes).await.first_error.map_or(Ok(()), Err)
    }

    async fn change_servers(&self, effect: Effect, changes: Vec<(Arc<Server>, serde_json::Value)>) -> Sent {
        let parallel = usize::try_from(self.settings.max_deletion_parallelism).unwrap_or(1);
        let mut results = stream::iter(changes)
            .map(|(server, change)| async move {
                (self.writer.patch::<GameServer>(effect, &server.key, &change).await, server)
            })
            .buffer_unordered(parallel);
        let mut sent = Sent::default();
        while let Some((result, server)) = results.next().await {
            match result {
                Ok(changed) => {
                    self.stores.change(|world, _| world.server_changed(&changed));
                    sent.names.push(server.key.name.clone());
                }
                Err(error) => drop(sent.first_error.get_or_insert(error)),
            }
        }
        sent
    }

    async fn report(&self, key: &Key, entry: Entry) -> Result<(), WriteError> {
        let seen = self.stores.change(|world, now| {
            let set = Arc::clone(world.sets.get(key)?);
            let uid = set.metadata.uid.as_deref()?;
            let servers = world.servers_of(uid);
            let (_, strain) = world.strain(uid, now);
            let labels = pod_labels(&set.spec.template.spec);
            let budgets = world.budgets.within(&key.namespace).map(|budget| &**budget);
            let budgets = several(&labels, budgets).map(|names| names.join(", "));
            Some((set, servers, Circumstances { entry, strain, budgets }))
        });
        let Some((set, servers, circumstances)) = seen else { return Ok(()) };
        let mut status = count(&set.spec.template.spec, &servers);
        let (conditions, news) = conditions(&set, &servers, circumstances, clock::now());
        status.conditions = conditions;
        let before = set.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
        let Some(change) = difference(&before, &json!(status)) else { return Ok(()) };
        let version = set.metadata.resource_version.as_deref().unwrap_or_default();
        let change = under_version(json!({ "status": change }), version);
        let mut changed = self.writer.patch_status::<GameServerSet>(Effect::ReportSet, key, &change).await?;
        changed.metadata.managed_fields = None;
        self.stores.change(|world, _| {
            let change = world.sets.changed(changed);
            world.note_set(change);
        });
        for (kind, message) in news {
            self.say(&set, reason_of(kind), message);
        }
        Ok(())
    }

    fn say(&self, set: &GameServerSet, reason: EventReason, message: String) {
        info!(game_server_set = %Key::of(&set.metadata), reason = reason.as_str(), message);
        let about = reference(set);
        self.announcer.say(Announcement { about, speaker: Speaker::GameServerSet, reason, message });
    }
}

/// The Event of a condition that turned.
fn reason_of(kind: ConditionKind) -> EventReason {
    match kind {
        ConditionKind::NamespaceEnabled => EventReason::NamespaceNotEnabled,
        ConditionKind::Placed => EventReason::NoRoom,
        ConditionKind::Progressing => EventReason::ServersFail,
        ConditionKind::OneDisruptionBudget => EventReason::SeveralDisruptionBudgets,
        ConditionKind::AbleToScale => EventReason::FleetAutoscaler,
        ConditionKind::WithinLimits => EventReason::ScalingLimited,
    }
}

/// What became of a batch.
#[derive(Default)]
struct Sent {
    names: Vec<String>,
    first_error: Option<WriteError>,
}

/// Chooses names and nodes for new servers and counts them at once. Fewer than wanted while it is not known yet which
/// nodes are live.
fn begin(
    world: &mut World,
    set: &GameServerSet,
    mould: &Mould,
    wanted: usize,
    now: Instant,
) -> Vec<(Key, Arc<GameServer>)> {
    let uid = set.metadata.uid.clone().unwrap_or_default();
    if !world.set_is_live(&Key::of(&set.metadata), &uid) {
        return Vec::new();
    }
    let needs = Arc::new(Needs::of(mould.spec()));
    let mut nodes = views(world, now);
    let mut begun = Vec::new();
    for _ in 0..wanted {
        let request = Request { needs: &needs, scheduling: set.spec.scheduling(), not_on: None };
        let birth = match place(&request, &nodes) {
            _ if mould.is_development() => None,
            Ok(index) => {
                let node = &mut nodes[index];
                node.take(&needs);
                let node_name = node.name.clone();
                node.offer.clone().ok().map(|hand_over| Birth { node: node_name, hand_over })
            }
            Err(_) if world.cluster.unsettled(now).is_some() => break,
            // It is created all the same: a server without a node is what shows that room is missing.
            Err(_) => None,
        };
        let key = free_name(world, mould);
        let server = Arc::new(mould.cast(&key, birth.as_ref()));
        let flight = InFlight {
            set: Some(uid.clone()),
            node: birth.map(|birth| birth.node),
            needs: Arc::clone(&needs),
            object: Some(Arc::clone(&server)),
        };
        world.begin(key.clone(), flight);
        begun.push((key, server));
    }
    begun
}

fn free_name(world: &World, mould: &Mould) -> Key {
    let mut random = rand::rng();
    loop {
        let ending: String =
            (0..5).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect();
        let key = mould.key(&ending);
        if world.is_free(&key) {
            return key;
        }
    }
}

/// One sentence for a batch.
fn said(what: &str, names: &[String]) -> String {
    let listed = names.iter().take(NAMES_SAID).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(NAMES_SAID);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{what} {} GameServer{plural}: {listed}{rest}", names.len())
}
