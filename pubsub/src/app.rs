//! The composition root: clients, channels, and the order of start and stop.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use aws_config::SdkConfig;
use berth_api::names::SYSTEM_NAMESPACE;
use berth_runtime::CancellationToken;
use berth_runtime::admin::Admin;
use berth_runtime::announce::{self, AnnounceMetrics};
use berth_runtime::exit::BadConfiguration;
use berth_runtime::health::Conditions;
use berth_runtime::kube_client::client;
use berth_runtime::leader::{Keeper, LeaderMetrics, Seat};
use berth_runtime::metrics::Metrics;
use berth_runtime::redis_url::RedisServer;
use berth_runtime::shutdown::Shutdown;
use berth_runtime::tasks::TaskGroup;
use berth_runtime::telemetry;
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tracing::info;

use crate::announce::Announcer;
use crate::aws::{self, Aws};
use crate::cluster::Cluster;
use crate::config::{Events, GroupsFrom, LeaderElection, Settings};
use crate::diff::Terms;
use crate::effects::Effect;
use crate::groups_source::Source;
use crate::lead::Lead;
use crate::limits::{Rules, Survey};
use crate::metrics::PubsubMetrics;
use crate::poller::{Poller, PollerHealth};
use crate::publisher::Publisher;
use crate::surveyor::Surveyor;

/// How long all tasks may take to end: a pipeline that Redis does not answer, and giving the lease back.
const GRACE: Duration = Duration::from_secs(20);
/// Name of the lease, and of the writer of its fields.
const PUBSUB: &str = "berth-pubsub";

/// Runs until it is asked to stop.
///
/// # Errors
/// When it cannot start, or a part of it failed.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::init(&settings.log)?;
    let aws = aws::configuration(settings.region.as_deref()).await;
    if aws.region().is_none() {
        return Err(BadConfiguration::new("no AWS Region is known; set --region or AWS_REGION").into());
    }
    let stop = Shutdown::on_signals()?.token();
    Pubsub::start(settings, &aws, stop).await?.join().await
}

/// A running publisher.
pub struct Pubsub {
    tasks: TaskGroup,
    admin: Option<SocketAddr>,
}

impl Pubsub {
    /// Starts one that asks AWS by this configuration, and runs until `stop`.
    ///
    /// # Errors
    /// When the settings make no sense, or the API server cannot be found.
    pub async fn start(settings: Settings, aws: &SdkConfig, stop: CancellationToken) -> anyhow::Result<Self> {
        let server = settings.redis.clone().server()?;
        let server =
            server.ok_or_else(|| BadConfiguration::new("no Redis is named; set --redis-url or REDIS_URL"))?;
        let version = env!("CARGO_PKG_VERSION");
        let cluster = if settings.needs_cluster() {
            Some(client(&settings.kube, &format!("berth-pubsub/{version}")).await?)
        } else {
            None
        };
        let tasks = TaskGroup::new(stop);
        let identity = identity();
        info!(identity, version, redis = %server, "starting");
        let wiring = Wiring { settings, cluster, identity, tasks: &tasks };
        let admin = wiring.start(aws, server).await?;
        Ok(Self { tasks, admin })
    }

    /// Where health and metrics are served.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When a part of it failed.
    pub async fn join(self) -> anyhow::Result<()> {
        self.tasks.join(GRACE).await.context("a part of the publisher failed")
    }
}

struct Wiring<'a> {
    settings: Settings,
    cluster: Option<Client>,
    identity: String,
    tasks: &'a TaskGroup,
}

