//! The tables and properties of a Fleet's decisions.

use proptest::prelude::{
    Just, ProptestConfig, Strategy as Any, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

use super::*;

const QUARTER: Strategy =
    Strategy::RollingUpdate { surge: Step::Percent(25), unavailable: Step::Percent(25) };

fn aim(wanted: i32, strategy: Strategy) -> Aim {
    Aim { wanted, beyond: 0, strategy }
}

/// A set that has what it wants, all Ready but for the allocated ones.
fn set(wanted: i32, allocated: i32) -> SetSeen {
    let replicas = wanted.max(allocated);
    SetSeen { wanted, replicas, ready: replicas - allocated, allocated, ..SetSeen::default() }
}

fn seen(wanted: i32, replicas: i32, ready: i32, allocated: i32) -> SetSeen {
    SetSeen { wanted, replicas, ready, allocated, ..SetSeen::default() }
}

/// Rolls until nothing changes, each set reaching its number before the next turn: (old, new) of every turn.
pub(super) fn run(aim: Aim, allocated: i32) -> Vec<(i32, i32)> {
    let (mut old, mut new) = (set(aim.wanted, allocated), set(0, 0));
    let mut turns = vec![(old.wanted, new.wanted)];
    for _ in 0..40 {
        let next = roll(aim, new, &[old]);
        (old, new) = (set(next.rest[0], allocated), set(next.active, 0));
        let turn = (old.wanted, new.wanted);
        if turns.last() == Some(&turn) {
            return turns;
        }
        turns.push(turn);
        if old.replicas == 0 {
            return turns;
        }
    }
    panic!("it does not end: {turns:?}");
}

#[test]
fn idealised_updates_follow_the_table() {
    let one = Strategy::RollingUpdate { surge: Step::Number(1), unavailable: Step::Number(1) };
    let one_by_one: Vec<_> = (0..=10).map(|turn| (10 - turn, turn)).collect();
    let rows: [(&str, i32, Strategy, i32, Vec<(i32, i32)>); 7] = [
        ("10 by a quarter", 10, QUARTER, 0, vec![(10, 0), (8, 3), (6, 5), (4, 7), (2, 9), (0, 10)]),
        ("100 by a quarter", 100, QUARTER, 0, vec![(100, 0), (75, 25), (50, 50), (25, 75), (0, 100)]),
        ("10 with 4 sessions", 10, QUARTER, 4, vec![(10, 0), (9, 3), (7, 4), (6, 6), (4, 6), (0, 6)]),
        ("10 with 10 sessions", 10, QUARTER, 10, vec![(10, 0), (0, 0)]),
        ("3 by a quarter", 3, QUARTER, 0, vec![(3, 0), (2, 1), (1, 2), (0, 3)]),
        ("10 by one", 10, one, 0, one_by_one),
        ("10 at once", 10, Strategy::Recreate, 3, vec![(10, 0), (0, 7)]),
    ];
    for (name, wanted, strategy, allocated, expected) in rows {
        assert_eq!(run(aim(wanted, strategy), allocated), expected, "{name}");
    }
}

#[test]
fn single_turns_follow_the_table() {
    let third = Strategy::RollingUpdate { surge: Step::Percent(25), unavailable: Step::Percent(30) };
    let rows: [(&str, i32, Strategy, SetSeen, SetSeen, (i32, i32)); 5] = [
        ("a first step", 100, third, seen(0, 0, 0, 0), seen(100, 100, 100, 0), (70, 25)),
        ("the new ones are not ready", 75, QUARTER, seen(75, 75, 50, 0), seen(10, 10, 8, 0), (10, 75)),
        ("the new ones are ready", 75, QUARTER, seen(75, 75, 70, 0), seen(10, 10, 10, 0), (0, 75)),
        ("most are sessions", 100, third, seen(0, 0, 0, 0), seen(100, 100, 10, 90), (97, 10)),
        ("all old ones are sessions", 100, third, seen(50, 50, 50, 0), seen(50, 50, 0, 50), (0, 50)),
    ];
    for (name, wanted, strategy, active, old, expected) in rows {
        let next = roll(aim(wanted, strategy), active, &[old]);
        assert_eq!((next.rest[0], next.active), expected, "{name}");
    }
}

#[test]
fn more_sessions_than_servers_wanted_leave_none_to_make() {
    let next = roll(aim(5, QUARTER), seen(0, 0, 0, 0), &[seen(10, 10, 2, 8)]);
    assert_eq!(next.active, 0);
    assert_eq!(roll(aim(5, Strategy::Recreate), seen(0, 0, 0, 0), &[seen(10, 10, 2, 8)]).active, 0);
    assert_eq!(roll(aim(-3, QUARTER), seen(0, 0, 0, 0), &[]).active, 0);
}

#[test]
fn an_active_set_that_sessions_keep_above_its_number_may_grow() {
    // Wanted 1, has 3 sessions; the Fleet went from 2 back to 10.
    let next = roll(aim(10, QUARTER), seen(1, 3, 0, 3), &[seen(1, 1, 0, 1)]);
    assert!(next.active > 1, "{next:?}");
    let mut active = seen(1, 3, 0, 3);
    for _ in 0..10 {
        let next = roll(aim(10, QUARTER), active, &[seen(0, 1, 0, 1)]);
        active =
            SetSeen { wanted: next.active, replicas: next.active.max(3), ready: next.active - 3, ..active };
    }
    assert_eq!((active.wanted, active.ready), (9, 6));
}

#[test]
fn a_version_that_never_came_up_makes_way_at_once() {
    let next = roll(aim(1000, QUARTER), seen(0, 0, 0, 0), &[seen(1000, 1000, 0, 0)]);
    assert_eq!(next.rest, [0]);
}

#[test]
fn a_set_held_by_sessions_does_not_hold_up_the_others() {
    let held = seen(3, 5, 0, 5);
    let next = roll(aim(20, QUARTER), seen(10, 10, 10, 0), &[held, seen(5, 5, 5, 0)]);
    assert!(next.rest[1] < 5, "{next:?}");
    assert_eq!(next.rest[0], 0);
}

#[test]
fn none_wanted_means_none_while_an_update_is_under_way() {
    let next = roll(aim(0, QUARTER), seen(4, 2, 2, 0), &[seen(5, 5, 5, 0)]);
    assert_eq!(next.active, 0);
}

#[test]
fn who_asks_for_it_gets_new_servers_beside_sessions_on_old_ones() {
    let all_taken = set(10, 10);
    let beyond = |beyond| Aim { beyond, ..aim(10, QUARTER) };
    let rows = [(0, 0), (2, 2), (3, 3), (7, 7), (50, 10)];
    for (allowed, at_last) in rows {
        let mut active = SetSeen::default();
        for _ in 0..6 {
            active = settle(active, roll(beyond(allowed), active, &[all_taken]).active, true);
        }
        assert_eq!(active.wanted, at_last, "{allowed} allowed");
        // Once the old set wants none, the same holds; and with each session that ends there is one less too many.
        for sessions in (0..=10).rev() {
            let next = roll(beyond(allowed), active, &[seen(0, sessions, 0, sessions)]);
            assert_eq!(
                next.active,
                (10 - (sessions - allowed).max(0)).min(10),
                "{allowed} allowed, {sessions} left"
            );
        }
    }
    let recreate = Aim { beyond: 4, ..aim(10, Strategy::Recreate) };
    assert_eq!(roll(recreate, SetSeen::default(), &[all_taken]).active, 4);
    assert_eq!(roll(Aim { beyond: 4, ..aim(0, QUARTER) }, SetSeen::default(), &[all_taken]).active, 0);
    assert_eq!(roll(beyond(4), set(10, 0), &[]).active, 10, "no update, none too many");
}

fn any_set() -> impl Any<Value = SetSeen> {
    (0..60_i32, 0..20_i32, 0..20_i32, 0..20_i32, 0..20_i32, 0..5_i32).prop_map(
        |(wanted, ready, reserved, allocated, starting, shutdown)| SetSeen {
            wanted,
            replicas: ready + reserved + allocated + starting,
            ready,
            reserved,
            allocated,
            shutdown,
        },
    )
}

fn any_step() -> impl Any<Value = Step> {
    prop_oneof![(1..200_i32).prop_map(Step::Number), (1..100_i32).prop_map(Step::Percent)]
}

fn any_strategy() -> impl Any<Value = Strategy> {
    prop_oneof![
        Just(Strategy::Recreate),
        (any_step(), any_step())
            .prop_map(|(surge, unavailable)| Strategy::RollingUpdate { surge, unavailable })
    ]
}

/// Each set as it is once its servers have come and gone.
fn settle(set: SetSeen, wanted: i32, comes_up: bool) -> SetSeen {
    let replicas = wanted.max(set.sessions());
    let ready = if comes_up { replicas - set.sessions() } else { set.ready.min(replicas - set.sessions()) };
    SetSeen { wanted, replicas, ready, shutdown: 0, ..set }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn numbers_are_never_negative_and_old_sets_never_grow(
        wanted in -5..100_i32,
        beyond in -5..100_i32,
        strategy in any_strategy(),
        active in any_set(),
        rest in proptest::collection::vec(any_set(), 0..4),
    ) {
        let next = roll(Aim { wanted, beyond, strategy }, active, &rest);
        prop_assert!(next.active >= 0 && next.active <= wanted.max(0));
        prop_assert_eq!(next.rest.len(), rest.len());
        for (set, next) in rest.iter().zip(&next.rest) {
            prop_assert!(*next >= 0 && *next <= set.wanted);
        }
    }

    #[test]
    fn an_update_ends_within_its_limits_and_then_decides_nothing_new(
        wanted in 0..60_i32,
        surge in any_step(),
        unavailable in any_step(),
        sessions in 0..20_i32,
        beyond in prop_oneof![Just(0), 0..30_i32],
        two_old in any::<bool>(),
    ) {
        let strategy = Strategy::RollingUpdate { surge, unavailable };
        let old = settle(SetSeen { allocated: sessions, ..SetSeen::default() }, wanted, true);
        let older = settle(SetSeen::default(), if two_old { wanted / 2 } else { 0 }, true);
        let (mut active, mut rest) = (SetSeen::default(), vec![old, older]);
        let floor = wanted - unavailable.down(wanted).max(1);
        let mut last = None;
        for turn in 0.. {
            prop_assert!(turn < 400, "it does not end: {active:?} {rest:?}");
            let next = roll(Aim { wanted, beyond, strategy }, active, &rest);
            let before: i32 = rest.iter().chain([&active]).map(|set| set.replicas).sum();
            let total = next.active + rest.iter().map(|set| set.replicas).sum::<i32>();
            let space = surge.up(wanted).max(beyond.min(sessions));
            prop_assert!(total <= (wanted + space).max(before), "above the surge");
            let up_before: i32 = rest.iter().chain([&active]).map(SetSeen::up).sum();
            // The worst moment: what goes is gone, and what comes is not up yet.
            let worst: Vec<_> = rest.iter().zip(&next.rest).map(|(set, next)| settle(*set, *next, false)).collect();
            let up: i32 = worst.iter().chain([&active]).map(SetSeen::up).sum();
            prop_assert!(up >= floor.min(up_before), "{up} up, {floor} allowed");
            active = settle(active, next.active, true);
            rest = worst;
            if last.as_ref() == Some(&next) {
                break;
            }
            last = Some(next);
        }
        let replicas: i32 = rest.iter().chain([&active]).map(|set| set.replicas).sum();
        prop_assert!(rest.iter().all(|set| set.wanted == 0));
        let fresh = (wanted - (sessions - beyond).max(0)).max(0);
        prop_assert_eq!((active.ready, replicas), (fresh, fresh + sessions));
    }
}
