//! When it is told what keeps a server from going on.

use berth_api::lifecycle::State;
use berth_api::link::Sequence;
use jiff::Timestamp;

use crate::drain::Course;
use crate::game_server::decide::{Step, decide};
use crate::game_server::observe::{DrainWord, Handed, Hindrance, Observed, PodFacts, PodSight};
use crate::game_server::wishes::{StateWish, Wishes};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn seen(state: State, change: impl FnOnce(&mut Observed, &mut PodFacts)) -> Observed {
    let mut pod = PodFacts {
        uid: "pod-1".into(),
        addresses: vec!["10.1.0.5".into()],
        is_container_known: true,
        is_held_by_budgets: true,
        ..PodFacts::default()
    };
    let mut seen = Observed {
        state,
        since: at(0),
        deleting: false,
        has_finalizer: true,
        handed: Handed::ToUs,
        node_refuses: None,
        has_node_address: true,
        has_address: true,
        has_moved_address: false,
        has_ports: true,
        had_pod: true,
        refusal: None,
        pod: PodSight::Absent { confirmed: false },
        is_other_pod: false,
        missed: None,
        reserved_until: None,
        wishes: Wishes::default(),
        last_error: None,
        has_new_sandbox: false,
        sdk_error: None,
        is_out_of_reach: false,
        told: None,
        course: Course::Open,
        ends_sessions: true,
        drain_word: DrainWord::default(),
        cut_short: None,
    };
    change(&mut seen, &mut pod);
    seen.pod = PodSight::Ours(pod);
    seen
}

fn image() -> Hindrance {
    Hindrance::Image { message: "container main: ErrImagePull: not found".into() }
}

/// What is told at second `now`: the reason, an empty one where it is taken back.
fn told(seen: &Observed, now: i64) -> Option<&'static str> {
    match decide(seen, at(now)) {
        Step::Tell(Some(trouble)) => Some(trouble.reason),
        Step::Tell(None) => Some(""),
        _ => None,
    }
}

#[test]
fn every_state_that_waits_without_end_says_why_after_a_while() {
    let asks = || Wishes { up_to: Sequence(1), state: Some(StateWish::Ready), ..Wishes::default() };
    let table = [
        ("no image", seen(State::Scheduled, |_, pod| pod.hindrance = Some(image())), 15, "ImagePull"),
        (
            "no container",
            seen(State::Scheduled, |_, pod| {
                pod.hindrance = Some(Hindrance::Container { message: "x".into() })
            }),
            15,
            "ContainerConfig",
        ),
        (
            "crashes",
            seen(State::Scheduled, |_, pod| pod.hindrance = Some(Hindrance::Crashes { message: "x".into() })),
            15,
            "Crashes",
        ),
        (
            "no sign of life",
            seen(State::Scheduled, |_, pod| {
                pod.hindrance = Some(Hindrance::NotStarted { message: "x".into() })
            }),
            60,
            "NotStarted",
        ),
        ("a silent game", seen(State::Scheduled, |_, _| {}), 300, "NotReady"),
        (
            "no address of the node",
            seen(State::Creating, |seen, _| (seen.has_address, seen.has_node_address) = (false, false)),
            15,
            "NoAddress",
        ),
        (
            "no address of the pod",
            seen(State::Scheduled, |seen, pod| {
                seen.wishes = asks();
                pod.addresses.clear();
            }),
            15,
            "NoAddress",
        ),
        ("no SDK", seen(State::Scheduled, |seen, _| seen.sdk_error = Some("x".into())), 15, "SdkNotOpen"),
        ("no SDK later", seen(State::Ready, |seen, _| seen.sdk_error = Some("x".into())), 15, "SdkNotOpen"),
        (
            "a pod that stays",
            seen(State::Shutdown, |seen, pod| {
                seen.deleting = true;
                (pod.terminating_since, pod.to_end_by) = (Some(at(0)), Some(at(30)));
            }),
            60,
            "PodLingers",
        ),
    ];
    for (name, seen, from, reason) in table {
        assert_eq!(told(&seen, from - 1), None, "{name}: not yet");
        assert_eq!(decide(&seen, at(from - 1)), Step::Wait(Some(at(from))), "{name}: it is waited for");
        assert_eq!(told(&seen, from), Some(reason), "{name}");
        let known = Observed { told: Some(reason.into()), ..seen };
        assert_eq!(told(&known, from + 999), None, "{name}: said once");
    }
}

#[test]
fn what_is_over_is_taken_back_once() {
    let known = |state, pod: fn(&mut PodFacts)| {
        seen(state, |seen, facts| {
            seen.told = Some("ImagePull".into());
            pod(facts);
        })
    };
    assert_eq!(told(&known(State::Scheduled, |_| {}), 20), Some(""), "the game runs");
    assert_eq!(told(&known(State::Ready, |_| {}), 20), Some(""), "it is Ready");
    let changed =
        known(State::Scheduled, |pod| pod.hindrance = Some(Hindrance::Crashes { message: "x".into() }));
    assert_eq!(told(&changed, 20), Some("Crashes"), "another trouble takes its place");
    assert_eq!(told(&known(State::Unhealthy, |_| {}), 20), None, "what has ended keeps its last word");
    let again = known(State::Scheduled, |pod| pod.hindrance = Some(image()));
    assert_eq!(told(&again, 1), None, "an agent that starts again does not say it again");
}

#[test]
fn a_server_that_is_well_is_told_nothing() {
    for state in [State::Ready, State::Allocated, State::Reserved] {
        assert_eq!(told(&seen(state, |_, _| {}), 1_000_000), None, "{state}");
    }
}
