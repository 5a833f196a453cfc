//! What the brain does about each server, as tables.

use berth_api::node_lease::FORMAT_VERSION;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, proptest};

use super::*;
use crate::testing::{Build, server};

const OVER: Site = Site::Lapsed { is_over: true };
const SITES: [Site; 8] = [
    Site::Nowhere,
    Site::Live,
    Site::Unsure,
    Site::Lapsed { is_over: false },
    OVER,
    Site::Dead(Death::Gone),
    Site::Dead(Death::Rebooted),
    Site::Dead(Death::Silent),
];

fn returned(times: u32) -> Returned {
    Returned { version: FORMAT_VERSION, node: "n1".to_owned(), reason: "no port".to_owned(), times }
}

fn lost(state: State) -> Build {
    server("a").state(state).on("n1").of("set").annotation(names::LOST_ANNOTATION, "2026-01-01T00:00:00Z")
}

#[test]
fn a_server_without_a_state_is_taken_on() {
    assert_eq!(decide(&server("a").stateless().build(), Site::Nowhere), Step::Adopt);
    let half = server("a").state(State::Creating).without_finalizer().build();
    assert_eq!(decide(&half, Site::Nowhere), Step::Adopt, "its creator wrote a state");
    let wiped = server("a").stateless().on("n1").build();
    for site in [Site::Live, Site::Unsure, OVER] {
        assert_eq!(decide(&wiped, site), Step::Leave, "its agent restores it");
    }
}

#[test]
fn a_waiting_server_is_placed_until_it_was_handed_back_twice() {
    let waiting = || server("a").state(State::Creating);
    let decided = |build: Build| decide(&build.build(), Site::Nowhere);
    let handed = |times| waiting().annotation(names::RETURNED_ANNOTATION, &returned(times).to_annotation());
    assert_eq!(decided(waiting()), Step::Place { returned: None });
    assert_eq!(decided(handed(1)), Step::Place { returned: Some(returned(1)) });
    assert_eq!(decided(handed(2)), Step::GiveUp { has_set: false, returned: returned(2) });
    assert_eq!(decided(handed(2).of("set")), Step::GiveUp { has_set: true, returned: returned(2) });
}

#[test]
fn what_has_an_agent_is_left_to_it() {
    for state in State::ALL {
        for site in [Site::Live, Site::Unsure] {
            let placed = server("a").state(state).on("n1").of("set");
            assert_eq!(decide(&placed.clone().build(), site), Step::Leave, "{state}");
            assert_eq!(decide(&placed.ending().build(), site), Step::Leave, "{state}, ending");
        }
    }
}

#[test]
fn what_has_no_agent_is_deleted_and_let_go() {
    let gone = Site::Dead(Death::Gone);
    let waiting = || server("a").state(State::Shutdown);
    assert_eq!(decide(&waiting().build(), Site::Nowhere), Step::Delete);
    assert_eq!(decide(&waiting().ending().build(), Site::Nowhere), Step::LetGo(Remains::Pod));
    assert_eq!(decide(&waiting().on("n1").build(), gone), Step::Delete);
    let orphan = || server("a").state(State::Ready).on("n1").ending();
    assert_eq!(decide(&orphan().build(), gone), Step::LetGo(Remains::DeadPod));
    for site in [OVER, Site::Dead(Death::Rebooted), Site::Dead(Death::Silent)] {
        assert_eq!(decide(&orphan().build(), site), Step::Leave, "its agent may come back: {site:?}");
    }
    let free = orphan().without_finalizer().build();
    assert_eq!(decide(&free, gone), Step::Leave, "nothing of ours holds it");
}

#[test]
fn a_silent_node_loses_what_has_no_session() {
    use State::{
        Allocated, Creating, Error, PortAllocation, Ready, RequestReady, Reserved, Scheduled, Starting,
        Unhealthy,
    };
    let take_back = Step::TakeBack { has_set: true };
    let rows = [
        (PortAllocation, Step::Leave, take_back.clone()),
        (Creating, Step::Leave, take_back),
        (Starting, Step::Lose, Step::Lose),
        (Scheduled, Step::Lose, Step::Lose),
        (RequestReady, Step::Lose, Step::Lose),
        (Ready, Step::Lose, Step::Lose),
        (Allocated, Step::Leave, Step::Leave),
        (Reserved, Step::Leave, Step::Leave),
        (Unhealthy, Step::Leave, Step::Leave),
        (Error, Step::Leave, Step::Leave),
    ];
    for (state, within_margin, after_it) in rows {
        let placed = server("a").state(state).on("n1").of("set").build();
        assert_eq!(decide(&placed, Site::Lapsed { is_over: false }), within_margin, "{state}");
        assert_eq!(decide(&placed, OVER), after_it, "{state}");
    }
    assert_eq!(decide(&lost(Ready).build(), OVER), Step::Leave, "once");
    let lone = server("a").ready().on("n1").build();
    assert_eq!(decide(&lone, OVER), Step::Leave, "nothing would come in its place");
    let lone = server("a").state(Creating).on("n1").build();
    assert_eq!(decide(&lone, OVER), Step::TakeBack { has_set: false });
}

