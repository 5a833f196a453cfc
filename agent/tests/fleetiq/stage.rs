//! A game server group of the simulator, and the agent's FleetIQ part in this process, as `app.rs` starts it.

use std::time::Duration;

use aws_sdk_gamelift::config::{Builder, Credentials, Region, SharedHttpClient};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use berth_agent::drain::Course;
use berth_agent::drain::backup::{Backup, Owner};
use berth_agent::drain::marks::{Marks, Phase};
use berth_agent::drain::notice::{Notice, Severity, Signal, Source};
use berth_agent::events::{EventMetrics, NodeRecorder, Recorder};
use berth_agent::fleetiq::Standing;
use berth_agent::fleetiq::machine::Unprotected;
use berth_agent::fleetiq::registrar::Order;
use berth_agent::fleetiq::settings::{FleetSettings, IdleRelease, Wanted};
use berth_agent::fleetiq::start::{Left, Parts, start};
use berth_agent::hook::{Holding, HookName};
use berth_agent::identity::Identity;
use berth_agent::metadata::client::Base;
use berth_agent::metadata::settings::{MetadataSettings, Wanted as MetadataWanted};
use berth_agent::metadata::{OnRebalance, Rules};
use berth_api::game_node::Protection;
use berth_dev::eventually;
use berth_runtime::CancellationToken;
use berth_runtime::health::Conditions;
use berth_runtime::metrics::Metrics;
use berth_runtime::redis_url::{RedisFlags, RedisServer};
use berth_runtime::tasks::TaskGroup;
use berth_simulators::{Settings, Simulator};
use k8s_openapi::api::core::v1::{Event, Node};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub(crate) const GROUP: &str = "pvp-eu";
/// What a busy machine may take for anything here.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A simulator with a group and one instance; its clock stands.
pub(crate) struct Stage {
    pub(crate) simulator: Simulator,
    pub(crate) instance: String,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::launched(json!({})).await
    }

    /// With an instance as it is ordered.
    pub(crate) async fn launched(wanted: Value) -> Self {
        let simulator = Simulator::start(&Settings::for_tests()).await.expect("a simulator");
        let change = json!({"protection": "FULL_PROTECTION"});
        simulator.order(json!({"order": "group", "group": GROUP, "change": change})).expect("a group");
        let launch = json!({"order": "launch", "group": GROUP, "wanted": wanted});
        let launched = simulator.order(launch).expect("an instance");
        let instance = launched["instances"][0].as_str().expect("an id").to_owned();
        Self { simulator, instance }
    }

    fn http(&self) -> SharedHttpClient {
        let trust = TrustStore::empty().with_pem_certificate(self.simulator.authority());
        let context = TlsContext::builder().with_trust_store(trust).build().expect("a context");
        aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .tls_context(context)
            .build_https()
    }

    /// How AWS is reached here.
    pub(crate) fn aws(&self) -> Builder {
        aws_sdk_gamelift::Config::builder()
            .behavior_version_latest()
            .region(Region::new("eu-central-1"))
            .endpoint_url(self.simulator.endpoint())
            .credentials_provider(Credentials::new("simulator", "simulator", None, None, "test"))
            .http_client(self.http())
    }

    /// The same of Auto Scaling.
    pub(crate) fn scaling(&self) -> aws_sdk_autoscaling::config::Builder {
        aws_sdk_autoscaling::Config::builder()
            .behavior_version_latest()
            .region(Region::new("eu-central-1"))
            .endpoint_url(self.simulator.endpoint())
            .credentials_provider(Credentials::new("simulator", "simulator", None, None, "test"))
            .http_client(self.http())
    }

    /// Gives the group a lifecycle hook for instances that end.
    pub(crate) fn hook(&self, name: &str, timeout: Duration) {
        let hooks = json!([{"name": name, "heartbeat_timeout_ms": timeout.as_millis()}]);
        self.order(json!({"order": "group", "group": GROUP, "change": {"hooks": hooks}}));
    }

    /// The instance's stage as Auto Scaling shows it.
    pub(crate) fn scaling_stage(&self) -> Value {
        let state = self.simulator.state();
        let instances = state["instances"].as_array().cloned().unwrap_or_default();
        let ours = instances.into_iter().find(|one| one["id"] == self.instance);
        ours.map_or(Value::Null, |one| one["stage"].clone())
    }

    pub(crate) fn order(&self, order: Value) {
        self.simulator.order(order).expect("an order");
    }

    pub(crate) fn fault(&self, rule: Value) {
        self.simulator.fault("fault", rule).expect("a fault");
    }

    /// The attempts of these operations so far.
    pub(crate) fn attempts<const N: usize>(&self, operations: [&str; N]) -> [usize; N] {
        operations.map(|operation| self.simulator.requests(operation).len())
    }

    /// The game server as FleetIQ shows it, or null.
    pub(crate) fn server(&self) -> Value {
        let state = self.simulator.state();
        let servers = state["servers"].as_array().cloned().unwrap_or_default();
        servers.into_iter().find(|server| server["id"] == self.instance).unwrap_or_default()
    }
}

