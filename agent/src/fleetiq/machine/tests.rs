//! The table of the standing: one row for each answer in each state.

use std::time::Duration;

use berth_api::game_node::Protection;
use berth_api::notice::InstanceStatus;
use jiff::Timestamp;

use super::{Due, Machine, Mark, News, Outside, Unprotected};
use crate::drain::Course;
use crate::drain::notice::{Notice, Severity, Source};
use crate::fleetiq::Offers;
use crate::fleetiq::call::{Answer, Call, Failure, Registration, Utilization};

mod idle;
mod repeated;

const POLICY: Unprotected = Unprotected::AllowAfter(Duration::from_secs(300));
const UTILIZED: Answer = Answer::Update(Ok(Utilization::Utilized));
const AVAILABLE: Answer = Answer::Update(Ok(Utilization::Available));

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn course(severity: Severity, is_drained: bool) -> Course {
    let source = if severity == Severity::Ordered { Source::Socket } else { Source::FleetIq };
    let notice = Notice { source, severity, reason: "because".into(), deadline: None };
    if is_drained { Course::Drained { notice } } else { Course::Draining { notice } }
}

/// A machine at work: the time passes by itself from one call to the next, and chance is always one half.
struct Play {
    machine: Machine,
    course: Course,
    is_warmed: bool,
    second: i64,
}

impl Play {
    fn new(mark: Mark) -> Self {
        let machine = Machine::new(mark, at(0), 0.5);
        Self { machine, course: Course::Open, is_warmed: false, second: 0 }
    }

    /// One that is registered, claimed, or active, by the answers that lead there.
    fn after(mark: Mark, answers: &[Answer]) -> Self {
        let mut play = Self::new(mark);
        for answer in answers {
            play.hear(*answer);
        }
        play
    }

    fn outside(&self) -> Outside<'_> {
        Outside { course: &self.course, is_warmed: self.is_warmed }
    }

    fn next(&self) -> Option<Due> {
        self.machine.next(&self.outside(), at(self.second))
    }

    /// The next call, and how many seconds it is from now.
    fn due(&self) -> Option<(Call, f64)> {
        let due = self.next()?;
        let wait = due.at.map_or(0.0, |time| time.duration_since(at(self.second)).as_secs_f64());
        Some((due.call, wait.max(0.0)))
    }

    fn call(&self) -> Option<Call> {
        self.next().map(|due| due.call)
    }

    fn hear(&mut self, answer: Answer) -> Option<News> {
        self.machine.hear(answer, at(self.second), 0.5)
    }

    fn follow(&mut self, course: Course) {
        self.course = course;
        self.machine.follow(&self.course.clone(), at(self.second), 0.5);
    }

    fn offers(&self) -> bool {
        self.machine.offers(&self.outside(), POLICY, at(self.second)) == Offers::Allowed
    }

    fn protection(&self) -> Protection {
        self.machine.protection()
    }
}

fn unregistered() -> Play {
    Play::after(Mark::None, &[Answer::AskStatus(Ok(Some(InstanceStatus::Active)))])
}

fn registered() -> Play {
    Play::after(Mark::Registered, &[])
}

fn claimed() -> Play {
    Play::after(Mark::Registered, &[Answer::Claim(Ok(()))])
}

fn active() -> Play {
    Play::after(Mark::Registered, &[Answer::Claim(Ok(())), UTILIZED])
}

fn deregistered() -> Play {
    let mut play = active();
    play.follow(course(Severity::Draining, true));
    assert_eq!(play.hear(Answer::Deregister(Ok(()))), Some(News::Deregistered));
    play
}

