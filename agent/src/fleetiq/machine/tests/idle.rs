//! The table of an instance that nobody needs: it is given back, rests, and comes back.

use berth_api::game_node::Protection;

use super::{
    AVAILABLE, Answer, Call, Course, Failure, Mark, News, Notice, Play, Registration, Severity, Source,
    UTILIZED, Utilization, active, at, claimed, course, registered, unregistered,
};

const LIVE: Answer = Answer::Live(Ok(Utilization::Available));

fn spare(is_empty: bool) -> Course {
    let reason = "no session for 10 minutes".into();
    let notice = Notice { source: Source::Surplus, severity: Severity::Surplus, reason, deadline: None };
    Course::Spare { notice, is_empty }
}

/// One that rests.
fn resting() -> Play {
    let mut play = active();
    play.follow(spare(true));
    assert_eq!(play.due(), Some((Call::Deregister, 0.0)));
    play.hear(Answer::Deregister(Ok(())));
    play.follow(spare(true));
    play.hear(Answer::Register(Ok(())));
    play.hear(LIVE);
    play
}

#[test]
fn it_is_kept_until_nothing_is_left_on_it() {
    for mut play in [unregistered(), claimed(), active()] {
        let before = play.call();
        play.follow(spare(false));
        assert_eq!(play.call(), before);
    }
    let mut play = registered();
    play.follow(spare(false));
    assert_eq!(play.call(), Some(Call::Live), "what is not in use yet is not taken for those who leave");
    let mut play = active();
    play.follow(spare(false));
    assert_eq!(play.protection(), Protection::Protected);
    play.second = 60;
    assert_eq!(play.hear(UTILIZED), None);
    // A session came after all.
    play.follow(Course::Open);
    assert!(play.offers(), "at once: it has been in use all the time");
}

#[test]
fn it_is_given_back_registered_and_not_claimed() {
    let mut play = active();
    play.follow(spare(true));
    assert_eq!(play.due(), Some((Call::Deregister, 0.0)));
    assert_eq!(play.hear(Answer::Deregister(Ok(()))), Some(News::Deregistered));
    play.follow(spare(true));
    assert_eq!(play.due(), Some((Call::Register, 2.5)));
    assert_eq!(play.hear(Answer::Register(Ok(()))), None, "nothing was lost");
    assert_eq!(play.due(), Some((Call::Live, 0.0)));
    assert_eq!((play.protection(), play.offers()), (Protection::Registered, false));
    play.second = 100;
    assert_eq!(play.hear(LIVE), None);
    let (call, wait) = play.due().expect("a sign of life");
    assert!(call == Call::Live && (57.0..=67.0).contains(&wait), "{wait}");
    assert!(play.machine.is_well(at(219)) && !play.machine.is_well(at(220)));
    assert!(!play.machine.beats(), "a stop does not say that it is in use");
    play.second = 1_000_000;
    assert!(!play.offers(), "however long it rests");
}

#[test]
fn it_comes_back_when_fleetiq_has_answered_that_it_is_in_use() {
    let mut play = resting();
    play.second = 1_000_000;
    play.follow(Course::Open);
    assert_eq!(play.due(), Some((Call::Claim, 0.0)));
    assert!(!play.offers());
    play.hear(Answer::Claim(Err(Failure::Unreachable)));
    play.second += 10_000;
    assert!(!play.offers(), "an instance that may be taken away is never offered");
    play.hear(Answer::Claim(Ok(())));
    assert_eq!((play.due(), play.offers()), (Some((Call::Update, 0.0)), false));
    play.hear(AVAILABLE);
    assert_eq!((play.due(), play.offers()), (Some((Call::Claim, 0.0)), false));
    play.hear(Answer::Claim(Err(Failure::Conflict)));
    assert_eq!(play.hear(UTILIZED), Some(News::Protected));
    assert_eq!((play.protection(), play.offers()), (Protection::Protected, true));
}