impl Wiring<'_> {
    async fn start(
        self,
        configuration: &SdkConfig,
        server: RedisServer,
    ) -> anyhow::Result<Option<SocketAddr>> {
        let Self { settings, cluster: _, identity, tasks } = &self;
        let stop = tasks.token();
        let mut metrics = Metrics::new(PUBSUB, env!("CARGO_PKG_VERSION"));
        let mut conditions = Conditions::default();
        let counted = PubsubMetrics::register(&mut metrics);
        let lead = self.lead(LeaderMetrics::register(&mut metrics))?;
        let announcer = self.announcer(AnnounceMetrics::register(&mut metrics.subsystem("pubsub_events")));
        let aws = Aws::new(configuration, counted.clone());
        let health = PollerHealth { groups: conditions.name("groups"), polls: conditions.name("polls") };
        let connected = conditions.name("redis");

        let (known_sender, known) = watch::channel(Vec::new());
        let (picture_sender, picture) = watch::channel(None);
        let (survey_sender, survey) = watch::channel(Arc::new(Survey::default()));
        let admin = match settings.admin_address {
            Some(address) => {
                let admin = Admin::bind(address).await?;
                let address = admin.address();
                info!(%address, "admin endpoint");
                tasks.spawn("admin", admin.serve(conditions.close(), Arc::new(metrics), stop.clone()));
                Some(address)
            }
            None => None,
        };
        let poller = Poller {
            source: self.source()?,
            aws: aws.clone(),
            lead: lead.clone(),
            period: settings.poll_period,
            health,
            announcer: announcer.clone(),
            metrics: counted.clone(),
            known: known_sender,
            picture: picture_sender,
        };
        tasks.spawn("poller", poller.run(stop.clone()));
        let publisher = Publisher {
            server,
            terms: Terms { heartbeat: settings.heartbeat_period, publisher: identity.clone() },
            lead: lead.clone(),
            picture: picture.clone(),
            survey,
            connected,
            announcer: announcer.clone(),
            metrics: counted.clone(),
        };
        tasks.spawn("publisher", publisher.run(stop.clone()));
        let surveyor = Surveyor {
            aws,
            cluster: self.told_cluster().map(Cluster::new),
            rules: Rules { servers_per_group: settings.servers_per_group },
            period: settings.limits_period,
            lead,
            known,
            picture,
            survey: survey_sender,
            announcer,
            metrics: counted,
        };
        tasks.spawn("surveyor", surveyor.run(stop));
        Ok(admin)
    }

    fn lead(&self, metrics: LeaderMetrics) -> anyhow::Result<Lead> {
        match (self.settings.leader_election, &self.cluster) {
            (LeaderElection::Off, _) => Ok(Lead::Alone),
            (LeaderElection::On, None) => anyhow::bail!("there is no cluster to hold the lease"),
            (LeaderElection::On, Some(client)) => {
                let seat = Seat {
                    namespace: SYSTEM_NAMESPACE,
                    lease: PUBSUB,
                    manager: PUBSUB,
                    identity: self.identity.clone(),
                    duration: self.settings.lease_duration,
                    take: Effect::TakeLead,
                    renew: Effect::RenewLead,
                    give_back: Effect::GiveLeadBack,
                };
                let changed = Arc::new(Notify::new());
                let (keeper, authority) = Keeper::new(client.clone(), seat, Arc::clone(&changed), metrics);
                let (stop, every) = (self.tasks.token(), self.settings.lease_duration / 8);
                self.tasks.spawn("lease", keeper.run(stop.clone()));
                self.tasks.spawn("lease looks", look_again(changed, every, stop));
                Ok(Lead::Elected(authority))
            }
        }
    }

    /// The cluster, where it is to be told.
    fn told_cluster(&self) -> Option<Client> {
        self.cluster.clone().filter(|_| self.settings.events == Events::On)
    }

    fn announcer(&self, metrics: AnnounceMetrics) -> Announcer {
        let announcer = self.told_cluster().map(|client| {
            let (announcer, crier) = announce::Announcer::new(client, self.identity.clone(), metrics);
            self.tasks.spawn("events", crier.run(self.tasks.token()));
            announcer
        });
        Announcer::new(announcer, self.settings.groups_config_map.clone())
    }

    fn source(&self) -> anyhow::Result<Source> {
        let name = self.settings.groups_config_map.clone();
        match (self.settings.groups_from, &self.cluster) {
            (GroupsFrom::File, _) => Ok(Source::File(self.settings.groups_file.clone())),
            (GroupsFrom::ConfigMap, None) => anyhow::bail!("there is no cluster to read {name} from"),
            (GroupsFrom::ConfigMap, Some(client)) => Ok(Source::ConfigMap {
                api: Box::new(Api::namespaced(client.clone(), &name.namespace)),
                name,
            }),
        }
    }
}

/// Lets the keeper look at the lease of another: it is not watched, and may have been given back.
async fn look_again(
    changed: Arc<Notify>,
    every: Duration,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(every) => changed.notify_one(),
        }
    }
}

/// Who we are to other publishers: the host, for people, and a number of this process.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { PUBSUB } else { host };
    format!("{host}-{:016x}", rand::random::<u64>())
}
