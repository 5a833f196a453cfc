//! What each answer means, and what a node's deadline is worth.

use std::time::Duration;

use jiff::Timestamp;

use super::{Lack, Machine, News, Outside, Resumed};
use crate::drain::Course;
use crate::drain::notice::{Notice, Severity, Source};
use crate::hook::Stage;
use crate::hook::call::{Answer, Call, Failure, Operation};

/// Of a heartbeat.
const TIMEOUT: Duration = Duration::from_secs(30);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn notice() -> Notice {
    Notice {
        source: Source::Lifecycle,
        severity: Severity::AutoScaling,
        reason: "because".into(),
        deadline: None,
    }
}

/// A machine, and what is outside of it.
struct Scene {
    machine: Machine,
    course: Course,
    is_ending: bool,
}

impl Scene {
    fn new() -> Self {
        Self::resumed(None)
    }

    fn resumed(resumed: Option<Resumed>) -> Self {
        Self { machine: Machine::new(resumed, at(0), 0.0), course: Course::Open, is_ending: false }
    }

    /// One that knows its hook before the instance's end is near.
    fn knowing() -> Self {
        let mut scene = Self::new();
        assert_eq!(scene.answer(0, group()), (Operation::FindGroup, None));
        assert_eq!(scene.answer(0, lasts(TIMEOUT)), (Operation::DescribeHook, None));
        assert_eq!(scene.due(0), None, "nothing is called while the instance stays");
        scene
    }

    /// One whose hook is known to wait since second 100.
    fn held() -> Self {
        let mut scene = Self::knowing();
        scene.end(100);
        scene.answer(100, lasts(TIMEOUT));
        assert_eq!(scene.answer(100, beat(Ok(()))), (Operation::Beat, Some(News::Holds(at(100 + 3000)))));
        scene
    }

    /// Auto Scaling ends the instance, and the node drains.
    fn end(&mut self, second: i64) {
        self.is_ending = true;
        self.course = Course::Draining { notice: notice() };
        self.follow(second);
    }

    fn drained(&mut self) {
        self.course = Course::Drained { notice: notice() };
    }

    fn follow(&mut self, second: i64) {
        let outside = Outside { course: &self.course, is_ending: self.is_ending };
        self.machine.follow(&outside, at(second));
    }

    /// What is called next, and from when on.
    fn due(&self, second: i64) -> Option<(Operation, i64)> {
        let outside = Outside { course: &self.course, is_ending: self.is_ending };
        let due = self.machine.next(&outside)?;
        let from = due.at.map_or(second, Timestamp::as_second);
        if let Call::DescribeHook { group } | Call::Beat { group } | Call::Complete { group } = &due.call {
            assert_eq!(group, "pvp");
        }
        Some((due.call.operation(), from.max(second)))
    }

    /// Answers the call that is made now.
    fn answer(&mut self, second: i64, answer: Answer) -> (Operation, Option<News>) {
        let (operation, from) = self.due(second).expect("a call");
        assert_eq!(from, second, "{operation:?}");
        assert_eq!(answer.outcome().0, operation);
        (operation, self.machine.hear(answer, at(second), 0.0))
    }

    fn deadline(&self, second: i64) -> Option<i64> {
        self.machine.deadline(at(second)).map(Timestamp::as_second)
    }
}

fn group() -> Answer {
    Answer::FindGroup(Ok(Some("pvp".into())))
}

fn lasts(timeout: Duration) -> Answer {
    Answer::DescribeHook(Ok(Some(timeout)))
}

fn beat(answer: Result<(), Failure>) -> Answer {
    Answer::Beat(answer)
}

