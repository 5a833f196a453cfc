//! What a node's course means for servers in every state.

use std::time::Duration;

use super::*;
use crate::drain::notice::{Notice, Severity, Source};
use crate::pods::Endures;

fn notice(deadline: Option<i64>) -> Notice {
    let severity = if deadline.is_some() { Severity::Spot } else { Severity::Draining };
    Notice { source: Source::FleetIq, severity, reason: "because".into(), deadline: deadline.map(at) }
}

fn draining(deadline: Option<i64>) -> Course {
    Course::Draining { notice: notice(deadline) }
}

fn closed(let_go_at: i64) -> Course {
    let notice = Notice { source: Source::Cordon, severity: Severity::Cordoned, ..notice(None) };
    Course::Closed { notice, let_go_at: at(let_go_at) }
}

fn spare() -> Course {
    let notice = Notice { source: Source::Surplus, severity: Severity::Surplus, ..notice(None) };
    Course::Spare { notice, is_empty: false }
}

fn enduring(state: State) -> Observed {
    with_pod(state, |pod| {
        pod.endures = Endures::Forever;
        pod.grace = Duration::from_secs(30);
    })
}

fn told(course: &Course) -> DrainWord {
    course.notice().map(DrainWord::of).unwrap_or_default()
}

fn is_withdrawn(step: &Step) -> bool {
    matches!(step, Step::Withdraw(why) if why.contains("because"))
}

#[test]
fn who_has_no_session_leaves_a_draining_node_at_once_and_a_closed_one_later() {
    for state in State::ALL {
        let has_session = state.is_protected();
        let is_over = matches!(state, State::Unhealthy | State::Error);
        for (course, now, is_due) in [
            (Course::Open, 1, false),
            (closed(30), 29, false),
            (closed(30), 30, true),
            (spare(), 1, true),
            (draining(None), 1, true),
            (Course::Drained { notice: notice(None) }, 1, true),
        ] {
            let drain_word = if has_session && is_due { told(&course) } else { DrainWord::default() };
            // Sessions hear of what they are to end for, and of nothing else.
            let is_told_nothing = matches!(course, Course::Closed { .. } | Course::Spare { .. });
            let drain_word = if is_told_nothing { DrainWord::default() } else { drain_word };
            let is_closed = matches!(course, Course::Closed { .. });
            let seen = Observed { course, drain_word, ..enduring(state) };
            let step = decide(&seen, at(now));
            let expected = match state {
                State::Shutdown => false,
                _ if is_over => is_due && !is_closed,
                _ => is_due && !has_session,
            };
            assert_eq!(is_withdrawn(&step), expected, "{state} at {now}: {step:?}");
        }
    }
}

#[test]
fn nothing_is_deleted_twice() {
    for state in State::ALL {
        let seen = Observed { course: draining(Some(60)), deleting: true, ..enduring(state) };
        assert!(!is_withdrawn(&decide(&seen, at(1))), "{state}");
    }
}

#[test]
fn what_has_no_pod_yet_is_handed_back_from_a_node_that_is_closed_or_drains() {
    for course in [closed(1000), spare(), draining(None), Course::Drained { notice: notice(None) }] {
        for state in COMING {
            let seen = Observed { state, course: course.clone(), ..fresh() };
            let step = decide(&seen, at(1));
            assert!(matches!(&step, Step::HandBack(why) if why.contains("because")), "{state}: {step:?}");
        }
    }
}

#[test]
fn a_closed_node_is_looked_at_again_when_its_servers_are_due() {
    let seen = Observed { course: closed(30), ..enduring(State::Ready) };
    assert_eq!(decide(&seen, at(1)), Step::Wait(Some(at(30))));
    let session = Observed { course: closed(30), ..enduring(State::Allocated) };
    assert_eq!(decide(&session, at(31)), Step::Wait(None));
}

