//! A server as its game sees it: from the agent's view to the message of the SDK protocol. Pure.

use berth_api::game_server::{Counter, HealthRule, List};
use berth_api::link::View;
use berth_api::sdk::v1::GameServer;
use berth_api::sdk::v1::game_server::{ObjectMeta, Spec, Status, spec, status};

/// The message for a view. Maps and lists that nobody set are empty; players are absent where they are not tracked.
pub(crate) fn message(view: &View) -> GameServer {
    GameServer { object_meta: Some(metadata(view)), spec: Some(spec(view)), status: Some(status(view)) }
}

fn metadata(view: &View) -> ObjectMeta {
    ObjectMeta {
        name: view.name.clone(),
        namespace: view.namespace.clone(),
        uid: view.uid.clone(),
        resource_version: view.resource_version.clone(),
        generation: view.generation,
        creation_timestamp: view.creation_timestamp,
        deletion_timestamp: view.deletion_timestamp,
        annotations: view.annotations.clone().into_iter().collect(),
        labels: view.labels.clone().into_iter().collect(),
    }
}

fn spec(view: &View) -> Spec {
    Spec { health: view.health.map(health) }
}

fn health(rule: HealthRule) -> spec::Health {
    let number = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    spec::Health {
        disabled: rule.disabled,
        period_seconds: number(rule.period.as_secs()),
        failure_threshold: number(rule.failure_threshold.into()),
        initial_delay_seconds: number(rule.initial_delay.as_secs()),
    }
}

fn status(view: &View) -> Status {
    let known = &view.status;
    let ports = known
        .ports
        .iter()
        .flatten()
        .map(|port| status::Port { name: port.name.clone().unwrap_or_default(), port: port.port.into() });
    let addresses = known
        .addresses
        .iter()
        .flatten()
        .map(|address| status::Address { r#type: address.kind.clone(), address: address.address.clone() });
    let players = known.players.as_ref().map(|players| status::PlayerStatus {
        count: players.count,
        capacity: players.capacity,
        ids: players.ids.clone().unwrap_or_default(),
    });
    Status {
        state: known.state.map(|state| state.as_str().to_owned()).unwrap_or_default(),
        address: known.address.clone(),
        ports: ports.collect(),
        players,
        counters: known.counters.iter().flatten().map(|(name, one)| (name.clone(), counter(one))).collect(),
        lists: known.lists.iter().flatten().map(|(name, one)| (name.clone(), list(one))).collect(),
        addresses: addresses.collect(),
    }
}

fn counter(counter: &Counter) -> status::CounterStatus {
    status::CounterStatus {
        count: counter.count.unwrap_or_default(),
        capacity: counter.capacity.unwrap_or_default(),
    }
}

fn list(list: &List) -> status::ListStatus {
    status::ListStatus {
        capacity: list.capacity.unwrap_or_default(),
        values: list.values.clone().unwrap_or_default(),
    }
}
