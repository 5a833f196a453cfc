//! When silence means failure: the grid of checks of one game, as a closed form. Pure.
//!
//! ```text
//! container starts      first check      second          third
//! ──────┼── initial delay ───┼── period ────┼── period ────┼──▶
//!                            a check is a miss when the last ping is longer ago than one period
//! ```
//!
//! Nothing is counted: how many checks in a row are missed follows from the grid and the last ping alone, and so does
//! the moment at which the threshold is reached. A ping moves that moment and nothing else.

use std::time::{Duration, Instant};

use berth_api::game_server::HealthRule;
use berth_api::link::Pulse;

/// Two starts that are this close are one start, told twice.
const SAME_START: Duration = Duration::from_secs(1);

/// The clock of one game's pings.
#[derive(Clone, Debug)]
pub(crate) struct PingClock {
    /// When this process began to hear pings at all.
    listening_since: Instant,
    rule: Option<HealthRule>,
    /// Start of the game's container.
    start: Option<Instant>,
    /// When the game had somewhere to send its pings to.
    open_since: Option<Instant>,
    last: Option<Instant>,
    /// The container started before this process did: pings may have been heard that nobody remembers.
    is_past_unknown: bool,
}

impl PingClock {
    pub(crate) fn new(listening_since: Instant) -> Self {
        Self {
            listening_since,
            rule: None,
            start: None,
            open_since: None,
            last: None,
            is_past_unknown: false,
        }
    }

    pub(crate) fn set_rule(&mut self, rule: Option<HealthRule>) {
        self.rule = rule;
    }

    /// The game's container started. A start that is clearly later than the known one is another container's.
    pub(crate) fn started(&mut self, start: Instant) {
        if self.start.is_some_and(|known| start <= known + SAME_START) {
            return;
        }
        self.start = Some(start);
        self.is_past_unknown = start < self.listening_since;
        self.last = self.last.filter(|last| *last >= start);
    }

    /// The game can be heard since then: nothing is due while nobody could have listened.
    pub(crate) fn opened(&mut self, since: Instant) {
        self.open_since = Some(since);
    }

    pub(crate) fn ping(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// What the pings tell now.
    pub(crate) fn pulse(&self, now: Instant) -> Pulse {
        match self.deadline() {
            Some(deadline) if deadline <= now => Pulse::Silent { missed: self.missed(now) },
            Some(_) | None => Pulse::Alive,
        }
    }

    /// The check at which the threshold is reached unless a ping comes before; `None` when nothing is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let grid = self.grid()?;
        let further = grid.period.checked_mul(grid.threshold.max(1) - 1)?;
        grid.first_missed()?.checked_add(further)
    }

    fn missed(&self, now: Instant) -> u32 {
        let Some((grid, since)) = self.grid().and_then(|grid| {
            let since = now.checked_duration_since(grid.first_missed()?)?;
            Some((grid, since))
        }) else {
            return 0;
        };
        u32::try_from(since.as_nanos() / grid.period.as_nanos() + 1).unwrap_or(u32::MAX)
    }

    fn grid(&self) -> Option<Grid> {
        let rule = self.rule.filter(|rule| !rule.disabled && !rule.period.is_zero())?;
        let start = self.start?.max(self.open_since?);
        if self.is_past_unknown && self.last.is_none() {
            return None;
        }
        Some(Grid {
            first: start.checked_add(rule.initial_delay)?,
            period: rule.period,
            threshold: rule.failure_threshold,
            last: self.last,
        })
    }
}

struct Grid {
    first: Instant,
    period: Duration,
    threshold: u32,
    last: Option<Instant>,
}

