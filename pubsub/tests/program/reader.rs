//! Somebody else's reader, in Python, made from the description of the channel alone.

use std::process::Stdio;
use std::time::Duration;

use berth_dev::source_folder;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::stage::{PATIENCE, Stage};

struct Reader {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Reader {
    async fn start(stage: &Stage, instance: &str, rest: Duration, steps: u32) -> Self {
        let mut child = Command::new("python3")
            .arg(source_folder().join("pubsub/tests/reader/reader.py"))
            .args([stage.redis.port().to_string(), instance.to_owned()])
            .args([rest.as_secs_f64().to_string(), steps.to_string()])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python3");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut reader = Self { child, lines };
        assert_eq!(reader.next().await["subscribed"], true);
        reader
    }

    async fn next(&mut self) -> Value {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time").expect("a pipe");
        let line = line.expect("a line: the reader takes what it reads");
        serde_json::from_str(&line).expect("JSON")
    }
}

/// The reader rests after each message for most of what a heartbeat lasts. Were there more messages than that, it would
/// read ever older news.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_another_make_is_never_behind() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    let mut settings = stage.settings();
    settings.heartbeat_period = Duration::from_secs(2);
    let rest = settings.heartbeat_period * 3 / 4;
    let mut reader = Reader::start(&stage, &instance, rest, 9).await;
    // Polls are eight times as frequent as heartbeats.
    let running = stage.start(settings).await;
    for _ in 0..6 {
        assert_eq!(reader.next().await["status"], "ACTIVE");
    }
    stage.set_status(&instance, "DRAINING");
    // One that waited in its socket, perhaps, and then the news.
    let next = [reader.next().await, reader.next().await];
    assert!(next.iter().any(|step| step["status"] == "DRAINING"), "{next:?}");
    assert_eq!(reader.next().await["status"], "DRAINING");
    let ended = timeout(PATIENCE, reader.child.wait()).await.expect("an end").expect("a status");
    assert!(ended.success(), "{ended}");
    running.stop().await;
}
