//! Death at any instant: programs are killed at random under churn, over a line to the API server that is slow, silent or
//! cut and beside others who write to the same objects, and what the API server then holds is checked.
//!
//! `BERTH_CHAOS_SECONDS` says for how long at least, `BERTH_CHAOS_KILLS` how many kills there are to be at least,
//! `BERTH_CHAOS_SEED` repeats a run's choices; the seed is printed. What cannot be repeated is when the kernel runs whom,
//! so a seed finds the same neighbourhood and not the same instant.

#[path = "chaos/churn.rs"]
mod churn;
#[path = "chaos/logs.rs"]
mod logs;
#[path = "chaos/session.rs"]
mod session;
#[path = "chaos/truth.rs"]
mod truth;
#[path = "chaos/witness.rs"]
mod witness;

use std::time::Duration;

use berth_stories::harbour::Harbour;

use churn::Churn;
use witness::Witness;

/// Nodes of the harbour.
const NODES: usize = 3;
/// Few ports, so that each is given out again and again.
const PORTS: &str = "default=7000-7019";
/// Length of a run that nobody has set.
const SECONDS: u64 = 20;

fn setting(name: &str) -> anyhow::Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => Ok(Some(text.parse()?)),
        Ok(_) | Err(_) => Ok(None),
    }
}

#[tokio::test]
async fn whatever_dies_no_server_is_lost_and_nothing_is_done_twice() {
    tell().await.expect("the invariants hold");
}

async fn tell() -> anyhow::Result<()> {
    let seconds = setting("BERTH_CHAOS_SECONDS")?.unwrap_or(SECONDS);
    let kills = usize::try_from(setting("BERTH_CHAOS_KILLS")?.unwrap_or_default())?;
    let seed = setting("BERTH_CHAOS_SEED")?.unwrap_or_else(rand::random);
    println!("chaos for {seconds} s; seed {seed}");
    let (harbour, line) = Harbour::build_by_line(NODES, &["--port-range", PORTS]).await?;
    let mut churn = Churn::begin(&harbour, &line, seed).await?;
    let mut witness = Witness::new(&harbour);
    // The witness looks on for as long as it takes; only the churn comes to an end.
    let outcome = tokio::select! {
        biased;
        broken = witness.look_on() => Err(broken),
        done = churn.go_on(Duration::from_secs(seconds), kills) => done,
    };
    let outcome = match outcome {
        Ok(()) => {
            println!("{}", churn.summary());
            churn.come_to_rest().await?;
            truth::check(&harbour, &churn.expected()?, &witness).await
        }
        failed => failed,
    };
    outcome.map_err(|error| {
        let kept = logs::keep(&harbour, &format!("berth-chaos-{seed}"));
        error.context(format!(
            "seed {seed}, after {}\nlogs: {kept:?}\n{}",
            churn.summary(),
            churn.last_acts().join("\n")
        ))
    })
}
