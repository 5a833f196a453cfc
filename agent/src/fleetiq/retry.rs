//! When to beat, and when to try again. Pure: chance comes in as a number in [0, 1).
//!
//! An account's quota is shared by all its instances. 1,200 of them, which give a sign of life a little less often than once
//! a minute, take 97 % of it: the rest is for what fails. A beat follows the one before it and keeps to no second of its own,
//! so that whoever had to wait stays out of the crowded second, and nothing that failed for many together is tried again by
//! many together.

use std::time::Duration;

use jiff::Timestamp;

/// How long after a beat the next one is given: the shortest and the longest.
const PERIOD: (Duration, Duration) = (Duration::from_secs(57), Duration::from_secs(67));
/// How soon after the start the first beat is given at the latest, since nobody knows when the last one was.
const FIRST_BEAT: Duration = Duration::from_secs(20);
/// Longest wait of [`after_failure`].
const CEILING: Duration = Duration::from_secs(60);
/// The same after a throttle. Quotas fill again each second: who waits longer than it takes the others to be through waits
/// for nothing, unprotected.
const THROTTLED_CEILING: Duration = Duration::from_secs(30);

/// When to beat after a beat.
#[must_use]
pub fn next_beat(now: Timestamp, chance: f64) -> Timestamp {
    later(now, between(PERIOD.0, PERIOD.1, chance))
}

/// When to beat first in this process.
#[must_use]
pub fn first_beat(now: Timestamp, chance: f64) -> Timestamp {
    later(now, between(Duration::ZERO, FIRST_BEAT, chance))
}

/// A time that much later; the end of time where there is none.
#[must_use]
pub fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// A wait between two others.
#[must_use]
pub fn between(shortest: Duration, longest: Duration, chance: f64) -> Duration {
    shortest + longest.saturating_sub(shortest).mul_f64(chance.clamp(0.0, 1.0))
}

/// Why something has to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Too many calls of the account.
    Throttled,
    /// Something that may be better at once.
    Transient,
}

/// The wait after the n-th failure in a row, from 0 on: anything up to twice as long as the last time.
#[must_use]
pub fn after_failure(cause: Cause, failures: u32, chance: f64) -> Duration {
    let (base, ceiling) = match cause {
        Cause::Throttled => (Duration::from_secs(5), THROTTLED_CEILING),
        Cause::Transient => (Duration::from_secs(2), CEILING),
    };
    let whole = base.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(ceiling);
    between(Duration::ZERO, whole, chance)
}

/// The wait after the n-th beat in a row that failed, from 0 on.
#[must_use]
pub fn after_missed_beat(cause: Cause, failures: u32, chance: f64) -> Duration {
    let (shortest, longest) = match (cause, failures) {
        // A full account lets a beat through soon; one that is far too full is not to be asked more and more.
        (Cause::Throttled, 0..=2) => (5, 10),
        (Cause::Throttled, _) => (10, 30),
        (Cause::Transient, 0) => (2, 5),
        (Cause::Transient, 1) => (5, 15),
        (Cause::Transient, _) => (15, 25),
    };
    between(Duration::from_secs(shortest), Duration::from_secs(longest), chance)
}

/// The wait after what only somebody else can put right.
#[must_use]
pub fn after_refusal(chance: f64) -> Duration {
    between(Duration::from_secs(48), Duration::from_secs(72), chance)
}

/// The wait before an instance is registered that was not.
#[must_use]
pub fn before_registration(chance: f64) -> Duration {
    between(Duration::ZERO, Duration::from_secs(5), chance)
}

/// The wait before the n-th attempt in a row to connect to Redis, from 0 on.
#[must_use]
pub fn before_connecting(failures: u32, chance: f64) -> Duration {
    let whole = Duration::from_millis(500).saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
    between(Duration::ZERO, whole.min(Duration::from_secs(30)), chance)
}

/// The wait before a login that was refused is tried again, with what its file holds then.
#[must_use]
pub const fn before_login() -> Duration {
    Duration::from_secs(30)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{
        Cause, after_failure, after_missed_beat, after_refusal, before_connecting, before_registration,
        first_beat, next_beat,
    };

    fn seconds(wait: Duration) -> f64 {
        wait.as_secs_f64()
    }

    #[test]
    fn defect_17_waits_grow_and_lie_between_their_bounds() {
        let table: [(&str, fn(f64) -> Duration, f64, f64); 17] = [
            ("first beat missed", |c| after_missed_beat(Cause::Transient, 0, c), 2.0, 5.0),
            ("second beat missed", |c| after_missed_beat(Cause::Transient, 1, c), 5.0, 15.0),
            ("third beat missed", |c| after_missed_beat(Cause::Transient, 2, c), 15.0, 25.0),
            ("hundredth beat missed", |c| after_missed_beat(Cause::Transient, 99, c), 15.0, 25.0),
            ("beat throttled", |c| after_missed_beat(Cause::Throttled, 0, c), 5.0, 10.0),
            ("beat throttled again and again", |c| after_missed_beat(Cause::Throttled, 3, c), 10.0, 30.0),
            ("first failure", |c| after_failure(Cause::Transient, 0, c), 0.0, 2.0),
            ("third failure", |c| after_failure(Cause::Transient, 2, c), 0.0, 8.0),
            ("sixth failure", |c| after_failure(Cause::Transient, 5, c), 0.0, 60.0),
            ("millionth failure", |c| after_failure(Cause::Transient, 1_000_000, c), 0.0, 60.0),
            ("first throttle", |c| after_failure(Cause::Throttled, 0, c), 0.0, 5.0),
            ("third throttle", |c| after_failure(Cause::Throttled, 2, c), 0.0, 20.0),
            ("tenth throttle", |c| after_failure(Cause::Throttled, 9, c), 0.0, 30.0),
            ("first connection", |c| before_connecting(0, c), 0.0, 0.5),
            ("tenth connection", |c| before_connecting(9, c), 0.0, 30.0),
            ("refusal", after_refusal, 48.0, 72.0),
            ("registration", before_registration, 0.0, 5.0),
        ];
        for (name, wait, shortest, longest) in table {
            assert!((seconds(wait(0.0)) - shortest).abs() < 1e-6, "{name}: {:?}", wait(0.0));
            assert!((seconds(wait(1.0)) - longest).abs() < 1e-6, "{name}: {:?}", wait(1.0));
        }
    }

    proptest! {
        #[test]
        fn a_beat_follows_the_last_after_about_a_minute(
            start in 0_i64..4_000_000_000,
            millis in 0_i32..1000,
            chance in 0.0..1.0_f64,
        ) {
            let now = Timestamp::new(start, millis * 1_000_000).unwrap();
            let wait = next_beat(now, chance).duration_since(now).as_secs_f64();
            prop_assert!((57.0..=67.0).contains(&wait), "{wait}");
            let first = first_beat(now, chance).duration_since(now).as_secs_f64();
            prop_assert!((0.0..=20.0).contains(&first), "{first}");
        }
    }
}
