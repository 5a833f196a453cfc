//! The task that looks at each autoscaler every so often, and gives its Fleet the number that its policy wants.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_api::events::EventReason;
use berth_api::fleet::Fleet;
use berth_api::fleet_autoscaler::FleetAutoscaler;
use berth_api::game_server_set::GameServerSet;
use berth_runtime::CancellationToken;
use berth_runtime::clock;
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::json;
use tracing::{debug, info, warn};

use super::plan::{Snapshot, Word, candidates};
use super::report::{Look, report};
use super::{Asker, AutoscalingMetrics, Desired, NoAnswer};
use crate::announce::{Announcement, Announcer, Speaker};
use crate::effects::Effect;
use crate::game_server_set::sort_for_removal;
use crate::queue::Outcome;
use crate::stores::{Key, Stores, World};
use crate::writes::{WriteError, Writer, difference, under_version};

/// Autoscalers looked at at the same time: more than a few, since each may wait for a webhook.
const PARALLEL: usize = 64;
/// When one whose webhook had no answer is looked at again, if not before.
const RETRY: Duration = Duration::from_secs(3);

/// Looks at autoscalers.
pub(crate) struct AutoscalingReconciler {
    pub(crate) stores: Arc<Stores>,
    pub(crate) writer: Writer,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: AutoscalingMetrics,
    pub(crate) asker: Arc<Asker>,
}

