//! The time, asked for in one place: the wall clock for what others read, the monotonic one for deadlines.
//!
//! Deadlines that decide anything use [`Clock::instant`]; wall clocks of two machines are never compared. A test takes
//! a clock that stands on tokio's, so that pausing and advancing time moves both.

use jiff::Timestamp;

pub use tokio::time::Instant;

/// A source of time, handed down from the composition root.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    anchor: Option<Anchor>,
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    wall: Timestamp,
    monotonic: Instant,
}

impl Clock {
    /// The machine's own clocks.
    #[must_use]
    pub fn system() -> Self {
        Self { anchor: None }
    }

    /// A wall clock that shows `wall` now and then moves with tokio's clock, paused or not.
    #[must_use]
    pub fn anchored_at(wall: Timestamp) -> Self {
        Self { anchor: Some(Anchor { wall, monotonic: Instant::now() }) }
    }

    /// The wall clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self.anchor {
            None => Timestamp::now(),
            // Saturating at the end of time is right for a clock that only tests move.
            Some(anchor) => anchor.wall.saturating_add(anchor.monotonic.elapsed()).unwrap_or(Timestamp::MAX),
        }
    }

    /// The monotonic clock.
    #[must_use]
    pub fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// The machine's wall clock, for code that holds no [`Clock`].
#[must_use]
pub fn now() -> Timestamp {
    Clock::system().now()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_anchored_clock_moves_with_the_paused_time() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::anchored_at(start);
        let before = clock.instant();
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
        assert_eq!(clock.instant() - before, Duration::from_secs(90));
    }

    #[test]
    fn the_system_clock_is_the_wall_clock() {
        let before = Timestamp::now();
        let seen = Clock::system().now();
        assert!(before <= seen && seen <= Timestamp::now());
    }
}