#[test]
fn a_game_that_asks_for_a_session_of_its_own_has_one() {
    for state in [State::Scheduled, State::Ready] {
        let asks = |wish| Observed { wishes: wish, course: draining(None), ..enduring(state) };
        let wishes = wish(StateWish::Allocate { at: "t".into() });
        assert_eq!(decide(&asks(wishes.clone()), at(1)), Step::Grant(wishes), "{state}");
        assert!(is_withdrawn(&decide(&asks(wish(StateWish::Ready)), at(1))), "{state}");
    }
    // Whose session is over is let go.
    let over =
        Observed { wishes: wish(StateWish::Ready), course: draining(None), ..enduring(State::Reserved) };
    let over = Observed { drain_word: told(&over.course), ..over };
    assert_eq!(decide(&over, at(1)), Step::Grant(wish(StateWish::Ready)));
}

#[test]
fn defect_22_a_session_or_a_reservation_is_told_then_tolerates_then_stays() {
    for state in [State::Allocated, State::Reserved] {
        for deadline in [None, Some(1000)] {
            let course = draining(deadline);
            let word = DrainWord {
                reason: Some("because".into()),
                deadline: deadline.map(|deadline| at(deadline).to_string()),
                is_labelled: true,
            };
            let mut seen = Observed { course, ..enduring(state) };
            if let PodSight::Ours(pod) = &mut seen.pod {
                pod.endures = Endures::No;
            }
            assert_eq!(decide(&seen, at(1)), Step::TellDrain(word.clone()), "{state}");
            seen.drain_word = word;
            assert_eq!(decide(&seen, at(1)), Step::Tolerate, "{state}");
            if let PodSight::Ours(pod) = &mut seen.pod {
                pod.endures = Endures::Forever;
            }
            assert_eq!(decide(&seen, at(1)), Step::Wait(deadline.map(|_| at(965))), "{state}");
        }
    }
}

#[test]
fn what_was_told_is_taken_back() {
    for state in [State::Ready, State::Allocated, State::Reserved] {
        for course in [Course::Open, closed(1000)] {
            let seen = Observed { course, drain_word: told(&draining(None)), ..enduring(state) };
            assert_eq!(decide(&seen, at(1)), Step::TellDrain(DrainWord::default()), "{state}");
        }
    }
}

#[test]
fn a_session_ends_at_the_computed_instant_and_only_where_that_is_wanted() {
    let course = draining(Some(120));
    let seen = Observed { drain_word: told(&course), course, ..enduring(State::Allocated) };
    assert_eq!(decide(&seen, at(84)), Step::Wait(Some(at(85))));
    assert_eq!(decide(&seen, at(85)), Step::EndSession { grace: 30, deadline: at(120) });
    assert_eq!(decide(&seen, at(100)), Step::EndSession { grace: 15, deadline: at(120) });
    let notify = Observed { ends_sessions: false, ..seen.clone() };
    assert_eq!(decide(&notify, at(200)), Step::Wait(None));

    let mut ending = Observed { cut_short: Some(at(120)), ..seen };
    if let PodSight::Ours(pod) = &mut ending.pod {
        pod.terminating_since = Some(at(85));
    }
    assert_eq!(decide(&ending, at(86)), Step::Wait(None), "once");
    let gone = Observed { pod: PodSight::Absent { confirmed: true }, ..ending.clone() };
    assert_eq!(decide(&gone, at(90)), unhealthy(Reason::NodeEnds { at: at(120) }));
    if let PodSight::Ours(pod) = &mut ending.pod {
        pod.ending = Some(Ending::Failed { message: "exit code 143".into() });
    }
    assert_eq!(decide(&ending, at(90)), unhealthy(Reason::NodeEnds { at: at(120) }));
}

#[test]
fn without_a_deadline_no_session_ever_ends() {
    let course = draining(None);
    for state in [State::Allocated, State::Reserved] {
        let seen = Observed { drain_word: told(&course), course: course.clone(), ..enduring(state) };
        assert_eq!(decide(&seen, at(1_000_000_000)), Step::Wait(None), "{state}");
    }
}
