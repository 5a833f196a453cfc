//! What the drainer remembers: the notices, and since when they mean what they mean. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::marks::{Marks, Phase};
use super::notice::{Heard, Notice, Notices, Severity, Signal, Source};
use super::plan::assumed_deadline;

/// How long a notice that an earlier agent heard is believed without being said again, where its source says everything
/// again in less time, and where only hearing nothing tells that it is over.
const BELIEVED: Duration = Duration::from_secs(180);

/// Notices and times.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    notices: Notices,
    /// Notices that an earlier agent heard and that nobody has said again.
    restored: BTreeSet<Source>,
    restored_at: Option<Timestamp>,
    /// When a node that is certain to end ends, where nobody says.
    assumed: Option<Timestamp>,
    closed_since: Option<Timestamp>,
    drains_since: Option<Timestamp>,
}

impl Memory {
    /// Goes on from marks.
    #[must_use]
    pub fn resume(marks: &Marks, boot_id: &str, now: Timestamp) -> Self {
        let mut memory = Self::default();
        for notice in marks.holding(None, boot_id) {
            memory.restored.insert(notice.source.clone());
            memory.notices.hear(Signal::Raised(notice));
        }
        memory.restored_at = (!memory.restored.is_empty()).then_some(now);
        if marks.phase == Some(Phase::Terminating) {
            memory.assumed = marks.deadline;
        }
        if marks.phase.is_some_and(Phase::is_of_drain) {
            memory.drains_since = marks.phase_since;
        }
        memory.settle(now);
        memory
    }

    /// Takes a signal in.
    pub fn hear(&mut self, signal: Signal, now: Timestamp) -> Heard {
        let (Signal::Raised(Notice { source, .. }) | Signal::Cleared(source)) = &signal;
        self.restored.remove(source);
        let heard = self.notices.hear(signal);
        self.settle(now);
        heard
    }

    /// Forgets what was said of another instance.
    pub fn forget_restored(&mut self, now: Timestamp) {
        for source in std::mem::take(&mut self.restored) {
            self.notices.forget(&source);
        }
        self.assumed = None;
        self.settle(now);
    }

    /// Forgets what has been believed for long enough; answers when to come back for the rest.
    pub fn expire(&mut self, now: Timestamp) -> Option<Timestamp> {
        let is_over = |source: &Source| matches!(source, Source::Scheduled(_));
        let until = self.restored_at?.saturating_add(BELIEVED).unwrap_or(Timestamp::MAX);
        if !self.restored.iter().any(is_over) {
            return None;
        }
        if now < until {
            return Some(until);
        }
        let (over, rest) = std::mem::take(&mut self.restored).into_iter().partition(is_over);
        self.restored = rest;
        let over: BTreeSet<Source> = over;
        for source in over {
            self.notices.forget(&source);
        }
        self.settle(now);
        None
    }

    /// All that is said.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// The gravest notice, with a deadline where the node is certain to end.
    #[must_use]
    pub fn gravest(&self) -> Option<Notice> {
        let mut gravest = self.notices.gravest()?;
        gravest.deadline = gravest.deadline.into_iter().chain(self.assumed).min();
        Some(gravest)
    }

    /// Since when the node is closed for new servers by somebody who may open it again.
    #[must_use]
    pub fn closed_since(&self) -> Option<Timestamp> {
        self.closed_since
    }

    /// Since when it is being emptied.
    #[must_use]
    pub fn drains_since(&self) -> Option<Timestamp> {
        self.drains_since
    }

