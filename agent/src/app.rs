//! The composition root: clients, channels, tasks, and the order in which they start and stop.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use berth_api::game_node::Room;
use berth_api::names;
use berth_runtime::CancellationToken;
use berth_runtime::admin::Admin;
use berth_runtime::clock::Clock;
use berth_runtime::error::chain;
use berth_runtime::health::Conditions;
use berth_runtime::kube_client::{self, ask_until_answered, require_version};
use berth_runtime::metrics::Metrics;
use berth_runtime::notify;
use berth_runtime::tasks::TaskGroup;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use crate::config::{BootIdSource, SOCKET_NAME, Settings, SpotSessions, boot_id};
use crate::drain::backup::{Backup, Owner};
use crate::drain::drainer::{Drainer, Inputs, Means, Words};
use crate::drain::metrics::DrainMetrics;
use crate::drain::node::NodeHand;
use crate::drain::notice::Signal;
use crate::drain::orders::Orders;
use crate::drain::sources::Ordered;
use crate::events::{EventMetrics, NodeRecorder, Recorder, sender};
use crate::fleetiq;
use crate::fleetiq::start::{Left, first_standing};
use crate::folders;
use crate::front::{self, FrontMetrics, FrontSettings};
use crate::game_server::apply::{Accounts, Actor, Calls, Taken};
use crate::game_server::supervisor::{Outlets, Supervisor};
use crate::game_server::{Board, ServerMetrics};
use crate::hook::Holding;
use crate::host::{Host, HostMetrics, LinuxHost, LinuxSettings};
use crate::identity::{Identity, require_resources, wait_for_node};
use crate::lease::keeper::Keeper;
use crate::lease::{LeaseMetrics, lock};
use crate::node::{NodeFacts, watcher};
use crate::node_status::publisher::Publisher;
use crate::node_status::{Sources, StatusMetrics};
use crate::ports::ledger::Ledger;
use crate::ports::loopback;
use crate::ports::{PortMetrics, Ports};
use crate::socket::server::{self, Knowledge};

/// The oldest Kubernetes that does: selectable fields of custom resources, and the node's name in a pod's token.
const KUBERNETES: (u32, u32) = (1, 32);
/// How long tasks may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// Signals that may wait for the drainer.
const SIGNALS: usize = 64;
/// Socket for `berth-sdk`, below the run folder, in a folder of its own that is all it gets to see.
const LINK: &str = "link/sdk.sock";

/// Runs the agent on this machine until asked to stop.
///
/// # Errors
/// What keeps it from running.
pub async fn run(settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    let mut metrics = Metrics::new(names::AGENT_MANAGER, env!("CARGO_PKG_VERSION"));
    let boot_id = match &settings.boot_id {
        BootIdSource::Given(given) => given.clone(),
        BootIdSource::File(path) => read_boot_id(path)?,
    };
    let linux = LinuxSettings {
        cgroup_root: settings.cgroup_root.to_string_lossy().into_owned(),
        boot_id: Some(boot_id),
        ..LinuxSettings::default()
    };
    let host = LinuxHost::start(&linux, HostMetrics::register(&mut metrics))?;
    serve(settings, Arc::new(host), metrics, stop).await
}

