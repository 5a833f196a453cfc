//! The composition root: clients, channels, and the order of start and stop.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use berth_api::names::{BRAIN_LEASE, BRAIN_MANAGER, SYSTEM_NAMESPACE};
use berth_runtime::CancellationToken;
use berth_runtime::admin::Admin;
use berth_runtime::announce::{self, AnnounceMetrics};
use berth_runtime::health::{Condition, Conditions};
use berth_runtime::kube_client::{ask_until_answered, client, require_version};
use berth_runtime::leader::{Keeper, LeaderMetrics, Seat};
use berth_runtime::metrics::Metrics;
use berth_runtime::shutdown::Shutdown;
use berth_runtime::tasks::TaskGroup;
use berth_runtime::{notify, telemetry};
use tokio::sync::Notify;
use tracing::info;

use crate::announce::Announcer;
use crate::autoscaling::{Asker, AutoscalingMetrics};
use crate::config::Settings;
use crate::effects::Effect;
use crate::eviction::EvictionMetrics;
use crate::fencing::FencingMetrics;
use crate::fleet::FleetMetrics;
use crate::game_server_set::SetMetrics;
use crate::idle::IdleMetrics;
use crate::placement::{Placeholders, PlacementMetrics};
use crate::sdk_update::SdkUpdateMetrics;
use crate::session::Sessions;
use crate::stores::{StoreMetrics, Stores, World, watch_cluster};
use crate::writes::{WriteMetrics, Writer};
use crate::{foreign, resources};

/// How long all tasks may take to end: the last turns, and giving the lease back.
const GRACE: Duration = Duration::from_secs(15);
/// The oldest Kubernetes whose custom resources have selectable fields.
const KUBERNETES: (u32, u32) = (1, 32);

/// Runs the brain until it is asked to stop.
///
/// # Errors
/// When it cannot start, or a part of it failed.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::init(&settings.log)?;
    let version = env!("CARGO_PKG_VERSION");
    let client = client(&settings.kube, &format!("berth-brain/{version}")).await?;

    let mut metrics = Metrics::new("berth-brain", version);
    let mut conditions = Conditions::default();
    let identity = identity();
    let world = World::new(settings.node_reserve, settings.lease_duration);
    let stores = Arc::new(Stores::new(world, StoreMetrics::register(&mut metrics)));
    let lease_changed = Arc::new(Notify::new());
    let (keeper, authority) = Keeper::new(
        client.clone(),
        seat(identity.clone(), settings.lease_duration),
        Arc::clone(&lease_changed),
        LeaderMetrics::register(&mut metrics),
    );
    let announced = AnnounceMetrics::register(&mut metrics.subsystem("brain_events"));
    let (announcer, crier) = announce::Announcer::new(client.clone(), identity.clone(), announced);
    let announcer = Announcer::new(announcer);
    let writer = Writer::new(client.clone(), authority.clone(), WriteMetrics::register(&mut metrics));
    let placeholders = (!settings.placeholder_image.is_empty()).then(|| Placeholders {
        image: settings.placeholder_image.clone(),
        node_labels: settings.game_node_labels.clone(),
    });
    // Not a child of the stop: the lease is given back when the last leadership is over.
    let release = CancellationToken::new();
    let sessions = Sessions {
        client: client.clone(),
        stores: Arc::clone(&stores),
        authority,
        writer,
        announcer,
        batches: settings.batches.clone(),
        fleets: FleetMetrics::register(&mut metrics),
        sets: SetMetrics::register(&mut metrics),
        placement: PlacementMetrics::register(&mut metrics),
        placeholders,
        sdk_update: SdkUpdateMetrics::register(&mut metrics),
        idle: IdleMetrics::register(&mut metrics),
        fencing: FencingMetrics::register(&mut metrics),
        eviction: EvictionMetrics::register(&mut metrics),
        autoscaling: AutoscalingMetrics::register(&mut metrics),
        asker: Arc::new(Asker::new()),
        lost_after: settings.session_lost_after,
        release: release.clone(),
    };
    let metrics = Arc::new(metrics);

    let group = TaskGroup::new(Shutdown::on_signals()?.token());
    let stop = group.token();
    let nodes_known = conditions.name("nodes");
    if let Some(address) = settings.admin_address {
        let admin = Admin::bind(address).await?;
        info!(address = %admin.address(), "admin endpoint");
        group.spawn("admin", admin.serve(conditions.close(), metrics, stop.clone()));
    }
    // Whoever looks at us meanwhile sees that we live, and are not ready.
    ask_until_answered(&stop, || async {
        require_version(&client, KUBERNETES.0, KUBERNETES.1).await?;
        resources::require(&client).await?;
        Ok(foreign::require_none(&client).await?)
    })
    .await?;
    watch_cluster(&group, &client, &stores, lease_changed);
    group.spawn("leader lease", keeper.run(release));
    group.spawn("events", crier.run(stop.clone()));
    group.spawn("leadership", sessions.run(stop.clone()));
    group.spawn("readiness", tell_ready(stores, nodes_known, stop.clone()));
    group.spawn("watchdog", notify::keep_watchdog(|| true, stop));
    info!(identity, version, "started");
    let ended = group.join(GRACE).await;
    notify::stopping()?;
    ended.context("a part of the brain failed")
}

fn seat(identity: String, duration: Duration) -> Seat<Effect> {
    Seat {
        namespace: SYSTEM_NAMESPACE,
        lease: BRAIN_LEASE,
        manager: BRAIN_MANAGER,
        identity,
        duration,
        take: Effect::TakeLead,
        renew: Effect::RenewLead,
        give_back: Effect::GiveLeadBack,
    }
}

/// A standby that knows the nodes is as ready as the leader is.
async fn tell_ready(
    stores: Arc<Stores>,
    condition: Condition,
    stop: CancellationToken,
) -> Result<(), notify::NotifyError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = stores.cluster_listed() => {}
    }
    condition.set(true);
    notify::ready()?;
    stop.cancelled().await;
    Ok(())
}

/// Who we are to other brains: the host, for people, and a number of this process, since a host may run several.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { "brain" } else { host };
    format!("{host}-{:016x}", rand::random::<u64>())
}
