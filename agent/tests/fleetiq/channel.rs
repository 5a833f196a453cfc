//! The instance's channel on a real Redis server: who publishes is the test.

use berth_agent::drain::marks::Phase;
use berth_agent::drain::notice::{Severity, Source};
use berth_api::game_node::Protection;
use berth_api::notice::{InstanceMessage, InstanceStatus, RetainedInstance, instance_key};
use berth_dev::{Instance, Redis, RedisOptions, eventually};
use berth_runtime::redis_connection::{Command, RedisConnection, Reply};
use berth_runtime::redis_url::{RedisFlags, RedisServer};
use serde_json::json;

use super::stage::{Agent, GROUP, Given, LIMIT, Stage};

/// A Redis server, and what a publisher does with it.
struct Publisher {
    redis: Redis,
    secret: Option<&'static str>,
}

impl Publisher {
    async fn start(secret: Option<&'static str>) -> Self {
        let instance = Instance::create("fleetiq").expect("an instance");
        let arguments = secret.map(|secret| vec!["--requirepass".to_owned(), secret.to_owned()]);
        let options = RedisOptions { arguments: arguments.unwrap_or_default(), ..RedisOptions::default() };
        let redis = Redis::start(&instance, "redis", options).await.expect("a Redis server");
        Self { redis, secret }
    }

    fn server(&self) -> RedisServer {
        let flags = RedisFlags {
            redis_url: Some(format!("127.0.0.1:{}", self.redis.port()).into()),
            redis_password: self.secret.map(Into::into),
            ..RedisFlags::default()
        };
        flags.server().expect("valid").expect("a server")
    }

    async fn command(&self, command: Command) -> Reply {
        let mut connection = RedisConnection::open(&self.server()).await.expect("a connection");
        let replies = connection.call(&[command], LIMIT).await.expect("a reply");
        replies.into_iter().next().expect("a reply")
    }

    /// How many listen.
    async fn publish(&self, channel: &str, message: impl AsRef<[u8]>) -> Reply {
        self.command(Command::new("PUBLISH").with(channel).with(message)).await
    }

    async fn retain(&self, instance: &str, status: InstanceStatus, is_protected: bool) {
        let now = berth_runtime::clock::now().to_string();
        let retained = RetainedInstance {
            message: message(instance, status),
            observed_at: now.clone(),
            changed_at: now,
            publisher: "test".into(),
            protected_from_scale_in: Some(is_protected),
        };
        let text = serde_json::to_string(&retained).expect("text");
        let reply = self.command(Command::new("SET").with(instance_key(instance)).with(text)).await;
        assert_eq!(reply, Reply::Status("OK".into()));
    }

    /// Waits until the agent listens.
    async fn is_heard(&self, agent: &Agent, times: f64) {
        agent.counts("berth_fleetiq_redis_subscriptions_total ", times).await;
    }
}

fn message(instance: &str, status: InstanceStatus) -> InstanceMessage {
    InstanceMessage {
        game_server_group_name: GROUP.into(),
        game_server_group_arn: format!("arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/{GROUP}"),
        instance_id: instance.into(),
        instance_status: status,
    }
}

