//! The main job: a Fleet becomes Ready servers on real nodes, each with a port that answers.

use std::collections::HashSet;

use anyhow::Context;
use berth_dev::eventually;
use berth_stories::game::{address_of, ask, fleet, game_container, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, story};
use kube::api::Api;
use serde_json::json;

#[test]
fn a_fleet_becomes_ready_servers_that_answer() {
    story(|world| async {
        let stage = world.stage("ready").await?;
        let mut template = pod(&json!([game_container(&[])]), &json!([]));
        // Games end at once when asked; how long they might take must hold up nobody.
        template["spec"]["terminationGracePeriodSeconds"] = json!(600);
        let fleets = Api::namespaced_with(world.client(), &stage.namespace, &resource("Fleet", "fleets"));
        apply_strictly(&fleets, &fleet("lobby", 4, &spec(&template))).await?;
        eventually(STEP, "4 Ready servers", async || {
            let status = stage.fleets().get("lobby").await.map_err(|error| error.to_string())?.status;
            let status = status.unwrap_or_default();
            if status.ready_replicas == 4 { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await?;

        let servers = stage.all_servers().await.map_err(anyhow::Error::msg)?;
        let mut addresses = HashSet::new();
        for server in &servers {
            let address = address_of(server).context("an address and a port")?;
            assert!(addresses.insert(address), "{address} was given twice");
            let nonce = format!("nonce-{address}");
            assert_eq!(ask(address, &nonce).await?.trim_end(), format!("ACK: {nonce}"));
        }
        for pod in stage.pods().list(&kube::api::ListParams::default()).await? {
            let spec = pod.spec.context("a spec")?;
            let names: Vec<_> = spec.containers.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, ["game"], "a game pod holds the game and nothing else");
            assert_eq!(spec.init_containers.unwrap_or_default().len(), 0);
        }
        stage.strike().await
    });
}
