//! What a game server costs the API server: counted by the API server, on simulated nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_dev::{AuditLog, Write};
use berth_stories::harbour::{Harbour, NAMESPACE};
use berth_stories::world::STEP;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use tokio::time::Instant;

const FLEET: usize = 20;
/// Of how many the writes must have been answered in time, for the count to say something.
const ENOUGH: usize = 5;
/// How long nothing may be written. The soak looks longer.
const REST: Duration = Duration::from_secs(20);
/// Silence after which a cluster has settled: twice the time in which a node's picture is published.
const SETTLED: Duration = Duration::from_secs(3);
/// Writes to GameServers from creation to Ready.
const WRITES: usize = 3;
/// Events of ours about one server on that way.
const EVENTS: usize = 2;

fn is_ours(write: &Write) -> bool {
    write.user.starts_with("berth")
}

#[tokio::test]
async fn a_server_becomes_ready_by_three_writes_and_then_rests() {
    tell().await.expect("the story");
}

/// What is written in a span of time: there is no condition to wait for where nothing is to happen.
async fn during(log: &mut AuditLog, span: Duration) -> anyhow::Result<Vec<Write>> {
    tokio::time::sleep(span).await;
    Ok(log.news()?)
}

async fn tell() -> anyhow::Result<()> {
    let harbour = Harbour::build(3, &[]).await?;
    // Nobody counts on a node before the brain has heard of it: a server that comes before is told why it waits, and is
    // handed over by another write. A pilot finds out.
    harbour.create_server("pilot", &["--ready-after=50ms"]).await?;
    harbour.until_ready(1).await?;
    harbour.servers().delete("pilot", &DeleteParams::default()).await?;
    harbour.until_ready(0).await?;

    let mut log = harbour.audit()?;
    log.news()?;
    harbour.create_fleet("lobby", i32::try_from(FLEET)?, &["--ready-after=50ms"]).await?;
    harbour.create_server("lone", &["--ready-after=50ms"]).await?;
    let servers = harbour.until_ready(FLEET + 1).await?;

    // All that belongs to the way is written once the Fleet and the nodes' pictures say so, a second or two later.
    let mut writes = log.news()?;
    let limit = Instant::now() + STEP;
    loop {
        let news = during(&mut log, SETTLED).await?;
        let ours = news.iter().filter(|write| is_ours(write) && write.resource != "leases").count();
        writes.extend(news);
        if ours == 0 {
            break;
        }
        anyhow::ensure!(Instant::now() < limit, "{ours} writes in the last {SETTLED:?}");
    }

    // A write that took too long is cut off, and its second try may clash with the first: that is the machine's doing,
    // and what it led to says nothing of ours.
    let is_of_servers =
        |one: &&Write| is_ours(one) && ["gameservers", "pods"].contains(&one.resource.as_str());
    let of_servers: Vec<&Write> = writes.iter().filter(is_of_servers).collect();
    let is_cut_off = |name: &str| of_servers.iter().any(|one| one.name == name && one.code >= 500);
    if let Some(failed) = of_servers.iter().find(|one| !one.succeeded() && !is_cut_off(&one.name)) {
        let history: Vec<String> = writes
            .iter()
            .filter(|one| one.name == failed.name)
            .map(|one| {
                format!("{} {} {} in {:?} by {}", one.verb, one.resource, one.code, one.took, one.user)
            })
            .collect();
        anyhow::bail!("a write of ours failed; what was written of {}: {history:#?}", failed.name);
    }
    let (cut_off, servers): (Vec<_>, Vec<_>) =
        servers.into_iter().partition(|server| is_cut_off(&server.name_any()));
    anyhow::ensure!(
        servers.len() >= ENOUGH,
        "the machine is too slow: {} servers were cut off",
        cut_off.len()
    );

    let mut by_server: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
    for write in writes.iter().filter(|one| one.resource == "gameservers" && one.succeeded()) {
        by_server.entry(&write.name).or_default().push(write);
    }
    for server in &servers {
        let name = server.name_any();
        // Its author wrote one of them.
        let expected = if name == "lone" { WRITES + 1 } else { WRITES };
        let seen = by_server.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        assert_eq!(seen.len(), expected, "{name}: {seen:#?}");
        let pods = writes.iter().filter(|one| {
            one.resource == "pods" && one.name == name && one.verb == "create" && one.subresource.is_empty()
        });
        assert_eq!(pods.count(), 1, "one pod for {name}");
    }

    let events: Api<Event> = Api::namespaced(harbour.client.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await?;
    let about = |name: &str| -> Vec<String> {
        let about = events.iter().filter(|one| {
            one.involved_object.kind.as_deref() == Some("GameServer")
                && one.involved_object.name.as_deref() == Some(name)
        });
        about.filter_map(|one| one.reason.clone()).collect()
    };
    for server in &servers {
        let reasons = about(&server.name_any());
        assert!(reasons.len() <= EVENTS, "{}: {reasons:?}", server.name_any());
    }
    let at_rest = during(&mut log, REST).await?;
    let at_rest: Vec<Write> =
        at_rest.into_iter().filter(|one| is_ours(one) && one.resource != "leases").collect();
    assert!(at_rest.is_empty(), "{at_rest:#?}");
    Ok(())
}
