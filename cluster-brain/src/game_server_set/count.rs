//! What is reported of servers, and of sets: sums that saturate. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::fleet::{CounterSum, FleetStatus, PlayerSum};
use berth_api::game_server::GameServerSpec;
use berth_api::game_server_set::GameServerSetStatus;
use berth_api::lifecycle::State;

use crate::stores::{Amount, Server};

/// The status of a set with these servers.
pub(super) fn count(template: &GameServerSpec, servers: &[Arc<Server>]) -> GameServerSetStatus {
    let mut status = GameServerSetStatus::default();
    let mut counters: BTreeMap<String, CounterSum> = zeros(template.counters.iter().flatten());
    let mut lists: BTreeMap<String, CounterSum> = zeros(template.lists.iter().flatten());
    for server in servers {
        if server.is_being_deleted() || server.is_lost() {
            status.shutdown_replicas += 1;
            continue;
        }
        status.replicas += 1;
        match server.state {
            Some(State::Ready) => status.ready_replicas += 1,
            Some(State::Allocated) => status.allocated_replicas += 1,
            Some(State::Reserved) => status.reserved_replicas += 1,
            Some(
                State::PortAllocation
                | State::Creating
                | State::Starting
                | State::Scheduled
                | State::RequestReady
                | State::Unhealthy
                | State::Error
                | State::Shutdown,
            )
            | None => {}
        }
        let is_allocated = server.state == Some(State::Allocated);
        add(&mut counters, &server.counters, is_allocated);
        add(&mut lists, &server.lists, is_allocated);
        let has_players = matches!(server.state, Some(State::Ready | State::Reserved | State::Allocated));
        if let Some(players) = server.players.filter(|_| has_players) {
            let sum = status.players.get_or_insert_default();
            sum.count = sum.count.saturating_add(players.count);
            sum.capacity = sum.capacity.saturating_add(players.capacity);
        }
    }
    status.counters = (!counters.is_empty()).then_some(counters);
    status.lists = (!lists.is_empty()).then_some(lists);
    status
}

fn zeros<'a, T: 'a>(keys: impl Iterator<Item = (&'a String, &'a T)>) -> BTreeMap<String, CounterSum> {
    keys.map(|(name, _)| (name.clone(), CounterSum::default())).collect()
}

fn add(sums: &mut BTreeMap<String, CounterSum>, amounts: &BTreeMap<String, Amount>, is_allocated: bool) {
    for (name, amount) in amounts {
        let allocated = if is_allocated { *amount } else { Amount::default() };
        let own = CounterSum {
            allocated_count: allocated.count,
            allocated_capacity: allocated.capacity,
            count: amount.count,
            capacity: amount.capacity,
        };
        let sum = sums.entry(name.clone()).or_default();
        *sum = sum.plus(own);
    }
}

/// The status of a Fleet with sets of these statuses.
pub(crate) fn sum<'a>(sets: impl Iterator<Item = &'a GameServerSetStatus>) -> FleetStatus {
    let mut status = FleetStatus::default();
    for set in sets {
        status.replicas = status.replicas.saturating_add(set.replicas);
        status.ready_replicas = status.ready_replicas.saturating_add(set.ready_replicas);
        status.reserved_replicas = status.reserved_replicas.saturating_add(set.reserved_replicas);
        status.allocated_replicas = status.allocated_replicas.saturating_add(set.allocated_replicas);
        if let Some(players) = set.players {
            let sum: &mut PlayerSum = status.players.get_or_insert_default();
            sum.count = sum.count.saturating_add(players.count);
            sum.capacity = sum.capacity.saturating_add(players.capacity);
        }
        merge(&mut status.counters, set.counters.as_ref());
        merge(&mut status.lists, set.lists.as_ref());
    }
    status
}

fn merge(sums: &mut Option<BTreeMap<String, CounterSum>>, more: Option<&BTreeMap<String, CounterSum>>) {
    for (name, one) in more.into_iter().flatten() {
        let sum = sums.get_or_insert_default().entry(name.clone()).or_default();
        *sum = sum.plus(*one);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::server;

    #[test]
    fn every_state_is_counted_where_it_belongs() {
        let servers: Vec<_> = State::ALL.into_iter().map(|state| server("s").state(state).build()).collect();
        let ending = server("e").state(State::Allocated).ending().build();
        let lost = server("l").ready().annotation(berth_api::names::LOST_ANNOTATION, "x").build();
        let all: Vec<_> = servers.into_iter().chain([ending, lost]).map(Arc::new).collect();
        let status = count(&GameServerSpec::default(), &all);
        assert_eq!(
            (status.replicas, status.ready_replicas, status.allocated_replicas, status.reserved_replicas),
            (10, 1, 1, 1)
        );
        assert_eq!(status.shutdown_replicas, 3);
        assert_eq!(status.counters, None);
    }

    #[test]
    fn counters_of_servers_that_are_not_ready_count_and_sums_saturate() {
        let template: GameServerSpec = serde_json::from_value(json!({
            "counters": {"rooms": {}, "unused": {}}, "template": {}
        }))
        .expect("a spec");
        let servers = [
            server("a").state(State::Creating).counter("rooms", 1, i64::MAX),
            server("b").state(State::Allocated).counter("rooms", 2, i64::MAX),
            server("c").state(State::Shutdown).counter("rooms", 4, 4),
        ];
        let servers: Vec<_> = servers.into_iter().map(|server| Arc::new(server.build())).collect();
        let status = count(&template, &servers);
        let counters = status.counters.clone().expect("counters");
        let rooms =
            CounterSum { allocated_count: 2, allocated_capacity: i64::MAX, count: 3, capacity: i64::MAX };
        assert_eq!(counters["rooms"], rooms);
        assert_eq!(counters["unused"], CounterSum::default());
        let fleet = sum([&status, &status].into_iter());
        assert_eq!(fleet.replicas, 4);
        assert_eq!(fleet.counters.expect("counters")["rooms"].capacity, i64::MAX);
    }
}
