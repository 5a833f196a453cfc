//! A Fleet on two real nodes against as many bare pods of the same image, in turns.

use std::time::Instant;

use berth_dev::install::game_image;
use berth_dev::{NodeKind, eventually, program_folder};
use futures::future::try_join_all;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::fleet::{is_work, tell_writes};
use crate::place::{LIMIT, Place};
use crate::table::{Table, figure, quantile};

/// How much longer a Fleet may take than its pods alone.
const MOST: f64 = 1.25;
/// Successful writes for each server, of everybody.
const WRITES: f64 = 13.0;
/// The image of the example game.
const IMAGE: &str = "localhost/simple-udp:dev";
const FIRST_PORT: usize = 20_000;

pub(crate) async fn measure(rounds: usize, servers: usize, table: &mut Table) -> anyhow::Result<()> {
    let place = Place::build(2, NodeKind::Real).await?;
    let image = tokio::task::spawn_blocking(|| game_image(&program_folder())).await??;
    place.cluster.import(&image).await?;
    let container = json!({
        "name": "game", "image": IMAGE, "imagePullPolicy": "Never",
        "resources": { "requests": { "cpu": "1m", "memory": "8Mi" } },
    });
    let title = format!("Fleet of {servers} on 2 real nodes");
    let (mut fleets, mut pods, mut counted) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        pods.push(bare(&place, servers).await?);
        place.clear().await?;
        let mut log = place.audit()?;
        let began = Instant::now();
        place.fleet(servers, &container).await?;
        fleets.push(began.elapsed().as_secs_f64());
        counted = log.news()?;
        place.clear().await?;
    }
    table.add(
        format!("{servers} bare pods on 2 real nodes: time to Running (median)"),
        quantile(&pods, 0.5),
        "s",
    );
    table.add(format!("{title}: time to Ready (median of {rounds})"), quantile(&fleets, 0.5), "s");
    table.add_limited(
        format!("{title}: that time / that of the bare pods"),
        quantile(&fleets, 0.5) / quantile(&pods, 0.5),
        "",
        MOST,
    );
    tell_writes(&title, &counted, servers, table);
    let all = counted.iter().filter(|write| is_work(write)).count();
    table.add_limited(
        format!("{title}: writes for each server, limit of all"),
        figure(all) / figure(servers),
        "writes",
        WRITES,
    );
    Ok(())
}

/// As a controller without any work would make them: all at once, by node, with a host port each.
async fn bare(place: &Place, count: usize) -> anyhow::Result<f64> {
    let nodes = place.cluster.nodes();
    let make = |number: usize| {
        let pod = json!({
            "metadata": { "name": format!("bare-{number}"), "labels": { "bench": "bare" } },
            "spec": {
                "nodeName": nodes[number % nodes.len()].name(),
                "terminationGracePeriodSeconds": 1,
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "game", "image": IMAGE, "imagePullPolicy": "Never",
                    "resources": { "requests": { "cpu": "1m", "memory": "8Mi" } },
                    "ports": [{ "containerPort": 7654, "hostPort": FIRST_PORT + number, "protocol": "UDP" }],
                }],
            },
        });
        async move {
            let pod = serde_json::from_value(pod)?;
            place.pods().create(&PostParams::default(), &pod).await?;
            anyhow::Ok(())
        }
    };
    let began = Instant::now();
    try_join_all((0..count).map(make)).await?;
    let bare = ListParams::default().labels("bench=bare");
    eventually(LIMIT, format!("{count} bare pods"), async || {
        let pods = place.pods().list(&bare).await.map_err(|error| error.to_string())?;
        let phases: Vec<String> =
            pods.into_iter().filter_map(|pod| pod.status?.phase).filter(|phase| phase == "Running").collect();
        if phases.len() == count { Ok(()) } else { Err(format!("{} run", phases.len())) }
    })
    .await?;
    Ok(began.elapsed().as_secs_f64())
}
