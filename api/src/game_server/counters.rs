//! Counters: what may be asked of one, and what it becomes then. Pure.
//!
//! A change is checked once, against what its caller was shown, and applied later to whatever stands there then. So
//! [`CounterChange::check`] refuses and [`CounterChange::apply`] never does: it saturates, and holds the count between
//! zero and the capacity. Whenever nobody else has written in between, both give the same.

use serde::{Deserialize, Serialize};

use super::Counter;

/// What is asked of a counter: the capacity first, then the count, then the difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterChange {
    /// The new capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
    /// The new count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// What is added to the count.
    #[serde(default)]
    pub diff: i64,
}

/// Why a counter cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// The server has no such counter.
    #[error("this game server has no counter {name:?}")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// Neither count, capacity nor difference.
    #[error("neither a count, a capacity nor a difference other than 0 is given")]
    Nothing,
    /// A capacity below zero.
    #[error("the capacity {capacity} is below 0")]
    Capacity {
        /// The capacity asked for.
        capacity: i64,
    },
    /// A count that does not fit.
    #[error("out of range: a count of {count} where 0 to {capacity} are allowed")]
    Range {
        /// What the count would be.
        count: i128,
        /// The capacity that holds then.
        capacity: i64,
    },
}

impl CounterChange {
    /// What a counter becomes that its caller was shown as `now`.
    ///
    /// # Errors
    /// What is asked for does not fit.
    pub fn check(&self, now: &Counter) -> Result<Counter, CounterError> {
        if self.capacity.is_none() && self.count.is_none() && self.diff == 0 {
            return Err(CounterError::Nothing);
        }
        let capacity = self.capacity.unwrap_or(now.capacity.unwrap_or_default());
        if capacity < 0 {
            return Err(CounterError::Capacity { capacity });
        }
        let within = |count: i128| {
            let fits = (0..=i128::from(capacity)).contains(&count);
            if fits { Ok(()) } else { Err(CounterError::Range { count, capacity }) }
        };
        if let Some(count) = self.count {
            within(count.into())?;
        }
        if self.diff != 0 {
            let count = self.count.unwrap_or(now.count.unwrap_or_default());
            within(i128::from(count) + i128::from(self.diff))?;
        }
        Ok(self.apply(now))
    }

    /// What the counter becomes, whatever it is now.
    #[must_use]
    pub fn apply(&self, now: &Counter) -> Counter {
        let capacity = self.capacity.unwrap_or(now.capacity.unwrap_or_default()).max(0);
        let count = self.count.unwrap_or(now.count.unwrap_or_default()).saturating_add(self.diff);
        Counter { count: Some(count.clamp(0, capacity)), capacity: Some(capacity) }
    }

    /// This and then `next` as one, where that comes to the same for a counter that nobody else writes.
    #[must_use]
    pub fn then(&self, next: &Self) -> Option<Self> {
        let capacity = next.capacity.or(self.capacity);
        if next.count.is_some() {
            return Some(Self { capacity, ..next.clone() });
        }
        // A capacity that comes first may have cut the count, which a sum would not know.
        if self.capacity.is_some() && self.count.is_none() {
            return None;
        }
        let diff = self.diff.checked_add(next.diff)?;
        Some(match (self.count, capacity) {
            // What is cut off here does not come back with a later capacity.
            (Some(count), Some(most)) => {
                let count = count.saturating_add(diff).clamp(0, most.max(0));
                Self { capacity, count: Some(count), diff: 0 }
            }
            (count, capacity) => Self { capacity, count, diff },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::{CounterChange, CounterError};
    use crate::game_server::Counter;

    fn counter(count: i64, capacity: i64) -> Counter {
        Counter { count: Some(count), capacity: Some(capacity) }
    }

    fn change(capacity: Option<i64>, count: Option<i64>, diff: i64) -> CounterChange {
        CounterChange { capacity, count, diff }
    }

    #[test]
    fn capacity_then_count_then_difference() {
        let table = [
            ("all three", counter(10, 100), change(Some(25), Some(0), 25), Ok((25, 25))),
            ("the capacity cuts the count", counter(10, 100), change(Some(0), None, 0), Ok((0, 0))),
            ("nothing fits into nothing", counter(0, 0), change(None, None, 1), Err("range")),
            ("beyond the capacity", counter(10, 100), change(None, None, 100), Err("range")),
            ("below zero", counter(10, 100), change(None, None, -11), Err("range")),
            ("a count and a difference", counter(5, 11), change(None, Some(2), 1), Ok((3, 11))),
            ("a count beyond the new capacity", counter(5, 11), change(Some(3), Some(4), 0), Err("range")),
            ("a count below zero", counter(5, 11), change(None, Some(-1), 0), Err("range")),
            ("a capacity below zero", counter(5, 11), change(Some(-1), None, 0), Err("capacity")),
            ("nothing", counter(5, 11), change(None, None, 0), Err("nothing")),
            ("the largest", counter(1, i64::MAX), change(None, None, i64::MAX), Err("range")),
            ("all there is", counter(0, i64::MAX), change(None, None, i64::MAX), Ok((i64::MAX, i64::MAX))),
        ];
        for (name, now, change, expected) in table {
            let checked = change.check(&now).map_err(|error| match error {
                CounterError::Unknown { .. } => "unknown",
                CounterError::Nothing => "nothing",
                CounterError::Capacity { .. } => "capacity",
                CounterError::Range { .. } => "range",
            });
            assert_eq!(checked, expected.map(|(count, capacity)| counter(count, capacity)), "{name}");
        }
    }

    #[test]
    fn what_a_capacity_has_cut_off_does_not_come_back_with_more_room() {
        let now = counter(0, 100);
        let full = change(None, Some(90), 5);
        let less = full.then(&change(Some(10), None, 0)).unwrap();
        assert_eq!(less.apply(&now), counter(10, 10));
        let more = less.then(&change(Some(100), None, 2)).unwrap();
        assert_eq!(more.apply(&now), counter(12, 100));
    }

    fn small() -> impl Strategy<Value = i64> {
        prop_oneof![-3..12_i64, Just(i64::MAX), Just(i64::MIN)]
    }

    fn changes() -> impl Strategy<Value = CounterChange> {
        let option = || proptest::option::weighted(0.4, small());
        (option(), option(), small()).prop_map(|(capacity, count, diff)| change(capacity, count, diff))
    }

    proptest! {
        #[test]
        fn a_count_is_never_outside_its_capacity(
            (count, capacity, diff) in any::<(i64, i64, i64)>(),
            set in any::<(Option<i64>, Option<i64>)>(),
        ) {
            let after = change(set.0, set.1, diff).apply(&counter(count, capacity));
            let (count, capacity) = (after.count.unwrap(), after.capacity.unwrap());
            prop_assert!(0 <= count && count <= capacity, "{count} of {capacity}");
        }

        #[test]
        fn joined_or_one_by_one_is_the_same(
            count in 0..10_i64,
            capacity in 0..10_i64,
            asked in proptest::collection::vec(changes(), 1..8),
        ) {
            let base = counter(count, capacity.max(count));
            let mut shown = base.clone();
            let mut joined: Vec<CounterChange> = Vec::new();
            for change in asked {
                let Ok(after) = change.check(&shown) else { continue };
                shown = after;
                match joined.last().and_then(|last| last.then(&change)) {
                    Some(both) => *joined.last_mut().unwrap() = both,
                    None => joined.push(change),
                }
            }
            let folded = joined.iter().fold(base.clone(), |now, change| change.apply(&now));
            if !joined.is_empty() {
                prop_assert_eq!(folded, shown);
            }
        }
    }
}
