//! The agent is killed and started again: it finds its servers, and the open Health and Watch streams of an unmodified
//! official client go on.

use berth_api::lifecycle::State;
use berth_dev::eventually;
use berth_stories::game::{game_server, pod};
use berth_stories::node_client::NodeClient;
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{IDLE, STEP, story};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

#[test]
fn streams_of_an_official_client_live_through_the_agent_s_death() {
    story(|world| async {
        let stage = world.stage("agent").await?;
        let api =
            Api::namespaced_with(world.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        let idle = json!([{
            "name": "game",
            "image": IDLE,
            "imagePullPolicy": "Never",
            "args": ["sleep", "86400"],
        }]);
        // Health is late enough for the client to start in; then three missed pings of a second each would be fatal.
        let spec = json!({
            "health": { "initialDelaySeconds": 60, "periodSeconds": 1, "failureThreshold": 3 },
            "template": pod(&idle, &json!([])),
        });
        apply_strictly(&api, &game_server("lobby", &spec)).await?;
        let pod = eventually(STEP, "the pod to run", async || {
            let pod = stage.pods().get("lobby").await.map_err(|error| error.to_string())?;
            let status = pod.status.clone().unwrap_or_default();
            if status.phase.as_deref() == Some("Running") { Ok(pod) } else { Err(format!("{status:?}")) }
        })
        .await?;
        let client = NodeClient::start(&stage, &pod).await?;
        client.command("ready").await?;
        let before = stage.until_state("lobby", State::Ready).await?;

        let node = before.node_name().unwrap_or_default();
        let position = world.cluster.nodes().iter().position(|one| one.name() == node).unwrap_or_default();
        let agent = world.berth.agent(position);
        for round in 1..=3 {
            agent.kill().await?;
            let pings = client.seen().await?.pings;
            eventually(STEP, "pings without an agent", async || {
                let seen = client.seen().await.map_err(|error| error.to_string())?;
                if seen.pings > pings + 10 { Ok(()) } else { Err(format!("{seen:?}")) }
            })
            .await?;
            // Asked for while nobody is there to do it.
            client.command(&format!("annotation round-{round}")).await?;
            agent.start_again()?;

            let label = format!("round-{round}");
            let patch = Patch::Merge(json!({ "metadata": { "labels": { "story": label } } }));
            stage.game_servers().patch("lobby", &PatchParams::default(), &patch).await?;
            eventually(STEP, "the label on the open watch", async || {
                let seen = client.seen().await.map_err(|error| error.to_string())?;
                if seen.label == label { Ok(()) } else { Err(format!("{seen:?}")) }
            })
            .await?;
            eventually(STEP, "the annotation that was asked for meanwhile", async || {
                let server = stage.game_servers().get("lobby").await.map_err(|error| error.to_string())?;
                if server.annotation("agones.dev/sdk-story") == Some(&label) {
                    Ok(())
                } else {
                    Err(format!("{:?}", server.metadata.annotations))
                }
            })
            .await?;
        }
        let seen = client.seen().await?;
        assert_eq!((seen.health_errors.len(), seen.watch_errors.len()), (0, 0), "{seen:?}");
        let after = stage.until_state("lobby", State::Ready).await?;
        assert_eq!(after.metadata.uid, before.metadata.uid);
        let pod_after = stage.pods().get("lobby").await?;
        assert_eq!(pod_after.metadata.uid, pod.metadata.uid, "one pod ever");
        client.end().await?;

        // What ended while nobody looked is noticed when somebody does.
        agent.kill().await?;
        stage.pods().delete("lobby", &DeleteParams::default().grace_period(0)).await?;
        eventually(STEP, "the pod to be gone", async || {
            let left = stage.pods().get_opt("lobby").await.map_err(|error| error.to_string())?;
            left.map_or(Ok(()), |pod| Err(format!("{:?}", pod.status)))
        })
        .await?;
        agent.start_again()?;
        stage.until_state("lobby", State::Unhealthy).await?;
        stage.strike().await
    });
}