#[test]
fn a_heartbeat_follows_the_last_after_a_third_of_its_time_and_the_end_is_told_once_the_node_is_empty() {
    let mut scene = Scene::held();
    assert_eq!(scene.machine.stage(), Stage::Waits);
    for second in (110..3000).step_by(10) {
        assert_eq!(scene.due(second - 10), Some((Operation::Beat, second)));
        assert_eq!(scene.answer(second, beat(Ok(()))).1, None);
        assert_eq!(scene.deadline(second + 19), Some(3100), "it does not move");
        assert_eq!(scene.machine.beats(), Some((at(second), at((second + 30).min(3100)))));
    }
    scene.drained();
    assert_eq!(scene.answer(2995, Answer::Complete(Ok(()))).1, Some(News::Completed));
    assert_eq!((scene.machine.stage(), scene.due(2996)), (Stage::Completed, None));
}

#[test]
fn no_hook_holds_an_instance_for_more_than_two_days() {
    for (timeout, hours) in [(1728, 48), (7200, 48), (1800, 48), (360, 10)] {
        let mut scene = Scene::resumed(Some(Resumed { since: at(0), deadline: None }));
        scene.end(0);
        scene.answer(0, group());
        scene.answer(0, lasts(Duration::from_secs(timeout)));
        assert_eq!(scene.deadline(0), None, "nobody knows yet whether it waits");
        assert_eq!(scene.answer(0, beat(Ok(()))).1, Some(News::Holds(at(hours * 3600))));
        assert_eq!(scene.deadline(0), Some(hours * 3600), "{timeout}");
    }
}

#[test]
fn an_empty_node_holds_nothing_up() {
    let mut scene = Scene::new();
    scene.end(5);
    scene.drained();
    assert_eq!(scene.answer(5, group()), (Operation::FindGroup, None));
    assert_eq!(scene.answer(5, Answer::Complete(Ok(()))).1, Some(News::Completed));
    assert_eq!(scene.due(6), None);
}

#[test]
fn nothing_is_completed_before_the_drain_knows_of_the_end() {
    let mut scene = Scene::held();
    scene.course = Course::Drained { notice: Notice { severity: Severity::Ordered, ..notice() } };
    assert_eq!(scene.due(101), Some((Operation::Beat, 110)));
    scene.course = Course::Draining { notice: notice() };
    assert_eq!(scene.due(101), Some((Operation::Beat, 110)));
    scene.drained();
    assert_eq!(scene.due(101), Some((Operation::Complete, 101)));
}

#[test]
fn while_the_instance_stays_the_hook_is_looked_at_once_and_what_fails_is_tried_seldom() {
    let machine = Machine::new(None, at(0), 0.5);
    let outside = Outside { course: &Course::Open, is_ending: false };
    assert_eq!(machine.next(&outside).and_then(|due| due.at), Some(at(30)), "not all agents at once");

    let mut scene = Scene::new();
    let denied = Answer::FindGroup(Err(Failure::Denied));
    let news = scene.answer(0, denied.clone()).1;
    assert_eq!(news, Some(News::Trouble(Operation::FindGroup, Failure::Denied)));
    assert_eq!(scene.due(0), Some((Operation::FindGroup, 150)));
    assert_eq!(scene.answer(150, denied).1, None, "it is told once");
    assert_eq!(scene.machine.problem(), Some((Operation::FindGroup, Failure::Denied)));
    scene.answer(300, group());
    assert_eq!((scene.machine.problem(), scene.due(300)), (None, Some((Operation::DescribeHook, 300))));
    scene.answer(300, Answer::DescribeHook(Err(Failure::Throttled)));
    // Now there is no time to lose.
    scene.end(310);
    assert_eq!(scene.due(310), Some((Operation::DescribeHook, 310)));
}

#[test]
fn a_hook_is_asked_about_again_when_the_end_is_near_and_what_was_known_does() {
    let longer = Duration::from_secs(300);
    let mut scene = Scene::knowing();
    scene.end(100);
    scene.answer(100, lasts(longer));
    scene.answer(100, beat(Ok(())));
    assert_eq!(scene.due(100), Some((Operation::Beat, 200)));

    let mut scene = Scene::knowing();
    scene.end(100);
    scene.answer(100, Answer::DescribeHook(Err(Failure::Unreachable)));
    scene.answer(100, beat(Ok(())));
    assert_eq!(scene.due(100), Some((Operation::Beat, 110)));
    assert_eq!(scene.deadline(100), Some(3100));
}

