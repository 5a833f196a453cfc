//! Drains of a node whose servers are being allocated, by the thousand, in virtual time. `BERTH_DRAIN_ROUNDS` says how many.
//!
//! The decisions are the agent's own: what each worker does, what the drainer does to the Node, what its writes say. Around
//! them is a small world that keeps to the rules of Kubernetes and to nothing else: versions and preconditions, watches
//! that lag, calls that are slow, an allocator that knows nothing of drains, and the controller that evicts for taints by
//! what it knew of the pods three seconds ago. A seed orders everything, and is printed; the same seed is the same story.

use rand::SeedableRng as _;
use rand::rngs::StdRng;

mod agent;
mod api;
mod drainer;
mod evictor;
mod objects;
mod tally;
mod worker;
mod world;

use world::{Tally, World};

/// Rounds of a run that has to lose nothing, where nobody has set them.
const ROUNDS: u64 = 1_000;
/// Rounds of a run that has to lose something.
const CONTROL: u64 = 500;
/// One round in so many has to meet each race.
const OFTEN: u64 = 20;
const SEED: u64 = 0x5EED_1DEA;

/// Who made the pods, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Make {
    /// Berth, with the toleration.
    Berth,
    /// Berth, before it gave pods the toleration.
    Bare,
    /// Agones: no toleration, and a sidecar that writes the states itself.
    Agones,
}

/// In which order what was decided is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// As decided.
    Ours,
    /// The taint as soon as it is due, whoever does not tolerate it yet.
    TaintFirst,
    /// The taint as soon as everybody tolerates it, whoever may not have seen that yet.
    Unsettled,
    /// As decided, but that a toleration counts as new only where the drainer has seen the pod without.
    Witnessed,
}

fn rounds() -> u64 {
    std::env::var("BERTH_DRAIN_ROUNDS")
        .map_or(ROUNDS, |text| text.parse().expect("BERTH_DRAIN_ROUNDS is a number"))
}

fn run(make: Make, order: Order, rounds: u64) -> Tally {
    let mut tally = Tally::default();
    for round in 0..rounds {
        let seed = SEED + round;
        tally.add(World::new(make, order, StdRng::seed_from_u64(seed)).play(seed));
    }
    println!("{make:?} pods, order {order:?}, {rounds} rounds from seed {SEED:#x}: {tally}");
    tally
}

fn assert_no_session_is_lost(make: Make) {
    let rounds = rounds();
    let tally = run(make, Order::Ours, rounds);
    let races = [
        ("allocated before the delete", tally.allocate_first),
        ("deleted before the allocation", tally.delete_first),
        ("Ready after the drain began", tally.late_ready),
    ];
    for (race, met) in races {
        assert!(met >= rounds / OFTEN, "{race}: met in {met} rounds only");
    }
    assert_eq!(tally.lost, Vec::<String>::new(), "sessions were lost");
    assert_eq!(tally.unfinished, Vec::<String>::new(), "drains did not get to their end");
}

#[test]
fn defect_20_no_session_is_lost_however_a_drain_and_allocations_race() {
    assert_no_session_is_lost(Make::Berth);
}

#[test]
fn no_session_is_lost_on_pods_without_the_toleration() {
    assert_no_session_is_lost(Make::Bare);
}

#[test]
fn no_session_is_lost_on_pods_that_agones_made() {
    assert_no_session_is_lost(Make::Agones);
}

#[test]
fn defect_21_the_other_orders_lose_sessions_unless_pods_are_made_with_the_toleration() {
    for order in [Order::TaintFirst, Order::Unsettled] {
        for make in [Make::Bare, Make::Agones] {
            assert!(!run(make, order, CONTROL).lost.is_empty(), "{make:?} {order:?} loses nothing");
        }
        assert_eq!(run(Make::Berth, order, CONTROL).lost, Vec::<String>::new(), "{order:?}");
    }
}

/// A drainer that waits for an answer looks at nothing: one that starts into a drain may meet a pod that tolerates already,
/// and whose toleration is news to others all the same.
#[test]
fn a_toleration_counts_though_nobody_has_seen_the_pod_without() {
    assert!(!run(Make::Bare, Order::Witnessed, CONTROL).lost.is_empty(), "nothing is lost");
}
