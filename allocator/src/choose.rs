//! Which server: pure, over the book as it is.
//!
//! An earlier selector beats any order; among the servers that fit the same selector the strategy decides. Packed:
//! servers in use first, then the fullest node, then the one with the least room for players, then the priorities, then
//! the name. Distributed: the priorities and then the name; without priorities, any.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use berth_api::allocation::{Direction, Priority, PriorityKind, Request, Selector, Wanted};
use berth_api::game_server::Scheduling;
use berth_runtime::clock::Instant;

use crate::book::{Book, Candidate, fuller_first, room_of_counter, room_of_list};

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The server's name.
    pub name: String,
    /// Which of the request's selectors it fits.
    pub selector: usize,
}

/// How servers that are equal in everything are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// By name: every replica of the allocator would choose the same.
    Name,
    /// By a number of this replica's own: replicas seldom choose the same.
    Replica(u64),
}

/// Chooses a server for a request. `random` decides where any will do.
pub fn choose(book: &Book, request: &Request, tie: Tie, now: Instant, random: u64) -> Option<Choice> {
    let closed = book.nodes.closed(now);
    let order = Order { book, request, tie: in_force(request, tie, random) };
    let mut best: Option<(usize, &str, &Candidate)> = None;
    for (name, candidate) in book.servers(&request.namespace) {
        if closed.contains(&candidate.node) {
            continue;
        }
        let limit = best.map_or(request.selectors.len(), |(selector, ..)| selector + 1);
        let Some(selector) = request.selectors[..limit].iter().position(|selector| fits(selector, candidate))
        else {
            continue;
        };
        let is_better = best.is_none_or(|(known, best_name, best)| {
            selector < known || order.compare((name, candidate), (best_name, best)) == Ordering::Less
        });
        if is_better {
            best = Some((selector, name, candidate));
        }
    }
    best.map(|(selector, name, _)| Choice { name: name.to_owned(), selector })
}

/// Distributed without priorities means any: a new order for each request.
fn in_force(request: &Request, tie: Tie, random: u64) -> Tie {
    match request.scheduling {
        Scheduling::Distributed if request.priorities.is_empty() => Tie::Replica(random),
        Scheduling::Distributed | Scheduling::Packed => tie,
    }
}

/// Whether a server fits.
pub fn fits(selector: &Selector, candidate: &Candidate) -> bool {
    candidate.state == selector.state
        && selector.fits_labels(&candidate.labels)
        && selector.players.as_ref().is_none_or(|rule| {
            let room = candidate.players.map(|players| players.capacity.saturating_sub(players.count));
            room.is_none_or(|room| rule.available.hold(room))
        })
        && selector.counters.iter().all(|(name, rule)| {
            candidate.counters.get(name).is_some_and(|counter| {
                rule.count.hold(counter.count.unwrap_or(0)) && rule.available.hold(room_of_counter(counter))
            })
        })
        && selector.lists.iter().all(|(name, rule)| {
            candidate.lists.get(name).is_some_and(|list| {
                let holds = |wanted: &String| list.values.iter().flatten().any(|value| value == wanted);
                rule.available.hold(room_of_list(list)) && rule.contains.as_ref().is_none_or(holds)
            })
        })
}

struct Order<'a> {
    book: &'a Book,
    request: &'a Request,
    tie: Tie,
}

type Named<'a> = (&'a str, &'a Candidate);

impl Order<'_> {
    fn compare(&self, left: Named<'_>, right: Named<'_>) -> Ordering {
        let packed = || {
            in_use_first(left.1, right.1)
                .then_with(|| {
                    // Servers of one node are equal in this, however the counts change.
                    if left.1.node == right.1.node {
                        return Ordering::Equal;
                    }
                    fuller_first(self.book.count(&left.1.node), self.book.count(&right.1.node))
                })
                .then_with(|| least_room_for_players_first(left.1, right.1))
        };
        let first = match self.request.scheduling {
            Scheduling::Packed => packed(),
            Scheduling::Distributed => Ordering::Equal,
        };
        first
            .then_with(|| by_priorities(&self.request.priorities, left.1, right.1))
            .then_with(|| match self.tie {
                Tie::Name => Ordering::Equal,
                Tie::Replica(seed) => mixed(seed, left.0).cmp(&mixed(seed, right.0)),
            })
            .then_with(|| left.0.cmp(right.0))
    }
}

fn in_use_first(left: &Candidate, right: &Candidate) -> Ordering {
    let rank = |candidate: &Candidate| match candidate.state {
        Wanted::Allocated => 0,
        Wanted::Ready => 1,
    };
    rank(left).cmp(&rank(right))
}

fn least_room_for_players_first(left: &Candidate, right: &Candidate) -> Ordering {
    let room = |candidate: &Candidate| {
        candidate.players.map(|players| players.capacity.saturating_sub(players.count))
    };
    match (room(left), room(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_) | None, None) | (None, Some(_)) => Ordering::Equal,
    }
}

/// A server that has what a priority names comes before one that has it not, in either direction.
fn by_priorities(priorities: &[Priority], left: &Candidate, right: &Candidate) -> Ordering {
    let compare = |priority: &Priority| match (room(priority, left), room(priority, right)) {
        (Some(left), Some(right)) => match priority.direction {
            Direction::Ascending => left.cmp(&right),
            Direction::Descending => right.cmp(&left),
        },
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    };
    priorities.iter().map(compare).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn room(priority: &Priority, candidate: &Candidate) -> Option<i64> {
    fn of<T>(all: &BTreeMap<String, T>, key: &str, room: impl Fn(&T) -> i64) -> Option<i64> {
        all.get(key).map(room)
    }
    match priority.kind {
        PriorityKind::Counter => of(&candidate.counters, &priority.key, room_of_counter),
        PriorityKind::List => of(&candidate.lists, &priority.key, room_of_list),
    }
}

fn mixed(seed: u64, name: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((seed, name))
}

#[cfg(test)]
mod tests;
