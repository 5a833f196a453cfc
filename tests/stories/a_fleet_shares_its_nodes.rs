//! A Fleet that never rests, on nodes that others use too: programs that hold ports of its range, a Deployment that the
//! scheduler places wherever there is room at that moment, and pods with a host port. None of its servers fails for a reason
//! of ours, no session is ended, and in the end none is stuck.
//!
//! `BERTH_SHARED_SERVERS` is the Fleet's size, `BERTH_SHARED_SECONDS` for how long, `BERTH_SHARED_SEED` repeats the choices.

#[path = "a_fleet_shares_its_nodes/churn.rs"]
mod churn;

use std::time::Duration;

use anyhow::Context as _;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::{Daemon, Launch, eventually};
use berth_stories::game::{address_of, ask};
use berth_stories::scale;
use berth_stories::world::{STEP, Stage, World, story};
use futures::StreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use tokio::net::TcpStream;

use churn::{CROWD_AT_REST, Churn};

const SERVERS: i32 = 40;
const SECONDS: u64 = 60;
/// Ports of the Fleet's range that programs of every node hold, over both protocols.
const FOREIGN: std::ops::RangeInclusive<u16> = 7000..=7099;
/// Servers that are asked at once in the end.
const ASKED_AT_ONCE: usize = 20;

#[test]
fn a_fleet_that_never_rests_shares_its_nodes_and_none_of_its_servers_fails() {
    story(|world| async {
        let stage = world.stage("shared").await?;
        let listeners = hold_ports(world)?;
        let told = async {
            until_held(world).await?;
            tell(&stage).await
        }
        .await;
        for one in listeners {
            one.kill().await?;
        }
        told
    });
}

async fn tell(stage: &Stage) -> anyhow::Result<()> {
    let size = scale::of("BERTH_SHARED_SERVERS", SERVERS);
    let seconds = scale::of("BERTH_SHARED_SECONDS", SECONDS);
    let seed = scale::of("BERTH_SHARED_SEED", rand::random());
    println!("a Fleet of {size} shares its nodes for {seconds} s; seed {seed}");
    let mut churn = Churn::begin(stage, size, seed).await?;
    let outcome = tokio::select! {
        biased;
        broken = look_on(stage) => Err(broken),
        done = async {
            churn.go_on(Duration::from_secs(seconds)).await?;
            println!("{}", churn.summary());
            churn.come_to_rest().await?;
            none_is_stuck(stage, &churn).await
        } => done,
    };
    let servers = outcome.with_context(|| format!("seed {seed}; {}", churn.summary()))?;
    each_answers_on_a_port_that_was_free(&servers).await?;
    churn.end().await?;
    stage.strike().await
}

/// Programs of the nodes that were there first.
fn hold_ports(world: &World) -> anyhow::Result<Vec<Daemon>> {
    let script = format!(
        "import socket, time\n\
         held = [socket.socket(socket.AF_INET, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM) for _ in range({count})]\n\
         for number, one in enumerate(held):\n\
         \x20   one.bind(('0.0.0.0', {first} + number % {count}))\n\
         \x20   one.type == socket.SOCK_STREAM and one.listen()\n\
         while True:\n\
         \x20   time.sleep(3600)\n",
        first = FOREIGN.start(),
        count = FOREIGN.len(),
    );
    let nodes = world.cluster.nodes().iter();
    let held = nodes.map(|node| {
        let launch = Launch::new("foreign-listeners", "/usr/bin/env").arguments(["python3", "-c", &script]);
        Ok(node.spawn(launch)?)
    });
    held.collect()
}

/// The last one that they take is the last port over TCP.
async fn until_held(world: &World) -> anyhow::Result<()> {
    for node in world.cluster.nodes() {
        let last = (node.address(), *FOREIGN.end());
        eventually(STEP, format!("ports of {} to be held", node.name()), async || {
            TcpStream::connect(last).await.map(drop)
        })
        .await?;
    }
    Ok(())
}

/// Looks on until a server fails for a reason of ours. That kubelet had no room left, twice, is nobody's fault here.
async fn look_on(stage: &Stage) -> anyhow::Error {
    let mut servers = watcher::watcher(stage.game_servers(), watcher::Config::default()).boxed();
    while let Some(event) = servers.next().await {
        let Ok(Event::Apply(server) | Event::InitApply(server)) = event else { continue };
        let reason = server.annotation(names::REASON_ANNOTATION).unwrap_or_default();
        let has_failed = matches!(server.state(), Some(State::Unhealthy | State::Error));
        if has_failed && !reason.starts_with("HandedBack") {
            return anyhow::anyhow!("{} is {:?}: {reason}", server.name_any(), server.state());
        }
    }
    anyhow::anyhow!("the watch ended")
}

/// Every server is Ready or somebody's session, there are as many as there should be, and the crowd has its place too.
async fn none_is_stuck(stage: &Stage, churn: &Churn<'_>) -> anyhow::Result<Vec<GameServer>> {
    let wanted = churn.size_at_rest()?;
    let limit = STEP + Duration::from_secs(2) * u32::try_from(wanted)?;
    let servers = eventually(limit, format!("{wanted} servers at rest"), async || {
        let servers = stage.all_servers().await?;
        let other = servers.iter().find(|server| {
            !matches!(server.state(), Some(State::Ready | State::Allocated))
                || server.metadata.deletion_timestamp.is_some()
        });
        match other {
            None if servers.len() == wanted => Ok(servers),
            other => Err(format!(
                "{} servers, such as {:?}",
                servers.len(),
                other.map(|one| (&one.metadata.name, &one.metadata.annotations, &one.status))
            )),
        }
    })
    .await?;
    for (name, session) in &churn.sessions {
        let found = servers.iter().find(|server| server.uid().as_deref() == Some(&session.uid));
        let state = found.and_then(GameServer::state);
        anyhow::ensure!(state == Some(State::Allocated), "the session on {name} is {state:?}");
    }
    let crowd = Api::<Deployment>::namespaced(stage.client(), &stage.namespace);
    eventually(STEP, "the crowd to have its place", async || {
        let crowd = crowd.get(churn::CROWD).await.map_err(|error| error.to_string())?;
        let ready = crowd.status.and_then(|status| status.ready_replicas).unwrap_or_default();
        if ready == CROWD_AT_REST { Ok(()) } else { Err(format!("{ready} run")) }
    })
    .await?;
    Ok(servers)
}

async fn each_answers_on_a_port_that_was_free(servers: &[GameServer]) -> anyhow::Result<()> {
    for some in servers.chunks(ASKED_AT_ONCE) {
        let asked = some.iter().map(|server| async move {
            let name = server.name_any();
            let address = address_of(server).with_context(|| format!("{name} has no address"))?;
            anyhow::ensure!(!FOREIGN.contains(&address.port()), "{name} was given {address}, which is taken");
            let answer = ask(address, &name).await?;
            anyhow::ensure!(answer.trim_end() == format!("ACK: {name}"), "{name} at {address}: {answer}");
            Ok(())
        });
        try_join_all(asked).await?;
    }
    Ok(())
}
