//! The composition root: clients, channels, and the order of start and stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use berth_runtime::CancellationToken;
use berth_runtime::admin::Admin;
use berth_runtime::announce::{AnnounceMetrics, Announcer};
use berth_runtime::exit::BadConfiguration;
use berth_runtime::health::Conditions;
use berth_runtime::kube_client::{ask_until_answered, client, require_version};
use berth_runtime::metrics::Metrics;
use berth_runtime::shutdown::Shutdown;
use berth_runtime::tasks::TaskGroup;
use berth_runtime::telemetry;
use kube::Client;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::time::sleep;
use tonic_health::server::{HealthReporter, health_reporter};
use tracing::info;

use crate::clusters::{ClusterMetrics, Clusters, Courier, PolicyShelf};
use crate::config::{Port, Settings};
use crate::office::Office;
use crate::serve::{
    AllocatorService, ApiService, Authorizer, Clients, Entrance, Gate, Identity, Listener, TlsKeeper,
    read_front_proxy, watch_front_proxy,
};
use crate::take::{Desk, TakeMetrics, Taker};
use crate::watches::{self, Listed, WatchMetrics};

/// How long requests that are under way may take once we stop.
const GRACE: Duration = Duration::from_secs(10);
/// The oldest Kubernetes whose custom resources have selectable fields, which the rest of Berth needs.
const KUBERNETES: (u32, u32) = (1, 32);

/// Runs the allocator until it is asked to stop.
///
/// # Errors
/// When it cannot start, or a part of it failed.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::init(&settings.log)?;
    check(&settings)?;
    let version = env!("CARGO_PKG_VERSION");
    let client = client(&settings.kube, &format!("berth-allocator/{version}")).await?;

    let mut metrics = Metrics::new("berth-allocator", version);
    let mut conditions = Conditions::default();
    let replica = rand::random();
    let identity = format!("berth-allocator-{replica:016x}");
    let announced = AnnounceMetrics::register(&mut metrics.subsystem("allocator_events"));
    let (announcer, crier) = Announcer::new(client.clone(), identity, announced);
    let desk = Arc::new(Desk::new(replica));
    let watched = WatchMetrics::register(&mut metrics);
    let taken = TakeMetrics::register(&mut metrics);
    let bad_certificates = metrics.subsystem("allocator_tls").register(
        "failed_reloads",
        "Looks at new certificates that could not be used",
        Counter::default(),
    );
    let asked_clusters = ClusterMetrics::register(&mut metrics);
    let metrics = Arc::new(metrics);

    let asked = Shutdown::on_signals()?.token();
    // Serving goes on for a while after being asked to stop, so that load balancers can look elsewhere.
    let stop = CancellationToken::new();
    let group = TaskGroup::new(stop.clone());
    let serving = conditions.name("serving");
    let policies = Arc::new(PolicyShelf::default());
    let listed = watches::start(&group, &client, &desk, Arc::clone(&policies), &mut conditions, &watched);
    if let Some(address) = settings.admin_address {
        let admin = Admin::bind(address).await?;
        info!(address = %admin.address(), "admin endpoint");
        group.spawn("admin", admin.serve(conditions.close(), metrics, stop.clone()));
    }
    ask_until_answered(&asked, || async { Ok(require_version(&client, KUBERNETES.0, KUBERNETES.1).await?) })
        .await?;
    group.spawn("events", crier.run(stop.clone()));
    let announcer = crate::announce::Announcer::new(announcer);
    let taker =
        Taker::new(desk, client.clone(), group.spawner(), announcer, taken, settings.allocation_limit);
    let courier = Courier::new(client.clone(), settings.remote_allocation_timeout, asked_clusters);
    let clusters = Clusters::new(taker.clone(), policies, courier, settings.total_remote_allocation_timeout);
    let office = Office::new(taker, clusters);
    let (reporter, health) = health_reporter();
    let gate = match &settings.token_audience {
        Some(audience) => Gate::of_accounts(client.clone(), audience.clone()),
        None => Gate::of_connections(),
    };
    let service = AllocatorService::new(office.clone(), gate, settings.unallocated_status, health);
    let doors = Doors { settings: &settings, group: &group, listed, bad_certificates };
    doors.open_service(service).await?;
    doors.open_api(&client, office).await?;
    serving.set(true);
    let linger = settings.readiness_shutdown_duration;
    group.spawn("stopping", async move {
        asked.cancelled().await;
        serving.set(false);
        tell_unhealthy(&reporter).await;
        sleep(linger).await;
        stop.cancel();
        Ok::<(), std::convert::Infallible>(())
    });
    info!(version, "started");
    group.join(GRACE).await.context("a part of the allocator failed")
}

