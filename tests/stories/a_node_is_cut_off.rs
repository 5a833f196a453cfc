//! A node's cable is pulled until its lease has lapsed and everybody calls it unreachable: the session on it goes on, and is
//! what it was once the cable is back.
//!
//! `BERTH_PARTITION_SECONDS` is for how long beyond that.

use std::time::Duration;

use anyhow::Context as _;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::eventually;
use berth_stories::game::{address_of, ask, game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::scale;
use berth_stories::world::{STEP, Stage, World, story};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The node that is cut off.
const POSITION: usize = 1;
/// How often is looked meanwhile.
const LOOK: Duration = Duration::from_secs(2);

#[test]
fn a_session_on_a_node_that_is_cut_off_goes_on_and_is_there_when_it_is_back() {
    story(|world| async {
        let stage = world.stage("cut-off").await?;
        let node = world.cluster.node(POSITION);
        let before = session(&stage, node.name()).await?;
        node.partition()?;
        let meanwhile = while_it_is_away(&stage, node.name(), &before).await;
        node.heal()?;
        meanwhile?;
        world.cluster.wait_until_ready(node).await?;
        until_reachable(&stage, node.name()).await?;
        world.berth.wait_until_offered(&world.cluster, POSITION).await?;
        it_is_as_before(world, &stage, &before).await?;
        stage.strike().await
    });
}

/// A session with its pod's UID.
struct Session {
    server: GameServer,
    pod_uid: Option<String>,
}

async fn session(stage: &Stage, node: &str) -> anyhow::Result<Session> {
    let api = Api::namespaced_with(stage.client(), &stage.namespace, &resource("GameServer", "gameservers"));
    let mut template = pod(&json!([game_container(&[])]), &json!([]));
    template["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    apply_strictly(&api, &game_server("session", &spec(&template))).await?;
    let ready = stage.until_state("session", State::Ready).await?;
    ask(address_of(&ready).context("an address")?, "ALLOCATE").await?;
    let server = stage.until_state("session", State::Allocated).await?;
    let pod_uid = stage.until_running("session").await?.metadata.uid;
    Ok(Session { server, pod_uid })
}

async fn while_it_is_away(stage: &Stage, node: &str, before: &Session) -> anyhow::Result<()> {
    let leases = Api::<Lease>::namespaced(stage.client(), names::SYSTEM_NAMESPACE);
    eventually(STEP, "the node's lease to lapse", async || {
        let lease = leases.get(node).await.map_err(|error| error.to_string())?.spec.unwrap_or_default();
        let renewed = lease.renew_time.map(|time| time.0).unwrap_or_default();
        let age = Timestamp::now().duration_since(renewed).as_secs();
        let duration = i64::from(lease.lease_duration_seconds.unwrap_or_default());
        if age > 2 * duration { Ok(()) } else { Err(format!("{age} s old")) }
    })
    .await?;
    eventually(STEP, "the node to be called unreachable", async || {
        let taints = taints(stage, node).await?;
        let is_called =
            taints.iter().any(|taint| taint == &format!("{}:NoExecute", names::UNREACHABLE_TAINT));
        if is_called { Ok(()) } else { Err(format!("{taints:?}")) }
    })
    .await?;
    let end = Instant::now() + Duration::from_secs(scale::of("BERTH_PARTITION_SECONDS", 0));
    loop {
        is_kept(stage, before).await?;
        if Instant::now() >= end {
            return Ok(());
        }
        sleep(LOOK).await;
    }
}

/// Nobody has touched server or pod.
async fn is_kept(stage: &Stage, before: &Session) -> anyhow::Result<()> {
    let server = stage.game_servers().get_opt("session").await?.context("the server is gone")?;
    anyhow::ensure!(server.metadata.uid == before.server.metadata.uid, "it is another server");
    anyhow::ensure!(server.state() == Some(State::Allocated), "it is {:?}", server.state());
    anyhow::ensure!(server.metadata.deletion_timestamp.is_none(), "the server is being deleted");
    let pod = stage.pods().get_opt("session").await?.context("the pod is gone")?;
    anyhow::ensure!(pod.metadata.uid == before.pod_uid, "it is another pod");
    anyhow::ensure!(pod.metadata.deletion_timestamp.is_none(), "the pod is being deleted");
    Ok(())
}

async fn it_is_as_before(world: &World, stage: &Stage, before: &Session) -> anyhow::Result<()> {
    let address = address_of(&before.server).context("an address")?;
    ask(address, "ANNOTATION harbour reached").await?;
    eventually(STEP, "what the game asks for after healing", async || {
        let server = stage.game_servers().get("session").await.map_err(|error| error.to_string())?;
        let is_there = server.annotation("agones.dev/sdk-harbour") == Some("reached");
        if is_there { Ok(()) } else { Err(format!("{:?}", server.metadata.annotations)) }
    })
    .await?;
    is_kept(stage, before).await?;
    let now = stage.game_servers().get("session").await?;
    assert_eq!(address_of(&now), Some(address), "players find it where it was");
    let pod = stage.until_running("session").await?;
    let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    assert_eq!(
        statuses.iter().map(|one| one.restart_count).sum::<i32>(),
        0,
        "the game was not started again"
    );
    // Its agent has lived through it as well: nothing had to be started anew.
    assert!(world.berth.agent(POSITION).is_alive(), "{}", world.berth.agent(POSITION).last_words());
    Ok(())
}

async fn until_reachable(stage: &Stage, node: &str) -> anyhow::Result<()> {
    eventually(STEP, "the node to have no taints", async || {
        let taints = taints(stage, node).await?;
        if taints.is_empty() { Ok(()) } else { Err(format!("{taints:?}")) }
    })
    .await?;
    Ok(())
}

async fn taints(stage: &Stage, node: &str) -> Result<Vec<String>, String> {
    let node = Api::<Node>::all(stage.client()).get(node).await.map_err(|error| error.to_string())?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    Ok(taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
}
