//! Every state against everything that may be seen.

use std::collections::BTreeMap;

use berth_api::lifecycle::State;
use berth_api::link::Sequence;
use jiff::Timestamp;

use super::{Step, decide};
use crate::drain::Course;
use crate::game_server::Reason;
use crate::game_server::observe::{DrainWord, Ending, Handed, Observed, PodFacts, PodSight};
use crate::game_server::wishes::{StateWish, Wishes};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// A server that is well in a state, seen at second 0.
fn well(state: State) -> Observed {
    Observed {
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
        pod: PodSight::Ours(pod()),
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
    }
}

mod leaving;

/// A server that was just handed over.
fn fresh() -> Observed {
    Observed {
        has_address: false,
        has_ports: false,
        had_pod: false,
        pod: PodSight::Absent { confirmed: false },
        ..well(State::Creating)
    }
}

fn pod() -> PodFacts {
    PodFacts {
        uid: "pod-1".into(),
        addresses: vec!["10.1.0.5".into()],
        is_container_known: true,
        is_held_by_budgets: true,
        ..PodFacts::default()
    }
}

fn with_pod(state: State, change: impl FnOnce(&mut PodFacts)) -> Observed {
    let mut facts = pod();
    change(&mut facts);
    Observed { pod: PodSight::Ours(facts), ..well(state) }
}

fn ending(state: State, ending: Ending) -> Observed {
    with_pod(state, |pod| pod.ending = Some(ending))
}

fn wish(state: StateWish) -> Wishes {
    Wishes { up_to: Sequence(1), state: Some(state), ..Wishes::default() }
}

fn label() -> Wishes {
    Wishes { up_to: Sequence(1), labels: BTreeMap::from([("a".into(), "b".into())]), ..Wishes::default() }
}

fn unhealthy(reason: Reason) -> Step {
    Step::End { to: State::Unhealthy, reason }
}

const UP: [State; 5] =
    [State::Scheduled, State::RequestReady, State::Ready, State::Allocated, State::Reserved];
const COMING: [State; 3] = [State::PortAllocation, State::Creating, State::Starting];

#[test]
fn a_server_comes_up_step_by_step() {
    let table = [
        ("first ports", fresh(), Step::ReservePorts),
        ("then a pod", Observed { has_ports: true, ..fresh() }, Step::CreatePod),
        (
            "then it is noted",
            Observed { has_ports: true, pod: PodSight::Ours(pod()), ..fresh() },
            Step::Schedule,
        ),
        (
            "not before the node has an address",
            Observed { has_node_address: false, pod: PodSight::Ours(pod()), ..fresh() },
            Step::Wait(Some(at(15))),
        ),
        ("then it waits for its game", well(State::Scheduled), Step::Wait(Some(at(300)))),
    ];
    for (name, seen, expected) in table {
        assert_eq!(decide(&seen, at(1)), expected, "{name}");
    }
    for state in COMING {
        assert_eq!(decide(&Observed { state, ..fresh() }, at(1)), Step::ReservePorts, "{state}");
        assert_eq!(decide(&well(state), at(1)), Step::Schedule, "{state}");
    }
}

