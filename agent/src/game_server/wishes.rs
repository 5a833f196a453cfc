//! What a game has asked for and what is not yet in the API, folded into one write. Pure.

use std::collections::BTreeMap;

use berth_api::link::{Change, Sequence};

/// The state that a game asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateWish {
    /// `Ready()`.
    Ready,
    /// `Allocate()`.
    Allocate {
        /// RFC 3339 time of the call.
        at: String,
    },
    /// `Reserve()`.
    Reserve {
        /// RFC 3339 end; absent means without end.
        until: Option<String>,
    },
    /// `Shutdown()`.
    Shutdown,
}

/// All that is wished, folded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The last change contained; 0 where there is none.
    pub up_to: Sequence,
    /// The state, the last one wins; none may follow Shutdown.
    pub state: Option<StateWish>,
    /// Labels, without prefix.
    pub labels: BTreeMap<String, String>,
    /// Annotations, without prefix.
    pub annotations: BTreeMap<String, String>,
}

impl Wishes {
    /// Whether nothing is wished.
    pub fn is_empty(&self) -> bool {
        self.up_to == Sequence::default()
    }

    /// Whether the game wants to end.
    pub fn wants_shutdown(&self) -> bool {
        self.state == Some(StateWish::Shutdown)
    }
}

/// The changes that are not yet in the API, in order.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    changes: BTreeMap<Sequence, Change>,
}

impl Pending {
    /// Notes a change. One noted before is the same change told again.
    pub fn note(&mut self, sequence: Sequence, change: Change) {
        self.changes.insert(sequence, change);
    }

    /// Forgets what is done with; answers whether there was anything.
    pub fn forget(&mut self, done: Sequence) -> bool {
        let before = self.changes.len();
        self.changes.retain(|sequence, _| *sequence > done);
        self.changes.len() != before
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// All of them as one.
    pub fn fold(&self) -> Wishes {
        let mut wishes = Wishes::default();
        for (sequence, change) in &self.changes {
            wishes.up_to = *sequence;
            let state = match change.clone() {
                Change::Label { key, value } => {
                    wishes.labels.insert(key, value);
                    continue;
                }
                Change::Annotation { key, value } => {
                    wishes.annotations.insert(key, value);
                    continue;
                }
                Change::Ready => StateWish::Ready,
                Change::Allocate { at } => StateWish::Allocate { at },
                Change::Reserve { until } => StateWish::Reserve { until },
                Change::Shutdown => StateWish::Shutdown,
            };
            if !wishes.wants_shutdown() {
                wishes.state = Some(state);
            }
        }
        wishes
    }
}

#[cfg(test)]
mod tests {
    use berth_api::link::{Change, Sequence};

    use super::{Pending, StateWish};

    fn label(key: &str, value: &str) -> Change {
        Change::Label { key: key.into(), value: value.into() }
    }

    #[test]
    fn the_last_state_wins_but_nothing_follows_shutdown() {
        let table = [
            (
                vec![Change::Ready, Change::Allocate { at: "t".into() }],
                StateWish::Allocate { at: "t".into() },
            ),
            (vec![Change::Allocate { at: "t".into() }, Change::Ready], StateWish::Ready),
            (vec![Change::Shutdown, Change::Ready], StateWish::Shutdown),
            (vec![Change::Ready, Change::Shutdown, Change::Reserve { until: None }], StateWish::Shutdown),
        ];
        for (changes, expected) in table {
            let mut pending = Pending::default();
            for (number, change) in (1..).zip(changes) {
                pending.note(Sequence(number), change);
            }
            assert_eq!(pending.fold().state, Some(expected));
        }
    }

    #[test]
    fn what_is_done_with_is_not_wished_again() {
        let mut pending = Pending::default();
        pending.note(Sequence(1), Change::Ready);
        pending.note(Sequence(2), label("a", "1"));
        pending.note(Sequence(3), label("a", "2"));
        let wishes = pending.fold();
        assert_eq!((wishes.up_to, wishes.labels["a"].as_str()), (Sequence(3), "2"));
        assert!(pending.forget(Sequence(1)));
        assert_eq!(pending.fold().state, None);
        assert!(!pending.forget(Sequence(1)));
        assert!(pending.forget(Sequence(9)));
        assert!(pending.fold().is_empty());
    }
}
