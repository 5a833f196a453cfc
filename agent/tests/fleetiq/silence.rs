//! What goes on while Redis is silent, on a paused clock: AWS is answered at once, Redis is a real socket that says
//! nothing, or none at all.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_gamelift::config::{Builder, Credentials, Region};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use berth_agent::drain::marks::Phase;
use berth_agent::drain::notice::{Severity, Source};
use berth_agent::metadata::settings::MetadataSettings;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::stage::{Agent, Given};

const INSTANCE: &str = "i-0f3a9c2b7d1e45680";

/// FleetIQ that answers at once, and thinks that the instance is not viable.
#[derive(Clone, Debug, Default)]
struct Answering {
    /// When each operation was called.
    calls: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
}

impl HttpConnector for Answering {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation = request.uri().rsplit('/').next().unwrap_or_default().to_owned();
        let answer = match operation.as_str() {
            "UpdateGameServer" => json!({"GameServer": {"UtilizationStatus": "UTILIZED"}}),
            "DescribeGameServerInstances" => {
                json!({"GameServerInstances": [{"InstanceId": INSTANCE, "InstanceStatus": "DRAINING"}]})
            }
            _ => json!({}),
        };
        self.calls
            .lock()
            .expect("no test has panicked with it")
            .entry(operation)
            .or_default()
            .push(Instant::now());
        let mut response = HttpResponse::new(200.try_into().expect("a status"), cbor(&answer).into());
        response.headers_mut().insert("content-type", "application/cbor");
        response.headers_mut().insert("smithy-protocol", "rpc-v2-cbor");
        HttpConnectorFuture::ready(Ok(response))
    }
}

impl Answering {
    fn client(&self) -> Builder {
        let connector = SharedHttpConnector::new(self.clone());
        aws_sdk_gamelift::Config::builder()
            .behavior_version_latest()
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .http_client(http_client_fn(move |_, _| connector.clone()))
    }

    fn of(&self, operation: &str) -> Vec<Instant> {
        self.calls.lock().expect("no test has panicked with it").get(operation).cloned().unwrap_or_default()
    }
}

/// Short texts, lists and maps of them.
fn cbor(value: &Value) -> Vec<u8> {
    let head = |kind: u8, length: usize| {
        let length = u8::try_from(length).expect("short");
        if length < 24 { vec![kind << 5 | length] } else { vec![kind << 5 | 24, length] }
    };
    let text = |text: &str| [head(3, text.len()), text.as_bytes().to_vec()].concat();
    match value {
        Value::String(words) => text(words),
        Value::Array(list) => [head(4, list.len()), list.iter().flat_map(cbor).collect()].concat(),
        Value::Object(map) => {
            let members = map.iter().flat_map(|(name, value)| [text(name), cbor(value)].concat());
            [head(5, map.len()), members.collect()].concat()
        }
        other => panic!("{other} is not needed"),
    }
}

/// The adapter's daemon gave no sign of life while Redis said nothing, and did not notice a connection that was dead.
#[tokio::test(start_paused = true)]
async fn defects_7_and_9_signs_of_life_go_on_while_redis_says_nothing_for_ten_minutes() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let closed = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let ports =
        [silent.local_addr().expect("an address").port(), closed.local_addr().expect("an address").port()];
    drop(closed);
    for port in ports {
        let aws = Answering::default();
        let provider_id = Some(format!("aws:///eu-central-1a/{INSTANCE}"));
        let given = Given { provider_id, ..Given::marked(Phase::Active) }.with_redis(port);
        let began = Instant::now();
        let mut agent = Agent::start_with(aws.client(), None, MetadataSettings::off(), given);
        sleep(Duration::from_secs(600)).await;
        let mut beats = aws.of("UpdateGameServer");
        assert!(beats.len() >= 8, "{}", beats.len());
        beats.insert(0, began);
        beats.push(Instant::now());
        let longest = beats.windows(2).map(|pair| pair[1] - pair[0]).max().expect("beats");
        assert!(longest <= Duration::from_secs(76), "{longest:?}");
        // Meanwhile FleetIQ is asked, seldom, and what it says is passed on.
        let questions = aws.of("DescribeGameServerInstances");
        assert!((2..=8).contains(&questions.len()), "{}", questions.len());
        assert!(questions[0] - began >= Duration::from_secs(180), "{:?}", questions[0] - began);
        let notice = agent.signals().await;
        assert_eq!((notice.source, notice.severity), (Source::FleetIq, Severity::Draining));
        agent.tells("StatusStale").await;
        let failures = agent.metric("berth_fleetiq_redis_failures_total ");
        assert!(failures.is_some_and(|failures| failures >= 10.0), "{failures:?}");
        assert_eq!(aws.of("RegisterGameServer").len() + aws.of("DeregisterGameServer").len(), 0);
        agent.stop().await;
    }
}