#[test]
fn a_fresh_node_asks_once_and_is_active_after_three_calls() {
    let mut play = Play::new(Mark::None);
    assert_eq!(play.due(), Some((Call::AskStatus, 0.0)));
    assert_eq!((play.protection(), play.offers()), (Protection::Unregistered, false));
    play.hear(Answer::AskStatus(Ok(Some(InstanceStatus::Active))));
    assert_eq!(play.due(), Some((Call::Register, 2.5)), "spread over five seconds");
    assert_eq!(play.hear(Answer::Register(Ok(()))), None);
    assert_eq!(play.due(), Some((Call::Claim, 0.0)));
    assert_eq!((play.protection(), play.offers()), (Protection::Registered, false));
    play.hear(Answer::Claim(Ok(())));
    assert_eq!(play.due(), Some((Call::Update, 0.0)));
    assert_eq!(play.hear(UTILIZED), Some(News::Protected));
    assert_eq!((play.protection(), play.offers()), (Protection::Protected, true));
    let (call, wait) = play.due().expect("a beat");
    assert!(call == Call::Update && (57.0..=67.0).contains(&wait), "{wait}");
}

#[test]
fn a_restart_of_an_active_node_is_one_call() {
    let mut play = Play::new(Mark::Active);
    let (call, wait) = play.due().expect("a beat");
    assert!(call == Call::Update && wait <= 20.0, "{wait}");
    assert_eq!((play.protection(), play.offers()), (Protection::Protected, true));
    assert_eq!(play.hear(UTILIZED), None);
    let (call, wait) = play.due().expect("a beat");
    assert!(call == Call::Update && wait >= 57.0, "{wait}");
}

