//! Waiting longer after each failure, with jitter and a ceiling.
//!
//! The n-th wait lies in [half, whole] of `first × 2ⁿ`, never above the ceiling, so that many clients that failed
//! together do not come back together. Success calls [`Backoff::reset`]. It does not sleep itself.

use std::time::Duration;

/// The waits between attempts at one thing.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    ceiling: Duration,
    attempt: u32,
}

impl Backoff {
    /// Starts at `first` and doubles up to `ceiling`; a ceiling below `first` is raised to it.
    #[must_use]
    pub fn new(first: Duration, ceiling: Duration) -> Self {
        Self { first, ceiling: ceiling.max(first), attempt: 0 }
    }

    /// How long to wait before the next attempt.
    #[allow(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> Duration {
        let whole = whole(self.first, self.ceiling, self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        jittered(whole, rand::random::<f64>())
    }

    /// Forgets the failures so far: the next wait is the first again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }

    /// How many waits were given since the last success.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempt
    }
}

/// The wait before jitter: `first × 2^attempt`, at most `ceiling`.
#[must_use]
pub fn whole(first: Duration, ceiling: Duration, attempt: u32) -> Duration {
    let factor = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(ceiling)
}

/// A point between half of `whole` and all of it; `chance` lies in [0, 1).
#[must_use]
pub fn jittered(whole: Duration, chance: f64) -> Duration {
    let half = whole / 2;
    half + (whole - half).mul_f64(chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_ceiling() {
        let first = Duration::from_millis(100);
        let ceiling = Duration::from_secs(1);
        let waits: Vec<_> = (0..6).map(|attempt| whole(first, ceiling, attempt).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(whole(first, ceiling, u32::MAX), ceiling);
    }

    #[test]
    fn jitter_stays_between_half_and_whole() {
        let whole = Duration::from_millis(100);
        assert_eq!(jittered(whole, 0.0).as_millis(), 50);
        assert_eq!(jittered(whole, 0.5).as_millis(), 75);
        assert_eq!(jittered(whole, 1.0).as_millis(), 100);
    }

    #[test]
    fn success_starts_over() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
        for _ in 0..5 {
            backoff.next();
        }
        assert!(backoff.next() >= Duration::from_millis(1600));
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(100));
        assert_eq!(backoff.attempts(), 1);
    }

    #[test]
    fn a_ceiling_below_the_first_wait_is_raised() {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(1));
        assert!(backoff.next() >= Duration::from_secs(1));
        assert!(backoff.next() <= Duration::from_secs(2));
    }
}
