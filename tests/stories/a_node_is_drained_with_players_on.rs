//! `kubectl drain` waits for the sessions of a node, gets everybody else off it, and ends soon after the last session. A
//! node that is only closed keeps its sessions too, and its idle servers come back elsewhere. Then it is opened again, and
//! takes servers as before.

use std::time::Duration;

use anyhow::Context as _;
use berth_api::game_node::{GameNode, NodePhase};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::eventually;
use berth_stories::game::{fleet, game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, Stage, story};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;

const SESSIONS: [&str; 3] = ["session-1", "session-2", "session-3"];
const IDLE: [&str; 2] = ["idle-1", "idle-2"];
/// A Fleet on both nodes.
const FLEET: &str = "lobby";
const LOBBY: usize = 4;
/// How long `kubectl drain` may go on after the last session; it asks again every five seconds. What it takes is printed.
const SOON: Duration = Duration::from_secs(60);
/// Idle servers leave 30 s after the node is closed.
const LET_GO: Duration = Duration::from_secs(90);

#[test]
fn kubectl_drain_ends_with_the_last_session_and_cuts_none() {
    story(|world| async {
        let stage = world.stage("drain").await?;
        let node = world.cluster.nodes()[0].name();
        let drained = drain(&stage, node).await;
        // Other stories need the node, whatever has happened.
        stage.kubectl(&["uncordon", node]).await?;
        drained?;
        until_phase(&stage, node, NodePhase::Active).await?;
        apply(&stage, node, "afterwards").await?;
        stage.until_state("afterwards", State::Ready).await?;
        stage.strike().await
    });
}

async fn drain(stage: &Stage, node: &str) -> anyhow::Result<()> {
    for name in SESSIONS.into_iter().chain(IDLE) {
        apply(stage, node, name).await?;
    }
    for name in SESSIONS.into_iter().chain(IDLE) {
        stage.until_state(name, State::Ready).await?;
    }
    for name in SESSIONS {
        move_to(stage, name, State::Allocated).await?;
    }
    let drain = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s"];
    let (drained, ended) = tokio::join!(
        async {
            stage.kubectl(&drain).await?;
            anyhow::Ok(Instant::now())
        },
        play(stage, node)
    );
    let late = drained?.saturating_duration_since(ended?);
    println!("kubectl drain ended {late:?} after the last session");
    anyhow::ensure!(late <= SOON, "kubectl drain ended {late:?} after the last session");
    Ok(())
}

