//! Allocation: how long one takes against a lone write, how many the API server's writes are enough for, and what it costs.
//!
//! The game servers are objects that nobody runs, on an API server alone: what is measured is the allocator. Its clients
//! speak gRPC with certificates, as matchmakers do.

mod load;
mod seats;
mod stand;

use std::time::Duration;

use load::Load;
use stand::Stand;

use crate::raw;
use crate::table::{Table, figure, quantile};

/// An allocation's median against a lone write, up to 50 a second.
const MOST_LONE: f64 = 3.0;
/// Writes that the API server takes, for each allocation flat out: 0.6 of its rate.
const MOST_WRITES: f64 = 1.0 / 0.6;
/// MiB of one allocator at 10,000 servers.
const MOST_MEMORY: f64 = 60.0;
/// Clients at once, flat out.
const FEW: usize = 40;
const MANY: usize = 200;

/// Measures on so many servers. One in two of them is given away.
pub(crate) async fn measure(servers: usize, table: &mut Table) -> anyhow::Result<()> {
    let stand = Stand::build().await?;
    stand.create("server", servers, None).await?;
    // In turns with what they are compared with: a machine is not equally busy all the time.
    let raw = raw::measure(&stand.servers(), FEW).await?;
    let alone = raw.latency.as_secs_f64() * 1000.0;
    table.add("Allocation: w, one write of a GameServer alone", alone, "ms");
    table.add(
        format!("Allocation: X, writes that the API server takes, {FEW} at once"),
        raw.rate,
        "writes/s",
    );

    let allocator = stand.allocator("allocator-0").await?;
    let memory = stand::memory(&allocator.daemon)?;
    let title = format!("Allocation on {servers} servers");
    table.add_limited(format!("{title}: memory of the allocator"), memory, "MiB", MOST_MEMORY);

    let part = |share: usize| (servers / share).max(10);
    let serial = Load::one_by_one(&stand, &allocator, part(100)).await?;
    tell(&format!("{title}, one by one"), &serial, Some(alone), table);
    for (rate, share) in [(10, 50), (50, 10)] {
        let load = Load::at_rate(&stand, &allocator, part(share), rate).await?;
        tell(&format!("{title}, {rate}/s"), &load, Some(alone), table);
    }
    for clients in [FEW, MANY] {
        let before = stand::processor(&allocator.daemon)?;
        let load = Load::flat_out(&stand, &[&allocator], part(5), clients).await?;
        let spent = stand::processor(&allocator.daemon)? - before;
        let title = format!("{title}, {clients} clients");
        tell(&title, &load, None, table);
        table.add(format!("{title}: allocations"), load.rate(), "1/s");
        table.add_limited(format!("{title}: X / allocations"), raw.rate / load.rate(), "", MOST_WRITES);
        table.add(
            format!("{title}: processor time for 1,000"),
            spent * 1000.0 / figure(load.latencies.len()),
            "s",
        );
    }
    drop(allocator);
    races(&stand, part(5), table).await?;
    seats::measure(table).await
}

/// Several replicas that give away all that there is, and what they cost each other.
async fn races(stand: &Stand, servers: usize, table: &mut Table) -> anyhow::Result<()> {
    for replicas in [1, 3, 9] {
        let fleet = format!("race-{replicas}");
        stand.create(&fleet, servers, None).await?;
        let mut allocators = Vec::new();
        for number in 0..replicas {
            allocators.push(stand.allocator(&format!("allocator-{replicas}-{number}")).await?);
        }
        let mut log = stand.audit()?;
        let load =
            Load::of(stand, &allocators.iter().collect::<Vec<_>>(), servers, FEW, Some(&fleet)).await?;
        let conflicts = log.news()?.iter().filter(|write| write.code == 409).count();
        let title = format!("{servers} servers by {FEW} clients of {replicas} replicas");
        table.add_limited(format!("{title}: errors"), figure(load.errors), "calls", 0.0);
        table.add_limited(
            format!("{title}: servers that were given away twice, or not at all"),
            figure(servers - load.names.len()),
            "servers",
            0.0,
        );
        table.add(
            format!("{title}: conflicts at the API server for 1,000"),
            figure(conflicts) * 1000.0 / figure(servers),
            "writes",
        );
        for allocator in allocators {
            allocator.daemon.terminate(Duration::from_secs(60)).await?;
        }
    }
    Ok(())
}

/// Rows of a load. `alone` is what its median is compared with.
fn tell(title: &str, load: &Load, alone: Option<f64>, table: &mut Table) {
    let (median, late) = (quantile(&load.latencies, 0.5), quantile(&load.latencies, 0.99));
    table.add(format!("{title}: one allocation (median)"), median, "ms");
    table.add(format!("{title}: one allocation (99 of 100)"), late, "ms");
    if let Some(alone) = alone {
        table.add_limited(format!("{title}: median / w"), median / alone, "", MOST_LONE);
    }
    table.add_limited(format!("{title}: errors"), figure(load.errors), "calls", 0.0);
}