impl AutoscalingReconciler {
    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let (this, ending) = (&self, &stop);
        let turn = |key| async move {
            tokio::select! {
                biased;
                // A webhook may take longer than we have left.
                () = ending.cancelled() => Outcome::Done,
                outcome = this.turn(key) => outcome,
            }
        };
        self.stores.queues.autoscalers.work(PARALLEL, ending, turn).await;
        Ok(())
    }

    async fn turn(&self, key: Key) -> Outcome {
        match self.try_turn(&key).await {
            Ok(outcome) => {
                self.metrics.last_turn.set(clock::now().as_second());
                outcome
            }
            Err(error) if matches!(error.class(), Some(Class::Conflict | Class::NotFound)) => {
                debug!(autoscaler = %key, error = %chain(&error), "looking again");
                Outcome::Failed
            }
            Err(error) => {
                self.metrics.failed_turns.inc();
                warn!(autoscaler = %key, error = %chain(&error), "turn failed");
                Outcome::Failed
            }
        }
    }

    async fn try_turn(&self, key: &Key) -> Result<Outcome, WriteError> {
        let Some(autoscaler) = self.stores.read(|world| world.autoscalers.get(key).cloned()) else {
            return Ok(Outcome::Done);
        };
        if autoscaler.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let interval = Duration::from_secs(u64::from(autoscaler.spec.interval_seconds().unsigned_abs()));
        let fleet = Key::new(&key.namespace, &autoscaler.spec.fleet_name);
        let Some(snapshot) = self.stores.read(|world| see(world, &fleet)) else {
            self.report(key, &autoscaler, &Look::without_fleet(&fleet.name)).await?;
            return Ok(Outcome::After(interval));
        };
        if snapshot.fleet.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::After(interval));
        }
        match self.decide(&autoscaler, &snapshot).await {
            Ok((by, desired)) => {
                self.give(key, &autoscaler, &snapshot.fleet, by, desired).await?;
                Ok(Outcome::After(interval))
            }
            Err(error) => {
                self.metrics.looked(autoscaler.spec.policy.kind, error.reason());
                self.report(key, &autoscaler, &Look::without_answer(&error)).await?;
                Ok(Outcome::After(if error.may_pass_soon() { interval.min(RETRY) } else { interval }))
            }
        }
    }

    /// The first answer, and whose it is.
    async fn decide(
        &self,
        autoscaler: &FleetAutoscaler,
        snapshot: &Snapshot,
    ) -> Result<(String, Desired), NoAnswer> {
        let mut refused = Vec::new();
        for candidate in candidates(&autoscaler.spec.policy, snapshot) {
            let said = match candidate.word {
                Word::Said(said) => said,
                Word::Ask(webhook) => {
                    self.metrics.asked.inc();
                    let said = self.asker.ask(webhook, &snapshot.fleet).await;
                    if said.is_err() {
                        self.metrics.unanswered.inc();
                    }
                    said
                }
            };
            match said {
                Ok(desired) => return Ok((candidate.name, desired)),
                Err(error) => refused.push((candidate.name, error)),
            }
        }
        match refused.pop() {
            Some((name, error)) if refused.is_empty() && !name.starts_with("Chain:") => Err(error),
            Some(last) => {
                refused.push(last);
                let told = refused.iter().map(|(name, error)| format!("{name}: {}", chain(error)));
                Err(NoAnswer::Chain(told.collect::<Vec<_>>().join("; ")))
            }
            None => Err(NoAnswer::EmptyChain),
        }
    }

    /// Gives the Fleet its number, and says so.
    async fn give(
        &self,
        key: &Key,
        autoscaler: &FleetAutoscaler,
        fleet: &Fleet,
        by: String,
        desired: Desired,
    ) -> Result<(), WriteError> {
        let current = fleet.status.as_ref().map_or(0, |status| status.replicas);
        let before = fleet.spec.replicas();
        let is_scaled = before != desired.replicas;
        let result = match (is_scaled, desired.limit) {
            (_, Some(limit)) => limit.as_str(),
            (true, None) => "scaled",
            (false, None) => "unchanged",
        };
        self.metrics.looked(autoscaler.spec.policy.kind, result);
        if is_scaled {
            if let Err(error) = self.scale(fleet, desired.replicas).await {
                let is_worth_telling =
                    !matches!(error.class(), None | Some(Class::Conflict | Class::NotFound));
                if is_worth_telling {
                    self.report(key, autoscaler, &Look::without_write(&error)).await?;
                }
                return Err(error);
            }
            self.metrics.scaled(before, desired.replicas);
            let message =
                format!("scaled Fleet {} from {before} to {}", autoscaler.spec.fleet_name, desired.replicas);
            self.say(autoscaler, EventReason::AutoScalingFleet, message);
        }
        self.report(key, autoscaler, &Look::Decided { current, desired, by, is_scaled }).await
    }

    async fn scale(&self, fleet: &Fleet, replicas: i32) -> Result<(), WriteError> {
        let version = fleet.metadata.resource_version.as_deref().unwrap_or_default();
        let change = under_version(json!({ "spec": { "replicas": replicas } }), version);
        let mut changed =
            self.writer.patch::<Fleet>(Effect::ScaleFleet, &Key::of(&fleet.metadata), &change).await?;
        changed.metadata.managed_fields = None;
        self.stores.change(|world, _| {
            let change = world.fleets.changed(changed);
            world.note_fleet(change);
        });
        Ok(())
    }

    async fn report(&self, key: &Key, autoscaler: &FleetAutoscaler, look: &Look) -> Result<(), WriteError> {
        let before = autoscaler.status.clone().unwrap_or_default();
        let (status, news) = report(&before, look, clock::now());
        let written = autoscaler.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
        if let Some(change) = difference(&written, &json!(status)) {
            let version = autoscaler.metadata.resource_version.as_deref().unwrap_or_default();
            let change = under_version(json!({ "status": change }), version);
            let mut changed =
                self.writer.patch_status::<FleetAutoscaler>(Effect::ReportAutoscaler, key, &change).await?;
            changed.metadata.managed_fields = None;
            self.stores.change(|world, _| {
                let change = world.autoscalers.changed(changed);
                world.note_autoscaler(change);
            });
        }
        for (reason, message) in news {
            self.say(autoscaler, reason, message);
        }
        Ok(())
    }

    fn say(&self, autoscaler: &FleetAutoscaler, reason: EventReason, message: String) {
        let metadata = &autoscaler.metadata;
        info!(autoscaler = %Key::of(metadata), reason = reason.as_str(), message);
        let about = ObjectReference {
            api_version: Some("autoscaling.agones.dev/v1".to_owned()),
            kind: Some("FleetAutoscaler".to_owned()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path: None,
        };
        self.announcer.say(Announcement { about, speaker: Speaker::FleetAutoscaler, reason, message });
    }
}

/// The Fleet as it is, with the servers that may go, in their order.
fn see(world: &World, key: &Key) -> Option<Snapshot> {
    let fleet = Arc::clone(world.fleets.get(key)?);
    let sets = world.sets_of(&key.namespace, fleet.metadata.uid.as_deref()?);
    let of_set = |set: &Arc<GameServerSet>| world.servers_of(set.metadata.uid.as_deref().unwrap_or_default());
    let mut servers: Vec<_> = sets.iter().flat_map(of_set).collect();
    // A session is never ended, so what it plays on brings no room by going.
    servers.retain(|server| !server.is_being_deleted() && !server.is_lost() && !server.is_protected());
    let priorities = fleet.spec.priorities.as_deref().unwrap_or_default();
    sort_for_removal(&mut servers, fleet.spec.scheduling(), priorities, &world.tallies());
    Some(Snapshot { fleet, servers, now: clock::now() })
}
