//! What a game may see of its server. Pure.

use std::collections::BTreeMap;

use berth_api::game_server::{Counter, GameServer, List, PlayersStatus};
use berth_api::link::{Sequence, View};
use berth_api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Amount;

/// The view of a server as it is now.
pub(super) fn view(server: &GameServer) -> View {
    let metadata = &server.metadata;
    let seconds = |time: Option<&Time>| time.map_or(0, |time| time.0.as_second());
    View {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        creation_timestamp: seconds(metadata.creation_timestamp.as_ref()),
        deletion_timestamp: seconds(metadata.deletion_timestamp.as_ref()),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        health: Some(server.spec.health_rule()),
        status: server.status.clone().unwrap_or_default(),
    }
}

/// How many players there are.
pub(super) fn players(players: Option<&PlayersStatus>) -> Option<Amount> {
    players.map(|players| Amount { count: players.count, capacity: players.capacity })
}

/// What the game counts and lists, by name.
pub(super) fn amounts(
    counters: Option<BTreeMap<String, Counter>>,
    lists: Option<BTreeMap<String, List>>,
) -> BTreeMap<String, Amount> {
    let counters = counters.into_iter().flatten().map(|(name, counter)| {
        let (count, capacity) = (counter.count.unwrap_or_default(), counter.capacity.unwrap_or_default());
        (name, Amount { count, capacity })
    });
    let lists = lists.into_iter().flatten().map(|(name, list)| {
        let count = i64::try_from(list.values.as_ref().map_or(0, Vec::len)).unwrap_or(i64::MAX);
        (name, Amount { count, capacity: list.capacity.unwrap_or_default() })
    });
    counters.chain(lists).collect()
}

/// The last change of the game that the server contains.
pub(super) fn applied(server: &GameServer) -> Sequence {
    let noted = server.annotation(names::SDK_APPLIED_ANNOTATION);
    Sequence(noted.and_then(|text| text.parse().ok()).unwrap_or_default())
}
