//! Lists: what may be asked of one, and what it becomes then. Pure.
//!
//! As with counters, a change is checked once against what its caller was shown, and applied later to whatever stands
//! there then; whenever nobody else has written in between, both give the same.

use serde::{Deserialize, Serialize};

use super::List;

/// Most entries that any list may have.
pub const MOST_ENTRIES: i64 = 1000;

/// What is asked of a list: the capacity first, then removals, then additions at the end; what does not fit is cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChange {
    /// The new capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
    /// Entries that go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Entries that come, unless they are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
}

/// Why a list cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The server has no such list.
    #[error("this game server has no list {name:?}")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// Neither a list nor a mask, or no mask.
    #[error("a list and an update mask must be given")]
    Nothing,
    /// A mask names something that a list does not have.
    #[error("the update mask names {path:?}; a list has name, capacity and values")]
    Mask {
        /// The path.
        path: String,
    },
    /// A capacity that no list may have.
    #[error("out of range: a capacity of {capacity} where 0 to {MOST_ENTRIES} are allowed")]
    Capacity {
        /// The capacity asked for.
        capacity: i64,
    },
    /// There is no room.
    #[error("out of range: the list is full, it has {entries} of {capacity} values")]
    Full {
        /// Entries it has.
        entries: usize,
        /// Its capacity.
        capacity: i64,
    },
    /// The value is there already.
    #[error("already exists: the value is in the list")]
    Present,
    /// The value is not there.
    #[error("not found: the value is not in the list")]
    Absent,
}

impl ListChange {
    /// One value at the end of a list that its caller was shown as `now`.
    ///
    /// # Errors
    /// It is full, or has the value.
    pub fn adding(value: String, now: &List) -> Result<Self, ListError> {
        let capacity = now.capacity.unwrap_or_default();
        let entries = values(now).len();
        if i64::try_from(entries).map_or(true, |entries| entries >= capacity) {
            return Err(ListError::Full { entries, capacity });
        }
        if values(now).contains(&value) {
            return Err(ListError::Present);
        }
        Ok(Self { add: vec![value], ..Self::default() })
    }

    /// One value less.
    ///
    /// # Errors
    /// The list does not have it.
    pub fn removing(value: String, now: &List) -> Result<Self, ListError> {
        if !values(now).contains(&value) {
            return Err(ListError::Absent);
        }
        Ok(Self { remove: vec![value], ..Self::default() })
    }

    /// Another capacity, or other values: those that stay keep their order, new ones come last.
    ///
    /// # Errors
    /// The capacity is none that a list may have.
    pub fn replacing(
        capacity: Option<i64>,
        wanted: Option<Vec<String>>,
        now: &List,
    ) -> Result<Self, ListError> {
        if let Some(capacity) = capacity.filter(|capacity| !(0..=MOST_ENTRIES).contains(capacity)) {
            return Err(ListError::Capacity { capacity });
        }
        let Some(wanted) = wanted else {
            return Ok(Self { capacity, ..Self::default() });
        };
        let remove: Vec<String> =
            values(now).iter().filter(|value| !wanted.contains(value)).cloned().collect();
        let mut add: Vec<String> = Vec::new();
        for value in wanted {
            if !values(now).contains(&value) && !add.contains(&value) {
                add.push(value);
            }
        }
        // What does not fit is no part of the change: joined with a later one it would come back once there is room.
        let most = capacity.or(now.capacity).unwrap_or_default();
        let kept = values(now).len() - remove.len();
        add.truncate(usize::try_from(most).unwrap_or_default().saturating_sub(kept));
        Ok(Self { capacity, remove, add })
    }

    /// What the list becomes, whatever it is now.
    #[must_use]
    pub fn apply(&self, now: &List) -> List {
        let capacity = self.capacity.unwrap_or(now.capacity.unwrap_or_default()).max(0);
        let mut kept: Vec<String> =
            values(now).iter().filter(|value| !self.remove.contains(value)).cloned().collect();
        for value in &self.add {
            if !kept.contains(value) {
                kept.push(value.clone());
            }
        }
        kept.truncate(usize::try_from(capacity).unwrap_or(usize::MAX));
        List { capacity: Some(capacity), values: Some(kept) }
    }

    /// This and then `next` as one, where that comes to the same for a list that nobody else writes.
    #[must_use]
    pub fn then(&self, next: &Self) -> Option<Self> {
        // A capacity that comes first may have cut values off, which a sum would not know.
        if self.capacity.is_some() {
            return None;
        }
        let (remove, add) = join((&self.remove, &self.add), (&next.remove, &next.add));
        Some(Self { capacity: next.capacity, remove, add })
    }

    /// Bytes of it that a caller can make more of.
    pub fn size(&self) -> usize {
        self.remove.iter().chain(&self.add).map(String::len).sum()
    }
}

/// Two pairs of removals and additions as one.
pub(super) fn join(
    (gone, come): (&[String], &[String]),
    (goes, comes): (&[String], &[String]),
) -> (Vec<String>, Vec<String>) {
    let mut remove = gone.to_vec();
    remove.extend(goes.iter().filter(|value| !gone.contains(value)).cloned());
    let mut add: Vec<String> = come.iter().filter(|value| !goes.contains(value)).cloned().collect();
    let new: Vec<String> = comes.iter().filter(|value| !add.contains(value)).cloned().collect();
    add.extend(new);
    (remove, add)
}

