//! `berth-bench`: what Berth costs, in one table, each figure beside what the same machine can do in the same run.
//!
//! Absolute times say as much of the machine as of Berth; ratios within one run do not. So the API server's own rate and
//! latency are measured first-hand, under the same watchers, and a Fleet on real nodes is set against bare pods.

mod allocation;
mod fleet;
mod margin;
mod place;
mod programs;
mod raw;
mod real;
mod table;

use std::process::ExitCode;

use clap::Parser as _;

use table::Table;

/// What is measured
#[derive(Debug, clap::Parser)]
#[command(name = "berth-bench", version)]
struct Settings {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Game servers of the Fleet on simulated nodes; 0 leaves that part out
    #[arg(long, default_value_t = 500)]
    servers: usize,
    /// Simulated nodes
    #[arg(long, default_value_t = 20)]
    nodes: usize,
    /// Seconds of rest after it
    #[arg(long, default_value_t = 30)]
    rest: u64,
    /// Rounds of a Fleet against bare pods on two real nodes; 0 leaves that part out
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Game servers, and pods, of one round
    #[arg(long, default_value_t = 50)]
    round_servers: usize,
    /// Games that are started on two real nodes with every core busy, to see that their SDK is there first; 0 leaves
    /// that part out
    #[arg(long, default_value_t = 1000)]
    starts: usize,
    /// Game servers that allocation is measured on; 0 leaves that part out
    #[arg(long, default_value_t = 10_000)]
    allocations: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let settings = Settings::parse();
    match measure(&settings).await {
        Ok(table) => {
            println!("{}", if settings.json { table.json() } else { table.text() });
            if table.keeps_its_limits() { ExitCode::SUCCESS } else { ExitCode::from(2) }
        }
        Err(error) => {
            eprintln!("berth-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(settings: &Settings) -> anyhow::Result<Table> {
    let mut table = Table::default();
    if settings.servers > 0 {
        fleet::measure(settings.nodes, settings.servers, settings.rest, &mut table).await?;
    }
    if settings.rounds > 0 {
        real::measure(settings.rounds, settings.round_servers, &mut table).await?;
    }
    if settings.starts > 0 {
        margin::measure(settings.starts, &mut table).await?;
    }
    if settings.allocations > 0 {
        allocation::measure(settings.allocations, &mut table).await?;
    }
    Ok(table)
}
