//! How the new servers of a set fare: one that fails before it was ever Ready makes the next ones wait, longer each time,
//! until one becomes Ready. A build that cannot start then costs a few pods an hour instead of running away. Pure.

use std::time::Duration;

use berth_api::conditions::Trouble;
use berth_runtime::clock::Instant;

/// The wait after the second failure; it doubles with each that follows.
const FIRST: Duration = Duration::from_secs(2);
/// The longest.
const LONGEST: Duration = Duration::from_secs(300);
/// Failures in a row that are worth telling.
const TOLD: u32 = 3;

/// What is known of the newest servers of a set; forgotten as soon as one of them becomes Ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strain {
    /// Servers that failed since the last that became Ready.
    failures: u32,
    /// Waits so far. Servers that were made together fail together, and count as one.
    rounds: u32,
    /// A failure that no wait was given for yet.
    is_fresh: bool,
    until: Option<Instant>,
    last: String,
}

impl Strain {
    /// A server failed that was never Ready.
    pub(crate) fn note_failure(&mut self, reason: &str) {
        self.failures = self.failures.saturating_add(1);
        self.is_fresh = true;
        self.last = reason.to_owned();
    }

    /// How long the next servers wait; nothing when they need not.
    pub(crate) fn wait(&mut self, now: Instant) -> Option<Duration> {
        let is_waiting = self.until.is_some_and(|until| now < until);
        if std::mem::take(&mut self.is_fresh) && !is_waiting {
            self.rounds = self.rounds.saturating_add(1);
            self.until = Some(now + self.pause());
        }
        self.until.map(|until| until.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    fn pause(&self) -> Duration {
        match self.rounds.checked_sub(2) {
            None => Duration::ZERO,
            Some(doublings) => FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST),
        }
    }

    /// What to say of it.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        (self.failures >= TOLD && self.rounds > 1).then(|| Trouble {
            reason: "ServersFail",
            message: format!(
                "GameServers fail one after the other before they are Ready, last: {}; the next ones wait for {}s",
                self.last,
                self.pause().as_secs()
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

    use super::*;

    #[test]
    fn a_build_that_cannot_start_waits_longer_and_longer() {
        let start = Instant::now();
        let mut strain = Strain::default();
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..12 {
            strain.note_failure("Unhealthy");
            let wait = strain.wait(now);
            waits.push(wait.map_or(0, |wait| wait.as_secs()));
            now += wait.unwrap_or_default();
            assert_eq!(strain.wait(now), None, "and then goes on");
        }
        assert_eq!(waits, [0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        let said = strain.trouble().expect("a trouble").message;
        assert!(said.contains("last: Unhealthy") && said.ends_with("wait for 300s"), "{said}");
        strain = Strain::default();
        strain.note_failure("Unhealthy");
        assert_eq!(
            (strain.wait(now), strain.trouble()),
            (None, None),
            "one that became Ready starts it over"
        );
    }

    #[test]
    fn servers_that_fail_together_count_as_one() {
        let now = Instant::now();
        let mut strain = Strain::default();
        for _ in 0..2 {
            strain.note_failure("x");
            strain.wait(now);
        }
        for _ in 0..50 {
            strain.note_failure("x");
        }
        assert_eq!(strain.wait(now + Duration::from_secs(1)), Some(Duration::from_secs(1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn no_wait_is_longer_than_the_longest_and_all_end(
            steps in proptest::collection::vec((any::<bool>(), 0..400_u64), 1..200),
        ) {
            let mut strain = Strain::default();
            let mut now = Instant::now();
            for (is_failure, later) in steps {
                if is_failure {
                    strain.note_failure("x");
                } else {
                    strain = Strain::default();
                }
                let wait = strain.wait(now);
                prop_assert!(wait.is_none_or(|wait| wait <= LONGEST));
                prop_assert!(is_failure || wait.is_none());
                now += Duration::from_secs(later);
            }
            prop_assert!(strain.wait(now + LONGEST + LONGEST).is_none());
        }
    }
}