#[test]
fn what_cannot_be_taken_is_handed_back_with_the_reason() {
    let wrong = Handed::Wrong { why: "not ours".into() };
    let table = [
        (Observed { handed: wrong, ..fresh() }, 1, "not ours"),
        (Observed { handed: Handed::ToAnotherBoot, ..fresh() }, 1, "another boot"),
        (Observed { node_refuses: Some("the node is cordoned".into()), ..fresh() }, 1, "cordoned"),
        (Observed { last_error: Some("forbidden".into()), ..fresh() }, 300, "forbidden"),
        (fresh(), 301, "in time"),
        (
            Observed {
                refusal: Some("OutOfcpu".into()),
                pod: PodSight::Absent { confirmed: true },
                ..well(State::Scheduled)
            },
            1,
            "OutOfcpu",
        ),
        (Observed { refusal: Some("NodePorts".into()), ..fresh() }, 1, "NodePorts"),
    ];
    for (seen, now, expected) in table {
        match decide(&seen, at(now)) {
            Step::HandBack(why) => assert!(why.contains(expected), "{why}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn a_server_with_a_pod_is_never_handed_back() {
    for state in UP.into_iter().chain(COMING) {
        let seen = Observed {
            handed: Handed::Wrong { why: "not ours".into() },
            node_refuses: Some("the node is cordoned".into()),
            ..well(state)
        };
        assert!(!matches!(decide(&seen, at(1)), Step::HandBack(_)), "{state}");
    }
}

#[test]
fn a_foreign_pod_of_the_name_is_an_error_before_and_a_failure_after() {
    let foreign = PodSight::Foreign { owner: "Job x".into() };
    for state in COMING {
        let step = decide(&Observed { pod: foreign.clone(), ..well(state) }, at(1));
        assert!(
            matches!(step, Step::End { to: State::Error, reason: Reason::ForeignPod { .. } }),
            "{step:?}"
        );
    }
    for state in UP {
        let step = decide(&Observed { pod: foreign.clone(), ..well(state) }, at(1));
        assert_eq!(step, unhealthy(Reason::PodReplaced), "{state}");
    }
}

#[test]
fn a_pod_that_has_ended_ends_its_server() {
    let message = || "m".to_owned();
    for state in UP.into_iter().chain(COMING) {
        let table = [
            (Ending::Failed { message: message() }, unhealthy(Reason::Failed { message: message() })),
            (Ending::Evicted { message: message() }, unhealthy(Reason::Evicted { message: message() })),
            (Ending::Succeeded, Step::End { to: State::Shutdown, reason: Reason::Completed }),
        ];
        for (how, expected) in table {
            assert_eq!(decide(&ending(state, how.clone()), at(1)), expected, "{state}, {how:?}");
        }
        let refused = decide(&ending(state, Ending::Refused { message: message() }), at(1));
        if state.is_before_ready() {
            assert_eq!(refused, Step::NoteRefusal(message()), "{state}");
            let noted = Observed {
                refusal: Some(message()),
                ..ending(state, Ending::Refused { message: message() })
            };
            assert_eq!(decide(&noted, at(1)), Step::DeletePod, "{state}");
        } else {
            assert_eq!(refused, unhealthy(Reason::Failed { message: message() }), "{state}");
        }
    }
}

#[test]
fn a_missing_pod_is_looked_for_before_it_is_believed() {
    for state in UP {
        let absent = |confirmed| Observed { pod: PodSight::Absent { confirmed }, ..well(state) };
        assert_eq!(decide(&absent(false), at(1)), Step::LookForPod, "{state}");
        assert_eq!(decide(&absent(true), at(1)), unhealthy(Reason::PodMissing), "{state}");
    }
    for state in COMING {
        let absent = |confirmed| Observed { pod: PodSight::Absent { confirmed }, ..well(state) };
        assert_eq!(decide(&absent(false), at(1)), Step::LookForPod, "{state}");
        assert_eq!(decide(&absent(true), at(1)), unhealthy(Reason::PodMissing), "{state}: one pod ever");
    }
}

#[test]
fn a_pod_that_somebody_deletes_is_no_place_for_players() {
    for state in UP {
        let seen = with_pod(state, |pod| pod.terminating_since = Some(at(0)));
        let expected = if state.is_protected() { Step::Wait(None) } else { unhealthy(Reason::PodDeleted) };
        assert_eq!(decide(&seen, at(1)), expected, "{state}");
    }
}

#[test]
fn failures_that_only_the_node_sees_end_the_server() {
    for state in UP {
        let table = [
            (Observed { missed: Some(3), ..well(state) }, Reason::PingsMissed { missed: 3 }),
            (with_pod(state, |pod| pod.restarted_since_ready = true), Reason::Restarted),
            (Observed { is_other_pod: true, ..well(state) }, Reason::PodReplaced),
            (Observed { handed: Handed::ToAnotherBoot, ..well(state) }, Reason::NodeRebooted),
            (Observed { is_out_of_reach: true, ..well(state) }, Reason::OutOfReach),
            (Observed { has_new_sandbox: true, ..well(state) }, Reason::Restarted),
        ];
        for (seen, reason) in table {
            assert_eq!(decide(&seen, at(1)), unhealthy(reason), "{state}");
        }
    }
}

#[test]
fn what_the_game_asks_for_is_granted_once_players_could_reach_it() {
    for state in UP {
        for asked in
            [StateWish::Ready, StateWish::Reserve { until: None }, StateWish::Allocate { at: "t".into() }]
        {
            let wishes = wish(asked);
            let seen = Observed { wishes: wishes.clone(), ..well(state) };
            assert_eq!(decide(&seen, at(1)), Step::Grant(wishes.clone()), "{state}");
            let unreachable = [
                Observed { has_address: false, ..seen.clone() },
                Observed { wishes: wishes.clone(), ..with_pod(state, |pod| pod.addresses.clear()) },
                Observed { wishes: wishes.clone(), ..with_pod(state, |pod| pod.is_container_known = false) },
                Observed { wishes: wishes.clone(), ..with_pod(state, |pod| pod.is_held_by_budgets = false) },
            ];
            for seen in unreachable {
                let step = decide(&seen, at(1));
                assert!(matches!(step, Step::Wait(_)), "{state}: {step:?}");
            }
        }
        let seen = Observed { wishes: label(), has_address: false, ..well(state) };
        assert_eq!(decide(&seen, at(1)), Step::Grant(label()), "{state}: a label needs no address");
    }
    for state in COMING {
        let seen = Observed { wishes: wish(StateWish::Ready), ..well(state) };
        assert_eq!(decide(&seen, at(1)), Step::Schedule, "{state}: first its place");
    }
}

#[test]
fn shutdown_beats_every_failure_but_deletion() {
    let wishes = wish(StateWish::Shutdown);
    for state in UP {
        let bad = Observed {
            wishes: wishes.clone(),
            missed: Some(3),
            ..ending(state, Ending::Failed { message: "m".into() })
        };
        assert_eq!(decide(&bad, at(1)), Step::Grant(wishes.clone()), "{state}");
        let deleting = Observed { deleting: true, ..bad };
        assert_eq!(decide(&deleting, at(1)), Step::DeletePod, "{state}");
    }
}

#[test]
fn a_reservation_ends_by_the_clock() {
    let reserved = |until| Observed { reserved_until: until, ..well(State::Reserved) };
    assert_eq!(decide(&reserved(None), at(9)), Step::Wait(None));
    assert_eq!(decide(&reserved(Some(at(10))), at(9)), Step::Wait(Some(at(10))));
    assert_eq!(decide(&reserved(Some(at(10))), at(10)), Step::MakeReady);
}

#[test]
fn request_ready_by_another_program_is_obeyed_within_its_time() {
    assert_eq!(decide(&well(State::RequestReady), at(1)), Step::MakeReady);
    let held = with_pod(State::RequestReady, |pod| pod.addresses.clear());
    assert_eq!(decide(&held, at(1)), Step::Wait(Some(at(60))));
    assert!(matches!(
        decide(&held, at(60)),
        Step::End { to: State::Unhealthy, reason: Reason::TooLong { state: State::RequestReady, .. } }
    ));
}

#[test]
fn a_coming_server_whose_node_has_no_address_is_given_up_in_time() {
    for state in COMING {
        let seen = Observed { has_node_address: false, ..well(state) };
        let step = decide(&seen, at(300));
        assert!(
            matches!(step, Step::End { to: State::Unhealthy, reason: Reason::TooLong { .. } }),
            "{state}: {step:?}"
        );
    }
}

#[test]
fn a_server_that_has_ended_waits_for_its_owner_and_drops_what_its_game_asks() {
    for state in [State::Unhealthy, State::Error] {
        assert_eq!(decide(&well(state), at(1)), Step::Wait(None), "{state}");
        let wishes = wish(StateWish::Ready);
        let seen = Observed { wishes: wishes.clone(), ..well(state) };
        assert_eq!(decide(&seen, at(1)), Step::DropWishes(wishes), "{state}");
    }
    assert_eq!(decide(&well(State::Shutdown), at(1)), Step::DeleteServer);
}

#[test]
fn deletion_goes_pod_first_in_every_state() {
    for state in State::ALL {
        let deleting = Observed { deleting: true, ..well(state) };
        assert_eq!(decide(&deleting, at(1)), Step::DeletePod, "{state}");
        let terminating =
            Observed { deleting: true, ..with_pod(state, |pod| pod.terminating_since = Some(at(0))) };
        let early = decide(&terminating, at(1));
        let late = decide(&terminating, at(3));
        if state.is_terminal() {
            assert_eq!((early, late), (Step::Wait(None), Step::Wait(None)), "{state}");
        } else {
            assert_eq!(early, Step::Wait(Some(at(2))), "{state}");
            assert_eq!(late, Step::End { to: State::Shutdown, reason: Reason::Deleted }, "{state}");
        }
        let absent =
            |confirmed| Observed { deleting: true, pod: PodSight::Absent { confirmed }, ..well(state) };
        assert_eq!(decide(&absent(false), at(1)), Step::LookForPod, "{state}");
        assert_eq!(decide(&absent(true), at(1)), Step::Finish, "{state}");
        let finished = Observed { has_finalizer: false, ..absent(true) };
        assert_eq!(decide(&finished, at(1)), Step::Wait(None), "{state}: others keep it");
        let foreign = PodSight::Foreign { owner: "Job x".into() };
        let seen = Observed { deleting: true, pod: foreign, ..well(state) };
        assert_eq!(decide(&seen, at(1)), Step::Finish, "{state}: a stranger's pod is left alone");
    }
}

#[test]
fn a_game_that_has_ended_gets_nothing_more_until_kubelet_says_how_it_ended() {
    for state in UP {
        let over = Observed {
            wishes: wish(StateWish::Ready),
            ..with_pod(state, |pod| pod.over_since = Some(at(5)))
        };
        assert_eq!(decide(&over, at(6)), Step::Wait(Some(at(25))), "{state}");
        let late =
            unhealthy(Reason::Failed { message: "the game has ended; kubelet has not said how".into() });
        assert_eq!(decide(&over, at(25)), late, "{state}");
        let restarts = with_pod(state, |pod| {
            (pod.over_since, pod.restarted_since_ready) = (Some(at(5)), true);
        });
        assert_eq!(decide(&restarts, at(6)), unhealthy(Reason::Restarted), "{state}");
    }
}

#[test]
fn another_address_of_the_node_is_shown_when_nothing_else_is_to_be_done() {
    for state in UP {
        let moved = Observed { has_moved_address: true, ..well(state) };
        assert_eq!(decide(&moved, at(1)), Step::Readdress, "{state}");
        let asks = Observed { wishes: label(), ..moved };
        assert_eq!(decide(&asks, at(1)), Step::Grant(label()), "{state}");
    }
}

#[test]
fn a_pod_on_another_node_is_no_reason_to_make_a_second_one() {
    let elsewhere = || PodSight::Elsewhere { node: "b".into() };
    for state in COMING {
        let step = decide(&Observed { pod: elsewhere(), ..well(state) }, at(1));
        assert_eq!(step, Step::HandBack("its pod is on node b".into()), "{state}");
    }
    for state in UP {
        let step = decide(&Observed { pod: elsewhere(), ..well(state) }, at(1));
        assert_eq!(step, Step::Wait(None), "{state}: the agent of that node takes it back");
    }
    for state in State::ALL {
        let deleting = Observed { deleting: true, pod: elsewhere(), ..well(state) };
        assert_eq!(decide(&deleting, at(1)), Step::Finish, "{state}: the pod goes with its owner");
    }
}
