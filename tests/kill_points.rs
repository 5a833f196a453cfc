//! Death at any instant, one by one: each program dies before and after each of its effects, and what must hold holds.
//!
//! The points are those of the programs' own enums of effects. A tour goes on all the time that brings every program past
//! each of its points; a reaper starts each program with one of its points, sees it die there, and starts it with the
//! next. A point that is not reached, and a death that nobody ordered, fail the story by name. In the end all is at rest
//! and the same is checked as after random kills.
//!
//! `BERTH_KILL_POINTS` chooses: `all`, or `2/3` for every third from the second on. Without it the story goes through a
//! quarter of the points; those for which a node falls silent are left out then.

#[path = "kill_points/choice.rs"]
mod choice;
#[path = "kill_points/guests.rs"]
mod guests;
#[path = "chaos/logs.rs"]
mod logs;
#[path = "kill_points/reaper.rs"]
mod reaper;
#[path = "chaos/session.rs"]
mod session;
#[path = "kill_points/silence.rs"]
mod silence;
#[path = "kill_points/tour.rs"]
mod tour;
#[path = "chaos/truth.rs"]
mod truth;
#[path = "chaos/witness.rs"]
mod witness;

use berth_stories::harbour::Harbour;

use choice::Choice;
use reaper::Reaper;
use silence::Awaited;
use tour::Tour;
use witness::Witness;

/// Nodes of the harbour.
const NODES: usize = 2;
/// Few ports, so that each is given out again and again.
const PORTS: &str = "default=7000-7029";

#[tokio::test]
async fn whichever_effect_a_program_dies_at_no_server_is_lost_and_nothing_is_done_twice() {
    tell().await.expect("the invariants hold");
}

async fn tell() -> anyhow::Result<()> {
    let choice = Choice::of_this_run()?;
    println!("kill points: {choice}");
    let harbour = Harbour::build(NODES, &["--port-range", PORTS]).await?;
    let awaited = Awaited::default();
    let mut tour = Tour::begin(&harbour, awaited.clone()).await?;
    let mut witness = Witness::new(&harbour);
    let mut reaper = Reaper::new(&harbour, choice, awaited);
    let outcome = tokio::select! {
        biased;
        broken = witness.look_on() => Err(broken),
        broken = tour.go_on() => Err(broken),
        done = reaper.work() => done,
    };
    println!("{}", reaper.summary());
    let outcome = match outcome {
        Ok(()) => {
            tour.come_to_rest().await?;
            truth::check(&harbour, &tour.expected(), &witness).await
        }
        failed => failed,
    };
    outcome.map_err(|error| {
        let kept = logs::keep(&harbour, &format!("berth-kill-points-{}", std::process::id()));
        let history = [reaper.last_deaths(), tour.last_acts()].concat().join("\n");
        error.context(format!("logs: {kept:?}\n{history}"))
    })
}