/// How an agent is started.
pub(crate) struct Given {
    /// What the Node says of a predecessor.
    pub(crate) mark: Option<Phase>,
    pub(crate) marked_instance: Option<String>,
    pub(crate) provider_id: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) wanted: Wanted,
    pub(crate) redis: Option<RedisServer>,
    pub(crate) rules: Rules,
    pub(crate) course: Course,
    /// The lifecycle hook that is answered.
    pub(crate) hook: Option<HookName>,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            mark: None,
            marked_instance: None,
            provider_id: None,
            label: None,
            group: Some(GROUP.to_owned()),
            wanted: Wanted::Auto,
            redis: None,
            rules: Rules { on_rebalance: OnRebalance::Ignore, ..Rules::default() },
            course: Course::Open,
            hook: None,
        }
    }
}

impl Given {
    pub(crate) fn marked(mark: Phase) -> Self {
        Self { mark: Some(mark), ..Self::default() }
    }

    pub(crate) fn with_redis(mut self, port: u16) -> Self {
        let flags =
            RedisFlags { redis_url: Some(format!("127.0.0.1:{port}").into()), ..RedisFlags::default() };
        self.redis = flags.server().expect("a server");
        self
    }
}

/// A FleetIQ part that runs, and everything it speaks with.
pub(crate) struct Agent {
    group: TaskGroup,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) holding: watch::Receiver<Holding>,
    pub(crate) course: watch::Sender<Course>,
    pub(crate) signals: mpsc::Receiver<Signal>,
    pub(crate) events: mpsc::Receiver<Event>,
    orders: Option<mpsc::Sender<Order>>,
    metrics: Metrics,
    /// Of the copy of the marks, of which there is none.
    _folder: TempDir,
}

impl Agent {
    pub(crate) fn start(stage: &Stage, given: Given) -> Self {
        let base = Base::parse(&stage.simulator.metadata_endpoint(&stage.instance)).expect("a base");
        let metadata = MetadataSettings {
            wanted: MetadataWanted::On,
            endpoint: Some(base),
            rules: Rules { has_hook: given.hook.is_some(), ..given.rules },
            hook: given.hook.clone(),
        };
        Self::start_with(stage.aws(), Some(stage.scaling()), metadata, given)
    }

