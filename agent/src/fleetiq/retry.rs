//! When to beat, and when to try again. Pure: chance comes in as a number in [0, 1).
//!
//! An account's quota is shared by all its instances. So each instance beats at a second of its own, and nothing that
//! failed for many together is tried again by many together.

use std::time::Duration;

use jiff::Timestamp;

/// How often a sign of life is given.
pub const PERIOD: Duration = Duration::from_secs(60);
/// How far a beat may be from its second, to either side.
const SWING: Duration = Duration::from_secs(5);
/// A beat that has just been given is not repeated for its own second.
const APART: Duration = Duration::from_secs(10);
/// How soon after the start the first beat is given at the latest, since nobody knows when the last one was.
const FIRST_BEAT: Duration = Duration::from_secs(20);
/// Longest wait of [`after_failure`].
const CEILING: Duration = Duration::from_secs(60);

/// The second of each minute at which an instance gives a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    offset: Duration,
}

impl Pulse {
    /// That of an instance: the same after each start, and spread over all instances.
    #[must_use]
    pub fn of(instance: &str) -> Self {
        // FNV-1a: a hash that stays the same with every version of the compiler.
        let hash = instance.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let period = u64::try_from(PERIOD.as_millis()).unwrap_or(u64::MAX);
        Self { offset: Duration::from_millis((hash ^ (hash >> 32)) % period) }
    }

    /// When to beat after a beat at `now`: between 5 and 75 seconds later.
    #[must_use]
    pub fn next(self, now: Timestamp, chance: f64) -> Timestamp {
        later(self.second_after(later(now, APART)), between(Duration::ZERO, SWING * 2, chance)) - SWING
    }

    /// When to beat first in this process.
    #[must_use]
    pub fn first(self, now: Timestamp, chance: f64) -> Timestamp {
        self.second_after(now).min(later(now, between(FIRST_BEAT / 2, FIRST_BEAT, chance)))
    }

    /// Its first second after a time.
    fn second_after(self, time: Timestamp) -> Timestamp {
        let period = i128::try_from(PERIOD.as_nanos()).unwrap_or(i128::MAX);
        let offset = i128::try_from(self.offset.as_nanos()).unwrap_or_default();
        let past = (time.as_nanosecond() - offset).rem_euclid(period);
        let left = u64::try_from(period - past).unwrap_or_default();
        later(time, Duration::from_nanos(left))
    }
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
    let base = match cause {
        Cause::Throttled => Duration::from_secs(5),
        Cause::Transient => Duration::from_secs(2),
    };
    let whole = base.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(CEILING);
    between(Duration::ZERO, whole, chance)
}

/// The wait after the n-th beat in a row that failed, from 0 on.
#[must_use]
pub fn after_missed_beat(cause: Cause, failures: u32, chance: f64) -> Duration {
    let (shortest, longest) = match (cause, failures) {
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
    use std::collections::BTreeSet;
    use std::time::Duration;

    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{
        Cause, Pulse, after_failure, after_missed_beat, after_refusal, before_connecting, before_registration,
    };

    fn seconds(wait: Duration) -> f64 {
        wait.as_secs_f64()
    }

    #[test]
    fn waits_lie_between_their_bounds() {
        let table: [(&str, fn(f64) -> Duration, f64, f64); 15] = [
            ("first beat missed", |c| after_missed_beat(Cause::Transient, 0, c), 2.0, 5.0),
            ("second beat missed", |c| after_missed_beat(Cause::Transient, 1, c), 5.0, 15.0),
            ("third beat missed", |c| after_missed_beat(Cause::Transient, 2, c), 15.0, 25.0),
            ("hundredth beat missed", |c| after_missed_beat(Cause::Transient, 99, c), 15.0, 25.0),
            ("beat throttled", |c| after_missed_beat(Cause::Throttled, 0, c), 10.0, 30.0),
            ("first failure", |c| after_failure(Cause::Transient, 0, c), 0.0, 2.0),
            ("third failure", |c| after_failure(Cause::Transient, 2, c), 0.0, 8.0),
            ("sixth failure", |c| after_failure(Cause::Transient, 5, c), 0.0, 60.0),
            ("millionth failure", |c| after_failure(Cause::Transient, 1_000_000, c), 0.0, 60.0),
            ("first throttle", |c| after_failure(Cause::Throttled, 0, c), 0.0, 5.0),
            ("third throttle", |c| after_failure(Cause::Throttled, 2, c), 0.0, 20.0),
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

    #[test]
    fn instances_beat_at_seconds_of_their_own() {
        let seconds: BTreeSet<u64> =
            (0..600).map(|number| Pulse::of(&format!("i-{number:017x}")).offset.as_secs()).collect();
        assert_eq!(seconds.len(), 60, "every second of the minute has some of 600 instances");
        assert_eq!(Pulse::of("i-0f3a9c2b7d1e45680"), Pulse::of("i-0f3a9c2b7d1e45680"));
    }

    proptest! {
        #[test]
        fn beats_are_never_further_apart_than_75_seconds(
            start in 0_i64..4_000_000_000,
            millis in 0_i32..1000,
            chance in 0.0..1.0_f64,
            instance in "i-[0-9a-f]{17}",
        ) {
            let pulse = Pulse::of(&instance);
            let now = Timestamp::new(start, millis * 1_000_000).unwrap();
            let wait = pulse.next(now, chance).duration_since(now).as_secs_f64();
            prop_assert!((5.0..=75.0).contains(&wait), "{wait}");
            let first = pulse.first(now, chance).duration_since(now).as_secs_f64();
            prop_assert!(first > 0.0 && first <= 20.0, "{first}");
            // From one beat at its second to the next: a minute, more or less.
            let beat = pulse.next(now, 0.5);
            prop_assert_eq!(pulse.next(beat, 0.5).duration_since(beat).as_secs(), 60);
        }
    }
}
