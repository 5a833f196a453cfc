//! 0, 20, 5, 20, 0: the right counts at each step, the columns people read, and nothing left at the end.

use berth_api::game_node::GameNode;
use berth_dev::eventually;
use berth_stories::game::{fleet, game_container, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, Stage, story};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

#[test]
fn a_fleet_grows_and_shrinks_and_leaves_nothing() {
    story(|world| async {
        let stage = world.stage("scale").await?;
        let template = pod(&json!([game_container(&[])]), &json!([]));
        let fleets = Api::namespaced_with(world.client(), &stage.namespace, &resource("Fleet", "fleets"));
        apply_strictly(&fleets, &fleet("lobby", 0, &spec(&template))).await?;
        for wanted in [20, 5, 20, 0] {
            let scale = Patch::Merge(json!({ "spec": { "replicas": wanted } }));
            stage.fleets().patch_scale("lobby", &PatchParams::default(), &scale).await?;
            settle(&stage, wanted).await?;
            if wanted == 5 {
                columns(&stage).await?;
            }
        }
        every_port_is_free(&stage).await?;
        stage.strike().await
    });
}

async fn settle(stage: &Stage, wanted: i32) -> anyhow::Result<()> {
    eventually(STEP, format!("{wanted} servers, all Ready, each with one pod"), async || {
        let status =
            stage.fleets().get("lobby").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let servers = stage.all_servers().await?.len();
        let pods =
            stage.pods().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        let counts = [status.replicas, status.ready_replicas, servers as i32, pods as i32];
        if counts == [wanted; 4] {
            Ok(())
        } else {
            Err(format!("replicas, ready, servers and pods are {counts:?}"))
        }
    })
    .await?;
    Ok(())
}

async fn columns(stage: &Stage) -> anyhow::Result<()> {
    let namespace = &stage.namespace;
    let table = async |kind: &str| -> anyhow::Result<Vec<Vec<String>>> {
        let text = stage.kubectl(&["get", kind, "--namespace", namespace]).await?;
        // Columns are separated by at least two blanks: a header may hold one ("PORTS FREE").
        let cells = |line: &str| {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
        };
        Ok(text.lines().map(cells).collect())
    };
    let counted = ["SCHEDULING", "DESIRED", "CURRENT", "ALLOCATED", "READY", "AGE"];
    for kind in ["fleet", "gss"] {
        let rows = table(kind).await?;
        assert_eq!(rows[0][1..], counted, "{kind}");
        assert_eq!(rows[1][1..6], ["Packed", "5", "5", "0", "5"], "{kind}");
    }
    let servers = table("gs").await?;
    assert_eq!(servers[0], ["NAME", "STATE", "ADDRESS", "PORT", "NODE", "AGE"]);
    assert_eq!(servers.len(), 6, "{servers:?}");
    for row in &servers[1..] {
        let node = stage.cluster.nodes().iter().find(|node| node.name() == row[4]);
        let node = node.ok_or_else(|| anyhow::anyhow!("{row:?} is on no node of ours"))?;
        assert_eq!([&row[1], &row[2]], ["Ready", &node.address().to_string()]);
        assert!((7000..=8000).contains(&row[3].parse::<u16>()?), "{row:?}");
    }
    // An agent publishes its node's picture at most once a second.
    eventually(STEP, "gamenodes to show five servers", async || {
        let nodes = table("gamenodes").await.map_err(|error| format!("{error:#}"))?;
        if nodes_show(&nodes, 5) { Ok(()) } else { Err(format!("{nodes:?}")) }
    })
    .await?;

    let explained = stage.kubectl(&["explain", "fleet.spec.template.spec.template.spec.containers"]).await?;
    for field in ["image", "livenessProbe", "resources"] {
        assert!(explained.contains(field), "{field} is not in:\n{explained}");
    }
    Ok(())
}

/// Whether the table has the columns, every node is Active, and all of them together have this many servers.
fn nodes_show(table: &[Vec<String>], servers: i32) -> bool {
    // A column without a value (Deadline) is blank, so only those before it have fixed places.
    let headers =
        ["NAME", "PHASE", "PROTECTION", "SERVERS", "ALLOCATED", "PORTS FREE", "DEADLINE", "AGENT", "AGE"];
    let Some((head, nodes)) = table.split_first() else { return false };
    let is_active = |row: &Vec<String>| row.get(1..3).is_some_and(|is| is == ["Active", "NotConfigured"]);
    let count = |row: &Vec<String>| row.get(3).and_then(|count| count.parse::<i32>().ok());
    *head == headers
        && nodes.iter().all(is_active)
        && nodes.iter().map(count).sum::<Option<i32>>() == Some(servers)
}

async fn every_port_is_free(stage: &Stage) -> anyhow::Result<()> {
    let nodes = Api::<GameNode>::all(stage.client());
    eventually(STEP, "every port to be free", async || {
        let listed = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let taken: i64 = listed
            .iter()
            .filter_map(|node| node.status.as_ref())
            .flat_map(|status| status.ports.values())
            .map(|range| range.total - range.free)
            .sum();
        if taken == 0 { Ok(()) } else { Err(format!("{taken} ports are taken")) }
    })
    .await?;
    Ok(())
}
