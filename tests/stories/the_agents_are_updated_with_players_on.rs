//! A rolling restart of the DaemonSets, as an update does it: the streams of two clients in other languages, opened once,
//! go on, and what serves them is not touched before their node is empty.

use anyhow::Context as _;
use berth_dev::eventually;
use berth_stories::sdk_client::Language;
use berth_stories::streams::Open;
use berth_stories::world::{STEP, Stage, shipped_story};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

#[test]
fn streams_of_other_languages_live_through_a_rolling_restart() {
    shipped_story(|cluster| async move {
        let stage = Stage::build(cluster, "rolling").await?;
        let mut open = Vec::new();
        for (name, language) in [("lobby-js", Language::NodeJs), ("lobby-go", Language::Go)] {
            open.push(Open::on(&stage, cluster.node(0), name, language).await?);
        }
        let client = cluster.client();
        let uids =
            async || anyhow::Ok((uid_of(&client, "berth-agent").await?, uid_of(&client, "berth-sdk").await?));
        let before = uids().await?;
        for set in ["berth-agent", "berth-sdk"] {
            let set = format!("daemonset/{set}");
            stage.kubectl(&["rollout", "restart", &set, "--namespace", "berth-system"]).await?;
        }
        for one in &open {
            one.client.command("annotation on-the-way").await?;
        }
        let status = ["rollout", "status", "daemonset/berth-agent", "--namespace", "berth-system"];
        stage.kubectl(&[&status[..], &["--timeout=180s"]].concat()).await?;
        for one in &open {
            one.is_useful(&stage, "on-the-way").await?;
            one.is_as_it_began(&stage).await?;
        }
        let after = uids().await?;
        assert_ne!(after.0, before.0, "another agent has taken over");
        assert_eq!(after.1, before.1, "somebody plays on what berth-sdk serves");
        for one in open {
            one.client.end().await?;
        }
        stage.strike().await?;
        eventually(STEP, "another berth-sdk on the empty node", async || {
            match uid_of(&client, "berth-sdk").await {
                Ok(uid) if uid != before.1 => Ok(()),
                other => Err(format!("{other:?}, and it was {}", before.1)),
            }
        })
        .await?;
        Ok(())
    });
}

/// The ready pod of a program that stays: one that ends may still be there.
async fn uid_of(client: &kube::Client, program: &str) -> anyhow::Result<String> {
    let pods = Api::<Pod>::namespaced(client.clone(), "berth-system");
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/name={program}"));
    let mut found = pods.list(&ours).await?.items;
    found.retain(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod));
    anyhow::ensure!(found.len() == 1, "{} ready pods of {program} on one node", found.len());
    found.pop().and_then(|pod| pod.metadata.uid).context("a UID")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}
