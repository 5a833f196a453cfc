//! One leadership: fresh lists, then the reconcilers, until it ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::leader::Authority;
use berth_runtime::tasks::{TaskError, TaskGroup};
use kube::Client;
use tracing::info;

use crate::announce::Announcer;
use crate::autoscaling::{Asker, AutoscalingMetrics, AutoscalingReconciler};
use crate::config::BatchSettings;
use crate::eviction::{BudgetReconciler, EvictionMetrics, Guard};
use crate::fencing::{FenceKeeper, FencingMetrics};
use crate::fleet::{FleetMetrics, FleetReconciler};
use crate::game_server_set::{SetMetrics, SetReconciler};
use crate::idle::{IdleKeeper, IdleMetrics};
use crate::namespaces::Gate;
use crate::placement::{Memory, Placeholders, PlacementMetrics, PlacementReconciler};
use crate::sdk_update::{SdkUpdateMetrics, SdkUpdater};
use crate::stores::{Stores, watch_objects};
use crate::writes::Writer;

/// How long turns may go on once a leadership is over: one call, and a little.
const GRACE: Duration = Duration::from_secs(12);

/// What every leadership is made of.
pub(crate) struct Sessions {
    pub(crate) client: Client,
    pub(crate) stores: Arc<Stores>,
    pub(crate) authority: Authority,
    pub(crate) writer: Writer,
    pub(crate) announcer: Announcer,
    pub(crate) batches: BatchSettings,
    pub(crate) fleets: FleetMetrics,
    pub(crate) sets: SetMetrics,
    pub(crate) placement: PlacementMetrics,
    pub(crate) placeholders: Option<Placeholders>,
    pub(crate) sdk_update: SdkUpdateMetrics,
    pub(crate) idle: IdleMetrics,
    pub(crate) fencing: FencingMetrics,
    pub(crate) eviction: EvictionMetrics,
    pub(crate) autoscaling: AutoscalingMetrics,
    pub(crate) asker: Arc<Asker>,
    /// How long sessions of a silent node are kept.
    pub(crate) lost_after: Duration,
    /// Cancelled when the last leadership is over, so that the lease is given back after the last write.
    pub(crate) release: CancellationToken,
}

impl Sessions {
    /// Leads whenever we may, until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), TaskError> {
        let _release = self.release.clone().drop_guard();
        let mut authority = self.authority.clone();
        let mut last_term = None;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = authority.gained() => {}
            }
            // What another leader did since has made up for what we had under way.
            let term = authority.term();
            if last_term != term {
                self.stores.change(|world, _| world.forget_in_flight());
            }
            last_term = term;
            let group = self.begin(&stop);
            let token = group.token();
            tokio::select! {
                biased;
                // Also when a task of the group has failed.
                () = token.cancelled() => {}
                () = authority.lost() => token.cancel(),
            }
            group.join(GRACE).await?;
            self.stores.forget_objects();
            info!("what a leader knows is forgotten");
        }
    }

    fn begin(&self, stop: &CancellationToken) -> TaskGroup {
        let group = TaskGroup::new(stop.child_token());
        watch_objects(&group, &self.client, &self.stores);
        let gate = Gate::new(self.client.clone());
        let guard = Guard {
            stores: Arc::clone(&self.stores),
            writer: self.writer.clone(),
            metrics: self.eviction.clone(),
        };
        let fleets = FleetReconciler {
            stores: Arc::clone(&self.stores),
            writer: self.writer.clone(),
            announcer: self.announcer.clone(),
            metrics: self.fleets.clone(),
            gate: gate.clone(),
        };
        let sets = SetReconciler {
            stores: Arc::clone(&self.stores),
            writer: self.writer.clone(),
            announcer: self.announcer.clone(),
            metrics: self.sets.clone(),
            settings: self.batches.clone(),
            guard: guard.clone(),
            gate: gate.clone(),
        };
        let placement = PlacementReconciler {
            stores: Arc::clone(&self.stores),
            writer: self.writer.clone(),
            announcer: self.announcer.clone(),
            metrics: self.placement.clone(),
            fencing: self.fencing.clone(),
            guard: guard.clone(),
            gate,
            memory: Mutex::new(Memory::default()),
            placeholders: self.placeholders.clone(),
        };
        let fence = FenceKeeper {
            stores: Arc::clone(&self.stores),
            announcer: self.announcer.clone(),
            metrics: self.fencing.clone(),
            lost_after: self.lost_after,
        };
        let budgets = BudgetReconciler { guard };
        let autoscaling = AutoscalingReconciler {
            stores: Arc::clone(&self.stores),
            writer: self.writer.clone(),
            announcer: self.announcer.clone(),
            metrics: self.autoscaling.clone(),
            asker: Arc::clone(&self.asker),
        };
        let idle = IdleKeeper {
            stores: Arc::clone(&self.stores),
            writer: self.writer.clone(),
            metrics: self.idle.clone(),
        };
        let sdk_update = SdkUpdater {
            stores: Arc::clone(&self.stores),
            writer: self.writer.clone(),
            metrics: self.sdk_update.clone(),
        };
        let token = group.token();
        group.spawn("idle", after_lists(Arc::clone(&self.stores), token.clone(), idle.run(token.clone())));
        group.spawn(
            "sdk update",
            after_lists(Arc::clone(&self.stores), token.clone(), sdk_update.run(token.clone())),
        );
        group
            .spawn("fleets", after_lists(Arc::clone(&self.stores), token.clone(), fleets.run(token.clone())));
        group.spawn("sets", after_lists(Arc::clone(&self.stores), token.clone(), sets.run(token.clone())));
        group.spawn(
            "placement",
            after_lists(Arc::clone(&self.stores), token.clone(), placement.run(token.clone())),
        );
        group.spawn(
            "autoscaling",
            after_lists(Arc::clone(&self.stores), token.clone(), autoscaling.run(token.clone())),
        );
        group.spawn(
            "budgets",
            after_lists(Arc::clone(&self.stores), token.clone(), budgets.run(token.clone())),
        );
        group.spawn("fence", after_lists(Arc::clone(&self.stores), token.clone(), fence.run(token)));
        group
    }
}

/// Nobody decides anything on half a picture.
async fn after_lists<E>(
    stores: Arc<Stores>,
    stop: CancellationToken,
    work: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        () = stores.all_listed() => work.await,
    }
}
