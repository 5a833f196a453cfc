//! Which calls a rule strikes.

use std::time::Duration;

use rand::SeedableRng as _;
use serde_json::{Value, json};

use super::*;

struct Range {
    book: FaultBook,
    now: Timestamp,
    dice: StdRng,
}

impl Range {
    fn new(rule: Value) -> Self {
        let now = Timestamp::UNIX_EPOCH;
        let mut book = FaultBook::default();
        book.put("rule".to_owned(), serde_json::from_value(rule).expect("a rule"), now);
        Self { book, now, dice: StdRng::seed_from_u64(1) }
    }

    fn strikes(&mut self, facts: &Facts<'_>) -> bool {
        !self.book.strike(facts, self.now, &mut self.dice).effects.is_empty()
    }

    fn pattern(&mut self, calls: usize) -> String {
        let facts = update();
        (0..calls).map(|_| if self.strikes(&facts) { 'x' } else { '.' }).collect()
    }
}

fn update() -> Facts<'static> {
    Facts {
        listener: "aws",
        operation: "UpdateGameServer",
        protocol: "json",
        group: Some("pvp-eu"),
        subjects: vec!["one", "i-00000000000000001"],
        access_key: Some("AKID"),
    }
}

#[test]
fn a_rule_matches_by_what_it_names() {
    for (name, rule, expected) in [
        ("everything", json!({}), true),
        ("operation", json!({"operations": ["ClaimGameServer", "UpdateGameServer"]}), true),
        ("listener", json!({"operations": ["aws"]}), true),
        ("other listener", json!({"operations": ["imds"]}), false),
        ("other operation", json!({"operations": ["ClaimGameServer"]}), false),
        ("protocol", json!({"protocol": "json"}), true),
        ("other protocol", json!({"protocol": "cbor"}), false),
        ("group", json!({"group": "pvp-eu"}), true),
        ("other group", json!({"group": "pve-eu"}), false),
        ("server", json!({"subject": "one"}), true),
        ("instance", json!({"subject": "i-00000000000000001"}), true),
        ("other server", json!({"subject": "two"}), false),
        ("key", json!({"access_key": "AKID"}), true),
        ("other key", json!({"access_key": "OTHER"}), false),
    ] {
        let mut rule = rule;
        rule["effects"] = json!([{"effect": "hang"}]);
        assert_eq!(Range::new(rule).strikes(&update()), expected, "{name}");
    }
}

#[test]
fn a_rule_counts_its_calls() {
    for (rule, expected) in [
        (json!({"calls": [2, 3]}), ".xx..."),
        (json!({"every": 2}), ".x.x.x"),
        (json!({"most_hits": 2}), "xx...."),
        (json!({"every": 2, "most_hits": 1}), ".x...."),
        (json!({"probability": 0.0}), "......"),
        (json!({"probability": 1.0}), "xxxxxx"),
    ] {
        let mut rule = rule;
        rule["effects"] = json!([{"effect": "reset", "at": "before"}]);
        assert_eq!(Range::new(rule.clone()).pattern(6), expected, "{rule}");
    }
}

#[test]
fn a_rule_has_its_time() {
    let mut range =
        Range::new(json!({"from_ms": 1000, "until_ms": 2000, "effects": [{"effect": "unauthorized"}]}));
    let mut seen = String::new();
    for _ in 0..6 {
        seen.push(if range.strikes(&update()) { 'x' } else { '.' });
        range.now += Duration::from_millis(500);
    }
    assert_eq!(seen, "..xx..");
    assert_eq!(range.book.hits()["rule"], 2);
}

#[test]
fn half_of_the_calls_is_about_half() {
    let mut range = Range::new(json!({"probability": 0.5, "effects": [{"effect": "duplicate"}]}));
    let hits = range.pattern(1000).matches('x').count();
    assert!((400..600).contains(&hits), "{hits}");
}

#[test]
fn every_effect_can_be_written_down() {
    for effect in [
        json!({"effect": "error", "name": "InternalServiceException", "status": 500}),
        json!({"effect": "raw", "status": 503, "content_type": "text/plain", "body": "busy"}),
        json!({"effect": "raw", "status": 200, "body": [160]}),
        json!({"effect": "wrong_protocol"}),
        json!({"effect": "delay", "delay": {"fixed_ms": 5}}),
        json!({"effect": "delay", "delay": {"uniform_ms": [5, 9]}}),
        json!({"effect": "delay", "delay": {"log_normal": {"median_ms": 20, "sigma": 0.5}}}),
        json!({"effect": "hang"}),
        json!({"effect": "reset", "at": "during_headers"}),
        json!({"effect": "truncate", "after": 3}),
        json!({"effect": "apply_then_fail"}),
        json!({"effect": "apply_then_fail", "with": {"effect": "hang"}}),
        json!({"effect": "duplicate"}),
        json!({"effect": "lose", "side": "describe"}),
        json!({"effect": "unauthorized"}),
        json!({"effect": "blackout"}),
    ] {
        let read = serde_json::from_value::<Effect>(effect.clone());
        assert!(read.is_ok(), "{effect}: {read:?}");
    }
    assert!(serde_json::from_value::<Effect>(json!({"effect": "explode"})).is_err());
    assert!(serde_json::from_value::<Rule>(json!({"efects": []})).is_err());
}

#[test]
fn delays_are_within_what_was_asked() {
    let mut dice = StdRng::seed_from_u64(1);
    assert_eq!(Delay::FixedMs(5).draw(&mut dice), Milliseconds(5));
    let mut above = 0;
    for _ in 0..1000 {
        assert!((5..=9).contains(&Delay::UniformMs(5, 9).draw(&mut dice).0));
        above += u32::from(Delay::LogNormal { median_ms: 100.0, sigma: 0.5 }.draw(&mut dice).0 > 100);
    }
    assert!((400..600).contains(&above), "the median is in the middle: {above}");
}
