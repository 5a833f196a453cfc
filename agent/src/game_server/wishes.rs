//! What a game has asked for and what is not yet in the API, folded into one write. Pure.

use std::collections::BTreeMap;

use berth_api::game_server::counters::CounterChange;
use berth_api::game_server::lists::ListChange;
use berth_api::game_server::players::PlayersChange;
use berth_api::link::{Asked, Change, Seen, Sequence};

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
    /// What the game could see when it asked for that state.
    pub seen: Seen,
    /// Labels, without prefix.
    pub labels: BTreeMap<String, String>,
    /// Annotations, without prefix.
    pub annotations: BTreeMap<String, String>,
    /// Operations on counters, in order.
    pub counters: BTreeMap<String, Vec<CounterChange>>,
    /// Operations on lists, in order.
    pub lists: BTreeMap<String, Vec<ListChange>>,
    /// The operation on the players.
    pub players: Option<PlayersChange>,
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

    /// The same without labels and annotations.
    #[must_use]
    pub fn without_metadata(&self) -> Self {
        Self { labels: BTreeMap::new(), annotations: BTreeMap::new(), ..self.clone() }
    }

    /// The state and nothing else.
    #[must_use]
    pub fn state_alone(&self) -> Self {
        Self { up_to: self.up_to, state: self.state.clone(), seen: self.seen.clone(), ..Self::default() }
    }

    fn add(&mut self, asked: Asked) {
        let state = match asked.change {
            Change::Label { key, value } => return drop(self.labels.insert(key, value)),
            Change::Annotation { key, value } => return drop(self.annotations.insert(key, value)),
            Change::Counter { name, by } => return self.counters.entry(name).or_default().push(by),
            Change::List { name, by } => return self.lists.entry(name).or_default().push(by),
            Change::Players { by } => {
                self.players = Some(self.players.take().unwrap_or_default().then(&by));
                return;
            }
            Change::Ready => StateWish::Ready,
            Change::Allocate { at } => StateWish::Allocate { at },
            Change::Reserve { until } => StateWish::Reserve { until },
            Change::Shutdown => StateWish::Shutdown,
        };
        if !self.wants_shutdown() {
            (self.state, self.seen) = (Some(state), asked.seen);
        }
    }
}

/// The changes that are not yet in the API, in order.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    changes: BTreeMap<Sequence, Asked>,
}

impl Pending {
    /// Notes a change. One noted before is the same change told again.
    pub fn note(&mut self, sequence: Sequence, asked: Asked) {
        self.changes.insert(sequence, asked);
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
        for (sequence, asked) in &self.changes {
            wishes.up_to = *sequence;
            wishes.add(asked.clone());
        }
        wishes
    }
}

#[cfg(test)]
mod tests {
    use berth_api::game_server::counters::CounterChange;
    use berth_api::game_server::players::PlayersChange;
    use berth_api::link::{Asked, Change, Seen, Sequence};

    use super::{Pending, StateWish};

    fn label(key: &str, value: &str) -> Change {
        Change::Label { key: key.into(), value: value.into() }
    }

    fn pending(changes: impl IntoIterator<Item = Change>) -> Pending {
        let mut pending = Pending::default();
        for (number, change) in (1..).zip(changes) {
            let seen = Seen { generation: i64::try_from(number).unwrap(), sessions: Vec::new() };
            pending.note(Sequence(number), Asked { change, seen });
        }
        pending
    }

    #[test]
    fn the_last_state_wins_but_nothing_follows_shutdown() {
        let allocate = || Change::Allocate { at: "t".into() };
        let table = [
            (vec![Change::Ready, allocate()], StateWish::Allocate { at: "t".into() }, 2),
            (vec![allocate(), label("a", "1"), Change::Ready, label("a", "2")], StateWish::Ready, 3),
            (vec![Change::Shutdown, Change::Ready], StateWish::Shutdown, 1),
            (vec![Change::Ready, Change::Shutdown, Change::Reserve { until: None }], StateWish::Shutdown, 2),
        ];
        for (changes, expected, seen) in table {
            let wishes = pending(changes).fold();
            assert_eq!((wishes.state, wishes.seen.generation), (Some(expected), seen));
        }
    }

    #[test]
    fn what_is_done_with_is_not_wished_again() {
        let mut pending = pending([Change::Ready, label("a", "1"), label("a", "2")]);
        let wishes = pending.fold();
        assert_eq!((wishes.up_to, wishes.labels["a"].as_str()), (Sequence(3), "2"));
        assert!(pending.forget(Sequence(1)));
        assert_eq!(pending.fold().state, None);
        assert!(!pending.forget(Sequence(1)));
        assert!(pending.forget(Sequence(9)));
        assert!(pending.fold().is_empty());
    }

    #[test]
    fn operations_keep_their_order_and_do_not_go_with_what_is_refused() {
        let plus = |diff| CounterChange { diff, ..CounterChange::default() };
        let counter = |diff| Change::Counter { name: "rooms".into(), by: plus(diff) };
        let players = |connect: &str, disconnect: &str| Change::Players {
            by: PlayersChange {
                connect: connect.split_whitespace().map(str::to_owned).collect(),
                disconnect: disconnect.split_whitespace().map(str::to_owned).collect(),
                capacity: None,
            },
        };
        let asked = [counter(1), players("a", ""), label("k", "v"), counter(2), players("b", "a")];
        let wishes = pending(asked).fold();
        assert_eq!(wishes.counters["rooms"], [plus(1), plus(2)]);
        let players = wishes.players.clone().unwrap();
        assert_eq!((players.connect, players.disconnect), (vec!["b".to_owned()], vec!["a".to_owned()]));
        let without = wishes.without_metadata();
        assert_eq!((without.labels.len(), &without.counters), (0, &wishes.counters));
        assert!(wishes.state_alone().counters.is_empty());
        assert_eq!(wishes.state_alone().up_to, wishes.up_to);
    }
}