    fn settle(&mut self, now: Timestamp) {
        let gravest = self.notices.gravest();
        let is_closed = self.notices.iter().any(|notice| notice.severity == Severity::Cordoned);
        self.closed_since = is_closed.then(|| self.closed_since.unwrap_or(now));
        let drains = gravest.as_ref().is_some_and(|notice| notice.severity.drains());
        self.drains_since = drains.then(|| self.drains_since.unwrap_or(now));
        // Known only as long as nobody who is as grave says better: what else ends later puts nothing off. One that was
        // assumed first does not move away.
        let severity = gravest.map(|notice| notice.severity);
        let mut gravest = self.notices.iter().filter(|notice| Some(notice.severity) == severity);
        let is_said = gravest.any(|notice| notice.deadline.is_some());
        self.assumed = severity
            .filter(|_| !is_said)
            .and_then(|severity| assumed_deadline(severity, now))
            .map(|new| self.assumed.map_or(new, |known| known.min(new)));
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::Memory;
    use crate::drain::Course;
    use crate::drain::marks::{At, Marks};
    use crate::drain::notice::{Heard, Notice, Severity, Signal, Source};
    use crate::fleetiq::Standing;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn notice(source: Source, severity: Severity) -> Notice {
        Notice { source, severity, reason: "because".into(), deadline: None }
    }

    fn marks_of(memory: &Memory, now: Timestamp) -> Marks {
        let course = memory.gravest().map_or(Course::Open, |notice| Course::Draining { notice });
        let at = At { boot_id: "b", now };
        Marks::due(&course, &Standing::default(), memory.notices().kept(), &Marks::default(), at)
    }

    #[test]
    fn an_interruption_without_a_time_is_taken_to_come_soon_until_somebody_says_when() {
        let mut memory = Memory::default();
        memory.hear(Signal::Raised(notice(Source::FleetIq, Severity::Spot)), at(10));
        let deadline = |memory: &Memory| memory.gravest().and_then(|notice| notice.deadline);
        assert_eq!(deadline(&memory), Some(at(60)));
        memory.hear(Signal::Raised(notice(Source::Cordon, Severity::Cordoned)), at(30));
        assert_eq!(deadline(&memory), Some(at(60)), "it does not move away");
        let said = Notice { deadline: Some(at(130)), ..notice(Source::Spot, Severity::Spot) };
        memory.hear(Signal::Raised(said), at(31));
        assert_eq!(deadline(&memory), Some(at(130)));
    }

    /// What ends later, such as a node that a lifecycle hook holds for two days, puts an interruption off by nothing.
    #[test]
    fn a_later_deadline_of_something_less_grave_puts_no_interruption_off() {
        for (source, severity) in
            [(Source::Lifecycle, Severity::AutoScaling), (Source::Socket, Severity::Ordered)]
        {
            let mut memory = Memory::default();
            let deadline = |memory: &Memory| memory.gravest().and_then(|notice| notice.deadline);
            let late = Notice { deadline: Some(at(172_800)), ..notice(source.clone(), severity) };
            memory.hear(Signal::Raised(late), at(0));
            assert_eq!(deadline(&memory), Some(at(172_800)));
            memory.hear(Signal::Raised(notice(Source::FleetIq, Severity::Spot)), at(10));
            assert_eq!(deadline(&memory), Some(at(60)), "{source:?}");
            let resumed = Memory::resume(&marks_of(&memory, at(12)), "b", at(40));
            assert_eq!(deadline(&resumed), Some(at(60)), "{source:?}");
            let said = Notice { deadline: Some(at(130)), ..notice(Source::Spot, Severity::Spot) };
            memory.hear(Signal::Raised(said), at(31));
            assert_eq!(deadline(&memory), Some(at(130)), "{source:?}");
        }
    }

    /// Whoever hears of it says when, since a lifecycle hook may hold it up: until then no session is ended for it.
    #[test]
    fn an_end_by_auto_scaling_has_the_time_that_is_said_and_no_other() {
        let mut memory = Memory::default();
        let ends = || notice(Source::Lifecycle, Severity::AutoScaling);
        memory.hear(Signal::Raised(ends()), at(10));
        assert_eq!(memory.gravest(), Some(ends()));
        let said = Notice { deadline: Some(at(3010)), ..ends() };
        memory.hear(Signal::Raised(said.clone()), at(11));
        assert_eq!(memory.gravest(), Some(said.clone()));
        let mut resumed = Memory::resume(&marks_of(&memory, at(12)), "b", at(40));
        // The metadata are read anew, and know of no time.
        resumed.hear(Signal::Raised(ends()), at(41));
        assert_eq!(resumed.gravest(), Some(said));
    }

    #[test]
    fn what_an_earlier_agent_heard_goes_on() {
        let mut memory = Memory::default();
        memory.hear(Signal::Raised(notice(Source::FleetIq, Severity::Spot)), at(10));
        memory.hear(Signal::Raised(notice(Source::Socket, Severity::Ordered)), at(11));
        let marks = marks_of(&memory, at(12));
        let resumed = Memory::resume(&marks, "b", at(40));
        assert_eq!(resumed.gravest(), memory.gravest(), "with the same deadline");
        assert_eq!(resumed.notices(), memory.notices());
        assert_eq!(resumed.drains_since(), Some(at(12)));

        let mut another = Memory::resume(&marks, "another boot", at(40));
        assert_eq!(another.gravest().map(|notice| notice.source), Some(Source::Socket));
        assert_eq!(another.hear(Signal::Cleared(Source::Socket), at(41)), Heard::News);
        assert_eq!(another.gravest(), None);
    }

    #[test]
    fn what_was_said_of_another_instance_is_forgotten_and_what_was_said_since_is_not() {
        let mut memory = Memory::default();
        memory.hear(Signal::Raised(notice(Source::FleetIq, Severity::Draining)), at(10));
        memory.hear(Signal::Raised(notice(Source::Spot, Severity::Spot)), at(10));
        let mut resumed = Memory::resume(&marks_of(&memory, at(12)), "b", at(40));
        resumed.hear(Signal::Raised(notice(Source::Spot, Severity::Spot)), at(41));
        resumed.forget_restored(at(42));
        let sources: Vec<Source> = resumed.notices().iter().map(|notice| notice.source.clone()).collect();
        assert_eq!(sources, [Source::Spot]);
    }

    #[test]
    fn an_event_that_nobody_speaks_of_any_more_is_over() {
        let mut memory = Memory::default();
        let event = || notice(Source::Scheduled("e".into()), Severity::Scheduled);
        memory.hear(Signal::Raised(event()), at(10));
        let marks = marks_of(&memory, at(12));
        let mut resumed = Memory::resume(&marks, "b", at(100));
        assert_eq!(resumed.expire(at(279)), Some(at(280)));
        assert!(resumed.gravest().is_some());
        assert_eq!(resumed.expire(at(280)), None);
        assert_eq!(resumed.gravest(), None);

        let mut again = Memory::resume(&marks, "b", at(100));
        again.hear(Signal::Raised(event()), at(150));
        assert_eq!(again.expire(at(500)), None);
        assert!(again.gravest().is_some());
    }

    #[test]
    fn a_closed_node_counts_from_when_it_was_closed() {
        let mut memory = Memory::default();
        memory.hear(Signal::Raised(notice(Source::Cordon, Severity::Cordoned)), at(10));
        memory.hear(Signal::Raised(notice(Source::Socket, Severity::Ordered)), at(20));
        memory.hear(Signal::Cleared(Source::Socket), at(30));
        assert_eq!((memory.closed_since(), memory.drains_since()), (Some(at(10)), None));
        memory.hear(Signal::Cleared(Source::Cordon), at(40));
        memory.hear(Signal::Raised(notice(Source::Cordon, Severity::Cordoned)), at(50));
        assert_eq!(memory.closed_since(), Some(at(50)));
    }
}
