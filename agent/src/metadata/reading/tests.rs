//! What each answer means, row by row.

use jiff::Timestamp;

use super::{Item, Reader};
use crate::drain::notice::{Notice, Severity, Signal, Source};
use crate::metadata::{Lifecycle, OnRebalance, Rules};

const SPOT: &str = r#"{"action":"terminate","time":"2026-09-21T14:05:00Z"}"#;
const REBALANCE: &str = r#"{"noticeTime":"2026-09-21T13:50:00Z"}"#;

fn now() -> Timestamp {
    "2026-09-21T14:03:00Z".parse().unwrap()
}

fn after(minutes: i64) -> Timestamp {
    now() + jiff::SignedDuration::from_mins(minutes)
}

fn reader(on_rebalance: OnRebalance) -> Reader {
    Reader::new(Rules { on_rebalance, ..Rules::default() })
}

fn read(reader: &mut Reader, item: Item, content: &str) -> Vec<Signal> {
    reader.read(item, Some(content), now()).expect("readable")
}

/// The one notice that was raised.
fn raised(signals: Vec<Signal>) -> Notice {
    match <[Signal; 1]>::try_from(signals) {
        Ok([Signal::Raised(notice)]) => notice,
        other => panic!("one notice, and not {other:?}"),
    }
}

#[test]
fn defect_25_a_spot_notice_is_told_once_with_its_time() {
    let mut reader = reader(OnRebalance::Ignore);
    assert_eq!(reader.read(Item::Spot, None, now()).unwrap(), []);
    let notice = raised(read(&mut reader, Item::Spot, SPOT));
    assert_eq!((notice.source, notice.severity), (Source::Spot, Severity::Spot));
    assert_eq!(notice.deadline.unwrap().to_string(), "2026-09-21T14:05:00Z");
    for _ in 0..10 {
        assert_eq!(read(&mut reader, Item::Spot, SPOT), []);
        assert_eq!(reader.read(Item::Spot, None, now()).unwrap(), [], "it is not taken back");
    }
    let sooner = raised(read(&mut reader, Item::Spot, &SPOT.replace("14:05", "14:04")));
    assert_eq!(sooner.deadline.unwrap().to_string(), "2026-09-21T14:04:00Z");
}

#[test]
fn stop_and_hibernate_are_an_end_as_well() {
    for action in ["stop", "hibernate"] {
        let mut reader = reader(OnRebalance::Ignore);
        let notice = raised(read(&mut reader, Item::Spot, &SPOT.replace("terminate", action)));
        assert_eq!(notice.severity, Severity::Spot);
        assert!(notice.reason.contains(action), "{}", notice.reason);
    }
}

/// The same fact at each read made 151 drains elsewhere.
#[test]
fn case_11_terminated_for_ten_minutes_is_one_notice() {
    let mut reader = reader(OnRebalance::Ignore);
    let mut signals = Vec::new();
    for second in (0..600).step_by(5) {
        let then = now() + jiff::SignedDuration::from_secs(second);
        signals.extend(reader.read(Item::Lifecycle, Some("Terminated"), then).unwrap());
    }
    let notice = raised(signals);
    assert_eq!((notice.source, notice.severity), (Source::Lifecycle, Severity::AutoScaling));
    assert_eq!(notice.deadline, Some(after(1)));
}

/// Whoever answers a hook says how long it holds.
#[test]
fn terminated_where_a_hook_is_named_is_a_notice_without_a_time() {
    let mut reader = Reader::new(Rules { has_hook: true, ..Rules::default() });
    let notice = raised(read(&mut reader, Item::Lifecycle, "Terminated"));
    assert_eq!((notice.severity, notice.deadline), (Severity::AutoScaling, None));
    assert_eq!(reader.lifecycle(), Lifecycle::Ending);
    assert_eq!(read(&mut reader, Item::Lifecycle, "Terminated"), []);
}

#[test]
fn defect_16_only_a_warm_pool_and_an_end_are_told_from_the_other_states_and_from_none() {
    let table = [
        ("InService", Lifecycle::Other),
        ("Standby", Lifecycle::Other),
        ("Detached", Lifecycle::Other),
        ("Warmed:Stopped", Lifecycle::Warmed),
        ("Warmed:Running\n", Lifecycle::Warmed),
        ("Warmed:Terminated", Lifecycle::Warmed),
    ];
    let mut reader = reader(OnRebalance::Ignore);
    assert_eq!(reader.lifecycle(), Lifecycle::Unasked);
    reader.miss();
    assert_eq!(reader.lifecycle(), Lifecycle::Unknown);
    for (state, expected) in table {
        assert_eq!(read(&mut reader, Item::Lifecycle, state), [], "{state}");
        assert_eq!(reader.lifecycle(), expected, "{state}");
    }
    reader.miss();
    assert_eq!(reader.lifecycle(), Lifecycle::Warmed, "what is known stays known");
    reader.read(Item::Lifecycle, None, now()).unwrap();
    assert_eq!(reader.lifecycle(), Lifecycle::Unknown);
}

