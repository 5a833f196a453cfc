//! When a group is asked for again: its period, slower after throttling and errors. Pure.

use std::time::Duration;

use berth_runtime::backoff;

/// The longest period that throttling leads to.
const SLOWEST: Duration = Duration::from_secs(300);
/// The first wait after an error.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How a poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// All pages were read.
    Complete,
    /// The account's quota is used up.
    Throttled,
    /// There is no such group.
    Missing,
    /// We may not ask for it.
    Denied,
    /// Anything else.
    Failed,
}

/// How often one group is asked for.
#[derive(Clone, Debug)]
pub struct Pace {
    usual: Duration,
    period: Duration,
    failures: u32,
}

impl Pace {
    /// One that has this period while all is well.
    #[must_use]
    pub fn new(usual: Duration) -> Self {
        Self { usual, period: usual, failures: 0 }
    }

    /// Its period now.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// How many polls in a row were not complete.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// How long to wait from the beginning of a poll that ended so to the next; `chance` lies in [0, 1).
    pub fn note(&mut self, ending: Ending, chance: f64) -> Duration {
        match ending {
            Ending::Complete => {
                self.failures = 0;
                self.period = (self.period / 2).max(self.usual);
                self.period
            }
            Ending::Throttled => {
                self.failures = self.failures.saturating_add(1);
                self.period = self.period.saturating_mul(2).min(SLOWEST).max(self.usual);
                self.period
            }
            Ending::Missing => {
                self.failures = self.failures.saturating_add(1);
                self.period
            }
            Ending::Denied | Ending::Failed => {
                let whole = backoff::whole(FIRST_WAIT, LONGEST_WAIT, self.failures);
                self.failures = self.failures.saturating_add(1);
                backoff::jittered(whole, chance)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(pace: &mut Pace, ending: Ending) -> u64 {
        pace.note(ending, 0.999_999).as_secs_f64().round() as u64
    }

    #[test]
    fn throttling_doubles_the_period_and_success_halves_it() {
        let mut pace = Pace::new(Duration::from_secs(30));
        let throttled: Vec<_> = (0..5).map(|_| seconds(&mut pace, Ending::Throttled)).collect();
        assert_eq!(throttled, [60, 120, 240, 300, 300]);
        let recovered: Vec<_> = (0..5).map(|_| seconds(&mut pace, Ending::Complete)).collect();
        assert_eq!(recovered, [150, 75, 38, 30, 30]);
        let mut slow = Pace::new(Duration::from_secs(300));
        assert_eq!(seconds(&mut slow, Ending::Throttled), 300);
    }

    #[test]
    fn errors_wait_from_two_seconds_to_a_minute_and_success_starts_over() {
        let mut pace = Pace::new(Duration::from_secs(30));
        let waits: Vec<_> = (0..7).map(|_| seconds(&mut pace, Ending::Failed)).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pace.failures(), 7);
        assert_eq!(seconds(&mut pace, Ending::Complete), 30);
        assert_eq!(seconds(&mut pace, Ending::Failed), 2);
    }

    #[test]
    fn a_missing_group_is_asked_for_at_the_usual_pace() {
        let mut pace = Pace::new(Duration::from_secs(30));
        assert_eq!([seconds(&mut pace, Ending::Missing), seconds(&mut pace, Ending::Missing)], [30, 30]);
        assert_eq!(pace.failures(), 2);
    }
}
