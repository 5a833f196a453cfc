//! The task that keeps each Fleet's sets as decided and its status true.

use std::convert::Infallible;
use std::sync::Arc;

use berth_api::events::EventReason;
use berth_api::fleet::{Fleet, StrategyKind};
use berth_api::game_server_set::GameServerSet;
use berth_api::names;
use berth_runtime::CancellationToken;
use berth_runtime::clock;
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::FleetMetrics;
use super::build::{key, new_set, reference, scaled, updated};
use super::conditions::conditions;
use super::decide::{Aim, SetSeen, Strategy, roll};
use super::steps::{Step, StepError};
use crate::announce::{Announcement, Announcer, Speaker};
use crate::effects::Effect;
use crate::game_server_set::sum;
use crate::namespaces::{Entry, Gate};
use crate::queue::Outcome;
use crate::stores::{Key, Stores};
use crate::writes::{WriteError, Writer, difference, under_version};

/// Fleets worked on at the same time.
const PARALLEL: usize = 8;
/// Names tried for a new set before the turn is given up.
const ATTEMPTS: u32 = 8;

/// Keeps Fleets.
pub(crate) struct FleetReconciler {
    pub(crate) stores: Arc<Stores>,
    pub(crate) writer: Writer,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: FleetMetrics,
    pub(crate) gate: Gate,
}