impl Grid {
    /// The first check that is missed if no further ping comes.
    fn first_missed(&self) -> Option<Instant> {
        let Some(last) = self.last else {
            return Some(self.first);
        };
        let kept_until = last.checked_add(self.period)?;
        let Some(past_first) = kept_until.checked_duration_since(self.first) else {
            return Some(self.first);
        };
        let kept = u32::try_from(past_first.as_nanos() / self.period.as_nanos() + 1).ok()?;
        self.first.checked_add(self.period.checked_mul(kept)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: HealthRule = HealthRule {
        disabled: false,
        period: Duration::from_secs(5),
        failure_threshold: 3,
        initial_delay: Duration::from_secs(5),
    };

    fn seconds(number: f64) -> Duration {
        Duration::from_secs_f64(number)
    }

    struct Game {
        zero: Instant,
        clock: PingClock,
    }

    /// A process that listens from 0 on, for a game whose container starts at `start`.
    fn game(start: f64) -> Game {
        let zero = Instant::now() + Duration::from_secs(1000);
        let mut clock = PingClock::new(zero);
        clock.set_rule(Some(RULE));
        clock.opened(zero);
        clock.started(if start < 0.0 { zero - seconds(-start) } else { zero + seconds(start) });
        Game { zero, clock }
    }

    impl Game {
        fn pinged(mut self, at: f64) -> Self {
            self.clock.ping(self.zero + seconds(at));
            self
        }

        fn ruled(mut self, rule: HealthRule) -> Self {
            self.clock.set_rule(Some(rule));
            self
        }

        fn missed(&self, at: f64) -> u32 {
            self.clock.missed(self.zero + seconds(at))
        }

        fn deadline(&self) -> Option<f64> {
            self.clock.deadline().map(|deadline| (deadline - self.zero).as_secs_f64())
        }

        fn pulse(&self, at: f64) -> Pulse {
            self.clock.pulse(self.zero + seconds(at))
        }
    }

    #[test]
    fn a_game_that_never_pings_misses_every_check_from_its_start_on() {
        let game = game(2.0);
        for (at, missed) in [(6.999, 0), (7.0, 1), (11.9, 1), (12.0, 2), (16.9, 2), (17.0, 3), (22.0, 4)] {
            assert_eq!(game.missed(at), missed, "at {at}");
        }
        assert_eq!(game.deadline(), Some(17.0));
        assert_eq!(game.pulse(16.999), Pulse::Alive);
        assert_eq!(game.pulse(17.0), Pulse::Silent { missed: 3 });
    }

    #[test]
    fn checks_keep_to_the_grid_after_a_ping() {
        let game = game(2.0).pinged(10.0);
        for (at, missed) in [(12.0, 0), (16.9, 0), (17.0, 1), (22.0, 2), (27.0, 3)] {
            assert_eq!(game.missed(at), missed, "at {at}");
        }
        assert_eq!(game.deadline(), Some(27.0));
    }

    #[test]
    fn a_ping_exactly_one_period_before_a_check_is_in_time() {
        let exact = game(5.0).pinged(10.0);
        assert_eq!(exact.missed(15.0), 0);
        assert_eq!(exact.missed(20.0), 1);
        let just_before = game(5.0).pinged(9.999);
        assert_eq!(just_before.missed(15.0), 1);
    }

    #[test]
    fn nothing_is_due_before_the_delay_is_over() {
        let patient =
            HealthRule { period: seconds(1.0), failure_threshold: 1, initial_delay: seconds(30.0), ..RULE };
        let game = game(0.0).ruled(patient);
        assert_eq!(game.pulse(29.999), Pulse::Alive);
        assert_eq!(game.pulse(30.0), Pulse::Silent { missed: 1 });
    }

    #[test]
    fn nothing_is_due_where_nothing_is_asked_for() {
        let zero = Instant::now();
        let mut clock = PingClock::new(zero);
        clock.started(zero);
        clock.opened(zero);
        assert_eq!(clock.deadline(), None, "no rule yet");
        assert_eq!(game(0.0).ruled(HealthRule { disabled: true, ..RULE }).deadline(), None);
        let mut unstarted = PingClock::new(zero);
        unstarted.set_rule(Some(RULE));
        unstarted.opened(zero);
        assert_eq!(unstarted.deadline(), None, "no container yet");
        let mut unheard = PingClock::new(zero);
        unheard.set_rule(Some(RULE));
        unheard.started(zero);
        assert_eq!(unheard.deadline(), None, "no listener yet");
    }

    #[test]
    fn a_game_is_judged_from_when_it_could_be_heard() {
        let mut game = game(0.0);
        game.clock.opened(game.zero + seconds(60.0));
        assert_eq!(game.deadline(), Some(75.0));
    }

    #[test]
    fn after_an_unknown_past_misses_count_from_the_next_ping() {
        let game = game(-60.0);
        assert_eq!(game.deadline(), None);
        let heard = game.pinged(1.0);
        assert_eq!(heard.deadline(), Some(20.0));
    }

    #[test]
    fn a_start_told_twice_is_one_and_a_later_one_is_another() {
        let mut game = game(2.0).pinged(8.0);
        game.clock.started(game.zero + seconds(2.4));
        assert_eq!(game.deadline(), Some(27.0));
        game.clock.started(game.zero + seconds(20.0));
        assert_eq!(game.deadline(), Some(35.0));
    }

    #[test]
    fn a_ping_ends_silence() {
        let game = game(2.0);
        assert_eq!(game.pulse(40.0), Pulse::Silent { missed: 7 });
        let heard = game.pinged(40.0);
        assert_eq!(heard.pulse(40.0), Pulse::Alive);
        assert_eq!(heard.deadline(), Some(57.0));
    }

    #[test]
    fn extreme_rules_are_harmless() {
        let huge = Duration::from_secs(2_147_483_648);
        let rule =
            HealthRule { disabled: false, period: huge, failure_threshold: u32::MAX, initial_delay: huge };
        let game = game(0.0).ruled(rule).pinged(3.0);
        assert_eq!(game.pulse(1e6), Pulse::Alive);
        let zero = game.ruled(HealthRule { period: Duration::ZERO, failure_threshold: 0, ..RULE });
        assert_eq!(zero.deadline(), None);
    }
}