#[test]
fn when_an_agent_comes_back_the_surplus_goes_and_a_session_stays() {
    for state in [State::Starting, State::Scheduled, State::RequestReady, State::Ready] {
        assert_eq!(decide(&lost(state).build(), Site::Live), Step::LetSurplusGo, "{state}");
        assert_eq!(decide(&lost(state).build(), Site::Unsure), Step::Leave, "{state}: not known to be back");
    }
    for state in [State::Allocated, State::Reserved] {
        assert_eq!(decide(&lost(state).build(), Site::Live), Step::Keep, "{state}");
    }
    for state in [State::Unhealthy, State::Error] {
        assert_eq!(decide(&lost(state).build(), Site::Live), Step::Leave, "{state}: its set sees to it");
    }
}

#[test]
fn what_ended_with_its_node_says_so() {
    for death in [Death::Gone, Death::Rebooted, Death::Silent] {
        for state in [State::Starting, State::Scheduled, State::Ready, State::Allocated, State::Reserved] {
            let placed = server("a").state(state).on("n1").build();
            assert_eq!(decide(&placed, Site::Dead(death)), Step::Fail(death), "{state}");
        }
        let young = server("a").state(State::Creating).on("n1").build();
        assert_eq!(decide(&young, Site::Dead(death)), Step::TakeBack { has_set: false });
        let over = server("a").state(State::Unhealthy).on("n1").build();
        assert_eq!(decide(&over, Site::Dead(death)), Step::Leave);
    }
}

#[test]
fn a_development_server_is_the_brains_alone() {
    let development = || server("a").annotation(names::DEV_ADDRESS_ANNOTATION, "10.0.0.1").on("10.0.0.1");
    for site in [Site::Unsure, Site::Dead(Death::Gone)] {
        for state in [State::PortAllocation, State::Creating, State::Starting, State::RequestReady] {
            assert_eq!(decide(&development().state(state).build(), site), Step::MakeReady, "{state}");
        }
        for state in [State::Ready, State::Allocated, State::Reserved, State::Unhealthy, State::Error] {
            assert_eq!(decide(&development().state(state).build(), site), Step::Leave, "{state}");
        }
        assert_eq!(decide(&development().state(State::Shutdown).build(), site), Step::Delete);
        let ending = development().state(State::Ready).ending().build();
        assert_eq!(decide(&ending, site), Step::LetGo(Remains::Nothing));
    }
}

fn any_site() -> impl Strategy<Value = Site> {
    (0..SITES.len()).prop_map(|index| SITES[index])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_session_ends_only_with_what_it_runs_on(
        state in (0..State::ALL.len()).prop_map(|index| State::ALL[index]),
        site in any_site(),
        has_set in any::<bool>(),
        is_lost in any::<bool>(),
        is_ending in any::<bool>(),
    ) {
        let mut build = server("a").state(state);
        if site != Site::Nowhere { build = build.on("n1"); }
        if has_set { build = build.of("set"); }
        if is_lost { build = build.annotation(names::LOST_ANNOTATION, "2026-01-01T00:00:00Z"); }
        if is_ending { build = build.ending(); }
        let server = build.build();
        let step = decide(&server, site);
        if server.is_protected() && !is_ending && !matches!(site, Site::Dead(_)) {
            prop_assert!(matches!(step, Step::Leave | Step::Keep), "{step:?}");
        }
        // Nothing is done for a node that may have somebody to do it.
        if site == Site::Unsure {
            prop_assert!(step == Step::Leave, "{step:?}");
        }
        // A pod is removed only where nobody can act for its node.
        if step == Step::LetGo(Remains::DeadPod) {
            prop_assert!(site == Site::Dead(Death::Gone));
        }
    }
}