/// One row for each answer: the state, the answer, the next call and its wait, with chance at one half.
#[test]
fn every_answer_in_every_state_has_its_next_call() {
    let fails = |failure| Err::<(), Failure>(failure);
    let register = |failure| Answer::Register(fails(failure));
    let claim = |failure| Answer::Claim(fails(failure));
    let update = |failure| Answer::Update(Err(failure));
    let status = |status| Answer::AskStatus(Ok(Some(status)));
    let describe = |is_ours, utilization| Answer::Describe(Ok(Registration { is_ours, utilization }));
    let conflict = || {
        let mut play = unregistered();
        play.hear(register(Failure::Conflict));
        play
    };
    let full = || {
        let mut play = registered();
        play.hear(claim(Failure::OutOfCapacity));
        play
    };
    let drained = || {
        let mut play = active();
        play.follow(course(Severity::Draining, true));
        play
    };
    let trouble = |call, failure| Some(News::Trouble(call, failure));
    let mut rows: Vec<(&str, Play, Answer, Option<(Call, f64)>, Option<News>)> = vec![
        // Unregistered.
        ("registered", unregistered(), Answer::Register(Ok(())), Some((Call::Claim, 0.0)), None),
        ("conflict", unregistered(), register(Failure::Conflict), Some((Call::Describe, 0.0)), None),
        (
            "group full",
            unregistered(),
            register(Failure::LimitExceeded),
            Some((Call::Register, 60.0)),
            trouble(Call::Register, Failure::LimitExceeded),
        ),
        (
            "wrong group",
            unregistered(),
            register(Failure::InvalidRequest),
            Some((Call::Register, 60.0)),
            trouble(Call::Register, Failure::InvalidRequest),
        ),
        (
            "no such group",
            unregistered(),
            register(Failure::NotFound),
            Some((Call::Register, 60.0)),
            trouble(Call::Register, Failure::NotFound),
        ),
        (
            "register denied",
            unregistered(),
            register(Failure::Denied),
            Some((Call::Register, 60.0)),
            trouble(Call::Register, Failure::Denied),
        ),
        (
            "clock skew",
            unregistered(),
            register(Failure::ClockSkew),
            Some((Call::Register, 60.0)),
            trouble(Call::Register, Failure::ClockSkew),
        ),
        (
            "register throttled",
            unregistered(),
            register(Failure::Throttled),
            Some((Call::Register, 2.5)),
            None,
        ),
        (
            "register unanswered",
            unregistered(),
            register(Failure::Timeout),
            Some((Call::Register, 1.0)),
            None,
        ),
        ("ours, in use", conflict(), describe(true, Utilization::Utilized), Some((Call::Update, 0.0)), None),
        ("ours, free", conflict(), describe(true, Utilization::Available), Some((Call::Claim, 0.0)), None),
        (
            "another's",
            conflict(),
            describe(false, Utilization::Utilized),
            Some((Call::Register, 60.0)),
            Some(News::Stolen),
        ),
        (
            "nobody's",
            conflict(),
            Answer::Describe(Err(Failure::NotFound)),
            Some((Call::Register, 15.0)),
            None,
        ),
        (
            "describe fails",
            conflict(),
            Answer::Describe(Err(Failure::Server)),
            Some((Call::Describe, 1.0)),
            None,
        ),
        // Registered.
        ("claimed", registered(), Answer::Claim(Ok(())), Some((Call::Update, 0.0)), None),
        ("claimed before", registered(), claim(Failure::Conflict), Some((Call::Update, 0.0)), None),
        ("not to be had", registered(), claim(Failure::OutOfCapacity), Some((Call::AskStatus, 0.0)), None),
        ("gone before the claim", registered(), claim(Failure::NotFound), Some((Call::Register, 3.5)), None),
        ("claim fails", registered(), claim(Failure::Server), Some((Call::Claim, 1.0)), None),
        (
            "not to be had: draining",
            full(),
            status(InstanceStatus::Draining),
            Some((Call::Update, 0.0)),
            None,
        ),
        ("not to be had: active", full(), status(InstanceStatus::Active), Some((Call::Claim, 1.0)), None),
        (
            "not to be had: nobody may ask",
            full(),
            Answer::AskStatus(Err(Failure::Denied)),
            Some((Call::Claim, 1.0)),
            None,
        ),
        // Claimed.
        ("gone before the update", claimed(), update(Failure::NotFound), Some((Call::Register, 3.5)), None),
        ("update unanswered", claimed(), update(Failure::Timeout), Some((Call::Update, 1.0)), None),
        // Active.
        (
            "lost",
            active(),
            update(Failure::NotFound),
            Some((Call::Register, 0.0)),
            Some(News::ProtectionLost),
        ),
        ("the claim was lost", active(), AVAILABLE, Some((Call::Claim, 0.0)), None),
        ("beat unanswered", active(), update(Failure::Timeout), Some((Call::Update, 3.5)), None),
        ("beat throttled", active(), update(Failure::Throttled), Some((Call::Update, 7.5)), None),
        (
            "beat denied",
            active(),
            update(Failure::Denied),
            Some((Call::Update, 60.0)),
            trouble(Call::Update, Failure::Denied),
        ),
        // Drained.
        ("given back", drained(), Answer::Deregister(Ok(())), None, Some(News::Deregistered)),
        (
            "given back before",
            drained(),
            Answer::Deregister(Err(Failure::NotFound)),
            None,
            Some(News::Deregistered),
        ),
        (
            "not given back",
            drained(),
            Answer::Deregister(Err(Failure::Server)),
            Some((Call::Deregister, 1.0)),
            None,
        ),
    ];
    for (name, play, answer, expected, news) in &mut rows {
        assert_eq!(play.hear(*answer), *news, "{name}");
        match (play.due(), *expected) {
            (None, None) => {}
            (Some((call, wait)), Some((expected_call, expected_wait))) => {
                assert_eq!(call, expected_call, "{name}");
                assert!((wait - expected_wait).abs() < 0.001, "{name}: {wait} and not {expected_wait}");
            }
            (due, expected) => panic!("{name}: {due:?} and not {expected:?}"),
        }
    }
}

/// Each call is one attempt: what the next one mends is not worth an Event on every node.
#[test]
fn a_failure_that_may_pass_is_told_once_it_lasts() {
    let mut play = active();
    for failure in [Failure::Server, Failure::Timeout] {
        assert_eq!(play.hear(Answer::Update(Err(failure))), None);
        assert_eq!(play.machine.problem(), None);
    }
    let news = Some(News::Trouble(Call::Update, Failure::Throttled));
    assert_eq!(play.hear(Answer::Update(Err(Failure::Throttled))), news);
    assert_eq!(play.hear(Answer::Update(Err(Failure::Throttled))), None, "said once");
    assert!(play.machine.problem().is_some_and(|problem| problem.contains("UpdateGameServer")));
    play.hear(UTILIZED);
    assert_eq!(play.machine.problem(), None);
    assert_eq!(play.hear(Answer::Update(Err(Failure::Throttled))), None, "from the beginning");
}

