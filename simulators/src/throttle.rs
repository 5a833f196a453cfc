//! Quotas: a bucket of tokens for each operation and one for the account, refilled all the time.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many calls at once, and how many a second after that.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limit {
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

/// A known set of quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Profile {
    /// What AWS documents.
    #[default]
    #[serde(rename = "aws-2026")]
    Aws2026,
    /// So little that everything meets it.
    #[serde(rename = "tight")]
    Tight,
    #[serde(rename = "off")]
    Off,
}

impl Profile {
    fn limit(self, operation: &str) -> Option<Limit> {
        let limit = |burst, per_second| Some(Limit { burst, per_second });
        match (self, operation) {
            (Self::Off, _) => None,
            (
                Self::Tight,
                "RegisterGameServer" | "ClaimGameServer" | "UpdateGameServer" | "DeregisterGameServer",
            ) => limit(4.0, 1.0),
            (Self::Tight, "DescribeGameServerInstances") => limit(2.0, 0.1),
            (
                _,
                "RegisterGameServer"
                | "ClaimGameServer"
                | "UpdateGameServer"
                | "DeregisterGameServer"
                | "DescribeGameServer",
            ) => limit(40.0, 20.0),
            (
                _,
                "DescribeGameServerInstances"
                | "DescribeGameServerGroup"
                | "ListGameServers"
                | "ListGameServerGroups",
            ) => limit(30.0, 30.0),
            (_, "CreateGameServerGroup" | "UpdateGameServerGroup" | "DeleteGameServerGroup") => {
                limit(20.0, 20.0)
            }
            (_, "SuspendGameServerGroup" | "ResumeGameServerGroup") => limit(1.0, 0.1),
            (_, ACCOUNT) => limit(500.0, 500.0),
            (_, _) => None,
        }
    }
}

/// The bucket that all calls of the account share.
pub(crate) const ACCOUNT: &str = "*";

/// What is to be different from now on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ThrottleChange {
    pub(crate) profile: Option<Profile>,
    /// By operation; null for no limit, `*` for all calls together.
    pub(crate) limits: BTreeMap<String, Option<Limit>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled: Timestamp,
}

/// What was let through and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) accepted: u64,
    pub(crate) throttled: u64,
}

/// Counts of an operation, and the most there ever were in a second and in a minute.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Rates {
    #[serde(flatten)]
    pub(crate) count: Count,
    pub(crate) most_in_a_second: u64,
    pub(crate) most_in_a_minute: u64,
    /// Calls by second, for a minute.
    #[serde(skip)]
    recent: VecDeque<(i64, u64)>,
}

impl Rates {
    fn note(&mut self, now: Timestamp) {
        let second = now.as_second();
        match self.recent.back_mut() {
            Some((last, calls)) if *last == second => *calls += 1,
            Some(_) | None => self.recent.push_back((second, 1)),
        }
        while self.recent.front().is_some_and(|(first, _)| *first <= second - 60) {
            self.recent.pop_front();
        }
        let of_second = self.recent.back().map_or(0, |(_, calls)| *calls);
        let of_minute = self.recent.iter().map(|(_, calls)| calls).sum();
        self.most_in_a_second = self.most_in_a_second.max(of_second);
        self.most_in_a_minute = self.most_in_a_minute.max(of_minute);
    }
}

/// The quotas of the account and what they did.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    profile: Profile,
    limits: BTreeMap<String, Option<Limit>>,
    buckets: BTreeMap<String, Bucket>,
    operations: BTreeMap<String, Rates>,
    callers: BTreeMap<String, Count>,
}

impl Throttle {
    pub(crate) fn new(profile: Profile) -> Self {
        Self { profile, ..Self::default() }
    }

    pub(crate) fn change(&mut self, change: ThrottleChange) {
        if let Some(profile) = change.profile {
            self.profile = profile;
            self.limits.clear();
        }
        self.limits.extend(change.limits);
        self.buckets.clear();
    }

    fn limit(&self, operation: &str) -> Option<Limit> {
        match self.limits.get(operation) {
            Some(limit) => *limit,
            None => self.profile.limit(operation),
        }
    }

    /// Whether a call may pass now. One that may not takes no token.
    pub(crate) fn admits(&mut self, operation: &str, caller: &str, now: Timestamp) -> bool {
        let names = [operation, ACCOUNT];
        let passes = names.iter().all(|name| self.tokens(name, now) >= 1.0);
        if passes {
            for name in names {
                if let Some(bucket) = self.buckets.get_mut(name) {
                    bucket.tokens -= 1.0;
                }
            }
        }
        let rates = self.operations.entry(operation.to_owned()).or_default();
        rates.note(now);
        for count in [&mut rates.count, self.callers.entry(caller.to_owned()).or_default()] {
            count.accepted += u64::from(passes);
            count.throttled += u64::from(!passes);
        }
        passes
    }

