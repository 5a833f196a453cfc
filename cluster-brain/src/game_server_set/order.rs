//! Which servers go first. Pure.
//!
//! Packed empties one node after the other, the emptiest first; Distributed takes the oldest. Both look at the priorities
//! of the set first, where two servers are on a par.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::fleet::{Priority, PriorityKind, PriorityOrder};
use berth_api::game_server::Scheduling;
use berth_api::lifecycle::State;

use crate::stores::Server;

/// Sorts servers, first to go first. `tallies`: Ready and Allocated servers by node, over all Fleets.
pub(crate) fn sort(
    servers: &mut [Arc<Server>],
    scheduling: Scheduling,
    priorities: &[Priority],
    tallies: &BTreeMap<String, usize>,
) {
    servers.sort_by(|one, other| {
        let on_a_par = || {
            by_priorities(one, other, priorities).then_with(|| match scheduling {
                Scheduling::Packed => Ordering::Equal,
                Scheduling::Distributed => one.created.cmp(&other.created),
            })
        };
        let by_place = match scheduling {
            Scheduling::Packed => place(one, tallies).cmp(&place(other, tallies)),
            Scheduling::Distributed => Ordering::Equal,
        };
        by_place.then_with(on_a_par).then_with(|| one.key.cmp(&other.key))
    });
}

/// Servers on no node that counts come first, then those of the emptiest node, on each those that were never Ready.
fn place<'a>(server: &'a Server, tallies: &BTreeMap<String, usize>) -> (Option<(usize, &'a str)>, bool) {
    let node = server.node.as_deref().and_then(|node| Some((*tallies.get(node)?, node)));
    let was_ready = !server.state.is_some_and(State::is_before_ready);
    (node, was_ready)
}

fn by_priorities(one: &Server, other: &Server, priorities: &[Priority]) -> Ordering {
    let by_one = |priority: &Priority| {
        let (ours, theirs) = (room_left(one, priority), room_left(other, priority));
        match (ours, theirs, priority.order) {
            (Some(ours), Some(theirs), Some(PriorityOrder::Descending)) => theirs.cmp(&ours),
            (Some(ours), Some(theirs), Some(PriorityOrder::Ascending) | None) => ours.cmp(&theirs),
            // Having the key counts only where an order is written.
            (Some(_), None, Some(_)) => Ordering::Less,
            (None, Some(_), Some(_)) => Ordering::Greater,
            (Some(_), None, None) | (None, Some(_), None) | (None, None, _) => Ordering::Equal,
        }
    };
    priorities.iter().map(by_one).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn room_left(server: &Server, priority: &Priority) -> Option<i64> {
    let amounts = match priority.kind {
        PriorityKind::Counter => &server.counters,
        PriorityKind::List => &server.lists,
    };
    amounts.get(&priority.key).map(|amount| amount.capacity.saturating_sub(amount.count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Build, server};

    fn sorted(
        servers: &[Build],
        scheduling: Scheduling,
        priorities: &[Priority],
        tallies: &[(&str, usize)],
    ) -> String {
        let tallies = tallies.iter().map(|(node, count)| ((*node).to_owned(), *count)).collect();
        let mut servers: Vec<_> = servers.iter().cloned().map(|server| Arc::new(server.build())).collect();
        sort(&mut servers, scheduling, priorities, &tallies);
        servers.iter().map(|server| server.key.name.as_str()).collect::<Vec<_>>().join(",")
    }

    fn foo(order: Option<PriorityOrder>) -> [Priority; 1] {
        [Priority { kind: PriorityKind::Counter, key: "foo".to_owned(), order }]
    }

    #[test]
    fn packed_takes_the_unscheduled_and_then_the_emptiest_node() {
        let servers = [
            server("gs1").on("node3").ready(),
            server("gs2").on("node1").ready(),
            server("gs3").on("node3").ready(),
            server("gs4").state(State::Creating),
        ];
        let order = sorted(&servers, Scheduling::Packed, &[], &[("node1", 1), ("node3", 2)]);
        assert_eq!(order, "gs4,gs2,gs1,gs3");
    }

    #[test]
    fn distributed_takes_the_oldest() {
        let born = |name, second| server(name).ready().born(second);
        let servers = [born("gs1", 10), born("gs2", 0), born("gs3", 40), born("gs4", 30)];
        assert_eq!(sorted(&servers, Scheduling::Distributed, &[], &[]), "gs2,gs1,gs4,gs3");
    }

    #[test]
    fn packed_with_priorities_follows_the_table() {
        let allocated =
            |name, node, room| server(name).on(node).state(State::Allocated).counter("foo", 0, room);
        let servers = [
            server("g01").on("n2").ready(),
            server("g02").state(State::Creating),
            server("g03").on("n1").ready(),
            server("g04").on("n2").state(State::Creating),
            server("g05").on("n3").ready(),
            server("g06").on("n4").ready(),
            server("g07").on("n3").ready(),
            server("g08").on("n4").ready(),
            allocated("g09", "n3", 100),
            allocated("g10", "n3", 1),
            allocated("g11", "n4", 90),
            allocated("g12", "n4", 1),
        ];
        let nodes = [("n1", 1), ("n2", 2), ("n3", 4), ("n4", 4)];
        let by = |order| sorted(&servers, Scheduling::Packed, &foo(Some(order)), &nodes);
        assert_eq!(by(PriorityOrder::Descending), "g02,g03,g04,g01,g09,g10,g05,g07,g11,g12,g06,g08");
        assert_eq!(by(PriorityOrder::Ascending), "g02,g03,g04,g01,g10,g09,g05,g07,g12,g11,g06,g08");
    }

    #[test]
    fn without_an_order_having_the_key_is_no_preference() {
        let servers = [server("b").ready().counter("foo", 0, 5), server("a").ready()];
        assert_eq!(sorted(&servers, Scheduling::Distributed, &foo(None), &[]), "a,b");
        let ascending = foo(Some(PriorityOrder::Ascending));
        assert_eq!(sorted(&servers, Scheduling::Distributed, &ascending, &[]), "b,a");
    }
}
