//! Players: who is connected, and how many may be. Pure.
//!
//! As with counters, a change is checked once against what its caller was shown, and applied later to whatever stands
//! there then. A capacity below the number of players sends nobody away.

use serde::{Deserialize, Serialize};

use super::PlayersStatus;
use super::lists::join;

/// What is asked: the capacity, who leaves, who comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayersChange {
    /// The new capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
    /// Players who leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disconnect: Vec<String>,
    /// Players who come, unless they are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connect: Vec<String>,
}

/// Why players cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlayersError {
    /// There is no room.
    #[error("players are already at capacity: {count} of {capacity}")]
    Full {
        /// Players who are there.
        count: usize,
        /// The capacity.
        capacity: i64,
    },
    /// A capacity below zero.
    #[error("the player capacity {capacity} is below 0")]
    Capacity {
        /// The capacity asked for.
        capacity: i64,
    },
}

impl PlayersChange {
    /// A player comes; none where the player is there already.
    ///
    /// # Errors
    /// There is no room.
    pub fn connecting(id: String, now: &PlayersStatus) -> Result<Option<Self>, PlayersError> {
        let ids = now.ids.as_deref().unwrap_or_default();
        if ids.contains(&id) {
            return Ok(None);
        }
        if i64::try_from(ids.len()).map_or(true, |count| count >= now.capacity) {
            return Err(PlayersError::Full { count: ids.len(), capacity: now.capacity });
        }
        Ok(Some(Self { connect: vec![id], ..Self::default() }))
    }

    /// A player leaves; none where the player is not there.
    pub fn disconnecting(id: String, now: &PlayersStatus) -> Option<Self> {
        let is_there = now.ids.iter().flatten().any(|known| *known == id);
        is_there.then(|| Self { disconnect: vec![id], ..Self::default() })
    }

    /// Room for so many.
    ///
    /// # Errors
    /// Fewer than none.
    pub fn with_capacity(capacity: i64) -> Result<Self, PlayersError> {
        if capacity < 0 {
            return Err(PlayersError::Capacity { capacity });
        }
        Ok(Self { capacity: Some(capacity), ..Self::default() })
    }

    /// What the players become, whatever they are now.
    #[must_use]
    pub fn apply(&self, now: &PlayersStatus) -> PlayersStatus {
        let mut ids: Vec<String> =
            now.ids.iter().flatten().filter(|id| !self.disconnect.contains(id)).cloned().collect();
        for id in &self.connect {
            if !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        PlayersStatus {
            count: i64::try_from(ids.len()).unwrap_or(i64::MAX),
            capacity: self.capacity.unwrap_or(now.capacity),
            ids: Some(ids),
        }
    }

    /// This and then `next` as one.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        let (disconnect, connect) =
            join((&self.disconnect, &self.connect), (&next.disconnect, &next.connect));
        Self { capacity: next.capacity.or(self.capacity), disconnect, connect }
    }

    /// Bytes of it that a caller can make more of.
    pub fn size(&self) -> usize {
        self.disconnect.iter().chain(&self.connect).map(String::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop_assert_eq, prop_oneof, proptest};

    use super::{PlayersChange, PlayersError};
    use crate::game_server::PlayersStatus;

    fn players(capacity: i64, ids: &[&str]) -> PlayersStatus {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        PlayersStatus { count: i64::try_from(ids.len()).unwrap(), capacity, ids: Some(ids) }
    }

    #[test]
    fn players_come_and_go() {
        let none = players(0, &[]);
        let connect = |id: &str, now: &PlayersStatus| PlayersChange::connecting(id.to_owned(), now);
        assert_eq!(connect("u1", &none), Err(PlayersError::Full { count: 0, capacity: 0 }));
        let roomy = PlayersChange::with_capacity(5).unwrap().apply(&none);
        assert_eq!(roomy, players(5, &[]));
        let one = connect("u1", &roomy).unwrap().unwrap().apply(&roomy);
        assert_eq!(one, players(5, &["u1"]));
        assert_eq!(connect("u1", &one), Ok(None));
        assert_eq!(PlayersChange::disconnecting("u2".to_owned(), &one), None);
        let empty = PlayersChange::disconnecting("u1".to_owned(), &one).unwrap().apply(&one);
        assert_eq!(empty, players(5, &[]));
        assert!(PlayersChange::with_capacity(-1).is_err());
    }

    #[test]
    fn a_smaller_capacity_sends_nobody_away() {
        let small = PlayersChange::with_capacity(1).unwrap().apply(&players(5, &["a", "b"]));
        assert_eq!(small, players(1, &["a", "b"]));
    }

    fn asks() -> impl Strategy<Value = (u8, String, i64)> {
        prop_oneof![
            ("[a-e]", 0..2_u8).prop_map(|(id, kind)| (kind, id, 0)),
            (0..5_i64).prop_map(|capacity| (2, String::new(), capacity)),
        ]
    }

    proptest! {
        #[test]
        fn joined_or_one_by_one_is_the_same(asked in proptest::collection::vec(asks(), 1..12)) {
            let base = players(3, &["a"]);
            let mut shown = base.clone();
            let mut joined = PlayersChange::default();
            for (kind, id, capacity) in asked {
                let change = match kind {
                    0 => PlayersChange::connecting(id, &shown).unwrap_or(None),
                    1 => PlayersChange::disconnecting(id, &shown),
                    _ => PlayersChange::with_capacity(capacity).ok(),
                };
                let Some(change) = change else { continue };
                shown = change.apply(&shown);
                joined = joined.then(&change);
            }
            prop_assert_eq!(joined.apply(&base), shown);
        }
    }
}