#[test]
fn a_hook_that_is_lacking_is_told_and_looked_for_once_more() {
    for (answer, lack) in [
        (None, Lack::Group),
        (Some(Answer::DescribeHook(Ok(None))), Lack::Hook { group: "pvp".into() }),
        (Some(Answer::DescribeHook(Err(Failure::InvalidRequest))), Lack::Hook { group: "pvp".into() }),
    ] {
        let mut scene = Scene::new();
        let look = |scene: &mut Scene, second| match &answer {
            None => scene.answer(second, Answer::FindGroup(Ok(None))).1,
            Some(answer) => {
                if scene.due(second).expect("a call").0 == Operation::FindGroup {
                    scene.answer(second, group());
                }
                scene.answer(second, answer.clone()).1
            }
        };
        assert_eq!(look(&mut scene, 0), Some(News::Lacking(lack.clone())));
        assert_eq!(scene.machine.lacks(), Some(&lack));
        assert_eq!((scene.due(1), scene.deadline(1)), (None, None));
        scene.end(100);
        look(&mut scene, 100);
        assert_eq!((scene.machine.stage(), scene.due(101)), (Stage::Passed, None));
        assert_eq!(scene.deadline(100), Some(160), "as where no hook is named");
    }
}

#[test]
fn an_action_that_is_not_there_may_yet_come_for_a_while() {
    let refused = || {
        let mut scene = Scene::knowing();
        scene.end(100);
        scene.answer(100, lasts(TIMEOUT));
        for second in [100, 105, 110] {
            assert_eq!(scene.answer(second, beat(Err(Failure::InvalidRequest))).1, None);
            assert_eq!(scene.deadline(second), None);
        }
        scene
    };
    let mut late = refused();
    assert_eq!(late.answer(115, beat(Ok(()))).1, Some(News::Holds(at(3100))));

    let mut never = refused();
    assert_eq!(never.answer(115, beat(Err(Failure::InvalidRequest))).1, Some(News::Passed));
    assert_eq!((never.machine.stage(), never.due(116)), (Stage::Passed, None));
    assert_eq!(never.deadline(115), Some(160));
}

#[test]
fn an_action_that_somebody_else_has_answered_is_over_at_once() {
    let mut scene = Scene::held();
    assert_eq!(scene.answer(110, beat(Err(Failure::InvalidRequest))).1, Some(News::Passed));
    assert_eq!((scene.machine.stage(), scene.due(111)), (Stage::Passed, None));
    assert_eq!(scene.deadline(110), Some(170));

    let mut scene = Scene::held();
    scene.drained();
    assert_eq!(scene.answer(105, Answer::Complete(Err(Failure::InvalidRequest))).1, None);
    assert_eq!((scene.machine.stage(), scene.due(106)), (Stage::Passed, None));
}

/// A predecessor may have told Auto Scaling to go on, and died before it could note that.
#[test]
fn a_successor_asks_once_whether_it_may_go_on() {
    let mut scene = Scene::resumed(Some(Resumed { since: at(-20), deadline: Some(at(980)) }));
    scene.drained();
    scene.answer(0, group());
    assert_eq!(scene.answer(0, Answer::Complete(Err(Failure::InvalidRequest))).1, None);
    assert_eq!((scene.due(1), scene.deadline(1)), (None, None), "what was said stands");
}

#[test]
fn a_successor_goes_on_with_the_end_that_was_known() {
    let mut scene = Scene::resumed(Some(Resumed { since: at(-1000), deadline: Some(at(2000)) }));
    scene.end(0);
    // What a predecessor has said stands, however long nothing can be asked.
    assert_eq!(scene.answer(0, Answer::FindGroup(Err(Failure::Unreachable))).1, None);
    assert_eq!(scene.deadline(3600), None);
    scene.answer(1, group());
    scene.answer(1, lasts(TIMEOUT));
    assert_eq!(scene.deadline(1), None);
    assert_eq!(scene.answer(1, beat(Ok(()))).1, Some(News::Holds(at(2000))));
    assert_eq!(scene.deadline(1), Some(2000));
}