    /// One that reaches AWS so, and reads such metadata.
    pub(crate) fn start_with(
        aws: Builder,
        scaling: Option<aws_sdk_autoscaling::config::Builder>,
        metadata: MetadataSettings,
        given: Given,
    ) -> Self {
        let labels = given.label.map(|group| json!({"gamelift.status/group": group}));
        let node = json!({
            "metadata": { "name": "node-1", "uid": "node-uid", "labels": labels },
            "spec": { "providerID": given.provider_id },
        });
        let node: Node = serde_json::from_value(node).expect("a node");
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let mut metrics = Metrics::new("test", "0");
        let (recorder, events) = Recorder::new(EventMetrics::default());
        let identity = Identity::new(&node, "boot".to_owned());
        let (course, course_seen) = watch::channel(given.course);
        let (signals, signals_seen) = mpsc::channel(64);
        let (standing, standing_seen) = watch::channel(Standing::default());
        let (holding, holding_seen) = watch::channel(Holding::default());
        let folder = tempfile::tempdir().expect("a folder");
        let owner = Owner { node_uid: "node-uid".to_owned(), boot_id: "boot".to_owned() };
        let marks = Marks { phase: given.mark, instance: given.marked_instance, ..Marks::default() };
        let parts = Parts {
            settings: FleetSettings {
                wanted: given.wanted,
                group: given.group,
                region: None,
                unprotected: Unprotected::AllowAfter(Duration::from_secs(300)),
                idle_release: IdleRelease::Off,
                redis: given.redis,
                ignored: Vec::new(),
            },
            metadata,
            aws: Some(aws),
            scaling,
            kube: kube::Client::try_from(config).expect("a client"),
            node,
            left: Left::read(Backup::new(folder.path(), owner), &marks),
            course: course_seen,
            signals,
            standing,
            holding,
            tell: NodeRecorder::new(recorder, identity),
            ready: Conditions::default().name("fleetiq"),
        };
        let group = TaskGroup::new(CancellationToken::new());
        let orders = start(parts, &mut metrics, &group);
        Self {
            group,
            standing: standing_seen,
            holding: holding_seen,
            course,
            signals: signals_seen,
            events,
            orders,
            metrics,
            _folder: folder,
        }
    }

    /// Waits until the instance stands so.
    pub(crate) async fn stands(&mut self, protection: Protection) -> Standing {
        self.stands_with(|standing| standing.protection == protection).await
    }

    /// Waits until it is so with its standing.
    pub(crate) async fn stands_with(&mut self, is_so: impl FnMut(&Standing) -> bool) -> Standing {
        let found = timeout(LIMIT, self.standing.wait_for(is_so)).await;
        let found = found.map(|standing| standing.expect("it runs").clone());
        found.unwrap_or_else(|_| panic!("not in time: {:?}", *self.standing.borrow()))
    }

    /// Waits for an Event of this reason, and gives its message.
    pub(crate) async fn tells(&mut self, reason: &str) -> String {
        let mut seen = Vec::new();
        loop {
            let Ok(event) = timeout(LIMIT, self.events.recv()).await else {
                panic!("an Event {reason}, and not {seen:?}")
            };
            let event = event.expect("it runs");
            if event.reason.as_deref() == Some(reason) {
                return event.message.unwrap_or_default();
            }
            seen.push((event.reason, event.message));
        }
    }

    /// Waits for the next notice.
    pub(crate) async fn signals(&mut self) -> Notice {
        let signal = timeout(LIMIT, self.signals.recv()).await.expect("a signal in time").expect("it runs");
        match signal {
            Signal::Raised(notice) => notice,
            Signal::Cleared(source) => panic!("a notice, and not the end of {source:?}"),
        }
    }

    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let text = self.metrics.encode().expect("metrics");
        text.lines().find_map(|one| one.strip_prefix(line)?.trim().parse().ok())
    }

    /// Waits until a number of the metrics, named up to the blank before its value, is at least so.
    pub(crate) async fn counts(&self, line: &str, least: f64) {
        eventually(LIMIT, format!("{line} to be at least {least}"), async || {
            let value = self.metric(line);
            if value.is_some_and(|value| value >= least) { Ok(()) } else { Err(format!("{value:?}")) }
        })
        .await
        .expect("a number that grows");
    }

    pub(crate) async fn deregister(&self) -> Result<String, String> {
        let (order, answer) = oneshot::channel();
        let orders = self.orders.as_ref().expect("FleetIQ may be in use");
        orders.send(order).await.expect("it runs");
        timeout(LIMIT, answer).await.expect("an answer in time").expect("an answer")
    }

    /// Stops it as a signal does.
    pub(crate) async fn stop(self) {
        self.group.token().cancel();
        self.group.join(Duration::from_secs(5)).await.expect("it ends in time");
    }
}

pub(crate) fn drained(severity: Severity) -> Course {
    Course::Drained { notice: notice(severity) }
}

pub(crate) fn notice(severity: Severity) -> Notice {
    Notice { source: Source::Socket, severity, reason: "a test".to_owned(), deadline: None }
}