async fn apply(stage: &Stage, node: &str, name: &str) -> anyhow::Result<()> {
    let api = Api::namespaced_with(stage.client(), &stage.namespace, &resource("GameServer", "gameservers"));
    let mut template = pod(&json!([game_container(&[])]), &json!([]));
    template["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    apply_strictly(&api, &game_server(name, &spec(&template))).await?;
    Ok(())
}

#[test]
fn a_node_that_somebody_closes_keeps_its_session_and_its_idle_servers_come_back_elsewhere() {
    story(|world| async {
        let stage = world.stage("cordon").await?;
        let node = world.cluster.nodes()[0].name();
        let mut lobby =
            fleet(FLEET, i32::try_from(LOBBY)?, &spec(&pod(&json!([game_container(&[])]), &json!([]))));
        lobby["spec"]["scheduling"] = json!("Distributed");
        stage.fleets().create(&PostParams::default(), &serde_json::from_value(lobby)?).await?;
        let ready = until(&stage, "servers on both nodes", |servers| {
            count(servers, State::Ready) == LOBBY
                && servers.iter().any(|one| is_on(one, node))
                && servers.iter().any(|one| !is_on(one, node))
        })
        .await?;
        let session = ready.iter().find(|one| is_on(one, node)).context("a server there")?.name_any();
        move_to(&stage, &session, State::Allocated).await?;

        stage.kubectl(&["cordon", node]).await?;
        let closed = while_closed(&stage, node, &session).await;
        // Other stories need the node, whatever has happened.
        stage.kubectl(&["uncordon", node]).await?;
        closed?;
        until_phase(&stage, node, NodePhase::Active).await?;
        is_untouched(&stage, &session).await?;
        let more = Patch::Merge(json!({ "spec": { "replicas": 2 * LOBBY } }));
        stage.fleets().patch(FLEET, &PatchParams::default(), &more).await?;
        until(&stage, "idle servers on the opened node", |servers| {
            servers.iter().any(|one| is_on(one, node) && one.state() == Some(State::Ready))
        })
        .await?;
        stage.strike().await
    });
}

async fn while_closed(stage: &Stage, node: &str, session: &str) -> anyhow::Result<()> {
    until_phase(stage, node, NodePhase::Cordoned).await?;
    until(stage, "the idle servers elsewhere", |servers| {
        let idle = servers.iter().filter(|one| one.state() == Some(State::Ready));
        count(servers, State::Ready) == LOBBY - 1 && idle.into_iter().all(|one| !is_on(one, node))
    })
    .await?;
    is_untouched(stage, session).await
}

async fn until(
    stage: &Stage,
    what: &str,
    look: impl Fn(&[GameServer]) -> bool,
) -> anyhow::Result<Vec<GameServer>> {
    let seen = eventually(LET_GO + STEP, what, async || {
        let servers = stage.all_servers().await?;
        let places = |one: &GameServer| (one.name_any(), one.state(), one.node_name().map(str::to_owned));
        if look(&servers) {
            Ok(servers)
        } else {
            Err(format!("{:?}", servers.iter().map(places).collect::<Vec<_>>()))
        }
    });
    Ok(seen.await?)
}

fn is_on(server: &GameServer, node: &str) -> bool {
    server.node_name() == Some(node)
}

fn count(servers: &[GameServer], state: State) -> usize {
    servers.iter().filter(|one| one.state() == Some(state)).count()
}

async fn is_untouched(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let session = stage.game_servers().get(name).await?;
    anyhow::ensure!(session.state() == Some(State::Allocated), "{name}: {:?}", session.status);
    let is_ending = stage.pods().get(name).await?.metadata.deletion_timestamp.is_some();
    anyhow::ensure!(!is_ending, "the session on {name} is being ended");
    Ok(())
}

/// Sessions go on until the idle servers have gone, and then end one by one; answers when the last pod was gone.
async fn play(stage: &Stage, node: &str) -> anyhow::Result<Instant> {
    until_phase(stage, node, NodePhase::Cordoned).await?;
    for name in IDLE {
        eventually(LET_GO, format!("{name} to leave"), async || {
            let left = stage.game_servers().get_opt(name).await.map_err(|error| error.to_string())?;
            left.map_or(Ok(()), |server| Err(format!("{:?}", server.status)))
        })
        .await?;
    }
    for name in SESSIONS {
        for other in SESSIONS.into_iter().skip_while(|other| *other != name) {
            is_untouched(stage, other).await?;
        }
        move_to(stage, name, State::Shutdown).await?;
        stage.until_gone(name).await?;
    }
    Ok(Instant::now())
}

async fn move_to(stage: &Stage, name: &str, state: State) -> anyhow::Result<GameServer> {
    let moved = eventually(STEP, format!("{name} to become {state}"), async || {
        let server = stage.game_servers().get(name).await?;
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": server.resource_version() },
            "status": { "state": state },
        }));
        stage.game_servers().patch(name, &PatchParams::default(), &patch).await
    });
    Ok(moved.await?)
}

async fn until_phase(stage: &Stage, node: &str, phase: NodePhase) -> anyhow::Result<()> {
    let game_nodes: Api<GameNode> = Api::all(stage.client());
    let found = eventually(STEP, format!("{node} to be {phase:?}"), async || {
        let seen = game_nodes.get(node).await.map_err(|error| error.to_string())?;
        let seen = seen.status.unwrap_or_default();
        if seen.phase == phase { Ok(()) } else { Err(format!("{:?} {:?}", seen.phase, seen.phase_reason)) }
    });
    Ok(found.await?)
}