#[test]
fn a_rebalance_does_what_the_setting_says() {
    let table = [
        (OnRebalance::Ignore, Severity::Advice),
        (OnRebalance::Cordon, Severity::Cordoned),
        (OnRebalance::Drain, Severity::Claimed),
    ];
    for (setting, severity) in table {
        let mut reader = reader(setting);
        assert_eq!(raised(read(&mut reader, Item::Rebalance, REBALANCE)).severity, severity);
        assert_eq!(read(&mut reader, Item::Rebalance, REBALANCE), []);
        assert!(!severity.releases(), "it never gives the instance back");
    }
}

#[test]
fn case_13_a_rebalance_that_closed_the_node_opens_it_after_half_an_hour() {
    let mut reader = reader(OnRebalance::Cordon);
    raised(read(&mut reader, Item::Rebalance, REBALANCE));
    assert_eq!(reader.expire(after(29)), []);
    assert_eq!(reader.expire(after(30)), [Signal::Cleared(Source::Rebalance)]);
    assert_eq!(reader.expire(after(31)), []);
    assert_eq!(read(&mut reader, Item::Rebalance, REBALANCE), [], "the same recommendation");
    raised(read(&mut reader, Item::Rebalance, &REBALANCE.replace("13:50", "13:55")));
    let mut other = self::reader(OnRebalance::Drain);
    raised(read(&mut other, Item::Rebalance, REBALANCE));
    assert_eq!(other.expire(after(1000)), []);
}

fn event(id: &str, not_before: &str, state: &str) -> String {
    format!(
        r#"[{{"NotBefore":"{not_before}","NotAfter":"22 Sep 2026 09:00:43 GMT","Code":"instance-reboot",
            "Description":"words","EventId":"{id}","State":"{state}"}}]"#
    )
}

#[test]
fn a_scheduled_event_counts_from_two_hours_before() {
    let mut reader = reader(OnRebalance::Ignore);
    assert_eq!(read(&mut reader, Item::Scheduled, "[]"), []);
    assert_eq!(read(&mut reader, Item::Scheduled, &event("e-1", "21 Sep 2026 16:03:01 GMT", "active")), []);
    let near = event("e-1", "21 Sep 2026 16:03:00 GMT", "active");
    let notice = raised(read(&mut reader, Item::Scheduled, &near));
    assert_eq!((&notice.source, notice.severity), (&Source::Scheduled("e-1".into()), Severity::Scheduled));
    assert_eq!(notice.deadline, Some(after(120)));
    assert_eq!(read(&mut reader, Item::Scheduled, &near), []);
}

#[test]
fn a_scheduled_event_is_taken_back_when_it_is_canceled_gone_or_put_off() {
    let near = event("e-1", "1 Sep 2026 09:00:43 GMT", "active");
    let ends = [
        event("e-1", "1 Sep 2026 09:00:43 GMT", "canceled"),
        event("e-1", "1 Sep 2026 09:00:43 GMT", "completed"),
        event("e-1", "30 Sep 2026 09:00:43 GMT", "active"),
        "[]".to_owned(),
    ];
    for end in ends {
        let mut reader = reader(OnRebalance::Ignore);
        raised(read(&mut reader, Item::Scheduled, &near));
        let cleared = [Signal::Cleared(Source::Scheduled("e-1".into()))];
        assert_eq!(read(&mut reader, Item::Scheduled, &end), cleared, "{end}");
        assert_eq!(read(&mut reader, Item::Scheduled, &end), [], "{end}");
    }
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let mut reader = reader(OnRebalance::Ignore);
    raised(read(&mut reader, Item::Scheduled, &event("e-1", "1 Sep 2026 09:00:43 GMT", "active")));
    let before = format!("{reader:?}");
    for (item, text) in [
        (Item::Spot, "{"),
        (Item::Spot, r#"{"action":"terminate"}"#),
        (Item::Spot, r#"{"action":"terminate","time":"soon"}"#),
        (Item::Rebalance, "null"),
        (Item::Scheduled, "{}"),
    ] {
        assert!(reader.read(item, Some(text), now()).is_err(), "{item:?} {text}");
        assert_eq!(format!("{reader:?}"), before, "{item:?} {text}");
    }
}