#[test]
fn a_registration_that_nobody_can_see_is_looked_for_three_times() {
    let mut play = unregistered();
    for round in 0..3 {
        assert_eq!(play.call(), Some(Call::Register), "{round}");
        play.hear(Answer::Register(Err(Failure::Conflict)));
        assert_eq!(play.call(), Some(Call::Describe), "{round}");
        let news = play.hear(Answer::Describe(Err(Failure::NotFound)));
        assert_eq!(news, (round == 2).then_some(News::Hidden), "{round}");
    }
    assert_eq!(play.due(), Some((Call::AskStatus, 0.0)));
    play.hear(Answer::AskStatus(Ok(Some(InstanceStatus::Draining))));
    assert_eq!(play.due(), Some((Call::Register, 60.0)));
    assert!(play.machine.problem().is_some_and(|problem| problem.contains("another group")));
}

/// Defect: a registration of another instance was taken for one's own.
#[test]
fn a_stolen_registration_is_never_taken_over_and_told_once() {
    let mut play = unregistered();
    for round in 0..10 {
        play.hear(Answer::Register(Err(Failure::Conflict)));
        let found = Registration { is_ours: false, utilization: Utilization::Available };
        assert_eq!(play.hear(Answer::Describe(Ok(found))), (round == 0).then_some(News::Stolen));
        assert_eq!(play.due(), Some((Call::Register, 60.0)), "neither claimed nor updated");
    }
}

#[test]
fn defect_13_a_claim_that_has_grown_old_is_made_again_before_it_is_used() {
    let mut play = claimed();
    play.second = 50;
    assert_eq!(play.call(), Some(Call::Update));
    play.hear(Answer::Update(Err(Failure::Timeout)));
    play.second = 51;
    assert_eq!(play.due(), Some((Call::Claim, 0.0)));
    play.hear(Answer::Claim(Err(Failure::Conflict)));
    assert_eq!(play.due(), Some((Call::Update, 0.0)));
}

#[test]
fn a_claim_that_never_helps_is_not_made_without_a_pause() {
    let mut play = claimed();
    let mut waits = Vec::new();
    for _ in 0..4 {
        play.hear(AVAILABLE);
        let (call, wait) = play.due().expect("a claim");
        assert_eq!(call, Call::Claim);
        waits.push(wait);
        play.hear(Answer::Claim(Ok(())));
    }
    assert_eq!(waits, [0.0, 2.0, 4.0, 8.0]);
}

#[test]
fn defect_14_what_was_lost_is_registered_again_and_said_so_also_while_draining() {
    for course in [Course::Open, course(Severity::Draining, false), course(Severity::Claimed, true)] {
        let mut play = active();
        play.follow(course.clone());
        assert_eq!(play.call(), Some(Call::Update), "{course:?}");
        assert_eq!(play.hear(Answer::Update(Err(Failure::NotFound))), Some(News::ProtectionLost));
        assert_eq!(play.protection(), Protection::Missing);
        assert_eq!(play.due(), Some((Call::Register, 0.0)), "{course:?}");
        assert_eq!(play.hear(Answer::Register(Ok(()))), Some(News::Reregistered));
        play.hear(Answer::Claim(Ok(())));
        assert_eq!(play.hear(UTILIZED), None);
        assert_eq!(play.protection(), Protection::Protected);
    }
}

#[test]
fn a_notice_of_the_end_begins_nothing_and_keeps_what_there_is() {
    for severity in [Severity::Spot, Severity::AutoScaling] {
        for mut play in [Play::new(Mark::None), unregistered(), registered()] {
            play.follow(course(severity, false));
            assert_eq!(play.call(), None, "neither registered nor claimed");
        }
        for mut play in [claimed(), active()] {
            play.follow(course(severity, false));
            assert_eq!(play.call(), Some(Call::Update));
        }
        let mut play = active();
        play.follow(course(severity, false));
        play.hear(Answer::Update(Err(Failure::NotFound)));
        assert_eq!(play.call(), None);
        let mut play = active();
        play.follow(course(severity, true));
        assert_eq!(play.due(), Some((Call::Deregister, 0.0)));
    }
}

