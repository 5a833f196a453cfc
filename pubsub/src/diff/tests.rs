//! The tables of the publisher's decisions.

use super::*;
use crate::pace::Ending;
use crate::picture::{Listed, Moment, Poll};

const ARN: &str = "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu";

use InstanceStatus::{Active, Draining, SpotTerminating};

struct Stage {
    start: Instant,
    picture: Picture,
    survey: Survey,
    told: Told,
    terms: Terms,
}

impl Stage {
    fn new() -> Self {
        let terms = Terms { heartbeat: Duration::from_secs(60), publisher: "one".to_owned() };
        Self {
            start: Instant::now(),
            picture: Picture::default(),
            survey: Survey::default(),
            told: Told::default(),
            terms,
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn poll(&mut self, seconds: u64, ending: Ending, instances: &[(&str, InstanceStatus)]) {
        let wall = Timestamp::from_second(1_790_000_000 + i64::try_from(seconds).unwrap()).unwrap();
        let now = Moment { wall, instant: self.at(seconds) };
        let instances = instances.iter().map(|(id, status)| Listed {
            instance: (*id).to_owned(),
            group_arn: ARN.to_owned(),
            status: Some(*status),
        });
        let poll = Poll { instances: instances.collect(), ending, error: None };
        let group = self.picture.0.entry("pvp-eu".to_owned()).or_default();
        group.period = Duration::from_secs(30);
        group.take(poll, now);
    }

    /// Does what is planned, and tells it in short.
    fn turn(&mut self, seconds: u64) -> Vec<String> {
        let now = self.at(seconds);
        let plan = plan(&self.picture, &self.survey, &self.told, &self.terms, now);
        plan.operations
            .iter()
            .map(|operation| {
                self.told.note(operation, now);
                match operation {
                    Operation::Keep { key, .. } => format!("keep {key}"),
                    Operation::Say { instance, status, is_change, .. } => {
                        format!("say {instance} {}{}", status.as_str(), if *is_change { "!" } else { "" })
                    }
                    Operation::Forget { key, .. } => format!("forget {key}"),
                }
            })
            .collect()
    }

    fn said(&mut self, seconds: u64) -> Vec<String> {
        self.turn(seconds).into_iter().filter(|line| line.starts_with("say")).collect()
    }
}

#[test]
fn a_key_is_written_before_the_message_of_the_same_instance() {
    let mut stage = Stage::new();
    stage.poll(0, Ending::Complete, &[("i-1", Active), ("i-2", Draining)]);
    assert_eq!(
        stage.turn(0),
        [
            "keep fleetiq:instance:{i-1}",
            "say i-1 ACTIVE!",
            "keep fleetiq:instance:{i-2}",
            "say i-2 DRAINING!",
            "keep fleetiq:publisher:{pvp-eu}",
            "keep fleetiq:group:{pvp-eu}",
        ]
    );
    assert!(stage.turn(1).is_empty(), "all is told");
}

#[test]
fn an_unchanged_status_is_said_once_a_minute_whatever_the_period_of_polls() {
    let mut stage = Stage::new();
    let mut said = Vec::new();
    for seconds in 0..=300 {
        if seconds % 10 == 0 {
            stage.poll(seconds, Ending::Complete, &[("i-1", Active)]);
        }
        if !stage.said(seconds).is_empty() {
            said.push(seconds);
        }
    }
    assert_eq!(said, [0, 60, 120, 180, 240, 300]);
}

#[test]
fn a_changed_status_is_said_at_once_and_starts_the_minute_over() {
    let mut stage = Stage::new();
    stage.poll(0, Ending::Complete, &[("i-1", Active)]);
    stage.turn(0);
    stage.poll(30, Ending::Complete, &[("i-1", Draining)]);
    assert_eq!(stage.said(30), ["say i-1 DRAINING!"]);
    stage.poll(60, Ending::Complete, &[("i-1", Draining)]);
    assert!(stage.said(60).is_empty());
    let plan = plan(&stage.picture, &stage.survey, &stage.told, &stage.terms, stage.at(60));
    assert_eq!(plan.next, Some(stage.at(90)));
    assert_eq!(stage.said(90), ["say i-1 DRAINING"]);
    stage.poll(91, Ending::Complete, &[("i-1", SpotTerminating)]);
    assert_eq!(stage.said(91), ["say i-1 SPOT_TERMINATING!"]);
}

#[test]
fn what_is_kept_is_written_again_at_each_poll() {
    let mut stage = Stage::new();
    stage.poll(0, Ending::Complete, &[("i-1", Active)]);
    stage.turn(0);
    stage.poll(30, Ending::Complete, &[("i-1", Active)]);
    let keys =
        ["keep fleetiq:instance:{i-1}", "keep fleetiq:publisher:{pvp-eu}", "keep fleetiq:group:{pvp-eu}"];
    assert_eq!(stage.turn(30), keys);
    stage.poll(60, Ending::Failed, &[]);
    assert_eq!(stage.turn(60), ["say i-1 ACTIVE", "keep fleetiq:publisher:{pvp-eu}"]);
}

#[test]
fn an_instance_that_is_gone_is_forgotten_and_nothing_is_said() {
    let mut stage = Stage::new();
    stage.poll(0, Ending::Complete, &[("i-1", Active), ("i-2", Active)]);
    stage.turn(0);
    stage.poll(10, Ending::Failed, &[("i-1", Active)]);
    assert!(
        !stage.turn(10).iter().any(|line| line.starts_with("forget")),
        "a page that failed removes nothing"
    );
    stage.poll(20, Ending::Complete, &[("i-1", Active)]);
    let told = stage.turn(20);
    assert!(told.contains(&"forget fleetiq:instance:{i-2}".to_owned()), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("say")), "{told:?}");
    stage.picture.keep(&[]);
    assert_eq!(
        stage.turn(21),
        [
            "forget fleetiq:instance:{i-1}",
            "forget fleetiq:group:{pvp-eu}",
            "forget fleetiq:publisher:{pvp-eu}"
        ]
    );
    assert!(stage.turn(22).is_empty());
}

#[test]
fn after_a_new_connection_all_is_said() {
    let mut stage = Stage::new();
    stage.poll(0, Ending::Complete, &[("i-1", Draining)]);
    stage.turn(0);
    stage.told = Told::default();
    assert_eq!(stage.said(5), ["say i-1 DRAINING!"]);
}

#[test]
fn nothing_is_said_of_what_has_not_been_seen_for_long() {
    let mut stage = Stage::new();
    stage.poll(0, Ending::Complete, &[("i-1", Active)]);
    let said: Vec<u64> = (0..=600).filter(|seconds| !stage.said(*seconds).is_empty()).collect();
    assert_eq!(said, [0, 60, 120], "while it counts, and no longer");
    stage.told = Told::default();
    assert_eq!(stage.turn(601), ["keep fleetiq:publisher:{pvp-eu}"]);
}

#[test]
fn what_is_kept_ends_when_it_does_not_count_any_more() {
    let mut stage = Stage::new();
    stage.poll(0, Ending::Complete, &[("i-1", Active)]);
    let lives: Vec<_> = plan(&stage.picture, &stage.survey, &stage.told, &stage.terms, stage.at(170))
        .operations
        .into_iter()
        .filter_map(|operation| match operation {
            Operation::Keep { life, about: About::Instance(..), .. } => Some(life.as_secs()),
            _ => None,
        })
        .collect();
    assert_eq!(lives, [10], "told over a new connection, ten seconds before its end");
}

#[test]
fn what_is_kept_says_all_that_is_known() {
    let mut stage = Stage::new();
    stage.poll(0, Ending::Complete, &[("i-1", Draining)]);
    stage.survey.protected.insert("i-1".to_owned(), true);
    let operations = plan(&stage.picture, &stage.survey, &stage.told, &stage.terms, stage.at(0)).operations;
    let Operation::Keep { value, life, .. } = &operations[0] else { panic!("{operations:?}") };
    assert_eq!(life.as_secs(), 180);
    let kept: RetainedInstance = serde_json::from_str(value).unwrap();
    assert_eq!((kept.observed_at.as_str(), kept.publisher.as_str()), ("2026-09-21T14:13:20.000Z", "one"));
    assert_eq!(kept.protected_from_scale_in, Some(true));
    assert_eq!(kept.message.instance_status, Draining);
    let Operation::Keep { life, .. } = &operations[2] else { panic!("{operations:?}") };
    assert_eq!(life.as_secs(), 60, "twice the period");
}
