//! The agent is killed and started again, many times: it finds its servers, the Health and Watch streams of two clients
//! in other languages, opened once, go on, and what they ask for meanwhile is done.
//!
//! `BERTH_AGENT_KILLS` is how many times.

use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::eventually;
use berth_stories::scale;
use berth_stories::sdk_client::Language;
use berth_stories::streams::Open;
use berth_stories::world::{STEP, Stage, World, story};
use kube::api::DeleteParams;

const KILLS: u32 = 20;

#[test]
fn streams_of_other_languages_live_through_the_agent_s_deaths() {
    story(|world| async {
        let stage = world.stage("agent").await?;
        let node = world.cluster.node(0);
        let mut open = Vec::new();
        for (name, language) in [("lobby-js", Language::NodeJs), ("lobby-go", Language::Go)] {
            open.push(Open::on(&stage, node, name, language).await?);
        }
        let agent = world.berth.agent(0);
        for round in 1..=scale::of("BERTH_AGENT_KILLS", KILLS) {
            agent.kill().await?;
            let label = format!("round-{round}");
            // Every other time it is back at once, whatever it was in the middle of.
            if round % 2 == 0 {
                agent.start_again()?;
            }
            for one in &open {
                one.client.goes_on().await?;
                // Asked for while nobody is there to do it.
                one.client.command(&format!("annotation {label}")).await?;
            }
            if round % 2 == 1 {
                agent.start_again()?;
            }
            for one in &open {
                one.is_useful(&stage, &label).await?;
            }
        }
        for one in &open {
            one.is_as_it_began(&stage).await?;
        }
        what_ended_while_nobody_looked_is_noticed(world, &stage).await?;
        for one in open {
            one.client.end().await?;
        }
        stage.strike().await
    });
}

async fn what_ended_while_nobody_looked_is_noticed(world: &World, stage: &Stage) -> anyhow::Result<()> {
    let agent = world.berth.agent(0);
    agent.kill().await?;
    stage.pods().delete("lobby-js", &DeleteParams::default().grace_period(0)).await?;
    eventually(STEP, "the pod to be gone", async || {
        let left = stage.pods().get_opt("lobby-js").await.map_err(|error| error.to_string())?;
        left.map_or(Ok(()), |pod| Err(format!("{:?}", pod.status)))
    })
    .await?;
    agent.start_again()?;
    let server = stage.until_state("lobby-js", State::Unhealthy).await?;
    let reason = server.annotation(names::REASON_ANNOTATION).unwrap_or_default();
    anyhow::ensure!(reason.starts_with("Pod"), "its game pinged to the end: {reason}");
    Ok(())
}
