//! The composition root: builds the parts, hands them to one another, starts and stops them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use berth_runtime::admin::Admin;
use berth_runtime::clock::Clock;
use berth_runtime::health::Conditions;
use berth_runtime::metrics::Metrics;
use berth_runtime::notify;
use berth_runtime::shutdown::Shutdown;
use berth_runtime::tasks::TaskGroup;
use berth_runtime::telemetry;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::config::Settings;
use crate::link::worker::{Setup, Worker};
use crate::local::Local;
use crate::metrics::SdkMetrics;
use crate::seat::Tray;
use crate::seat::scribe::Desk;

/// How long everything may take to end: the last words to the agent, and connections that say goodbye.
const GRACE: Duration = Duration::from_secs(3);

/// Runs `berth-sdk` until it is asked to stop.
///
/// # Errors
/// When it cannot start with these settings, or a part of it fails.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    // With a context: the outermost of anyhow's errors hides its type, and the exit code depends on it.
    settings.check().context("could not start")?;
    telemetry::init(&settings.log)?;
    let shutdown = Shutdown::on_signals()?;
    raise_file_limit();
    let mut metrics = Metrics::new("berth-sdk", env!("CARGO_PKG_VERSION"));
    let counted = SdkMetrics::register(&mut metrics.subsystem("sdk"));
    let metrics = Arc::new(metrics);
    let mut conditions = Conditions::default();

    let tasks = TaskGroup::new(shutdown.token());
    let admin = match settings.admin_address {
        Some(address) => Some(Admin::bind(address).await?),
        None => None,
    };
    if settings.local {
        let Settings { file, grpc_port, http_port, .. } = settings;
        Local { file, grpc_port, http_port }.start(&counted, &tasks).await?;
    } else {
        serve_node(settings, counted, &mut conditions, &tasks)?;
    }
    if let Some(admin) = admin {
        info!(address = %admin.address(), "admin requests are answered");
        tasks.spawn("admin", admin.serve(conditions.close(), metrics, tasks.token()));
    }
    tasks.spawn("watchdog", notify::keep_watchdog(|| true, tasks.token()));

    // Ready without an agent: it answers what it can, and the agent may come later.
    notify::ready()?;
    tasks.token().cancelled().await;
    if let Err(error) = notify::stopping() {
        warn!(error = %berth_runtime::error::chain(&error), "systemd was not told");
    }
    tasks.join(GRACE).await?;
    Ok(())
}

/// Serves what the node's agent tells it to.
fn serve_node(
    settings: Settings,
    counted: SdkMetrics,
    conditions: &mut Conditions,
    tasks: &TaskGroup,
) -> anyhow::Result<()> {
    let tray = Arc::new(Tray::default());
    let (found, in_journal) = mpsc::channel(2);
    let scribe = Desk {
        folder: settings.state_dir,
        clock: Clock::system(),
        tray: Arc::clone(&tray),
        metrics: counted.journal.clone(),
        writable: conditions.name("journal"),
        found,
    };
    tasks.spawn("journal", scribe.run(tasks.token()));
    let worker = Worker::new(Setup {
        socket: settings.link_socket,
        process_id: process_id().context("could not choose an id for this process")?,
        clock: Clock::system(),
        metrics: counted,
        spawner: tasks.spawner(),
        connected: conditions.name("link"),
        tray,
        in_journal,
    });
    tasks.spawn("link", worker.run(tasks.token()));
    Ok(())
}

/// Lets this process open as many files as it may ever: a node full of games has thousands of connections.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        warn!(error = %error, limit = limit.current, "the limit of open files stays as it is");
    }
}

/// A number that no other process of this machine has had: the kernel's own random UUID.
fn process_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}
