//! A Fleet on many simulated nodes: time, writes, Events and processor time to Ready, and what it costs at rest.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use berth_dev::{NodeKind, Write};
use serde_json::{Value, json};

use crate::place::Place;
use crate::programs::Usage;
use crate::raw;
use crate::table::{Table, figure, quantile};

/// The time of a Fleet against that of its writes alone.
const MOST: f64 = 2.0;

pub(crate) async fn measure(
    nodes: usize,
    servers: usize,
    rest: u64,
    table: &mut Table,
) -> anyhow::Result<()> {
    let place = Place::build(nodes, NodeKind::Simulated).await?;
    let title = format!("Fleet of {servers} on {nodes} simulated nodes");
    let mut log = place.audit()?;
    let container = json!({
        "name": "game", "image": "none", "args": ["--ready-after=1ms", "--health=5s"],
        "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
    });
    let before = Usage::now(&place.cluster, &place.berth);
    let began = Instant::now();
    place.fleet(servers, &container).await?;
    let took = began.elapsed().as_secs_f64();
    let after = Usage::now(&place.cluster, &place.berth);
    let writes = log.news()?;

    let raw = raw::measure(&place.servers(), raw::PARALLEL).await?;
    let all = writes.iter().filter(|write| is_work(write)).count();
    table.add("X: writes of a GameServer that the API server takes", raw.rate, "writes/s");
    table.add("w: one such write alone", raw.latency.as_secs_f64() * 1000.0, "ms");
    table.add(format!("{title}: time to Ready"), took, "s");
    table.add_limited(
        format!("{title}: that time / (all writes / X)"),
        took * raw.rate / figure(all),
        "",
        MOST,
    );
    tell_writes(&title, &writes, servers, table);
    after.tell_cpu(&before, &title, table);
    after.tell_memory(&title, table);
    tell_kubelets(&place, &title, table)?;

    // What was measured last has to come to its end before there is rest.
    tokio::time::sleep(Duration::from_secs(5)).await;
    log.news()?;
    let before = Usage::now(&place.cluster, &place.berth);
    tokio::time::sleep(Duration::from_secs(rest)).await;
    let after = Usage::now(&place.cluster, &place.berth);
    let ours = log.news()?.into_iter().filter(|write| is_work(write) && is_ours(write)).count();
    let title = format!("{rest} s at rest");
    table.add_limited(format!("{title}: writes of ours but leases"), figure(ours), "writes", 0.0);
    after.tell_cpu(&before, &title, table);
    Ok(())
}

/// Whether it is one of the writes that a server costs: not the heartbeat of a node.
pub(crate) fn is_work(write: &Write) -> bool {
    write.succeeded() && write.resource != "leases"
}

fn is_ours(write: &Write) -> bool {
    write.user.starts_with("berth")
}

/// Rows of writes for each server.
pub(crate) fn tell_writes(title: &str, writes: &[Write], servers: usize, table: &mut Table) {
    let each = |is_one: &dyn Fn(&Write) -> bool| {
        figure(writes.iter().filter(|write| is_work(write) && is_one(write)).count()) / figure(servers)
    };
    table.add(format!("{title}: writes for each server, all"), each(&|_| true), "writes");
    table.add_limited(
        format!("{title}: writes to each GameServer"),
        each(&|write| write.resource == "gameservers"),
        "writes",
        3.0,
    );
    // A set tells of its batches as well: one Event for as many as 64 servers.
    table.add_limited(
        format!("{title}: Events of ours for each server"),
        each(&|write| write.resource == "events" && is_ours(write)),
        "Events",
        2.1,
    );
    // A write that the machine is too slow for is cut off, and its second try may clash with the first.
    let cut_off: BTreeSet<&str> =
        writes.iter().filter(|one| is_ours(one) && one.code >= 500).map(|one| one.name.as_str()).collect();
    table.add(format!("{title}: objects with a write that was cut off"), figure(cut_off.len()), "objects");
    let is_conflict = |one: &&Write| {
        is_ours(one) && one.code == 409 && one.resource != "leases" && !cut_off.contains(one.name.as_str())
    };
    let conflicts: Vec<&Write> = writes.iter().filter(is_conflict).collect();
    let such_as = conflicts.first().map_or(String::new(), |one| {
        format!(", such as {} of {} {} by {}", one.verb, one.resource, one.name, one.user)
    });
    table.add_limited(format!("{title}: conflicts{such_as}"), figure(conflicts.len()), "writes", 0.0);
}

/// That the simulation is not what takes the time: what its kubelets did, by their own diaries.
fn tell_kubelets(place: &Place, title: &str, table: &mut Table) -> anyhow::Result<()> {
    let (mut sandboxes, mut late) = (Vec::new(), 0);
    for node in place.cluster.nodes() {
        for line in fs::read_to_string(node.machine_path("/var/log/pods.jsonl"))?.lines() {
            let entry: Value = serde_json::from_str(line)?;
            match entry["act"].as_str() {
                Some("sandbox") => sandboxes.extend(entry["ms"].as_f64()),
                Some("refused") if entry["status"].is_null() => late += 1,
                _ => {}
            }
        }
    }
    for (name, share) in [("median", 0.5), ("99 of 100", 0.99)] {
        let title =
            format!("{title}: simulated kubelet, from a pod seen to its sandbox and first write ({name})");
        table.add(title, quantile(&sandboxes, share), "ms");
    }
    table.add(
        format!("{title}: games that ran 100 ms after their sandbox and found no SDK yet"),
        figure(late),
        "games",
    );
    Ok(())
}
