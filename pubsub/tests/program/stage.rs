//! A simulator with groups, a Redis, and publishers in this process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_gamelift::config::Credentials;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use berth_dev::{Instance, Redis, RedisOptions, eventually};
use berth_pubsub::{Events, LeaderElection, Pubsub, Settings};
use berth_runtime::CancellationToken;
use berth_runtime::redis_url::RedisFlags;
use berth_simulators::Simulator;
use clap::Parser as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

pub(crate) const GROUP: &str = "pvp-eu";
/// What a busy machine may take for anything here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The instance of all tests.
static INSTANCE: OnceCell<Arc<Instance>> = OnceCell::const_new();
static STAGES: AtomicU32 = AtomicU32::new(0);

/// An account, and a Redis.
pub(crate) struct Stage {
    pub(crate) simulator: Simulator,
    pub(crate) redis: Redis,
    pub(crate) folder: PathBuf,
}

/// A publisher in this process.
pub(crate) struct Running {
    stop: CancellationToken,
    pubsub: Pubsub,
}

impl Running {
    /// Stops it and waits for its end.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.pubsub.join().await.expect("an end");
    }

    /// What an admin path answers: the code and the body.
    pub(crate) async fn ask(&self, path: &str) -> (u16, String) {
        let address = self.pubsub.admin().expect("an admin endpoint");
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (code, body)
    }

    /// The value of a line of the metrics, by all that stands before it; 0 where there is none.
    pub(crate) async fn metric(&self, line: &str) -> f64 {
        let (_, text) = self.ask("/metrics").await;
        let values = text.lines().filter_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
        values.filter_map(|value| value.parse::<f64>().ok()).next().unwrap_or_default()
    }

    /// Waits until a metric is at least this.
    pub(crate) async fn wait_for_metric(&self, line: &str, least: f64) {
        eventually(PATIENCE, format!("{line} to be {least} at least"), async || {
            let value = self.metric(line).await;
            if value >= least { Ok(()) } else { Err(format!("it is {value}")) }
        })
        .await
        .expect("a metric");
    }
}

impl Stage {
    /// One that has a group with so many instances.
    pub(crate) async fn new(instances: u32) -> Self {
        let stage = Self::empty(RedisOptions::default()).await;
        stage.group(GROUP, instances);
        stage
    }

    pub(crate) async fn empty(options: RedisOptions) -> Self {
        let instance = INSTANCE.get_or_init(async || Instance::create("pubsub").expect("an instance")).await;
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let folder = instance.subfolder(format!("stage-{number}")).expect("a folder");
        let redis = Redis::start(instance, &format!("redis-{number}"), options).await.expect("Redis");
        let simulator =
            Simulator::start(&berth_simulators::Settings::for_tests()).await.expect("a simulator");
        // Its clock stands, so that what is used up does not come back.
        simulator.throttle(json!({"profile": "off"})).expect("no quotas");
        Self { simulator, redis, folder }
    }

    /// Makes a group with so many instances, and gives their ids.
    pub(crate) fn group(&self, name: &str, instances: u32) -> BTreeSet<String> {
        self.change(name, json!({"protection": "FULL_PROTECTION", "maximum": 100}));
        if instances == 0 {
            return BTreeSet::new();
        }
        let wanted = json!({"order": "launch", "group": name, "wanted": {"count": instances}});
        let launched = self.simulator.order(wanted).expect("instances");
        let ids = launched["instances"].as_array().expect("a list").iter();
        ids.map(|id| id.as_str().expect("an id").to_owned()).collect()
    }

    pub(crate) fn change(&self, group: &str, change: Value) {
        self.simulator.order(json!({"order": "group", "group": group, "change": change})).expect("a group");
    }

    /// The instances of the account.
    pub(crate) fn instances(&self) -> Vec<String> {
        let state = self.simulator.state();
        let instances = state["instances"].as_array().expect("instances").iter();
        instances.map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
    }

    pub(crate) fn set_status(&self, instance: &str, status: &str) {
        let order = json!({"order": "status", "instance": instance, "status": status});
        self.simulator.order(order).expect("a status");
    }

    pub(crate) fn page_size(&self, size: u32) {
        let parameters = json!({"page_size": size});
        self.simulator.order(json!({"order": "parameters", "parameters": parameters})).expect("parameters");
    }

    pub(crate) fn fault(&self, rule: Value) {
        self.simulator.fault("fault", rule).expect("a fault");
    }

    /// Where Redis is.
    pub(crate) fn url(&self) -> String {
        format!("127.0.0.1:{}", self.redis.port())
    }

    pub(crate) fn instance(&self) -> &'static Arc<Instance> {
        INSTANCE.get().expect("the instance")
    }

    /// Writes the list of groups, and gives the file.
    pub(crate) fn write_groups(&self, groups: &[&str]) -> PathBuf {
        let path = self.folder.join("fleetiq.conf");
        std::fs::write(&path, json!({"GameServerGroups": groups}).to_string()).expect("a list of groups");
        path
    }

    /// Settings that are quick: what takes a minute outside takes a second here.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::parse_from(["berth-pubsub", "--admin-address", "127.0.0.1:0"]);
        settings.redis = RedisFlags { redis_url: Some(self.url().into()), ..RedisFlags::default() };
        settings.groups_file = self.write_groups(&[GROUP]);
        settings.leader_election = LeaderElection::Off;
        settings.events = Events::Off;
        settings.poll_period = Duration::from_millis(250);
        settings.heartbeat_period = Duration::from_secs(1);
        settings.limits_period = Duration::from_millis(500);
        settings
    }

    /// Starts a publisher.
    pub(crate) async fn start(&self, settings: Settings) -> Running {
        let stop = CancellationToken::new();
        let configuration = self.configuration().await;
        let pubsub = Pubsub::start(settings, &configuration, stop.clone()).await.expect("a publisher");
        Running { stop, pubsub }
    }

    /// The account, as the SDK finds it.
    pub(crate) async fn configuration(&self) -> SdkConfig {
        let trust = TrustStore::empty().with_pem_certificate(self.simulator.authority());
        let context = TlsContext::builder().with_trust_store(trust).build().expect("a context");
        let provider = Provider::Rustls(CryptoMode::Ring);
        let http = aws_smithy_http_client::Builder::new();
        let http = http.tls_provider(provider).tls_context(context).build_https();
        aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .endpoint_url(self.simulator.endpoint())
            .credentials_provider(Credentials::new("simulator", "simulator", None, None, "test"))
            .http_client(http)
            .load()
            .await
    }
}

/// The folder of what ships.
pub(crate) fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")
}
