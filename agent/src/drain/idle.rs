//! Since when nobody plays on the node, and what the brain's word about that means. Pure.
//!
//! A node that has had no session for long asks whether it is needed. The brain answers with the time that the question
//! named, so that its word never counts for another idle time than the one it has looked at: a word that was left
//! standing while the brain was away, or while the agent was, releases nothing.

use std::time::Duration;

use jiff::Timestamp;

use super::notice::{Notice, Notices, Severity, Signal, Source};
use super::sources::Ordered;

/// What is seen of the node at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Whether all servers are known.
    pub are_known: bool,
    /// Whether one of them is Allocated or Reserved.
    pub has_session: bool,
    /// FleetIQ keeps the instance, and nothing else is said of the node.
    pub may_ask: bool,
}

/// How long nobody has played.
#[derive(Clone, Debug)]
pub struct Idle {
    /// How long is long enough; never where absent.
    length: Option<Duration>,
    since: Option<Timestamp>,
    has_session: bool,
    may_ask: bool,
}

impl Idle {
    /// Nothing has been seen yet. Every process counts from its own beginning.
    #[must_use]
    pub fn new(length: Option<Duration>) -> Self {
        Self { length, since: None, has_session: false, may_ask: false }
    }

    /// Takes in what is seen.
    pub fn note(&mut self, sight: Sight, now: Timestamp) {
        let Sight { are_known, has_session, may_ask } = sight;
        self.since = (are_known && !has_session).then(|| self.since.unwrap_or(now));
        self.has_session = has_session;
        self.may_ask = may_ask;
    }

    /// The question: since when nobody has played, where that is long enough.
    #[must_use]
    pub fn asks(&self, now: Timestamp) -> Option<Timestamp> {
        self.since.filter(|_| self.may_ask && self.ends().is_some_and(|ends| ends <= now))
    }

    /// When to look again, though nothing has changed.
    #[must_use]
    pub fn look_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.ends().filter(|ends| self.may_ask && *ends > now)
    }

    fn ends(&self) -> Option<Timestamp> {
        Some(self.since?.saturating_add(self.length?).unwrap_or(Timestamp::MAX))
    }

    /// The signal that brings what is known up to what the brain says, and to what is seen. A node that is needed again
    /// has been idle for no time at all.
    pub fn signal(&mut self, ordered: &Ordered, known: &Notices, now: Timestamp) -> Option<Signal> {
        if known.of(&Source::Surplus).is_some() {
            // An allocation came first: the node is needed, whatever was said of it before.
            let is_over = self.has_session || self.length.is_none() || is_taken_back(ordered);
            return is_over.then(|| {
                self.since = None;
                Signal::Cleared(Source::Surplus)
            });
        }
        let since = self.asks(now).filter(|since| word(ordered) == Some(*since))?;
        Some(Signal::Raised(Notice {
            source: Source::Surplus,
            severity: Severity::Surplus,
            reason: format!("no session since {since}, and its game servers are not needed here"),
            deadline: None,
        }))
    }
}

fn is_taken_back(ordered: &Ordered) -> bool {
    *ordered != Ordered::Unknown && word(ordered).is_none()
}