/// Runs the agent on a host until asked to stop.
///
/// # Errors
/// What keeps it from running.
pub async fn serve<H: Host>(
    settings: Settings,
    host: Arc<H>,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    folders::make(&settings.run_dir)?;
    folders::make(&settings.state_dir)?;
    if let Err(error) = folders::make_for_sdk(&settings.state_dir, settings.sdk_uid) {
        warn!(error = %chain(&error), "berth-sdk may have no place for its journal");
    }
    let user_agent = concat!("berth-agent/", env!("CARGO_PKG_VERSION"));
    let client = kube_client::client(&settings.kube, user_agent).await?;
    wait_for_version(&client, &stop).await?;
    require_resources(&client, &settings.node_name, &stop).await?;
    let node = wait_for_node(&client, &settings.node_name, &stop).await?;
    let boot_id = host.boot_id()?;
    let identity = Identity::new(&node, boot_id);
    info!(
        node = %identity.node,
        node_uid = %identity.node_uid,
        boot_id = %identity.boot_id,
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    // Before the lock: a second agent of this node waits here, ready.
    let Some(_lock) = lock::acquire(&settings.run_dir, &stop).await? else {
        return Ok(());
    };
    let parts = Parts { settings, host, client, identity, node };
    let group = compose(parts, metrics, &stop).await?;
    if let Err(error) = notify::ready() {
        warn!(error = %chain(&error), "systemd");
    }
    let ended = group.join(GRACE).await;
    if let Err(error) = notify::stopping() {
        warn!(error = %chain(&error), "systemd");
    }
    Ok(ended?)
}

struct Parts<H> {
    settings: Settings,
    host: Arc<H>,
    client: Client,
    identity: Identity,
    node: Node,
}

/// Puts the parts together and starts every task.
async fn compose<H: Host>(
    parts: Parts<H>,
    mut metrics: Metrics,
    stop: &CancellationToken,
) -> anyhow::Result<TaskGroup> {
    let Parts { settings, host, client, identity, node: object } = parts;
    let group = TaskGroup::new(stop.clone());
    let mut conditions = Conditions::default();
    let limit = settings.lease.write_limit();

    let lease_metrics = LeaseMetrics::register(&mut metrics.subsystem("lease"));
    let (keeper, authority) = Keeper::new(client.clone(), &identity, settings.lease, lease_metrics);

    let (node_sender, node) = watch::channel(Arc::new(NodeFacts::read(&object)));
    let mut ranges = settings.port_ranges.clone();
    ranges.extend(settings.host_network_ports.map(|range| (loopback::RANGE.to_owned(), range)));
    let ledger = Ledger::new(ranges, usize::from(rand::random::<u16>()));
    let ports = Ports::new(ledger, PortMetrics::register(&mut metrics.subsystem("ports")));
    let event_metrics = EventMetrics::register(&mut metrics.subsystem("events"));
    let (recorder, events) = Recorder::new(event_metrics.clone());
    let front_settings = FrontSettings {
        socket: settings.run_dir.join(LINK),
        sdk_uid: Some(settings.sdk_uid),
        node: identity.node.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let (front, front_events, front_task) = front::new(front_settings, FrontMetrics::register(&mut metrics));

    let board = Board::default();
    let backup = Backup::new(
        &settings.state_dir,
        Owner { node_uid: identity.node_uid.clone(), boot_id: identity.boot_id.clone() },
    );
    let left = Left::read(backup.clone(), &node.borrow().marks);
    let first = first_standing(&settings.fleetiq, &settings.metadata, &object, &left);
    let (standings, standing) = watch::channel(first);
    let (holdings, holding) = watch::channel(Holding::default());
    let (signals_given, signals) = mpsc::channel::<Signal>(SIGNALS);
    let (orders, orders_given) = Orders::new();
    let (ordered, ordered_seen) = watch::channel(Ordered::default());
    let (game_pods, game_pods_seen) = watch::channel(BTreeMap::new());
    let (others, others_seen) = watch::channel(Room::default());
    let (games, games_seen) = watch::channel(Room::default());
    let (adopted, adopted_seen) = watch::channel(false);
    let means = Means {
        hand: NodeHand::new(client.clone(), &identity, authority.clone(), limit),
        backup,
        identity: identity.clone(),
        recorder: recorder.clone(),
        metrics: DrainMetrics::register(&mut metrics.subsystem("drain")),
    };
    let inputs = Inputs {
        signals,
        orders: orders_given,
        node: node.clone(),
        ordered: ordered_seen,
        standing: standing.clone(),
        pods: game_pods_seen,
        adopted: adopted_seen.clone(),
        board: board.clone(),
    };
    let (drainer, Words { course, question }) = Drainer::new(means, inputs, settings.drain);
    let fleet = fleetiq::start::Parts {
        settings: settings.fleetiq,
        metadata: settings.metadata,
        aws: None,
        scaling: None,
        kube: client.clone(),
        node: object,
        left,
        course: course.clone(),
        signals: signals_given,
        standing: standings,
        holding: holdings,
        tell: NodeRecorder::new(recorder.clone(), identity.clone()),
        ready: conditions.name("fleetiq"),
    };
    let deregistrations = fleetiq::start::start(fleet, &mut metrics, &group);
    let actor = Arc::new(Actor {
        client: client.clone(),
        authority: authority.clone(),
        identity: identity.clone(),
        host,
        ports: ports.clone(),
        front,
        recorder,
        node: node.clone(),
        course: course.clone(),
        ends_sessions: settings.spot_sessions == SpotSessions::Sigterm,
        taken: Taken { others: others_seen.clone(), games: games_seen.clone() },
        board: board.clone(),
        metrics: ServerMetrics::register(&mut metrics.subsystem("game_servers")),
        clock: Clock::system(),
        limit,
        accounts: Accounts::default(),
        calls: Calls::default(),
        allows_host_network: settings.host_network_ports.is_some(),
    });
    let outlets = Outlets { others, games, game_pods, adopted, ready: conditions.name("adopted") };
    let supervisor =
        Supervisor::new(actor, settings.game_namespaces.clone(), group.spawner(), front_events, outlets);

    let sources = Sources {
        node: node.clone(),
        ports: ports.counts(),
        course: course.clone(),
        question,
        releases_idle: settings.drain.idle_release.is_some(),
        standing: standing.clone(),
        others: others_seen,
        games: games_seen,
        adopted: adopted_seen,
        board: board.clone(),
        reserve: settings.reserve,
    };
    let status_metrics = StatusMetrics::register(&mut metrics.subsystem("node_status"));
    let (publisher, pictures) = Publisher::new(
        client.clone(),
        &identity,
        authority.clone(),
        sources,
        ordered,
        (status_metrics, limit),
    );
    let knowledge = Knowledge {
        node: identity.node.clone(),
        pictures,
        board,
        authority: authority.clone(),
        course,
        ends_sessions: settings.spot_sessions == SpotSessions::Sigterm,
        standing,
        holding,
        orders,
        deregistrations,
    };
    let socket = server::bind(&settings.run_dir.join(SOCKET_NAME))?;

    if let Some(address) = settings.admin_address {
        let admin = Admin::bind(address).await?;
        group.spawn("admin", admin.serve(conditions.close(), Arc::new(metrics), stop.clone()));
    }
    group.spawn("socket", server::serve(socket, knowledge, stop.clone()));
    group.spawn("front", front_task.run(stop.clone()));
    group.spawn("events", sender::run(client.clone(), authority, limit, events, event_metrics, stop.clone()));
    group.spawn("node", watcher::run(client, identity.node.clone(), node_sender, stop.clone()));
    group.spawn("node-status", publisher.run(stop.clone()));
    group.spawn("drainer", drainer.run(stop.clone()));
    group.spawn("supervisor", supervisor.run(stop.clone()));
    group.spawn("lease", keeper.run(stop.clone()));
    group.spawn("watchdog", notify::keep_watchdog(|| true, stop.clone()));
    Ok(group)
}

/// Refuses an old control plane; waits for one that cannot be asked.
async fn wait_for_version(client: &Client, stop: &CancellationToken) -> anyhow::Result<()> {
    ask_until_answered(stop, || async { Ok(require_version(client, KUBERNETES.0, KUBERNETES.1).await?) })
        .await
}

fn read_boot_id(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("could not read the boot id from {}; set --boot-id", path.display()))?;
    boot_id(&text).map_err(|what| anyhow::anyhow!("the boot id in {} {what}", path.display()))
}