#[test]
fn an_empty_node_is_given_back_at_once_and_only_if_its_notice_says_so() {
    let table = [
        (Severity::Draining, true, Call::Deregister),
        (Severity::Ordered, true, Call::Deregister),
        (Severity::Scheduled, true, Call::Deregister),
        (Severity::Claimed, true, Call::Update),
        (Severity::Draining, false, Call::Update),
    ];
    for (severity, is_drained, expected) in table {
        let mut play = active();
        play.follow(course(severity, is_drained));
        assert_eq!(play.call(), Some(expected), "{severity:?} {is_drained}");
    }
}

#[test]
fn defect_31_what_was_given_back_makes_no_calls_until_the_node_opens_again() {
    let mut play = deregistered();
    assert_eq!((play.call(), play.protection(), play.offers()), (None, Protection::Released, false));
    play.second = 100_000;
    assert_eq!(play.call(), None);
    play.follow(Course::Open);
    assert_eq!(play.due(), Some((Call::Register, 2.5)));
    assert_eq!(play.hear(Answer::Register(Ok(()))), None, "a registration like the first");
    play.hear(Answer::Claim(Ok(())));
    assert_eq!(play.hear(UTILIZED), Some(News::Protected));
}

#[test]
fn defect_11_a_restart_after_the_release_does_not_take_an_unknown_course_for_an_open_one() {
    let mut play = Play::new(Mark::Deregistered);
    play.follow(Course::Open);
    assert_eq!(play.call(), None);
    play.follow(course(Severity::Ordered, true));
    assert_eq!(play.call(), None);
    play.follow(Course::Open);
    assert_eq!(play.call(), Some(Call::Register));
}

#[test]
fn an_order_to_give_back_is_obeyed_in_every_state_and_for_good() {
    for mut play in [Play::new(Mark::None), unregistered(), registered(), claimed(), active()] {
        play.machine.give_up();
        assert_eq!(play.due(), Some((Call::Deregister, 0.0)));
        play.hear(Answer::Deregister(Err(Failure::Throttled)));
        assert_eq!(play.due(), Some((Call::Deregister, 2.5)));
        play.hear(Answer::Deregister(Err(Failure::NotFound)));
        play.follow(course(Severity::Ordered, true));
        play.follow(Course::Open);
        assert_eq!(play.call(), None);
    }
}

#[test]
fn an_undrain_before_the_release_goes_on_as_if_nothing_had_been() {
    let mut play = active();
    play.follow(course(Severity::Ordered, true));
    play.hear(Answer::Deregister(Err(Failure::Server)));
    play.follow(Course::Open);
    assert_eq!(play.due(), Some((Call::Update, 0.0)));
}

#[test]
fn without_a_mark_a_draining_instance_is_looked_for_before_it_is_registered() {
    let mut play = Play::new(Mark::None);
    play.hear(Answer::AskStatus(Ok(Some(InstanceStatus::Draining))));
    assert_eq!(play.due(), Some((Call::Describe, 0.0)));
    let found = Registration { is_ours: true, utilization: Utilization::Utilized };
    play.hear(Answer::Describe(Ok(found)));
    assert_eq!(play.due(), Some((Call::Update, 0.0)), "its sessions stay protected");
    let mut play = Play::new(Mark::None);
    play.hear(Answer::AskStatus(Ok(Some(InstanceStatus::Draining))));
    play.hear(Answer::Describe(Err(Failure::NotFound)));
    assert_eq!(
        play.due(),
        Some((Call::Register, 15.0)),
        "time for the drain to find out whether it is empty"
    );
}

