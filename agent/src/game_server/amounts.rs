//! What a game's operations make of the counters, lists and players that its server has now. Pure.
//!
//! They are applied to the API's present value under the version that was read, whoever wrote it, so that nothing that
//! anybody else counted is lost.

use std::collections::BTreeMap;

use berth_api::game_server::{Counter, GameServerStatus, List, PlayersStatus};
use serde_json::{Map, Value, json};

use super::wishes::Wishes;

/// What is to be written: only what an operation touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    /// Counters, as they become.
    pub(super) counters: BTreeMap<String, Counter>,
    /// Lists, as they become.
    pub(super) lists: BTreeMap<String, List>,
    /// The players, as they become.
    pub(super) players: Option<PlayersStatus>,
    /// The room for players changes.
    pub(super) has_new_capacity: bool,
    /// Players come or leave.
    pub(super) has_new_count: bool,
    /// Operations on counters and lists that the server does not have any more.
    pub(super) lost: usize,
}

impl Amounts {
    /// What the wishes make of a status.
    pub(super) fn of(status: &GameServerStatus, wishes: &Wishes) -> Self {
        let mut amounts = Self::default();
        for (name, changes) in &wishes.counters {
            let Some(now) = status.counters.as_ref().and_then(|counters| counters.get(name)) else {
                amounts.lost += changes.len();
                continue;
            };
            let after = changes.iter().fold(now.clone(), |now, change| change.apply(&now));
            if after != *now {
                amounts.counters.insert(name.clone(), after);
            }
        }
        for (name, changes) in &wishes.lists {
            let Some(now) = status.lists.as_ref().and_then(|lists| lists.get(name)) else {
                amounts.lost += changes.len();
                continue;
            };
            let after = changes.iter().fold(now.clone(), |now, change| change.apply(&now));
            if after != *now {
                amounts.lists.insert(name.clone(), after);
            }
        }
        if let Some(change) = &wishes.players {
            let now = status.players.clone().unwrap_or_default();
            let after = change.apply(&now);
            amounts.has_new_capacity = after.capacity != now.capacity;
            amounts.has_new_count = after.ids.as_deref() != now.ids.as_deref().or(Some(&[]));
            if amounts.has_new_capacity || amounts.has_new_count {
                amounts.players = Some(after);
            }
        }
        amounts
    }

    /// Puts them into the status of a merge patch.
    pub(super) fn write(&self, status: &mut Map<String, Value>) {
        if !self.counters.is_empty() {
            status.insert("counters".to_owned(), json!(self.counters));
        }
        if !self.lists.is_empty() {
            status.insert("lists".to_owned(), json!(self.lists));
        }
        if let Some(players) = &self.players {
            status.insert("players".to_owned(), json!(players));
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_api::game_server::counters::CounterChange;
    use berth_api::game_server::lists::ListChange;
    use berth_api::game_server::players::PlayersChange;
    use serde_json::json;

    use super::{Amounts, GameServerStatus, Wishes};

    fn status() -> GameServerStatus {
        serde_json::from_value(json!({
            "counters": {"rooms": {"count": 3, "capacity": 10}, "kills": {"count": 1, "capacity": i64::MAX}},
            "lists": {"maps": {"values": ["a", "b"], "capacity": 3}},
        }))
        .unwrap()
    }

    fn plus(diff: i64) -> CounterChange {
        CounterChange { diff, ..CounterChange::default() }
    }

    #[test]
    fn only_what_changes_is_written() {
        let wishes = Wishes {
            counters: [
                ("rooms".to_owned(), vec![plus(2), plus(1)]),
                ("kills".to_owned(), vec![plus(i64::MAX)]),
            ]
            .into(),
            lists: [(
                "maps".to_owned(),
                vec![ListChange { add: vec!["a".to_owned()], ..ListChange::default() }],
            )]
            .into(),
            players: Some(PlayersChange::default()),
            ..Wishes::default()
        };
        let amounts = Amounts::of(&status(), &wishes);
        let mut written = serde_json::Map::new();
        amounts.write(&mut written);
        let expected = json!({"counters": {
            "rooms": {"count": 6, "capacity": 10},
            "kills": {"count": i64::MAX, "capacity": i64::MAX},
        }});
        assert_eq!(serde_json::Value::Object(written), expected);
        assert_eq!((amounts.lost, amounts.has_new_capacity, amounts.has_new_count), (0, false, false));
    }

    #[test]
    fn what_somebody_else_has_taken_away_is_not_made_anew() {
        let wishes = Wishes {
            counters: [("gone".to_owned(), vec![plus(1), plus(1)])].into(),
            lists: [("gone".to_owned(), vec![ListChange::default()])].into(),
            ..Wishes::default()
        };
        let amounts = Amounts::of(&status(), &wishes);
        assert_eq!((amounts.lost, amounts.counters.len(), amounts.lists.len()), (3, 0, 0));
    }

    #[test]
    fn the_first_player_makes_the_players() {
        let change =
            PlayersChange { capacity: Some(5), connect: vec!["u1".to_owned()], disconnect: Vec::new() };
        let amounts = Amounts::of(&status(), &Wishes { players: Some(change), ..Wishes::default() });
        let players = amounts.players.unwrap();
        assert_eq!((players.count, players.capacity), (1, 5));
        assert!(amounts.has_new_capacity && amounts.has_new_count);
    }
}
