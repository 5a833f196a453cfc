//! A node whose processor time is requested to the last thousandth: an update of the agent waits for room, ends nobody,
//! and is carried out once there is some. The old agent works all the while.

use anyhow::Context as _;
use berth_api::lifecycle::State;
use berth_api::quantity::Quantity;
use berth_dev::eventually;
use berth_stories::game::{address_of, ask, game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, Stage, shipped_story};
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

/// Room for one more agent, which the second of the two games takes.
const LAST: i64 = 100;

#[test]
fn an_update_of_the_agent_on_a_full_node_preempts_nobody() {
    shipped_story(|cluster| async move {
        let stage = Stage::build(cluster, "full").await?;
        until_nobody_leaves(&stage).await?;
        let free = free_milli_cpu(&stage, cluster.node(0).name()).await?;
        anyhow::ensure!(free > 2 * LAST, "{free}m of processor time are free");
        let api =
            Api::namespaced_with(stage.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        for (name, cpu) in [("filler", free - LAST), ("session", LAST)] {
            let mut container = game_container(&[]);
            container["resources"]["requests"]["cpu"] = json!(format!("{cpu}m"));
            apply_strictly(&api, &game_server(name, &spec(&pod(&json!([container]), &json!([]))))).await?;
        }
        for name in ["filler", "session"] {
            stage.until_state(name, State::Ready).await?;
        }
        assert_eq!(free_milli_cpu(&stage, cluster.node(0).name()).await?, 0, "the node is full");
        let before = stage.pods().list(&ListParams::default()).await?.items;
        let session = stage.game_servers().get("session").await?;
        let session = address_of(&session).context("an address")?;
        ask(session, "ALLOCATE").await?;
        stage.until_state("session", State::Allocated).await?;

        let restart = ["rollout", "restart", "daemonset/berth-agent", "--namespace", "berth-system"];
        stage.kubectl(&restart).await?;
        let waiting = until_nobody_makes_room(&stage).await?;
        assert_eq!(
            waiting.status.and_then(|status| status.nominated_node_name),
            None,
            "nobody is pushed out"
        );
        // The old agent still does what a game asks for.
        ask(session, "ANNOTATION while waiting").await?;
        eventually(STEP, "what was asked for while the update waits", async || {
            let server = stage.game_servers().get("session").await.map_err(|error| error.to_string())?;
            let is_there = server.annotation("agones.dev/sdk-while") == Some("waiting");
            if is_there { Ok(()) } else { Err(format!("{:?}", server.metadata.annotations)) }
        })
        .await?;
        for pod in &before {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let now = stage.pods().get(&name).await?;
            let (uid, deleted) = (now.metadata.uid, now.metadata.deletion_timestamp);
            assert_eq!((&uid, deleted), (&pod.metadata.uid, None), "the pod of {name}");
        }

        // A session ends, as sessions do, and there is room.
        stage.game_servers().delete("session", &DeleteParams::default()).await?;
        stage.until_gone("session").await?;
        let status = ["rollout", "status", "daemonset/berth-agent", "--namespace", "berth-system"];
        stage.kubectl(&[&status[..], &["--timeout=180s"]].concat()).await?;
        let filler = stage.until_state("filler", State::Ready).await?;
        ask(address_of(&filler).context("an address")?, "ahoy").await?;
        stage.strike().await
    });
}

/// Waits until nothing of an earlier story is on its way out: it would make room.
async fn until_nobody_leaves(stage: &Stage) -> anyhow::Result<()> {
    let pods = Api::<Pod>::all(stage.client());
    eventually(STEP, "no pod that ends", async || {
        let found = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let leaving = found.iter().find(|pod| pod.metadata.deletion_timestamp.is_some());
        leaving.map_or(Ok(()), |pod| Err(format!("{:?} does", pod.metadata.name)))
    })
    .await?;
    Ok(())
}

/// Waits until the scheduler has looked for a place for the new agent, and for somebody to push out, in vain.
async fn until_nobody_makes_room(stage: &Stage) -> anyhow::Result<Pod> {
    let pods = Api::<Pod>::namespaced(stage.client(), "berth-system");
    let agents = ListParams::default().labels("app.kubernetes.io/name=berth-agent");
    let waiting = eventually(STEP, "an agent that finds no room", async || {
        let found = pods.list(&agents).await.map_err(|error| error.to_string())?.items;
        let is_refused = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| {
                condition.type_ == "PodScheduled"
                    && condition.reason.as_deref() == Some("Unschedulable")
                    && condition.message.as_deref().is_some_and(|text| text.contains("Insufficient cpu"))
            })
        };
        let statuses = format!("{:?}", found.iter().map(|pod| &pod.status).collect::<Vec<_>>());
        found.into_iter().find(is_refused).ok_or(statuses)
    });
    Ok(waiting.await?)
}

/// What the pods of a node leave of its processor time, as the scheduler counts.
async fn free_milli_cpu(stage: &Stage, node: &str) -> anyhow::Result<i64> {
    let status = Api::<Node>::all(stage.client()).get(node).await?.status.context("a status")?;
    let all = milli(status.allocatable.as_ref().and_then(|all| all.get("cpu")).map(|amount| &*amount.0))?;
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let mut used = 0;
    for pod in Api::<Pod>::all(stage.client()).list(&here).await? {
        let spec = pod.spec.context("a spec")?;
        let (mut together, mut one_by_one) = (0, 0);
        for container in &spec.containers {
            together += requested(container)?;
        }
        for container in spec.init_containers.iter().flatten() {
            one_by_one = requested(container)?.max(one_by_one);
        }
        used += together.max(one_by_one);
    }
    Ok(all - used)
}

fn requested(container: &Container) -> anyhow::Result<i64> {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    milli(requests.and_then(|requests| requests.get("cpu")).map(|amount| &*amount.0))
}

fn milli(amount: Option<&str>) -> anyhow::Result<i64> {
    let read = |text: &str| Quantity::parse(text).with_context(|| format!("{text:?} is no amount"));
    amount.map_or(Ok(0), |text| read(text).map(Quantity::as_milli))
}
