//! Official clients, unmodified, from where games get them. Ignored unless asked for, since they are fetched.

use std::path::Path;
use std::process::Stdio;

use berth_api::lifecycle::State;
use berth_api::link::Change;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::agent::{Agent, Program, view, within};

/// A game that speaks through an official client.
struct Client {
    _child: Child,
    told: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = piped.spawn().expect("the client starts");
        let told = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { _child: child, told, lines }
    }

    /// Waits for a line and gives those before it.
    async fn until(&mut self, wanted: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let line = within(wanted, self.lines.next_line()).await.expect("reads");
            match line {
                Some(line) if line == wanted => return before,
                Some(line) => before.push(line),
                None => panic!("the client ended before {wanted:?}, after {before:?}"),
            }
        }
    }
}

async fn run(command: &mut Command) {
    let status = command.status().await.expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
}

#[tokio::test]
#[ignore = "fetches @google-cloud/agones-sdk; run with --ignored"]
async fn the_client_for_node_lives_through_the_agents_death() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/node");
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["package.json", "life.js"] {
        std::fs::copy(sources.join(file), folder.path().join(file)).expect("copies");
    }
    run(Command::new("npm").args(["install", "--silent", "--no-audit"]).current_dir(&folder)).await;

    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    let mut client = Client::start(
        Command::new("node")
            .arg("life.js")
            .current_dir(&folder)
            .env("AGONES_SDK_GRPC_PORT", game.grpc.port().to_string())
            .env("AGONES_SDK_GRPC_HOST", "127.0.0.1"),
    );
    let before = client.until("pause").await;
    for line in ["connected", "watched Scheduled", "got game-u1 7777"] {
        assert!(before.iter().any(|said| said == line), "{line} is not in {before:?}");
    }
    assert_eq!(link.change().await.2, Change::Ready);

    drop((link, game.sockets));
    let (mut link, handed_back) = agent.meet().await;
    assert_eq!(handed_back.values().map(Vec::len).sum::<usize>(), 2);
    link.introduce("u1", &view("u1", State::Ready), 0).await;
    client.until("watched Ready").await;
    client.told.write_all(b"go on\n").await.expect("it listens");
    let after = client.until("done").await;
    assert!(after.iter().any(|said| said == "refused 3"), "{after:?}");

    let mut last = link.change().await;
    let mut heard = vec![last.2.clone()];
    while last.2 != Change::Shutdown {
        last = link.change().await;
        heard.push(last.2.clone());
    }
    let annotation = Change::Annotation { key: "map".to_owned(), value: "harbour, north".to_owned() };
    assert!(heard.contains(&annotation), "{heard:?}");
    assert_eq!(heard.first(), Some(&Change::Ready), "said again to the new agent");
}
