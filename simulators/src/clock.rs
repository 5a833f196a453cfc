//! The simulator's own time: real, faster than real, or moved by hand.

use std::str::FromStr;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As it does everywhere.
    Real,
    /// So many times as fast.
    Scaled(f64),
    /// Only when it is told to.
    Manual,
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("scaled:").map(f64::from_str)) {
            ("real", _) => Ok(Self::Real),
            ("manual", _) => Ok(Self::Manual),
            (_, Some(Ok(factor))) if factor.is_finite() && factor > 0.0 => Ok(Self::Scaled(factor)),
            (_, _) => Err("must be real, manual, or scaled:FACTOR with a factor above 0".to_owned()),
        }
    }
}

/// The clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pace: Pace,
    begun: Instant,
    origin: Timestamp,
    moved: Duration,
}

impl Clock {
    /// A clock that shows `origin` now.
    pub(crate) fn new(pace: Pace, origin: Timestamp) -> Self {
        Self { pace, begun: Instant::now(), origin, moved: Duration::ZERO }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let passed = match self.pace {
            Pace::Real => self.begun.elapsed(),
            Pace::Scaled(factor) => self.begun.elapsed().mul_f64(factor),
            Pace::Manual => Duration::ZERO,
        };
        self.origin.saturating_add(passed + self.moved).unwrap_or(Timestamp::MAX)
    }

    /// Moves it on, whatever its pace.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.moved += by;
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_stands_until_it_is_moved() {
        let origin = Timestamp::UNIX_EPOCH;
        let mut clock = Clock::new(Pace::Manual, origin);
        assert_eq!(clock.now(), origin);
        clock.advance(Duration::from_millis(61_000));
        assert_eq!(clock.now(), origin + Duration::from_secs(61));
    }

    #[test]
    fn other_clocks_go_on_by_themselves() {
        for pace in [Pace::Real, Pace::Scaled(10.0)] {
            let clock = Clock::new(pace, Timestamp::UNIX_EPOCH);
            let first = clock.now();
            assert!(clock.now() >= first);
        }
    }

    #[test]
    fn paces_are_words() {
        for (text, expected) in [
            ("real", Some(Pace::Real)),
            ("manual", Some(Pace::Manual)),
            ("scaled:10", Some(Pace::Scaled(10.0))),
            ("scaled:0", None),
            ("scaled:-1", None),
            ("scaled:inf", None),
            ("scaled", None),
            ("fast", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }
}
