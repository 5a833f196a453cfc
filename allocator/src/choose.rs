//! Which server: pure, over the book as it is.
//!
//! An earlier selector beats any order; among the servers that fit the same selector, which are all in one state, the
//! strategy decides. Packed: the fullest node first, then the one with the least room for players, then the priorities,
//! then the name. Distributed: the priorities and then the name; without priorities, any.
//!
//! Servers are looked at by state and node, so that a choice costs a look at few of ten thousand.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use berth_api::allocation::{Direction, Priority, PriorityKind, Request, Selector, Wanted};
use berth_api::game_server::Scheduling;
use berth_runtime::clock::Instant;

use crate::book::{Book, Candidate, NodeCount, fuller_first, room_of_counter, room_of_list};

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
    let choice = |(selector, rule): (usize, &Selector)| {
        let open: Vec<Node<'_>> = book
            .by_node(&request.namespace, rule.state)
            .into_iter()
            .flatten()
            .filter(|(node, _)| !closed.contains(node))
            .map(|(node, names)| Node { names, count: book.count(node) })
            .collect();
        let search = Search { book, request, rule };
        let name = match request.scheduling {
            Scheduling::Distributed if request.priorities.is_empty() => search.any(&open, random),
            Scheduling::Distributed => search.best(&open, tie),
            Scheduling::Packed => search.first_of_the_fullest(open, tie),
        }?;
        Some(Choice { name: name.to_owned(), selector })
    };
    request.selectors.iter().enumerate().find_map(choice)
}

/// Servers of one node, in one state.
struct Node<'a> {
    names: &'a BTreeSet<String>,
    count: Option<NodeCount>,
}

/// A search for a server that fits one selector.
struct Search<'a> {
    book: &'a Book,
    request: &'a Request,
    rule: &'a Selector,
}

impl<'a> Search<'a> {
    /// Node after node, the fullest first; nodes that are equally full together.
    fn first_of_the_fullest(&self, mut nodes: Vec<Node<'a>>, tie: Tie) -> Option<&'a str> {
        nodes.sort_by(|left, right| fuller_first(left.count, right.count));
        let alike = |left: &Node<'_>, right: &Node<'_>| fuller_first(left.count, right.count).is_eq();
        nodes.chunk_by(alike).find_map(|nodes| self.best(nodes, tie))
    }

    /// The best of these nodes.
    fn best(&self, nodes: &[Node<'a>], tie: Tie) -> Option<&'a str> {
        let order = Order { book: self.book, request: self.request, tie };
        let mut best: Option<Named<'a>> = None;
        for node in nodes {
            for one in self.fitting(node.names.iter()) {
                if best.is_none_or(|best| order.compare(one, best) == Ordering::Less) {
                    best = Some(one);
                }
                // Where nothing but the name tells servers apart, the first of a node is its best.
                if tie == Tie::Name && self.request.priorities.is_empty() && one.1.players.is_none() {
                    break;
                }
            }
        }
        best.map(|(name, _)| name)
    }

    /// Any: the first one that fits from some place on.
    fn any(&self, nodes: &[Node<'a>], random: u64) -> Option<&'a str> {
        let all: usize = nodes.iter().map(|node| node.names.len()).sum();
        let all = u64::try_from(all).ok().filter(|all| *all > 0)?;
        let start = usize::try_from(random % all).ok()?;
        let names = || nodes.iter().flat_map(|node| node.names);
        self.fitting(names().skip(start).chain(names().take(start))).next().map(|(name, _)| name)
    }

    fn fitting(&self, names: impl Iterator<Item = &'a String>) -> impl Iterator<Item = Named<'a>> {
        names.filter_map(|name| {
            let candidate = self.book.candidate(&self.request.namespace, name)?;
            fits(self.rule, candidate).then_some((name.as_str(), candidate))
        })
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
