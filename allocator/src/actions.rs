//! What an allocation does to a server: pure, from the server as it is to the server as it will be.
//!
//! Actions that cannot be done do not stop an allocation; they are told by an Event.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::allocation::{CounterChange, ListChange, Request, Wanted};
use berth_api::game_server::lists::MOST_ENTRIES;
use berth_api::game_server::{Counter, List};

use crate::book::Candidate;

/// Something that could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// With a counter.
    Counter(String),
    /// With a list.
    List(String),
}

/// What a request did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// What it could not do.
    pub troubles: Vec<Trouble>,
    /// The counters it changed, as they are after it.
    pub counters: BTreeMap<String, Counter>,
    /// The lists it changed, as they are after it.
    pub lists: BTreeMap<String, List>,
}

/// Allocates a server for a request.
pub fn allocate(candidate: &mut Candidate, request: &Request) -> Done {
    let mut done = Done::default();
    candidate.state = Wanted::Allocated;
    candidate.labels.extend(request.metadata.labels.clone());
    for (name, change) in &request.counters {
        match candidate.counters.get_mut(name) {
            Some(counter) => {
                done.troubles.extend(change_counter(name, counter, change));
                done.counters.insert(name.clone(), counter.clone());
            }
            None => done.troubles.push(Trouble::Counter(format!("the server has no counter {name:?}"))),
        }
    }
    for (name, change) in &request.lists {
        match candidate.lists.get_mut(name) {
            Some(list) => {
                done.troubles.extend(change_list(name, list, change));
                done.lists.insert(name.clone(), list.clone());
            }
            None => done.troubles.push(Trouble::List(format!("the server has no list {name:?}"))),
        }
    }
    done
}

fn change_counter(name: &str, counter: &mut Counter, change: &CounterChange) -> Option<Trouble> {
    let mut count = counter.count.unwrap_or(0);
    let capacity = change.capacity.or(counter.capacity).unwrap_or(0);
    if change.capacity.is_some() {
        count = count.min(capacity);
    }
    let trouble = match &change.step {
        Some(Ok(step)) => {
            count = count.saturating_add(*step).clamp(0, capacity.max(0));
            None
        }
        Some(Err(action)) => Some(Trouble::Counter(format!(
            "{action:?} cannot be done to the counter {name:?}; what can be is Increment and Decrement"
        ))),
        None => None,
    };
    *counter = Counter { count: Some(count), capacity: Some(capacity) };
    trouble
}

fn change_list(name: &str, list: &mut List, change: &ListChange) -> Option<Trouble> {
    let mut trouble = None;
    let mut capacity = list.capacity.unwrap_or(0);
    let mut values = list.values.take().unwrap_or_default();
    match change.capacity {
        Some(wanted) if wanted > MOST_ENTRIES => {
            trouble = Some(Trouble::List(format!(
                "the list {name:?} cannot have room for {wanted} entries; at most {MOST_ENTRIES}"
            )));
        }
        Some(wanted) => {
            capacity = wanted;
            values.truncate(fitting(capacity));
        }
        None => {}
    }
    if !change.add.is_empty() {
        let mut known = BTreeSet::new();
        values = values
            .into_iter()
            .chain(change.add.iter().cloned())
            .filter(|value| known.insert(value.clone()))
            .collect();
        values.truncate(fitting(capacity));
    }
    values.retain(|value| !change.delete.contains(value));
    *list = List { capacity: Some(capacity), values: Some(values) };
    trouble
}

fn fitting(capacity: i64) -> usize {
    usize::try_from(capacity).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(count: i64, capacity: i64) -> Counter {
        Counter { count: Some(count), capacity: Some(capacity) }
    }

    fn list(values: &[&str], capacity: i64) -> List {
        List {
            capacity: Some(capacity),
            values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
        }
    }

    #[test]
    fn counters_change_by_capacity_first_and_stay_within_bounds() {
        let change = |capacity, step| CounterChange { capacity, step };
        let rows = [
            ((1, 10), change(None, Some(Ok(1))), (2, 10), true),
            ((1, 10), change(None, Some(Ok(100))), (10, 10), true),
            ((1, 10), change(None, Some(Ok(-100))), (0, 10), true),
            ((5, 10), change(Some(3), None), (3, 3), true),
            ((5, 10), change(Some(20), Some(Ok(i64::MAX))), (20, 20), true),
            ((5, 10), change(None, Some(Err("Double".into()))), (5, 10), false),
            ((5, 10), change(Some(7), Some(Err("Double".into()))), (5, 7), false),
            ((5, 10), change(None, None), (5, 10), true),
        ];
        for ((count, capacity), change, (then, room), is_good) in rows {
            let mut one = counter(count, capacity);
            assert_eq!(change_counter("c", &mut one, &change).is_none(), is_good, "{change:?}");
            assert_eq!(one, counter(then, room), "{change:?}");
        }
    }

    #[test]
    fn lists_change_by_capacity_then_additions_then_deletions() {
        let strings = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let change = |capacity, add: &[&str], delete: &[&str]| ListChange {
            capacity,
            add: strings(add),
            delete: strings(delete),
        };
        let rows = [
            (list(&["a"], 3), change(None, &["b", "a"], &[]), list(&["a", "b"], 3), true),
            (list(&["a", "a"], 3), change(None, &["b"], &[]), list(&["a", "b"], 3), true),
            (list(&["a", "a"], 3), change(None, &[], &["x"]), list(&["a", "a"], 3), true),
            (list(&["a"], 2), change(None, &["b", "c"], &[]), list(&["a", "b"], 2), true),
            (list(&["a", "b"], 2), change(Some(1), &[], &[]), list(&["a"], 1), true),
            (list(&["a"], 2), change(Some(1001), &["b"], &[]), list(&["a", "b"], 2), false),
            (list(&["a"], 2), change(None, &["b"], &["a"]), list(&["b"], 2), true),
        ];
        for (before, change, after, is_good) in rows {
            let mut one = before;
            assert_eq!(change_list("l", &mut one, &change).is_none(), is_good, "{change:?}");
            assert_eq!(one, after, "{change:?}");
        }
    }
}
