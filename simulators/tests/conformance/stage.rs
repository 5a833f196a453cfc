//! A simulator with a group, and clients for it.

use std::time::Duration;

use aws_sdk_gamelift::Client;
use aws_sdk_gamelift::config::retry::RetryConfig;
use aws_sdk_gamelift::config::timeout::TimeoutConfig;
use aws_sdk_gamelift::config::{Credentials, Region, SharedHttpClient};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use berth_simulators::{Settings, Simulator};
use serde_json::{Value, json};

pub(crate) const GROUP: &str = "pvp-eu";
/// What a busy machine may take for anything here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A simulator that has a group `pvp-eu` with full protection and three instances; its clock stands.
pub(crate) struct Stage {
    pub(crate) simulator: Simulator,
    pub(crate) instances: Vec<String>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::for_tests()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let simulator = Simulator::start(&settings).await.expect("a simulator");
        let change = json!({"protection": "FULL_PROTECTION"});
        simulator.order(json!({"order": "group", "group": GROUP, "change": change})).expect("a group");
        let wanted = json!({"order": "launch", "group": GROUP, "wanted": {"count": 3}});
        let launched = simulator.order(wanted).expect("instances");
        let instances = launched["instances"].as_array().expect("a list").iter();
        let instances = instances.map(|id| id.as_str().expect("an id").to_owned()).collect();
        Self { simulator, instances }
    }

    /// A client with the SDK's own retries.
    pub(crate) fn client(&self) -> Client {
        self.client_of("simulator", "simulator", "eu-central-1", 3)
    }

    /// A client that asks once.
    pub(crate) fn client_without_retries(&self) -> Client {
        self.client_of("simulator", "simulator", "eu-central-1", 1)
    }

    pub(crate) fn client_of(&self, key: &str, secret: &str, region: &'static str, attempts: u32) -> Client {
        let config = aws_sdk_gamelift::Config::builder()
            .behavior_version_latest()
            .region(Region::new(region))
            .endpoint_url(self.simulator.endpoint())
            .credentials_provider(Credentials::new(key, secret, None, None, "test"))
            .http_client(https(self.simulator.authority()))
            .timeout_config(TimeoutConfig::builder().connect_timeout(PATIENCE).build())
            .retry_config(RetryConfig::standard().with_max_attempts(attempts));
        Client::from_conf(config.build())
    }

    pub(crate) async fn register(&self, client: &Client, server: &str) {
        let register = client.register_game_server().game_server_group_name(GROUP).game_server_id(server);
        register.instance_id(&self.instances[0]).send().await.expect("registered");
    }

    pub(crate) fn fault(&self, rule: Value) {
        self.simulator.fault("fault", rule).expect("a fault");
    }

    pub(crate) fn attempts(&self, operation: &str) -> usize {
        self.simulator.requests(operation).len()
    }
}

/// A client's connections, which trust nobody but this authority.
pub(crate) fn https(authority: &str) -> SharedHttpClient {
    let trust = TrustStore::empty().with_pem_certificate(authority);
    let context = TlsContext::builder().with_trust_store(trust).build().expect("a context");
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).tls_context(context).build_https()
}