impl FleetReconciler {
    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let this = &self;
        self.stores.queues.fleets.work(PARALLEL, &stop, |key| this.turn(key)).await;
        Ok(())
    }

    async fn turn(&self, key: Key) -> Outcome {
        match self.try_turn(&key).await {
            Ok(()) => {
                self.metrics.last_turn.set(clock::now().as_second());
                Outcome::Done
            }
            Err(error) if matches!(error.class(), Some(Class::Conflict | Class::NotFound)) => {
                debug!(fleet = %key, error = %chain(&error), "looking again");
                Outcome::Failed
            }
            Err(error) => {
                self.metrics.failed_turns.inc();
                warn!(fleet = %key, error = %chain(&error), "turn failed");
                Outcome::Failed
            }
        }
    }

    async fn try_turn(&self, fleet_key: &Key) -> Result<(), WriteError> {
        let seen = self.stores.read(|world| {
            let fleet = Arc::clone(world.fleets.get(fleet_key)?);
            let sets = world.sets_of(&fleet_key.namespace, fleet.metadata.uid.as_deref()?);
            Some((fleet, sets))
        });
        let Some((fleet, sets)) = seen else { return Ok(()) };
        if fleet.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let done = self.act(&fleet, &sets).await;
        // Also when something failed: a status that stands still helps nobody.
        let entry = self.gate.entry(&done, &fleet_key.namespace).await;
        let reported = self.report(fleet_key, &fleet, &entry).await;
        done?;
        reported
    }

    async fn act(&self, fleet: &Fleet, sets: &[Arc<GameServerSet>]) -> Result<(), WriteError> {
        let is_live = |set: &&Arc<GameServerSet>| set.metadata.deletion_timestamp.is_none();
        let live: Vec<_> = sets.iter().filter(is_live).cloned().collect();
        let is_current =
            |set: &&Arc<GameServerSet>| set.spec.template.means_the_same_as(&fleet.spec.template);
        let active = live.iter().rfind(is_current).cloned();
        let rest: Vec<_> = live
            .iter()
            .filter(|set| active.as_ref().is_none_or(|active| !Arc::ptr_eq(active, set)))
            .cloned()
            .collect();

        let seen_rest: Vec<_> = rest.iter().map(|set| view(set)).collect();
        let seen_active = active.as_deref().map(view).unwrap_or_default();
        let rollout = roll(self.aim(fleet), seen_active, &seen_rest);
        for (set, replicas) in rest.iter().zip(&rollout.rest) {
            if is_empty(set) {
                self.delete(fleet, set).await?;
            } else if let Some(change) = scaled(set, *replicas) {
                self.change(fleet, set, change).await?;
            }
        }
        match &active {
            None => self.create(fleet, rollout.active).await?,
            Some(set) => {
                if let Some(change) = updated(set, fleet, rollout.active) {
                    self.change(fleet, set, change).await?;
                }
            }
        }
        Ok(())
    }

    fn aim(&self, fleet: &Fleet) -> Aim {
        let wanted = fleet.spec.replicas();
        let annotations = fleet.metadata.annotations.as_ref();
        let asked = annotations.and_then(|annotations| annotations.get(names::UPDATE_SURGE_ANNOTATION));
        let beyond = match asked.map(|text| Step::read_text(text)) {
            None => 0,
            Some(Ok(step)) => step.up(wanted),
            Some(Err(error)) => {
                self.metrics.bad_steps.inc();
                let name = Key::of(&fleet.metadata);
                warn!(fleet = %name, annotation = names::UPDATE_SURGE_ANNOTATION, error = %error, "left out");
                0
            }
        };
        Aim { wanted, beyond, strategy: self.strategy(fleet) }
    }

    fn strategy(&self, fleet: &Fleet) -> Strategy {
        let strategy = fleet.spec.strategy.clone().unwrap_or_default();
        let steps = strategy.rolling_update.unwrap_or_default();
        let read = |written, field| {
            Step::read(written).unwrap_or_else(|error: StepError| {
                self.metrics.bad_steps.inc();
                let name = Key::of(&fleet.metadata);
                warn!(fleet = %name, field, error = %error, "25% is taken for a step that makes no sense");
                Step::Percent(25)
            })
        };
        match strategy.kind.unwrap_or_default() {
            StrategyKind::Recreate => Strategy::Recreate,
            StrategyKind::RollingUpdate => Strategy::RollingUpdate {
                surge: read(steps.max_surge.as_ref(), "maxSurge"),
                unavailable: read(steps.max_unavailable.as_ref(), "maxUnavailable"),
            },
        }
    }

    async fn create(&self, fleet: &Fleet, replicas: i32) -> Result<(), WriteError> {
        for attempt in 0.. {
            let set = new_set(fleet, replicas, attempt);
            let name = key(&set);
            let created = match self.writer.create(Effect::CreateSet, &name, &set).await {
                Ok(created) => created,
                Err(error) if error.class() == Some(Class::AlreadyExists) => {
                    let found = self.writer.get::<GameServerSet>(&name).await?;
                    match found.filter(|found| is_ours(found, &set)) {
                        // An earlier write of ours arrived after all.
                        Some(found) => found,
                        None if attempt + 1 < ATTEMPTS => continue,
                        None => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            };
            self.metrics.sets_created.inc();
            self.note(created, true);
            let message = format!("created GameServerSet {} for {replicas} GameServers", name.name);
            self.say(fleet, EventReason::CreatingGameServerSet, message);
            return Ok(());
        }
        Ok(())
    }

    async fn change(&self, fleet: &Fleet, set: &GameServerSet, change: Value) -> Result<(), WriteError> {
        let name = key(set);
        let replicas = change["spec"]["replicas"].as_i64();
        let changed = self.writer.patch::<GameServerSet>(Effect::ChangeSet, &name, &change).await?;
        self.note(changed, false);
        let (reason, message) = match replicas {
            Some(replicas) => {
                self.metrics.sets_scaled.inc();
                let before = set.spec.replicas;
                let message = format!("scaled GameServerSet {} from {before} to {replicas}", name.name);
                (EventReason::ScalingGameServerSet, message)
            }
            None => (EventReason::UpdatingGameServerSet, format!("updated GameServerSet {}", name.name)),
        };
        self.say(fleet, reason, message);
        Ok(())
    }

    async fn delete(&self, fleet: &Fleet, set: &GameServerSet) -> Result<(), WriteError> {
        let name = key(set);
        let uid = set.metadata.uid.clone().unwrap_or_default();
        self.writer.delete::<GameServerSet>(Effect::DeleteSet, &name, &uid).await?;
        self.stores.change(|world, _| {
            let change = world.sets.gone(&name, Some(&uid));
            world.note_set(change);
        });
        self.metrics.sets_deleted.inc();
        let message = format!("deleted empty GameServerSet {}", name.name);
        self.say(fleet, EventReason::DeletingGameServerSet, message);
        Ok(())
    }

    async fn report(&self, fleet_key: &Key, fleet: &Fleet, entry: &Entry) -> Result<(), WriteError> {
        let uid = fleet.metadata.uid.clone().unwrap_or_default();
        let sets = self.stores.read(|world| world.sets_of(&fleet_key.namespace, &uid));
        let mut status = sum(sets.iter().filter_map(|set| set.status.as_ref()));
        let (conditions, news) = conditions(fleet, &sets, entry, clock::now());
        status.conditions = conditions;
        let before = fleet.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
        let Some(change) = difference(&before, &json!(status)) else { return Ok(()) };
        let version = fleet.metadata.resource_version.as_deref().unwrap_or_default();
        let change = under_version(json!({ "status": change }), version);
        let mut changed = self.writer.patch_status::<Fleet>(Effect::ReportFleet, fleet_key, &change).await?;
        changed.metadata.managed_fields = None;
        self.stores.change(|world, _| {
            let change = world.fleets.changed(changed);
            world.note_fleet(change);
        });
        if let Some(message) = news {
            self.say(fleet, EventReason::NamespaceNotEnabled, message);
        }
        Ok(())
    }

    fn note(&self, mut set: GameServerSet, is_new: bool) {
        set.metadata.managed_fields = None;
        self.stores.change(|world, _| {
            let change = if is_new { world.sets.created(set) } else { world.sets.changed(set) };
            world.note_set(change);
        });
    }

    fn say(&self, fleet: &Fleet, reason: EventReason, message: String) {
        info!(fleet = %Key::of(&fleet.metadata), reason = reason.as_str(), message);
        let about = reference(fleet);
        self.announcer.say(Announcement { about, speaker: Speaker::Fleet, reason, message });
    }
}

fn view(set: &GameServerSet) -> SetSeen {
    let status = set.status.clone().unwrap_or_default();
    SetSeen {
        wanted: set.spec.replicas,
        replicas: status.replicas,
        ready: status.ready_replicas,
        reserved: status.reserved_replicas,
        allocated: status.allocated_replicas,
        shutdown: status.shutdown_replicas,
    }
}

/// An old set without servers; one that has not reported yet may be about to make some.
fn is_empty(set: &GameServerSet) -> bool {
    let is_reported = |status: &berth_api::game_server_set::GameServerSetStatus| {
        status.replicas == 0 && status.shutdown_replicas == 0
    };
    set.status.as_ref().is_some_and(is_reported) && set.spec.replicas == 0
}

fn is_ours(found: &GameServerSet, wanted: &GameServerSet) -> bool {
    found.metadata.owner_references == wanted.metadata.owner_references
        && found.metadata.deletion_timestamp.is_none()
        && found.spec.template.means_the_same_as(&wanted.spec.template)
}
