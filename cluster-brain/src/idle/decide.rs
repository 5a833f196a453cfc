//! Which nodes are needed. Pure.
//!
//! A node is not needed when every server on it can be made anew on another node, or when there is none. What a Fleet or
//! its buffer wants is wanted all the same: its set makes as many servers as before, elsewhere. So a node goes only while
//! each set that loses servers by it is whole, and only one at a time for each set. Sets that spread their servers keep
//! the nodes that they are on, and so do servers of no set, which nobody would make again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::game_server::Scheduling;

use crate::placement::{Needs, NodeView, Request, place};

/// A server that waits for a node.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) needs: Arc<Needs>,
    pub(super) scheduling: Scheduling,
    /// Where its placeholder is.
    pub(super) placeholder_on: Option<String>,
}

/// A server on a node that asks.
#[derive(Clone, Debug)]
pub(super) struct Resident {
    pub(super) needs: Arc<Needs>,
    /// The set that makes another; none where nobody does, or where the set wants it where it is.
    pub(super) set: Option<String>,
}

/// What is said of a node so far, and of what use it is.
#[derive(Clone, Debug)]
pub(super) enum Stand {
    /// It takes servers.
    Open,
    /// It takes servers, and has had no session for long.
    Asks {
        /// The question.
        since: String,
        /// Everything on it, or nothing where a session is.
        residents: Option<Vec<Resident>>,
    },
    /// It is on its way back.
    Returns,
    /// It has been told that it is not needed.
    Spare,
    /// It has been told so, and the word means nothing any more.
    Stale,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// As if it took servers.
    pub(super) view: NodeView,
    pub(super) stand: Stand,
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It is not needed: the answer to this question.
    Surplus(String),
    /// It is.
    Needed,
}

/// What is written of which node. `whole`: sets that have as many servers in use or Ready as they want, beside what is on
/// nodes that are not needed.
pub(super) fn decide(seen: &[Seen], waiting: &[Waiting], whole: &BTreeSet<String>) -> BTreeMap<String, Word> {
    let mut words = BTreeMap::new();
    let of = |wanted: fn(&Stand) -> bool| -> Vec<NodeView> {
        seen.iter().filter(|node| wanted(&node.stand)).map(|node| node.view.clone()).collect()
    };
    let mut open = of(|stand| matches!(stand, Stand::Open | Stand::Asks { .. } | Stand::Returns));
    let mut spare = of(|stand| matches!(stand, Stand::Spare));
    for node in seen.iter().filter(|node| matches!(node.stand, Stand::Stale)) {
        words.insert(node.view.name.clone(), Word::Needed);
    }

    // Who waits comes first, to the nodes that are there, and then to those that may come back.
    let mut taken = BTreeSet::new();
    for server in waiting {
        let request = Request { needs: &server.needs, scheduling: server.scheduling, not_on: None };
        if let Ok(index) = place(&request, &open) {
            open[index].take(&server.needs);
            taken.insert(open[index].name.clone());
        } else if let Some(index) = place(&request, &spare).ok().or_else(|| asked_for(server, &spare)) {
            let mut node = spare.remove(index);
            node.take(&server.needs);
            words.insert(node.name.clone(), Word::Needed);
            open.push(node);
        }
    }

    let mut asking: Vec<&Seen> =
        seen.iter().filter(|node| matches!(node.stand, Stand::Asks { .. })).collect();
    // The emptiest first, and among equals the one that would be filled last.
    asking.sort_by(|one, other| {
        let (one, other) = (&one.view, &other.view);
        one.servers.cmp(&other.servers).then_with(|| other.name.cmp(&one.name))
    });
    let mut touched = BTreeSet::new();
    for node in asking {
        let name = &node.view.name;
        let Stand::Asks { since, residents: Some(residents) } = &node.stand else { continue };
        let sets: Option<BTreeSet<&String>> = residents.iter().map(|one| one.set.as_ref()).collect();
        let may_move = sets
            .as_ref()
            .is_some_and(|sets| sets.iter().all(|set| whole.contains(*set) && !touched.contains(*set)));
        if taken.contains(name) || !may_move {
            continue;
        }
        let others = open.iter().filter(|other| other.name != *name).cloned().collect();
        if let Some(others) = moved(residents, others) {
            touched.extend(sets.into_iter().flatten().cloned());
            open = others;
            words.insert(name.clone(), Word::Surplus(since.clone()));
        }
    }
    words
}