fn check(settings: &Settings) -> Result<(), BadConfiguration> {
    let Settings { grpc_port, http_port, api_port, disable_tls, .. } = settings;
    if [grpc_port, http_port, api_port].into_iter().all(|port| *port == Port::Off) {
        return Err(BadConfiguration::new("--grpc-port, --http-port and --api-port are all off"));
    }
    if *disable_tls && grpc_port == http_port && *grpc_port != Port::Off {
        return Err(BadConfiguration::new(
            "--grpc-port and --http-port are the same, and --disable-tls: without TLS a port is either for gRPC or \
             for REST; give them two, or turn one off with -1",
        ));
    }
    Ok(())
}

async fn tell_unhealthy(reporter: &HealthReporter) {
    reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
}

/// Opens the entrances.
struct Doors<'a> {
    settings: &'a Settings,
    group: &'a TaskGroup,
    listed: Listed,
    bad_certificates: Counter,
}

impl Doors<'_> {
    async fn open_service(&self, service: AllocatorService) -> anyhow::Result<()> {
        let settings = self.settings;
        if (settings.grpc_port, settings.http_port) == (Port::Off, Port::Off) {
            return Ok(());
        }
        let tls = if settings.disable_tls {
            None
        } else {
            let folder = settings.client_ca.clone();
            let clients = match (settings.disable_mtls, &settings.token_audience) {
                (true, _) => Clients::Anyone,
                (false, None) => Clients::SignedBy(folder),
                (false, Some(_)) => Clients::MaybeSignedBy(folder),
            };
            Some(self.keep("service certificates", settings.tls.clone(), clients)?)
        };
        if settings.grpc_port == settings.http_port {
            return self.open("allocator service", settings.grpc_port, tls, service).await;
        }
        self.open(
            "allocator service over gRPC",
            settings.grpc_port,
            tls.clone(),
            service.clone().only_grpc(),
        )
        .await?;
        self.open("allocator service over REST", settings.http_port, tls, service.only_rest()).await
    }

    async fn open_api(&self, client: &Client, office: Office) -> anyhow::Result<()> {
        let settings = self.settings;
        if settings.api_port == Port::Off {
            return Ok(());
        }
        let stop = self.group.token();
        let front = ask_until_answered(&stop, || async { Ok(read_front_proxy(client).await?) }).await?;
        let (sender, front) = watch::channel(Arc::new(front));
        self.group.spawn("front proxy", watch_front_proxy(client.clone(), sender, stop));
        let clients = Clients::FrontProxy(front.clone());
        let tls = self.keep("API certificates", settings.api_tls.clone(), clients)?;
        let service = ApiService::new(office, front, Authorizer::new(client.clone()));
        self.open("aggregated API", settings.api_port, Some(tls), service).await
    }

    fn keep(
        &self,
        name: &'static str,
        folder: std::path::PathBuf,
        clients: Clients,
    ) -> anyhow::Result<watch::Receiver<Arc<rustls::ServerConfig>>> {
        let (keeper, tls) = TlsKeeper::new(Identity { folder }, clients, self.bad_certificates.clone())?;
        self.group.spawn(name, keeper.run(self.group.token()));
        Ok(tls)
    }

    async fn open<E: Entrance>(
        &self,
        name: &'static str,
        port: Port,
        tls: Option<watch::Receiver<Arc<rustls::ServerConfig>>>,
        entrance: E,
    ) -> anyhow::Result<()> {
        let Port::On(port) = port else { return Ok(()) };
        let address = SocketAddr::new(self.settings.address, port);
        let listener = Listener::bind(address, tls, self.settings.max_connection_age).await?;
        info!(address = %listener.address(), "{name}");
        let (listed, spawner, stop) = (self.listed.clone(), self.group.spawner(), self.group.token());
        self.group.spawn(name, async move {
            // Who comes earlier waits at the door.
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = listed.all() => {}
            }
            listener.serve(entrance, spawner, stop).await
        });
        Ok(())
    }
}