fn word(ordered: &Ordered) -> Option<Timestamp> {
    match ordered {
        Ordered::Unknown => None,
        Ordered::Known(spec) => spec.surplus.as_deref()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_api::game_node::GameNodeSpec;
    use jiff::Timestamp;

    use super::{Idle, Sight};
    use crate::drain::notice::{Notices, Signal, Source};
    use crate::drain::sources::Ordered;

    const EMPTY: Sight = Sight { are_known: true, has_session: false, may_ask: true };
    const PLAYED: Sight = Sight { has_session: true, ..EMPTY };
    const TEN_MINUTES: Option<Duration> = Some(Duration::from_secs(600));

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn word(since: Option<i64>) -> Ordered {
        Ordered::Known(GameNodeSpec {
            surplus: since.map(|second| at(second).to_string()),
            ..GameNodeSpec::default()
        })
    }

    #[test]
    fn a_node_asks_once_nobody_has_played_for_long_enough() {
        let mut idle = Idle::new(TEN_MINUTES);
        assert_eq!((idle.asks(at(0)), idle.look_at(at(0))), (None, None));
        idle.note(Sight { are_known: false, ..EMPTY }, at(0));
        assert_eq!(idle.look_at(at(0)), None, "nobody knows who is here");
        idle.note(EMPTY, at(10));
        assert_eq!((idle.asks(at(609)), idle.look_at(at(609))), (None, Some(at(610))));
        assert_eq!((idle.asks(at(610)), idle.look_at(at(610))), (Some(at(10)), None));
        idle.note(Sight { may_ask: false, ..EMPTY }, at(620));
        assert_eq!(idle.asks(at(620)), None);
        idle.note(EMPTY, at(630));
        assert_eq!(idle.asks(at(630)), Some(at(10)), "it is idle all the same");
        idle.note(PLAYED, at(640));
        assert_eq!((idle.asks(at(640)), idle.look_at(at(640))), (None, None));
        idle.note(EMPTY, at(650));
        assert_eq!((idle.asks(at(1249)), idle.asks(at(1250))), (None, Some(at(650))), "from the beginning");
    }

    #[test]
    fn where_it_is_off_no_node_asks() {
        let mut idle = Idle::new(None);
        idle.note(EMPTY, at(0));
        assert_eq!((idle.asks(at(1_000_000)), idle.look_at(at(0))), (None, None));
        assert_eq!(idle.signal(&word(Some(0)), &Notices::default(), at(1_000_000)), None);
    }

    #[test]
    fn a_word_counts_for_the_question_that_it_answers() {
        let mut idle = Idle::new(TEN_MINUTES);
        idle.note(EMPTY, at(0));
        let none = Notices::default();
        let table = [
            (word(Some(0)), 599, false),
            (word(Some(0)), 600, true),
            (word(Some(1)), 600, false),
            (word(None), 600, false),
            (Ordered::Unknown, 600, false),
        ];
        for (ordered, second, expected) in table {
            let signal = idle.signal(&ordered, &none, at(second));
            assert_eq!(matches!(signal, Some(Signal::Raised(_))), expected, "{ordered:?} {second}");
            assert!(expected || signal.is_none());
        }
        // A successor has an idle time of its own.
        let mut next = Idle::new(TEN_MINUTES);
        next.note(EMPTY, at(900));
        assert_eq!(next.signal(&word(Some(0)), &none, at(1500)), None);
    }

    #[test]
    fn it_stands_until_the_brain_takes_it_back_or_somebody_plays() {
        let mut idle = Idle::new(TEN_MINUTES);
        idle.note(EMPTY, at(0));
        let mut notices = Notices::default();
        notices.hear(idle.signal(&word(Some(0)), &notices, at(600)).expect("a notice"));
        idle.note(Sight { may_ask: false, ..EMPTY }, at(601));
        for standing in [word(Some(0)), word(Some(77)), Ordered::Unknown] {
            assert_eq!(idle.signal(&standing, &notices, at(601)), None, "{standing:?}");
        }
        let cleared = Some(Signal::Cleared(Source::Surplus));
        let mut needed = idle.clone();
        assert_eq!(needed.signal(&word(None), &notices, at(601)), cleared);
        needed.note(EMPTY, at(602));
        assert_eq!((needed.asks(at(1201)), needed.asks(at(1202))), (None, Some(at(602))), "counts anew");
        let mut off = idle.clone();
        off.length = None;
        assert_eq!(off.signal(&word(Some(0)), &notices, at(601)), cleared, "an agent that lets nothing go");
        idle.note(PLAYED, at(602));
        assert_eq!(idle.signal(&word(Some(0)), &notices, at(602)), cleared, "whatever the brain says");
    }
}