/// The scheduler has chosen one for a server that is left to it.
fn asked_for(server: &Waiting, spare: &[NodeView]) -> Option<usize> {
    let node = server.placeholder_on.as_ref().filter(|_| server.needs.left_to_scheduler.is_some())?;
    spare.iter().position(|one| one.name == *node)
}

/// The other nodes with all of these on them, if they have room.
fn moved(residents: &[Resident], mut others: Vec<NodeView>) -> Option<Vec<NodeView>> {
    for server in residents {
        let request = Request { needs: &server.needs, scheduling: Scheduling::Packed, not_on: None };
        let index = place(&request, &others).ok()?;
        others[index].take(&server.needs);
    }
    Some(others)
}

#[cfg(test)]
mod tests {
    use berth_api::game_node::Room;

    use super::*;
    use crate::testing::view;

    /// Four of these fill a node.
    fn needs() -> Arc<Needs> {
        Arc::new(Needs { room: Room { milli_cpu: 1000, memory_bytes: 0, pods: 1 }, ..Needs::default() })
    }

    fn node(name: &str, servers: usize, stand: Stand) -> Seen {
        let mut view = view(name, 0);
        for _ in 0..servers {
            view.take(&needs());
        }
        Seen { view, stand }
    }

    fn open(name: &str, servers: usize) -> Seen {
        node(name, servers, Stand::Open)
    }

    fn asks_of(name: &str, sets: &[Option<&str>]) -> Seen {
        let resident = |set: &Option<&str>| Resident { needs: needs(), set: set.map(str::to_owned) };
        let residents = Some(sets.iter().map(resident).collect());
        node(name, sets.len(), Stand::Asks { since: format!("since-{name}"), residents })
    }

    fn asks(name: &str, servers: usize) -> Seen {
        asks_of(name, &vec![Some("lobby"); servers])
    }

    fn waiting(count: usize) -> Vec<Waiting> {
        vec![Waiting { needs: needs(), scheduling: Scheduling::Packed, placeholder_on: None }; count]
    }

    fn said(seen: &[Seen], waiting: &[Waiting], whole: &[&str]) -> Vec<String> {
        let whole = whole.iter().map(|set| (*set).to_owned()).collect();
        let words = decide(seen, waiting, &whole);
        let told = words.into_iter().map(|(node, word)| match word {
            Word::Surplus(since) => {
                assert_eq!(since, format!("since-{node}"));
                format!("-{node}")
            }
            Word::Needed => format!("+{node}"),
        });
        told.collect()
    }

    #[test]
    fn a_node_goes_when_all_on_it_has_room_elsewhere() {
        let none: [&str; 0] = [];
        assert_eq!(said(&[asks("a", 0)], &[], &[]), ["-a"], "empty: nobody has to move");
        assert_eq!(said(&[asks("a", 1)], &[], &["lobby"]), none, "the last one is where they are");
        assert_eq!(said(&[asks("a", 2), open("b", 2)], &[], &["lobby"]), ["-a"]);
        assert_eq!(said(&[asks("a", 2), open("b", 3)], &[], &["lobby"]), none, "no room");
        assert_eq!(said(&[asks("a", 1), open("b", 1)], &[], &[]), none, "its set is not whole");
        let alone = asks_of("a", &[Some("lobby"), None]);
        assert_eq!(said(&[alone, open("b", 0)], &[], &["lobby"]), none, "nobody would make it again");
        let played = node("a", 1, Stand::Asks { since: "since-a".to_owned(), residents: None });
        assert_eq!(said(&[played, open("b", 0)], &[], &["lobby"]), none, "a session");
        let spare = node("b", 0, Stand::Spare);
        assert_eq!(said(&[asks("a", 1), spare], &[], &["lobby"]), none, "no reason to fetch another");
    }

