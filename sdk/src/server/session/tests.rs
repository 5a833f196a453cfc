//! One server's talk, moment by moment.

use std::time::Duration;

use berth_api::game_server::{GameServerStatus, HealthRule};

use super::*;
use crate::server::metadata::MetadataError;

struct Talk {
    session: Session,
    zero: Moment,
}

fn view(state: State) -> Box<View> {
    Box::new(View {
        health: Some(HealthRule {
            disabled: false,
            period: Duration::from_secs(5),
            failure_threshold: 3,
            initial_delay: Duration::from_secs(5),
        }),
        status: GameServerStatus { state: Some(state), ..GameServerStatus::default() },
        ..View::default()
    })
}

fn reserved(until: &str) -> Box<View> {
    let mut view = view(State::Reserved);
    view.status.reserved_until = Some(until.to_owned());
    view
}

/// A server that the agent has introduced in this state, at the zero of the test.
fn introduced(state: State) -> Talk {
    let zero = Moment {
        instant: Instant::now() + Duration::from_secs(1000),
        wall: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    let mut session = Session::new(ServerUid("u".to_owned()), zero.instant);
    session.read(Past::default(), zero);
    session.introduce(view(state), Sequence(0), zero);
    Talk { session, zero }
}

impl Talk {
    fn at(&self, seconds: u64) -> Moment {
        let past = Duration::from_secs(seconds);
        Moment { instant: self.zero.instant + past, wall: self.zero.wall + past }
    }

    fn ask(&mut self, request: Request, seconds: u64) -> Result<(), Refusal> {
        let now = self.at(seconds);
        self.session.ask(request, now).map(drop)
    }

    fn news(&mut self, seconds: u64) -> Vec<ToAgent> {
        let now = self.at(seconds);
        let draft = self.session.draft();
        self.session.written(&draft);
        self.session.take_news(now)
    }

    fn changes(&mut self, seconds: u64) -> Vec<(u64, Change)> {
        self.news(seconds)
            .into_iter()
            .filter_map(|frame| match frame {
                ToAgent::Change { sequence, change, .. } => Some((sequence.0, change)),
                _ => None,
            })
            .collect()
    }

    fn introduce(&mut self, view: Box<View>, applied: u64, seconds: u64) {
        let now = self.at(seconds);
        self.session.introduce(view, Sequence(applied), now);
    }

    fn turn(&mut self, seconds: u64) {
        let now = self.at(seconds);
        self.session.turn(now);
    }

    fn next_turn(&self, seconds: u64) -> Option<u64> {
        self.session.next_turn(self.at(seconds)).map(|next| (next - self.zero.instant).as_secs())
    }

    fn start_game(&mut self) {
        let zero = self.zero;
        self.session.opened(zero);
        self.session.started(zero.instant, zero);
    }
}

fn pulse(frames: &[ToAgent]) -> Option<Pulse> {
    frames.iter().find_map(|frame| match frame {
        ToAgent::Pings { pulse, .. } => Some(*pulse),
        _ => None,
    })
}

#[test]
fn nothing_is_promised_before_the_introduction() {
    let mut talk = introduced(State::Scheduled);
    talk.session = Session::new(ServerUid("u".to_owned()), talk.zero.instant);
    assert_eq!(talk.ask(Request::Ready, 0), Err(Refusal::NotIntroduced));
    assert!(!talk.session.has_news());
}

#[test]
fn every_call_becomes_its_change() {
    let mut talk = introduced(State::Scheduled);
    let pair = || ("k".to_owned(), "v".to_owned());
    let cases = [
        (Request::Ready, Change::Ready),
        (Request::Allocate, Change::Allocate { at: "2026-01-01T00:00:09Z".to_owned() }),
        (
            Request::Reserve { seconds: 30 },
            Change::Reserve { until: Some("2026-01-01T00:00:39Z".to_owned()) },
        ),
        (Request::Reserve { seconds: 0 }, Change::Reserve { until: None }),
        (Request::Reserve { seconds: -1 }, Change::Reserve { until: None }),
        (Request::Reserve { seconds: i64::MAX }, Change::Reserve { until: None }),
        (Request::Label { key: pair().0, value: pair().1 }, Change::Label { key: pair().0, value: pair().1 }),
        (
            Request::Annotation { key: pair().0, value: "any thing!".to_owned() },
            Change::Annotation { key: pair().0, value: "any thing!".to_owned() },
        ),
        (Request::Shutdown, Change::Shutdown),
    ];
    for (number, (request, change)) in (1..).zip(cases) {
        assert_eq!(talk.ask(request, 9), Ok(()), "{change:?}");
        assert_eq!(talk.changes(9), [(number, change)]);
    }
}

#[test]
fn what_cannot_be_stored_is_refused_at_the_call() {
    let mut talk = introduced(State::Ready);
    let bad_key = Request::Label { key: "bad key".to_owned(), value: String::new() };
    assert!(matches!(talk.ask(bad_key, 0), Err(Refusal::Metadata(MetadataError::Key { .. }))));
    let bad_value = Request::Label { key: "k".to_owned(), value: "not valid!".to_owned() };
    assert!(matches!(talk.ask(bad_value, 0), Err(Refusal::Metadata(MetadataError::Value { .. }))));
    let own_prefix = Request::Annotation { key: "a/b".to_owned(), value: String::new() };
    assert!(matches!(talk.ask(own_prefix, 0), Err(Refusal::Metadata(MetadataError::Prefixed { .. }))));
    let large = |key: &str| Request::Annotation { key: key.to_owned(), value: "x".repeat(200 * 1024) };
    assert_eq!(talk.ask(large("a"), 0), Ok(()));
    assert!(matches!(talk.ask(large("b"), 0), Err(Refusal::Metadata(MetadataError::TooMuch { .. }))));
    assert_eq!(talk.changes(0).len(), 1);
}

#[test]
fn states_between_two_writes_are_skipped() {
    let mut talk = introduced(State::Scheduled);
    talk.ask(Request::Ready, 0).unwrap();
    talk.ask(Request::Allocate, 0).unwrap();
    assert_eq!(talk.changes(0), [(1, Change::Allocate { at: "2026-01-01T00:00:00Z".to_owned() })]);
}

#[test]
fn silence_is_told_once_and_again_to_every_new_connection() {
    let mut talk = introduced(State::Ready);
    talk.start_game();
    assert_eq!(talk.next_turn(0), Some(15));
    talk.turn(14);
    assert_eq!(pulse(&talk.news(14)), None);
    talk.turn(15);
    assert_eq!(pulse(&talk.news(15)), Some(Pulse::Silent { missed: 3 }));
    assert_eq!(talk.next_turn(15), None);
    talk.turn(20);
    assert_eq!(pulse(&talk.news(20)), None);
    talk.session.rewind(2);
    assert_eq!(pulse(&talk.news(20)), Some(Pulse::Silent { missed: 4 }));
    let now = talk.at(21);
    talk.session.ping(now);
    assert_eq!(pulse(&talk.news(21)), Some(Pulse::Alive));
    assert_eq!(talk.next_turn(21), Some(40));
    talk.session.rewind(2);
    assert_eq!(talk.news(21), []);
}

#[test]
fn a_failed_server_stays_failed_whatever_its_game_asks_for() {
    let mut talk = introduced(State::Unhealthy);
    for request in [Request::Ready, Request::Allocate, Request::Reserve { seconds: 5 }, Request::Shutdown] {
        assert_eq!(talk.ask(request, 0), Ok(()));
    }
    assert_eq!(talk.changes(0), []);
    assert_eq!(talk.next_turn(0), None);
    talk.ask(Request::Label { key: "k".to_owned(), value: "v".to_owned() }, 0).unwrap();
    assert_eq!(talk.changes(0).len(), 1);
}

#[test]
fn a_reservation_ends_in_ready() {
    let mut talk = introduced(State::Ready);
    talk.ask(Request::Reserve { seconds: 30 }, 0).unwrap();
    assert_eq!(talk.changes(0).len(), 1);
    assert_eq!(talk.next_turn(0), Some(30));
    talk.introduce(reserved("2026-01-01T00:00:30Z"), 1, 1);
    talk.turn(29);
    assert_eq!(talk.changes(29), []);
    talk.turn(30);
    assert_eq!(talk.changes(30), [(2, Change::Ready)]);
    assert_eq!(talk.next_turn(30), None);
    // The agent has not written it yet, and says the old reservation once more.
    talk.introduce(reserved("2026-01-01T00:00:30Z"), 1, 31);
    talk.session.acknowledge(Sequence(2));
    talk.introduce(reserved("2026-01-01T00:00:30Z"), 1, 31);
    assert_eq!(talk.next_turn(31), None);
}

#[test]
fn a_reservation_ends_while_the_agent_is_away() {
    let mut talk = introduced(State::Ready);
    talk.ask(Request::Reserve { seconds: 5 }, 0).unwrap();
    talk.turn(5);
    assert_eq!(talk.changes(5), [(1, Change::Ready)], "nobody has seen the reservation");
}

#[test]
fn other_calls_and_other_hands_end_a_reservation() {
    for request in [Request::Ready, Request::Allocate, Request::Shutdown, Request::Reserve { seconds: 0 }] {
        let mut talk = introduced(State::Ready);
        talk.ask(Request::Reserve { seconds: 30 }, 0).unwrap();
        talk.changes(0);
        talk.ask(request.clone(), 1).unwrap();
        assert_eq!(talk.next_turn(1), None, "{request:?}");
    }
    let mut talk = introduced(State::Ready);
    talk.ask(Request::Reserve { seconds: 30 }, 0).unwrap();
    talk.changes(0);
    talk.introduce(view(State::Ready), 0, 1);
    assert_eq!(talk.next_turn(1), Some(30), "an older view says nothing about it");
    talk.introduce(view(State::Allocated), 1, 2);
    assert_eq!(talk.next_turn(2), None);
}

#[test]
fn a_reservation_is_restored_from_the_view() {
    let mut talk = introduced(State::Scheduled);
    talk.introduce(reserved("2026-01-01T00:00:10Z"), 7, 3);
    assert_eq!(talk.next_turn(3), Some(10));
    talk.turn(10);
    assert_eq!(talk.changes(10), [(8, Change::Ready)]);
    let mut overdue = introduced(State::Scheduled);
    overdue.introduce(reserved("2025-01-01T00:00:00Z"), 0, 3);
    assert_eq!(overdue.next_turn(3), Some(3));
}

#[test]
fn a_label_does_not_end_a_reservation() {
    let mut talk = introduced(State::Ready);
    talk.ask(Request::Reserve { seconds: 30 }, 0).unwrap();
    talk.ask(Request::Label { key: "k".to_owned(), value: "v".to_owned() }, 1).unwrap();
    assert_eq!(talk.next_turn(1), Some(30));
}