fn listening(publisher: &Publisher) -> Given {
    Given { redis: Some(publisher.server()), ..Given::marked(Phase::Active) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_in_either_publishers_bytes_gives_notice_once() {
    let (stage, publisher) = (Stage::new().await, Publisher::start(None).await);
    let mut agent = Agent::start(&stage, listening(&publisher));
    publisher.is_heard(&agent, 1.0).await;
    let instance = stage.instance.as_str();
    // Another member order, no blanks: the other publisher of the adapter.
    let compact = json!({
        "GameServerGroupArn": "arn", "GameServerGroupName": GROUP, "InstanceId": instance, "InstanceStatus": "DRAINING",
    });
    assert_eq!(publisher.publish(instance, compact.to_string()).await, Reply::Integer(1));
    let notice = agent.signals().await;
    assert_eq!((notice.source, notice.severity), (Source::FleetIq, Severity::Draining));
    for wire in [message(instance, InstanceStatus::Draining).to_wire(), compact.to_string()] {
        publisher.publish(instance, wire).await;
    }
    agent.counts(r#"berth_fleetiq_observations_total{worth="taken"} "#, 3.0).await;
    assert!(agent.signals.try_recv().is_err(), "nothing is said twice");
    publisher.publish(instance, message(instance, InstanceStatus::SpotTerminating).to_wire()).await;
    let notice = agent.signals().await;
    assert_eq!(notice.severity, Severity::Spot);
    assert!(notice.deadline.is_some());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_not_ours_or_make_no_sense_are_counted_and_harmless() {
    let (stage, publisher) = (Stage::new().await, Publisher::start(None).await);
    let mut agent = Agent::start(&stage, listening(&publisher));
    publisher.is_heard(&agent, 1.0).await;
    let instance = stage.instance.as_str();
    publisher.publish(instance, message("i-0aaaaaaaaaaaaaaaa", InstanceStatus::Draining).to_wire()).await;
    for nonsense in ["", "DRAINING", "{\"InstanceId\"", "[]"] {
        publisher.publish(instance, nonsense).await;
    }
    publisher.publish(instance, [0xff, 0x00, 0xfe]).await;
    agent.counts(r#"berth_fleetiq_observations_total{worth="foreign"} "#, 1.0).await;
    agent.counts(r#"berth_fleetiq_observations_total{worth="malformed"} "#, 5.0).await;
    assert!(agent.signals.try_recv().is_err());
    publisher.publish(instance, message(instance, InstanceStatus::Draining).to_wire()).await;
    assert_eq!(agent.signals().await.severity, Severity::Draining);
    assert_eq!(
        agent.metric("berth_fleetiq_redis_failures_total "),
        Some(0.0),
        "still on the same connection"
    );
    agent.stop().await;
}

/// Who subscribed late heard nothing until the next message, and nothing at all if that one was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_24_who_comes_late_finds_what_is_retained() {
    let (stage, publisher) = (Stage::new().await, Publisher::start(None).await);
    publisher.retain(&stage.instance, InstanceStatus::Draining, true).await;
    let mut agent = Agent::start(&stage, listening(&publisher));
    assert_eq!(agent.signals().await.severity, Severity::Draining);
    agent.stop().await;
}

/// A lost connection ended the adapter's listener for good, and nobody noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_8_a_server_that_was_gone_is_listened_to_again_and_nothing_is_missed() {
    let (stage, publisher) = (Stage::new().await, Publisher::start(None).await);
    let mut agent = Agent::start(&stage, listening(&publisher));
    publisher.is_heard(&agent, 1.0).await;
    agent.stands(Protection::Protected).await;
    publisher.redis.daemon().kill().await.expect("killed");
    agent.counts("berth_fleetiq_redis_failures_total ", 2.0).await;
    publisher.redis.daemon().start_again().expect("started");
    publisher.redis.wait_until_listening().await.expect("it listens");
    publisher.retain(&stage.instance, InstanceStatus::Draining, true).await;
    publisher.is_heard(&agent, 2.0).await;
    publisher.publish(&stage.instance, message(&stage.instance, InstanceStatus::Draining).to_wire()).await;
    assert_eq!(agent.signals().await.severity, Severity::Draining);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_refused_is_told_and_tried_again_with_what_the_file_holds_then() {
    let (stage, publisher) = (Stage::new().await, Publisher::start(Some("right")).await);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "wrong").expect("written");
    let flags = RedisFlags {
        redis_url: Some(format!("127.0.0.1:{}", publisher.redis.port()).into()),
        redis_password_file: Some(file.clone()),
        ..RedisFlags::default()
    };
    let redis = flags.server().expect("valid");
    let mut agent = Agent::start(&stage, Given { redis, ..Given::marked(Phase::Active) });
    let words = agent.tells("RedisRefuses").await;
    assert!(words.contains("refuses") && !words.contains("wrong"), "{words}");
    std::fs::write(&file, "right\n").expect("written");
    publisher.is_heard(&agent, 1.0).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_gives_no_keys_is_listened_to_all_the_same() {
    let (stage, publisher) = (Stage::new().await, Publisher::start(None).await);
    let user = ["SETUSER", "default", "-get", "-set"];
    let rules = user.iter().fold(Command::new("ACL"), |command, word| command.with(word));
    assert_eq!(publisher.command(rules).await, Reply::Status("OK".into()));
    let mut agent = Agent::start(&stage, listening(&publisher));
    publisher.is_heard(&agent, 1.0).await;
    for status in [InstanceStatus::Active, InstanceStatus::Draining] {
        publisher.publish(&stage.instance, message(&stage.instance, status).to_wire()).await;
    }
    assert_eq!(agent.signals().await.severity, Severity::Draining);
    assert_eq!(agent.metric("berth_fleetiq_redis_failures_total "), Some(0.0));
    agent.stop().await;
}

/// Redis comes after the agent, and is taken up without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_instance_is_kept_before_there_is_a_redis_server() {
    let (stage, publisher) = (Stage::new().await, Publisher::start(None).await);
    publisher.redis.daemon().kill().await.expect("killed");
    let given = Given { redis: Some(publisher.server()), ..Given::default() };
    let mut agent = Agent::start(&stage, given);
    agent.stands(Protection::Protected).await;
    publisher.redis.daemon().start_again().expect("started");
    publisher.is_heard(&agent, 1.0).await;
    eventually(LIMIT, "the channel to be listened to", async || {
        match publisher
            .publish(&stage.instance, message(&stage.instance, InstanceStatus::Draining).to_wire())
            .await
        {
            Reply::Integer(1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .expect("a listener");
    assert_eq!(agent.signals().await.severity, Severity::Draining);
    agent.stop().await;
}