    #[test]
    fn the_emptiest_goes_first_and_each_set_gives_up_one_at_a_time() {
        let nodes = [asks("a", 2), asks("b", 1), asks("c", 1), open("d", 0)];
        assert_eq!(said(&nodes, &[], &["lobby"]), ["-c"]);
        let nodes = [asks("a", 0), asks("b", 0), asks("c", 1), open("d", 3)];
        assert_eq!(said(&nodes, &[], &["lobby"]), ["-a", "-b", "-c"], "those without any all at once");
        let two = [asks_of("a", &[Some("lobby")]), asks_of("b", &[Some("arena")]), open("c", 2)];
        assert_eq!(said(&two, &[], &["lobby", "arena"]), ["-a", "-b"], "there is room for both");
        let two = [asks_of("a", &[Some("lobby")]), asks_of("b", &[Some("arena")]), open("c", 3)];
        assert_eq!(said(&two, &[], &["lobby", "arena"]), ["-b"], "and here for one");
        // Two that ask have room for one another: one of them stays.
        assert_eq!(said(&[asks("a", 1), asks_of("b", &[Some("arena")])], &[], &["lobby", "arena"]), ["-b"]);
    }

    #[test]
    fn who_waits_fetches_as_many_nodes_as_are_needed() {
        let none: [&str; 0] = [];
        let spare = |name| node(name, 0, Stand::Spare);
        let nodes = [open("a", 4), spare("b"), spare("c"), spare("d")];
        assert_eq!(said(&nodes, &waiting(1), &[]), ["+b"]);
        assert_eq!(said(&nodes, &waiting(4), &[]), ["+b"]);
        assert_eq!(said(&nodes, &waiting(5), &[]), ["+b", "+c"]);
        assert_eq!(said(&nodes, &waiting(99), &[]), ["+b", "+c", "+d"]);
        let returns = [open("a", 4), node("b", 0, Stand::Returns), spare("c")];
        assert_eq!(said(&returns, &waiting(4), &[]), none, "it is on its way");
        assert_eq!(said(&returns, &waiting(5), &[]), ["+c"]);
        assert_eq!(said(&[open("a", 3), spare("b")], &waiting(1), &[]), none, "there is room as it is");
        assert_eq!(said(&[asks("a", 0), spare("b")], &waiting(1), &["lobby"]), none, "and it is needed");
    }

    #[test]
    fn what_is_left_to_the_scheduler_goes_where_that_says() {
        let needs = Needs { left_to_scheduler: Some("pod affinity".to_owned()), ..Needs::default() };
        let server = |node: Option<&str>| Waiting {
            needs: Arc::new(needs.clone()),
            scheduling: Scheduling::Packed,
            placeholder_on: node.map(str::to_owned),
        };
        let nodes = [node("a", 0, Stand::Spare), node("b", 0, Stand::Spare)];
        assert_eq!(said(&nodes, &[server(Some("b"))], &[]), ["+b"]);
        let none: [&str; 0] = [];
        assert_eq!(said(&nodes, &[server(None)], &[]), none, "it has not chosen yet");
        assert_eq!(said(&nodes, &[server(Some("x"))], &[]), none, "somewhere else");
        let chosen = Waiting { placeholder_on: Some("b".to_owned()), ..waiting(1).remove(0) };
        assert_eq!(said(&nodes, &[chosen], &[]), ["+a"], "where we choose we do");
    }

    #[test]
    fn a_word_that_means_nothing_any_more_is_taken_off() {
        assert_eq!(said(&[node("a", 1, Stand::Stale), open("b", 0)], &[], &[]), ["+a"]);
    }
}
