//! `berth-pubsub` as it ships: a process with variables, its exit codes, its metrics.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use berth_dev::{Daemon, Launch, eventually};
use tokio::time::Instant;

use crate::redis::Subscriber;
use crate::stage::{PATIENCE, Stage};

const PROGRAM: &str = env!("CARGO_BIN_EXE_berth-pubsub");

impl Stage {
    /// The program with the variables that a pod has, as quick as it may be.
    fn launch(&self, name: &str) -> Launch {
        let authority = self.folder.join("authority.pem");
        std::fs::write(&authority, self.simulator.authority()).expect("an authority");
        Launch::new(format!("{name}-{}", self.redis.port()), PROGRAM)
            .variable("REDIS_URL", self.url())
            .variable("AWS_REGION", "eu-central-1")
            .variable("AWS_ENDPOINT_URL", self.simulator.endpoint())
            .variable("AWS_ACCESS_KEY_ID", "simulator")
            .variable("AWS_SECRET_ACCESS_KEY", "simulator")
            .variable("SSL_CERT_FILE", authority.to_string_lossy())
            .variable("BERTH_GROUPS_FILE", self.write_groups(&["pvp-eu"]).to_string_lossy())
            .variable("BERTH_LEADER_ELECTION", "off")
            .variable("BERTH_EVENTS", "off")
            .variable("BERTH_POLL_PERIOD", "10s")
    }
}

/// At the real pace: a poll every ten seconds, and a message a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_says_a_change_within_a_poll_and_the_same_once_a_minute() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    let mut subscriber = Subscriber::of(&stage, &[&instance]).await;
    let daemon = Daemon::start(stage.instance(), stage.launch("pubsub")).expect("a publisher");
    let first = subscriber.within(PATIENCE).await;
    assert!(first.is_some_and(|(_, message)| message.contains("ACTIVE")), "{}", daemon.last_words());
    let begun = Instant::now();
    subscriber.next().await;
    let minute = begun.elapsed();
    // It lags behind what was sent, by as much as this machine is busy; polls are six times as frequent.
    assert!((45..100).contains(&minute.as_secs()), "{minute:?}");
    let changed = Instant::now();
    stage.set_status(&instance, "DRAINING");
    assert!(subscriber.next().await.1.contains("DRAINING"));
    assert!(changed.elapsed() < Duration::from_secs(45), "{:?}", changed.elapsed());
    let ended = daemon.terminate(Duration::from_secs(30)).await.expect("an end");
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {}", daemon.last_words());
}

#[test]
fn a_configuration_of_no_use_ends_with_64_and_says_why() {
    for (variables, words) in [
        (vec![("AWS_REGION", "eu-central-1")], "no Redis is named; set --redis-url or REDIS_URL"),
        (vec![("AWS_REGION", "eu-central-1"), ("REDIS_URL", "http://hidden@host")], "scheme"),
        (vec![("REDIS_URL", "host"), ("BERTH_POLL_PERIOD", "1s")], "must lie between 10s and 300s"),
        (vec![("REDIS_URL", "host"), ("BERTH_LEADER_ELECTION", "maybe")], "possible values: on, off"),
    ] {
        let output = Command::new(PROGRAM)
            .env_clear()
            .envs([("BERTH_LEADER_ELECTION", "off"), ("BERTH_EVENTS", "off")])
            .envs(variables)
            .stdin(Stdio::null())
            .output()
            .expect("the program");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("hidden"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_metrics_are_documented() {
    let stage = Stage::new(1).await;
    let running = stage.start(stage.settings()).await;
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let page = std::fs::read_to_string(page).expect("the page of metrics");
    let (_, section) = page.split_once("## berth-pubsub").expect("the publisher's section");
    let section = section.split("\n## ").next().expect("a section");
    let documented: BTreeSet<String> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|row| row.0.to_owned())
        .collect();
    let metrics = eventually(PATIENCE, "metrics", async || {
        let (code, text) = running.ask("/metrics").await;
        if code == 200 { Ok(text) } else { Err(text) }
    })
    .await
    .unwrap();
    let registered: BTreeSet<String> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|(name, _)| *name != "berth_build_info")
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    assert_eq!(registered, documented);
    running.stop().await;
}
