//! Clients that are broken, slow, hungry or hostile: they cost themselves something, and their neighbours nothing.

#[path = "rough/fuzz.rs"]
mod fuzz;
#[path = "rough/seeds.rs"]
mod seeds;

use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::agent::{Agent, Game, Level, Link, Program, within};
use crate::rest::ask;

use seeds::PREFACE;

/// Connections that never finish.
const MOST: usize = 10_000;

struct Stage {
    _agent: Agent,
    program: Program,
    link: Link,
    rough: Game,
    neighbour: Game,
}

async fn stage(level: Level) -> Stage {
    let agent = Agent::listen();
    let program = Program::start_at(level, &agent.socket());
    let (mut link, _) = agent.meet().await;
    let (rough, neighbour) = (link.offer("rough").await, link.offer("neighbour").await);
    Stage { _agent: agent, program, link, rough, neighbour }
}

impl Stage {
    async fn neighbour_is_served(&self, during: &str) {
        let answer = within(during, ask(self.neighbour.rest, "POST", "/health", "", Some("{}"))).await;
        assert_eq!(answer.status, 200, "{during}");
    }

    fn nobody_panicked(&self) {
        let log = self.program.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// This process may have as many files open.
fn allow_files(count: usize) {
    let limits = rustix::process::getrlimit(Resource::Nofile);
    let wanted = u64::try_from(count).expect("a number");
    if limits.current.is_some_and(|current| current < wanted) {
        let current = Some(limits.maximum.map_or(wanted, |most| most.min(wanted)));
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current, ..limits })
            .expect("the limit is ours to raise");
    }
}

/// Says something, hears what there is to hear, and hangs up.
async fn say(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    // The other side may hang up first, and may then not take everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard).await;
}

#[tokio::test]
async fn nonsense_on_either_port_harms_nobody() {
    let stage = stage(Level::Debug).await;
    let ports = [(stage.rough.grpc, seeds::for_grpc()), (stage.rough.rest, seeds::for_rest())];
    for (address, seeds) in ports {
        for (name, seed) in seeds {
            within(name, say(address, &seed)).await;
            // The same again, hung up on in the middle.
            within(name, say(address, &seed[..seed.len() / 2])).await;
            stage.neighbour_is_served(name).await;
        }
    }
    let answer = ask(stage.rough.rest, "GET", "/gameserver", "", None).await;
    assert_eq!(answer.status, 200, "its own server goes on as well");
    stage.nobody_panicked();
}

#[tokio::test]
async fn clients_that_never_finish_take_their_own_places_only() {
    let stage = stage(Level::Debug).await;
    let mut open = Vec::new();
    allow_files(MOST + 1000);
    for _ in 0..MOST / 2 {
        for (address, begun) in
            [(stage.rough.grpc, PREFACE), (stage.rough.rest, b"POST /ready HTTP/1.1\r\nHost: s".as_slice())]
        {
            let mut stream = TcpStream::connect(address).await.expect("connects");
            let _ = stream.write_all(begun).await;
            open.push(stream);
        }
    }
    stage.neighbour_is_served("ten thousand that never finish").await;
    drop(open);
    let admin = stage.program.admin().await;
    within("nobody is connected", async {
        let none = r#"berth_sdk_connections{transport="Rest"} 0"#;
        while !ask(admin, "GET", "/metrics", "", None).await.body.contains(none) {}
    })
    .await;
    assert_eq!(
        ask(stage.rough.rest, "GET", "/gameserver", "", None).await.status,
        200,
        "there is room again"
    );
    stage.nobody_panicked();
}