#[test]
fn a_hook_of_which_nothing_can_be_learned_holds_nothing() {
    let mut scene = Scene::new();
    scene.end(100);
    let news = scene.answer(100, Answer::FindGroup(Err(Failure::Denied))).1;
    assert_eq!(news, Some(News::Trouble(Operation::FindGroup, Failure::Denied)));
    assert_eq!((scene.deadline(119), scene.machine.look_at(at(100))), (None, Some(at(120))));
    assert_eq!(scene.deadline(120), Some(160));
    // It is asked on all the same: the instance need not end by then.
    assert_eq!(scene.due(120), Some((Operation::FindGroup, 148)));
}

/// Sessions get their grace before an instance that no heartbeat holds any more is gone.
#[test]
fn heartbeats_that_fail_bring_the_deadline_near_once_a_whole_one_is_missed() {
    for failure in [Failure::Denied, Failure::Throttled, Failure::Server, Failure::Timeout] {
        let mut scene = Scene::held();
        let mut attempts = 0;
        for second in 110..130 {
            if scene.due(second) == Some((Operation::Beat, second)) {
                scene.answer(second, beat(Err(failure)));
                attempts += 1;
                // Chance is 0 here; no attempt follows another at once where it is not.
                let wait = scene.machine.wait.expect("a wait").1.duration_since(at(second));
                assert!(wait.as_secs() <= 5, "{failure:?}: {wait}");
            }
            let expected = if second < 120 { 3100 } else { 130 };
            assert_eq!(scene.deadline(second), Some(expected), "{failure:?} at {second}");
        }
        assert!(attempts >= 4, "{failure:?}: {attempts}");
        assert_eq!(scene.machine.problem(), Some((Operation::Beat, failure)));
        assert_eq!(scene.due(130).map(|(operation, _)| operation), Some(Operation::Beat));
        scene.machine.hear(beat(Ok(())), at(130), 0.0);
        assert_eq!((scene.machine.problem(), scene.due(130)), (None, Some((Operation::Beat, 140))));
    }
    // One that has not taken any yet waits for one all the same.
    let mut scene = Scene::knowing();
    scene.end(100);
    scene.answer(100, lasts(TIMEOUT));
    scene.answer(100, beat(Err(Failure::Denied)));
    assert_eq!((scene.deadline(119), scene.machine.look_at(at(100))), (None, Some(at(120))));
    assert_eq!(scene.deadline(120), Some(130));
}

#[test]
fn what_passes_with_the_next_attempts_is_not_told() {
    let mut scene = Scene::held();
    let news: Vec<Option<News>> =
        (0..4).map(|_| scene.machine.hear(beat(Err(Failure::Throttled)), at(110), 0.0)).collect();
    let told = Some(News::Trouble(Operation::Beat, Failure::Throttled));
    assert_eq!(news, [None, None, told, None]);
}

#[test]
fn the_end_is_told_however_long_that_fails() {
    let mut scene = Scene::held();
    scene.drained();
    for second in [200, 250, 300] {
        assert_eq!(scene.due(second), Some((Operation::Complete, second)));
        scene.answer(second, Answer::Complete(Err(Failure::Denied)));
        assert_eq!(scene.due(second), Some((Operation::Complete, second + 48)));
    }
    assert_eq!(scene.answer(400, Answer::Complete(Ok(()))).1, Some(News::Completed));
}

#[test]
fn a_time_that_no_heartbeat_has_is_taken_for_the_shortest() {
    let mut scene = Scene::new();
    scene.end(0);
    scene.answer(0, group());
    scene.answer(0, lasts(Duration::ZERO));
    scene.answer(0, beat(Ok(())));
    assert_eq!(scene.due(0), Some((Operation::Beat, 10)));
}
