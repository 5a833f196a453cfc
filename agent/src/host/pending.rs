//! How often to look for a sandbox that has not come. Pure.
//!
//! Folders announce themselves; a process that enters a cgroup does not, so from the first sight of a container its
//! processes are looked at again and again: quickly at first, since a runtime needs a few milliseconds from the cgroup to
//! the namespace, then at a pace that still leaves most of the 100 ms before the first container runs. A pod that stays
//! in the host's namespace is looked at no oftener than one that has not come.
//!
//! A pod whose sandbox is known is watched in case it gets another one. That is rare, and announces itself by the folder
//! of a new container; so is every start of one of its own containers, and looking costs. So it is looked at in good time
//! rather than at once, for a while after each new folder, and hardly ever otherwise.

use std::time::{Duration, Instant};

/// How often to look where nothing is going on: insurance against an event that was lost.
pub(super) const IDLE: Duration = Duration::from_millis(250);

/// Pace by age: for so long after the last sign of life, this often.
const PACE: [(Duration, Duration); 3] = [
    (Duration::from_millis(100), Duration::from_millis(1)),
    (Duration::from_secs(1), Duration::from_millis(5)),
    (Duration::from_secs(20), Duration::from_millis(20)),
];

/// How often to look whether a known sandbox was replaced, where nothing is going on.
const KNOWN_IDLE: Duration = Duration::from_secs(10);
/// The same by age, after the folder of a new container.
const KNOWN_PACE: [(Duration, Duration); 2] = [
    (Duration::from_secs(2), Duration::from_millis(20)),
    (Duration::from_secs(20), Duration::from_millis(250)),
];

/// When to look next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    stirred: Option<Instant>,
    next: Instant,
    /// The pod has a sandbox that is known.
    is_known: bool,
}

impl Schedule {
    /// Look at once.
    pub(super) fn new(now: Instant) -> Self {
        Self { stirred: None, next: now, is_known: false }
    }

    /// The same for a pod whose sandbox is known, and may be replaced.
    pub(super) fn of_known(now: Instant) -> Self {
        Self { is_known: true, ..Self::new(now) }
    }

    /// Something happened in the pod's cgroup: look at once, and often after that.
    pub(super) fn stir(&mut self, now: Instant) {
        self.stirred = Some(now);
        self.next = now;
    }

    /// Something happened that may concern it: look at once.
    pub(super) fn nudge(&mut self, now: Instant) {
        self.next = now;
    }

    /// It was looked at; `is_starting` when a container is there whose sandbox is not.
    pub(super) fn looked(&mut self, is_starting: bool, now: Instant) {
        if self.is_known {
            let age = self.stirred.map(|stirred| now.saturating_duration_since(stirred));
            let pace = |age: Duration| KNOWN_PACE.iter().find(|(until, _)| age < *until);
            self.next = now + age.and_then(pace).map_or(KNOWN_IDLE, |(_, pace)| *pace);
            return;
        }
        if !is_starting {
            self.next = now + IDLE;
            return;
        }
        let stirred = *self.stirred.get_or_insert(now);
        let age = now.saturating_duration_since(stirred);
        self.next = now + PACE.iter().find(|(until, _)| age < *until).map_or(IDLE, |(_, pace)| *pace);
    }

    /// Whether it is time.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// When it will be.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// When the first container was seen, or the newest.
    pub(super) fn stirred(&self) -> Option<Instant> {
        self.stirred
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starting_container_is_looked_at_quickly_then_less() {
        let start = Instant::now();
        let table =
            [(0, 1), (99, 1), (100, 5), (999, 5), (1000, 20), (19_999, 20), (20_000, 250), (90_000, 250)];
        for (age, pace) in table {
            let mut schedule = Schedule::new(start);
            schedule.stir(start);
            let now = start + Duration::from_millis(age);
            schedule.looked(true, now);
            assert_eq!(schedule.next() - now, Duration::from_millis(pace), "after {age} ms");
        }
    }

    #[test]
    fn the_first_sight_of_a_container_starts_the_clock() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.looked(false, start);
        assert_eq!(schedule.next() - start, IDLE);
        let later = start + Duration::from_secs(60);
        schedule.looked(true, later);
        assert_eq!(schedule.next() - later, Duration::from_millis(1));
    }

    #[test]
    fn a_known_sandbox_is_looked_at_in_good_time_after_a_new_container_and_hardly_ever_else() {
        let start = Instant::now();
        let mut schedule = Schedule::of_known(start);
        schedule.looked(true, start);
        assert_eq!(schedule.next() - start, KNOWN_IDLE, "a container that was there is no news");
        schedule.stir(start);
        assert!(schedule.is_due(start));
        for (age, pace) in [(0, 20), (1_999, 20), (2_000, 250), (19_999, 250), (20_000, 10_000)] {
            let now = start + Duration::from_millis(age);
            schedule.looked(true, now);
            assert_eq!(schedule.next() - now, Duration::from_millis(pace), "after {age} ms");
        }
    }

    #[test]
    fn an_event_makes_it_due_at_once() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.looked(false, start);
        assert!(!schedule.is_due(start));
        schedule.nudge(start);
        assert!(schedule.is_due(start));
    }
}