#[test]
fn the_status_is_done_without_where_it_cannot_be_had() {
    let mut play = Play::new(Mark::None);
    play.hear(Answer::AskStatus(Err(Failure::Denied)));
    assert_eq!(play.call(), Some(Call::Register));
    let mut play = Play::new(Mark::None);
    for _ in 0..3 {
        play.hear(Answer::AskStatus(Err(Failure::Timeout)));
        assert_eq!(play.call(), Some(Call::AskStatus));
    }
    play.hear(Answer::AskStatus(Err(Failure::Timeout)));
    assert_eq!(play.call(), Some(Call::Register));
}

#[test]
fn an_instance_of_a_warm_pool_is_neither_registered_nor_offered() {
    let mut play = Play::new(Mark::None);
    play.is_warmed = true;
    assert_eq!(play.call(), None);
    play.second = 10_000;
    assert!(!play.offers(), "however long it waits");
    play.is_warmed = false;
    assert_eq!(play.call(), Some(Call::AskStatus));
}

#[test]
fn a_node_that_cannot_be_registered_is_offered_after_a_while_if_so_wished() {
    let mut play = unregistered();
    play.hear(Answer::Register(Err(Failure::Denied)));
    let looked = |play: &mut Play, policy| {
        let course = play.course.clone();
        let outside = Outside { course: &course, is_warmed: false };
        play.machine.look(&outside, policy, at(play.second))
    };
    assert_eq!(play.machine.look_at(POLICY), Some(at(300)));
    play.second = 299;
    assert!(!play.offers());
    assert_eq!(looked(&mut play, POLICY), None);
    play.second = 300;
    assert!(play.offers());
    assert_eq!(looked(&mut play, POLICY), Some(News::OffersUnprotected));
    assert_eq!(looked(&mut play, POLICY), None, "said once");
    let offers = play.machine.offers(&play.outside(), Unprotected::Refuse, at(1_000_000));
    assert!(matches!(offers, Offers::Withheld { .. }));
}

#[test]
fn two_minutes_without_a_beat_are_told_once() {
    let mut play = active();
    let course = Course::Open;
    let outside = Outside { course: &course, is_warmed: false };
    assert!(play.machine.is_well(at(119)));
    assert_eq!(play.machine.look_at(POLICY), Some(at(120)));
    assert_eq!(play.machine.look(&outside, POLICY, at(119)), None);
    assert_eq!(play.machine.look(&outside, POLICY, at(120)), Some(News::Silent));
    assert_eq!(play.machine.look(&outside, POLICY, at(180)), None);
    assert!(!play.machine.is_well(at(120)));
    assert_eq!(play.protection(), Protection::Protected, "FleetIQ has not let go of it yet");
    play.second = 200;
    play.hear(UTILIZED);
    assert_eq!(play.machine.look(&outside, POLICY, at(201)), None);
    assert_eq!(play.machine.look(&outside, POLICY, at(320)), Some(News::Silent));
}

#[test]
fn protection_that_is_missing_for_two_minutes_is_claimed_anew_and_told_once() {
    let mut play = active();
    assert_eq!(play.machine.see_protection(false, at(10)), None);
    assert_eq!(play.machine.see_protection(false, at(100)), None);
    assert_eq!(play.machine.see_protection(false, at(131)), Some(News::ProtectionMissing));
    play.second = 131;
    assert_eq!(play.due(), Some((Call::Claim, 0.0)));
    assert_eq!((play.protection(), play.offers()), (Protection::Missing, true));
    play.hear(Answer::Claim(Err(Failure::Conflict)));
    assert_eq!(play.hear(UTILIZED), None);
    assert_eq!(play.protection(), Protection::Missing);
    assert_eq!(play.machine.see_protection(false, at(300)), None);
    assert_eq!(play.call(), Some(Call::Update));
    assert_eq!(play.machine.see_protection(false, at(740)), None, "told before");
    assert_eq!(play.call(), Some(Call::Claim));
    play.hear(Answer::Claim(Err(Failure::Conflict)));
    play.hear(UTILIZED);
    assert_eq!(play.machine.see_protection(true, at(800)), None);
    assert_eq!((play.protection(), play.machine.problem()), (Protection::Protected, None));
}
