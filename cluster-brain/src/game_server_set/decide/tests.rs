//! The tables and properties of a set's decisions.

use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::testing::{Build, server};

const LIMITS: Limits = Limits { creations: 64, deletions: 64, pending: 5000 };

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().expect("a time")
}

fn build(servers: Vec<Build>) -> Vec<Arc<Server>> {
    servers.into_iter().map(|server| Arc::new(server.build())).collect()
}

fn several(state: State, count: usize) -> impl Iterator<Item = Build> {
    (0..count).map(move |index| server(&format!("{}-{index:04}", state.as_str().to_lowercase())).state(state))
}

fn decided(target: usize, servers: &[Arc<Server>], being_created: usize) -> Decision {
    let tallies = BTreeMap::new();
    let seen = Seen {
        target,
        ceiling: None,
        scheduling: Scheduling::Packed,
        priorities: &[],
        overflow: None,
        servers,
        being_created,
        tallies: &tallies,
    };
    decide(&seen, LIMITS, now())
}

/// Target, servers by state, then: create, delete by state, partial.
type Row = (&'static str, usize, &'static [(State, usize)], usize, &'static [(&'static str, usize)], bool);

#[test]
fn sets_follow_the_table() {
    use State::{Allocated, Ready, Shutdown, Starting, Unhealthy};
    let rows: [Row; 8] = [
        ("an unhealthy one too many", 5, &[(Ready, 5), (Unhealthy, 1)], 0, &[("unhealthy", 1)], false),
        ("replacing before trimming", 5, &[(Ready, 6), (Unhealthy, 1)], 0, &[("unhealthy", 1)], false),
        ("sessions stay", 2, &[(Allocated, 3), (Ready, 2)], 0, &[("ready", 2)], false),
        ("a batch of creations", 100, &[(Ready, 1)], 64, &[], true),
        ("no more than may be pending", 6000, &[(Starting, 4990)], 10, &[], true),
        ("as many pending as may be", 6000, &[(Starting, 5000)], 0, &[], false),
        ("what is being deleted does not count", 3, &[(Ready, 1), (Shutdown, 2)], 2, &[], false),
        ("a batch of deletions", 0, &[(Ready, 100)], 0, &[("ready", 64)], true),
    ];
    for (name, target, states, create, delete, is_partial) in rows {
        let servers = build(states.iter().flat_map(|(state, count)| several(*state, *count)).collect());
        let decision = decided(target, &servers, 0);
        assert_eq!(decision.create, create, "{name}");
        let mut deleted: BTreeMap<&str, usize> = BTreeMap::new();
        for key in &decision.delete {
            *deleted.entry(key.name.split('-').next().expect("a name")).or_default() += 1;
        }
        assert_eq!(deleted, delete.iter().copied().collect(), "{name}");
        assert_eq!(decision.is_partial, is_partial, "{name}");
    }
}

#[test]
fn nothing_is_made_that_an_autoscaler_would_have_go() {
    let servers = build(several(State::Ready, 3).collect());
    let tallies = BTreeMap::new();
    let seen = |target, ceiling| Seen {
        target,
        ceiling: Some(ceiling),
        scheduling: Scheduling::Packed,
        priorities: &[],
        overflow: None,
        servers: &servers,
        being_created: 0,
        tallies: &tallies,
    };
    let decided = |target, ceiling| {
        let decision = decide(&seen(target, ceiling), LIMITS, now());
        (decision.create, decision.delete.len())
    };
    assert_eq!(decided(5, 4), (1, 0));
    assert_eq!(decided(5, 1), (0, 0), "what is there goes by the Fleet's number");
    assert_eq!(decided(5, 9), (2, 0), "and no more is made than it says");
    assert_eq!(decided(2, 1), (0, 1));
}

#[test]
fn what_is_on_its_way_counts() {
    let servers = build(several(State::Ready, 3).collect());
    assert_eq!(decided(10, &servers, 7).create, 0);
    assert_eq!(decided(10, &servers, 5).create, 2);
    assert_eq!(decided(3, &servers, 2).delete.len(), 2, "and is not trimmed itself");
}

#[test]
fn what_was_lost_with_its_node_is_replaced_and_left_alone() {
    let lost = |name: &str, state| {
        server(name).state(state).on("n1").annotation(names::LOST_ANNOTATION, "2026-01-01T00:00:00Z")
    };
    let rows = [
        ("Ready", State::Ready, 2, 0),
        ("on its way", State::Scheduled, 2, 0),
        ("a session counts again", State::Allocated, 0, 0),
        ("what failed is cleared away", State::Unhealthy, 2, 2),
    ];
    for (name, state, create, delete) in rows {
        let servers = build(vec![lost("a", state), lost("b", state), server("c").ready()]);
        let decision = decided(3, &servers, 0);
        assert_eq!((decision.create, decision.delete.len()), (create, delete), "{name}");
    }
    let many = build(vec![lost("a", State::Ready), server("c").ready(), server("d").ready()]);
    let trimmed: Vec<_> = decided(1, &many, 0).delete.into_iter().map(|key| key.name).collect();
    assert_eq!(trimmed, ["c"], "trimming takes what counts");
}