    /// What is in a bucket now.
    fn tokens(&mut self, name: &str, now: Timestamp) -> f64 {
        let Some(limit) = self.limit(name) else {
            self.buckets.remove(name);
            return f64::INFINITY;
        };
        let full = Bucket { tokens: limit.burst, filled: now };
        let bucket = self.buckets.entry(name.to_owned()).or_insert(full);
        let passed = now.duration_since(bucket.filled).as_secs_f64().max(0.0);
        bucket.tokens = (bucket.tokens + passed * limit.per_second).min(limit.burst);
        bucket.filled = bucket.filled.max(now);
        bucket.tokens
    }

    pub(crate) fn operations(&self) -> &BTreeMap<String, Rates> {
        &self.operations
    }

    pub(crate) fn callers(&self) -> &BTreeMap<String, Count> {
        &self.callers
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn start() -> Timestamp {
        "2026-09-21T12:00:00Z".parse().unwrap()
    }

    fn passed(throttle: &mut Throttle, operation: &str, calls: u32, now: Timestamp) -> u32 {
        (0..calls).map(|_| u32::from(throttle.admits(operation, "one", now))).sum()
    }

    #[test]
    fn forty_updates_pass_at_once_and_twenty_a_second_after_that() {
        let mut throttle = Throttle::new(Profile::Aws2026);
        assert_eq!(passed(&mut throttle, "UpdateGameServer", 41, start()), 40);
        let half_a_second = start() + Duration::from_millis(500);
        assert_eq!(passed(&mut throttle, "UpdateGameServer", 20, half_a_second), 10);
        assert_eq!(passed(&mut throttle, "UpdateGameServer", 50, start() + Duration::from_secs(60)), 40);
        let rates = &throttle.operations()["UpdateGameServer"];
        assert_eq!(rates.count, Count { accepted: 90, throttled: 21 });
        assert_eq!((rates.most_in_a_second, rates.most_in_a_minute), (61, 61));
    }

    #[test]
    fn operations_do_not_take_each_others_tokens_but_share_the_accounts() {
        let mut throttle = Throttle::new(Profile::Aws2026);
        passed(&mut throttle, "UpdateGameServer", 41, start());
        assert_eq!(passed(&mut throttle, "RegisterGameServer", 41, start()), 40);
        let change = ThrottleChange {
            limits: [(ACCOUNT.to_owned(), Some(Limit { burst: 5.0, per_second: 1.0 }))].into(),
            ..ThrottleChange::default()
        };
        throttle.change(change);
        assert_eq!(passed(&mut throttle, "UpdateGameServer", 3, start()), 3);
        assert_eq!(passed(&mut throttle, "RegisterGameServer", 3, start()), 2);
    }

    #[test]
    fn profiles_and_single_limits_may_change() {
        let mut throttle = Throttle::new(Profile::Off);
        assert_eq!(passed(&mut throttle, "UpdateGameServer", 10_000, start()), 10_000);
        throttle.change(serde_json::from_str(r#"{"profile": "tight"}"#).unwrap());
        assert_eq!(passed(&mut throttle, "UpdateGameServer", 10, start()), 4);
        assert_eq!(passed(&mut throttle, "DescribeGameServerInstances", 10, start()), 2);
        throttle.change(serde_json::from_str(r#"{"limits": {"UpdateGameServer": null}}"#).unwrap());
        assert_eq!(passed(&mut throttle, "UpdateGameServer", 100, start()), 100);
    }

    /// The arithmetic of the start-up storm: forty at once and twenty a second admit a thousand in forty-eight seconds.
    #[test]
    fn a_thousand_calls_in_one_instant_are_through_after_forty_eight_seconds() {
        for (calls, seconds) in [(100, 3), (200, 8), (500, 23), (1000, 48)] {
            let mut throttle = Throttle::new(Profile::Aws2026);
            let mut left = calls;
            let mut waited = 0;
            loop {
                left -=
                    passed(&mut throttle, "RegisterGameServer", left, start() + Duration::from_secs(waited));
                if left == 0 {
                    break;
                }
                waited += 1;
            }
            assert_eq!(waited, seconds, "{calls} calls");
        }
    }

    /// Five thousand agents with a health report a minute ask 83 times a second; twenty are let through.
    #[test]
    fn five_thousand_agents_get_twenty_a_second() {
        let mut throttle = Throttle::new(Profile::Aws2026);
        let mut accepted = 0;
        for second in 0..600 {
            // 5,000 in 60 seconds: 83 in most seconds and 84 in every third.
            let calls = if second % 3 == 0 { 84 } else { 83 };
            let now = start() + Duration::from_secs(second);
            accepted += passed(&mut throttle, "UpdateGameServer", calls, now);
        }
        assert_eq!(accepted, 40 + 599 * 20);
    }
}