#[test]
fn one_that_is_needed_before_it_was_given_back_says_so_first() {
    let mut play = active();
    play.follow(spare(true));
    play.follow(Course::Open);
    assert_eq!((play.due(), play.offers()), (Some((Call::Update, 0.0)), false));
    play.hear(UTILIZED);
    assert!(play.offers());

    // Nobody knows whether it was given back.
    let mut play = active();
    play.follow(spare(true));
    play.hear(Answer::Deregister(Err(Failure::Timeout)));
    assert_eq!(play.call(), Some(Call::Deregister), "it is tried again");
    play.follow(Course::Open);
    assert_eq!((play.due(), play.offers()), (Some((Call::Update, 0.0)), false));
    play.hear(Answer::Update(Err(Failure::Timeout)));
    let again = play.due();
    play.follow(Course::Open);
    assert_eq!(play.due(), again, "in its time");
    play.hear(Answer::Update(Err(Failure::NotFound)));
    assert_eq!((play.call(), play.offers()), (Some(Call::Register), false));
}

#[test]
fn every_answer_to_a_sign_of_life_that_claims_nothing() {
    let mut play = resting();
    assert_eq!(play.hear(Answer::Live(Err(Failure::NotFound))), None, "nothing was kept");
    assert_eq!(play.call(), Some(Call::Register));
    assert_eq!(play.hear(Answer::Register(Ok(()))), None);
    assert_eq!(play.call(), Some(Call::Live));

    let mut play = resting();
    play.hear(Answer::Live(Ok(Utilization::Utilized)));
    assert_eq!((play.call(), play.offers()), (Some(Call::Deregister), false), "somebody else has taken it");
    play.hear(Answer::Deregister(Ok(())));
    play.follow(spare(true));
    assert_eq!(play.call(), Some(Call::Register));

    let mut play = resting();
    assert_eq!(play.hear(Answer::Live(Err(Failure::Throttled))), None);
    let (call, wait) = play.due().expect("again");
    assert!(call == Call::Live && wait < 60.0, "{wait}");
    let news = play.hear(Answer::Live(Err(Failure::Denied)));
    assert_eq!(news, Some(News::Trouble(Call::Live, Failure::Denied)));
    play.hear(LIVE);
    assert_eq!(play.machine.problem(), None);
}

#[test]
fn a_registration_that_is_there_is_found_and_kept_free() {
    let mut play = active();
    play.follow(spare(true));
    play.hear(Answer::Deregister(Err(Failure::NotFound)));
    play.follow(spare(true));
    play.hear(Answer::Register(Err(Failure::Conflict)));
    let found = |utilization| Answer::Describe(Ok(Registration { is_ours: true, utilization }));
    play.hear(found(Utilization::Available));
    assert_eq!(play.call(), Some(Call::Live));
    play.hear(Answer::Live(Err(Failure::NotFound)));
    play.hear(Answer::Register(Err(Failure::Conflict)));
    play.hear(found(Utilization::Utilized));
    assert_eq!(play.call(), Some(Call::Deregister));
}

#[test]
fn a_notice_of_its_end_takes_one_that_rests_as_it_is() {
    for severity in [Severity::Draining, Severity::Ordered, Severity::Spot] {
        let mut play = resting();
        play.follow(course(severity, false));
        let expected = (severity != Severity::Spot).then_some(Call::Live);
        assert_eq!(play.call(), expected, "{severity:?}: nobody is on it");
        play.follow(course(severity, true));
        assert_eq!(play.call(), Some(Call::Deregister), "{severity:?}");
    }
    let mut play = resting();
    play.follow(course(Severity::Claimed, true));
    assert_eq!(play.call(), Some(Call::Live), "an autoscaler that takes it is not held up");
    play.follow(Course::Closed { notice: spare(true).notice().expect("one").clone(), let_go_at: at(0) });
    assert_eq!(play.call(), Some(Call::Live), "closed by somebody: nobody can come");
    play.follow(Course::Open);
    assert_eq!(play.call(), Some(Call::Claim));
}

#[test]
fn a_successor_goes_on_from_each_mark() {
    let table =
        [(Mark::None, Call::AskStatus), (Mark::Registered, Call::Live), (Mark::Active, Call::Deregister)];
    for (mark, expected) in table {
        let mut play = Play::new(mark);
        play.follow(spare(true));
        assert_eq!((play.due(), play.offers()), (Some((expected, 0.0)), false), "{mark:?}");
    }
}