fn values(list: &List) -> &[String] {
    list.values.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::{ListChange, ListError};
    use crate::game_server::List;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn list(capacity: i64, values: &str) -> List {
        List { capacity: Some(capacity), values: Some(words(values)) }
    }

    #[test]
    fn one_value_more_or_less() {
        let add = |value: &str, now: &List| ListChange::adding(value.to_owned(), now);
        let remove = |value: &str, now: &List| ListChange::removing(value.to_owned(), now);
        let now = list(3, "one two");
        assert_eq!(add("three", &now).unwrap().apply(&now), list(3, "one two three"));
        assert_eq!(add("one", &now), Err(ListError::Present));
        assert_eq!(add("three", &list(2, "one two")), Err(ListError::Full { entries: 2, capacity: 2 }));
        assert_eq!(remove("one", &now).unwrap().apply(&now), list(3, "two"));
        assert_eq!(remove("three", &now), Err(ListError::Absent));
    }

    #[test]
    fn a_whole_list() {
        let now = list(10, "one two");
        let replace =
            |capacity, values: Option<&str>| ListChange::replacing(capacity, values.map(words), &now);
        let table = [
            ("the capacity alone", replace(Some(1), None), list(1, "one")),
            ("values stay where they are", replace(None, Some("three two one")), list(10, "one two three")),
            ("a value twice", replace(None, Some("three three two")), list(10, "two three")),
            ("no values", replace(None, Some("")), list(10, "")),
            ("more than fit", replace(Some(2), Some("two three four")), list(2, "two three")),
        ];
        for (name, change, expected) in table {
            assert_eq!(change.unwrap().apply(&now), expected, "{name}");
        }
        for capacity in [-1, 1001] {
            assert_eq!(replace(Some(capacity), None), Err(ListError::Capacity { capacity }));
        }
    }

    #[test]
    fn what_did_not_fit_does_not_come_back_with_more_room() {
        let full = list(1, "one");
        let change = ListChange::replacing(None, Some(words("one two")), &full).unwrap();
        assert_eq!(change.apply(&full), full);
        let more = ListChange::replacing(Some(2), None, &full).unwrap();
        let less = ListChange::removing("one".to_owned(), &full).unwrap();
        for (next, expected) in [(more, list(2, "one")), (less, list(1, ""))] {
            assert_eq!(change.then(&next).unwrap().apply(&full), expected);
        }
    }

    #[derive(Clone, Debug)]
    enum Ask {
        Add(String),
        Remove(String),
        Replace(Option<i64>, Option<Vec<String>>),
    }

    fn asks() -> impl Strategy<Value = Ask> {
        let word = || "[a-e]";
        prop_oneof![
            3 => word().prop_map(Ask::Add),
            3 => word().prop_map(Ask::Remove),
            1 => (
                proptest::option::of(-1..6_i64),
                proptest::option::of(proptest::collection::vec(word(), 0..5)),
            )
                .prop_map(|(capacity, values)| Ask::Replace(capacity, values)),
        ]
    }

    fn read(ask: Ask, now: &List) -> Result<ListChange, ListError> {
        match ask {
            Ask::Add(value) => ListChange::adding(value, now),
            Ask::Remove(value) => ListChange::removing(value, now),
            Ask::Replace(capacity, values) => ListChange::replacing(capacity, values, now),
        }
    }

    proptest! {
        #[test]
        fn joined_or_one_by_one_is_the_same(asked in proptest::collection::vec(asks(), 1..10)) {
            let base = list(4, "a b");
            let mut shown = base.clone();
            let mut joined: Vec<ListChange> = Vec::new();
            for ask in asked {
                let Ok(change) = read(ask, &shown) else { continue };
                shown = change.apply(&shown);
                match joined.last().and_then(|last| last.then(&change)) {
                    Some(both) => *joined.last_mut().unwrap() = both,
                    None => joined.push(change),
                }
            }
            prop_assert_eq!(joined.iter().fold(base, |now, change| change.apply(&now)), shown);
        }

        #[test]
        fn a_list_is_never_longer_than_its_capacity_and_has_no_value_twice(
            asked in proptest::collection::vec(asks(), 1..6),
            others in proptest::collection::vec("[a-e]", 0..6),
        ) {
            // Made for one list, applied to another that somebody else has written.
            let others: std::collections::BTreeSet<String> = others.into_iter().collect();
            let mut other = List { capacity: Some(3), values: Some(others.into_iter().collect()) };
            for change in asked.into_iter().filter_map(|ask| read(ask, &list(4, "a b")).ok()) {
                other = change.apply(&other);
                let values = other.values.clone().unwrap();
                prop_assert!(i64::try_from(values.len()).unwrap() <= other.capacity.unwrap());
                let mut once = values.clone();
                once.sort();
                once.dedup();
                prop_assert_eq!(once.len(), values.len());
            }
        }
    }
}