#[test]
fn a_server_in_error_is_kept_for_a_while() {
    let errored = |at: &str| server("e").state(State::Error).annotation(names::ERRORED_AT_ANNOTATION, at);
    let young = decided(1, &build(vec![errored("2026-01-01T00:00:40Z")]), 0);
    assert_eq!((young.create, young.delete.len()), (0, 0));
    assert_eq!(young.look_again, Some(Duration::from_secs(10)));
    for old in ["2026-01-01T00:00:30Z", "yesterday"] {
        let decision = decided(1, &build(vec![errored(old)]), 0);
        assert_eq!((decision.create, decision.delete.len()), (1, 1), "{old}");
    }
    let unmarked = decided(1, &build(vec![server("e").state(State::Error)]), 0);
    assert_eq!(unmarked.delete.len(), 1, "nobody knows since when");
}

#[test]
fn allocated_servers_beyond_the_target_are_marked() {
    let overflow = AllocationOverflow {
        labels: Some(BTreeMap::from([("over".to_owned(), "yes".to_owned())])),
        annotations: None,
    };
    let tallies = BTreeMap::new();
    let marked = |target, servers: &[Arc<Server>]| {
        let seen = Seen {
            target,
            ceiling: None,
            scheduling: Scheduling::Distributed,
            priorities: &[],
            overflow: Some(&overflow),
            servers,
            being_created: 0,
            tallies: &tallies,
        };
        let names = decide(&seen, LIMITS, now()).mark.into_iter().map(|key| key.name);
        names.collect::<Vec<_>>().join(",")
    };
    let allocated = |name, born| server(name).state(State::Allocated).born(born);
    let servers = build(vec![allocated("a", 3), allocated("b", 1), allocated("c", 2)]);
    assert_eq!(marked(3, &servers), "");
    assert_eq!(marked(1, &servers), "b,c");
    let one_done = build(vec![allocated("a", 3), allocated("b", 1).label("over", "yes"), allocated("c", 2)]);
    assert_eq!(marked(1, &one_done), "c");
    assert_eq!(marked(2, &one_done), "");
}

fn any_server() -> impl Strategy<Value = (State, bool, Option<u8>)> {
    let states = (0..State::ALL.len()).prop_map(|index| State::ALL[index]);
    let node = prop_oneof![Just(None), (0..3_u8).prop_map(Some)];
    (states, proptest::bool::weighted(0.1), node)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_set_settles_without_a_server_too_many_and_no_session_ends(
        target in 0_usize..40,
        states in proptest::collection::vec(any_server(), 0..60),
        being_created in 0_usize..5,
        distributed in proptest::bool::ANY,
    ) {
        let mut servers = build(states.into_iter().enumerate().map(|(index, (state, ends, node))| {
            let one = server(&format!("s{index:03}")).state(state);
            let one = match node { Some(node) => one.on(&format!("n{node}")), None => one };
            if ends { one.ending() } else { one }
        }).collect());
        let tallies = BTreeMap::from([("n0".to_owned(), 3), ("n1".to_owned(), 1)]);
        let scheduling = if distributed { Scheduling::Distributed } else { Scheduling::Packed };
        let mut coming = being_created;
        let sessions: Vec<_> = servers.iter().filter(|one| one.is_protected() && !one.is_ending).cloned().collect();
        for turn in 0.. {
            prop_assert!(turn < 6, "not settled after six turns");
            let seen = Seen {
                target, ceiling: None, scheduling, priorities: &[], overflow: None, servers: &servers,
                being_created: coming, tallies: &tallies,
            };
            let decision = decide(&seen, LIMITS, now());
            let up = |servers: &[Arc<Server>]| servers.iter()
                .filter(|one| !one.is_being_deleted() && !matches!(one.state, Some(State::Unhealthy | State::Error)))
                .count();
            if decision.create > 0 {
                prop_assert!(up(&servers) + coming + decision.create <= target);
            }
            if decision == Decision::default() && coming == 0 {
                break;
            }
            // What is decided happens: marked servers are gone, and what was on its way has come.
            let fresh = decision.create + coming;
            coming = 0;
            servers.retain(|one| !decision.delete.contains(&one.key));
            servers.extend((0..fresh).map(|index| {
                Arc::new(server(&format!("new-{turn}-{index}")).state(State::Creating).build())
            }));
        }
        for session in &sessions {
            prop_assert!(servers.contains(session), "a session was ended: {}", session.key);
        }
        let live = servers.iter().filter(|one| !one.is_being_deleted()).count();
        prop_assert_eq!(live, target.max(sessions.len()), "settled on another number");
    }
}
