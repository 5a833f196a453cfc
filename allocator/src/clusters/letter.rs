//! A request as it goes to another cluster's allocator service, and its answer as it comes back. Pure.

use std::collections::{BTreeMap, HashMap};

use berth_api::allocation::proto::{self, allocation_request, game_server_selector, priority};
use berth_api::allocation::{
    AllocationState, AllocationStatus, GameServerAllocation, MetadataPatch, SelectorSpec,
};
use berth_api::game_server::{Counter, List, NodeAddress, StatusPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// What cannot be said in the language between clusters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} cannot be sent to another cluster: the allocator service knows no matchExpressions")]
pub struct Unspeakable {
    field: String,
}

/// The request for another cluster, there in `namespace`: the same, completed as it was here, but for that cluster alone.
///
/// The older fields are filled in too, for services that read nothing else.
///
/// # Errors
/// Some part of it has no words there; left out it would be another request.
pub(super) fn write(
    asked: &GameServerAllocation,
    namespace: &str,
) -> Result<proto::AllocationRequest, Unspeakable> {
    let spec = &asked.spec;
    let selectors: Vec<_> =
        spec.selectors.iter().enumerate().map(write_selector).collect::<Result<_, _>>()?;
    let (required, preferred) = match selectors.split_last() {
        Some((last, others)) => (Some(last.clone()), others.to_vec()),
        None => (None, Vec::new()),
    };
    let scheduling = match spec.scheduling.as_str() {
        "Distributed" => allocation_request::SchedulingStrategy::Distributed,
        _ => allocation_request::SchedulingStrategy::Packed,
    };
    let patch = proto::MetaPatch {
        labels: spec.metadata.labels.clone().into_iter().collect(),
        annotations: spec.metadata.annotations.clone().into_iter().collect(),
    };
    Ok(proto::AllocationRequest {
        namespace: namespace.to_owned(),
        multi_cluster_setting: None,
        required_game_server_selector: required,
        preferred_game_server_selectors: preferred,
        scheduling: scheduling.into(),
        meta_patch: Some(patch.clone()),
        metadata: Some(patch),
        game_server_selectors: selectors,
        priorities: spec
            .priorities
            .iter()
            .map(|one| proto::Priority {
                r#type: match one.kind.as_str() {
                    "List" => priority::Type::List,
                    _ => priority::Type::Counter,
                }
                .into(),
                key: one.key.clone(),
                order: match one.order.as_str() {
                    "Descending" => priority::Order::Descending,
                    _ => priority::Order::Ascending,
                }
                .into(),
            })
            .collect(),
        counters: spec
            .counters
            .iter()
            .map(|(name, one)| {
                let action = proto::CounterAction {
                    action: one.action.clone(),
                    amount: one.amount,
                    capacity: one.capacity,
                };
                (name.clone(), action)
            })
            .collect(),
        lists: spec
            .lists
            .iter()
            .map(|(name, one)| {
                let action = proto::ListAction {
                    add_values: one.add_values.clone(),
                    capacity: one.capacity,
                    delete_values: one.delete_values.clone(),
                };
                (name.clone(), action)
            })
            .collect(),
    })
}

fn write_selector(
    (index, selector): (usize, &SelectorSpec),
) -> Result<proto::GameServerSelector, Unspeakable> {
    let LabelSelector { match_labels, match_expressions } = &selector.labels;
    if match_expressions.as_ref().is_some_and(|expressions| !expressions.is_empty()) {
        return Err(Unspeakable { field: format!("spec.selectors[{index}].matchExpressions") });
    }
    let state = match selector.game_server_state.as_deref() {
        Some("Allocated") => game_server_selector::GameServerState::Allocated,
        _ => game_server_selector::GameServerState::Ready,
    };
    // Never negative in a request that was read.
    let amount = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(proto::GameServerSelector {
        match_labels: match_labels.clone().unwrap_or_default().into_iter().collect(),
        game_server_state: state.into(),
        players: selector.players.map(|players| proto::PlayerSelector {
            min_available: amount(players.min_available),
            max_available: amount(players.max_available),
        }),
        counters: selector
            .counters
            .iter()
            .map(|(name, rule)| {
                let rule = proto::CounterSelector {
                    min_count: rule.min_count,
                    max_count: rule.max_count,
                    min_available: rule.min_available,
                    max_available: rule.max_available,
                };
                (name.clone(), rule)
            })
            .collect(),
        lists: selector
            .lists
            .iter()
            .map(|(name, rule)| {
                let rule = proto::ListSelector {
                    contains_value: rule.contains_value.clone(),
                    min_available: rule.min_available,
                    max_available: rule.max_available,
                };
                (name.clone(), rule)
            })
            .collect(),
    })
}

/// The answer, which came from `source`. A service that is told so tells by an empty success that there is no server.
pub(super) fn read(response: proto::AllocationResponse, source: &str) -> Option<AllocationStatus> {
    if response.game_server_name.is_empty() {
        return None;
    }
    let sorted = |words: HashMap<String, String>| words.into_iter().collect::<BTreeMap<_, _>>();
    Some(AllocationStatus {
        state: Some(AllocationState::Allocated),
        game_server_name: response.game_server_name,
        ports: response
            .ports
            .into_iter()
            .filter_map(|port| {
                // No host has a port that does not fit.
                Some(StatusPort { name: Some(port.name), port: u16::try_from(port.port).ok()? })
            })
            .collect(),
        address: response.address,
        addresses: response
            .addresses
            .into_iter()
            .map(|one| NodeAddress { kind: one.r#type, address: one.address })
            .collect(),
        node_name: response.node_name,
        source: source.to_owned(),
        metadata: response.metadata.map(|metadata| MetadataPatch {
            labels: sorted(metadata.labels),
            annotations: sorted(metadata.annotations),
        }),
        counters: response
            .counters
            .into_iter()
            .map(|(name, one)| (name, Counter { count: one.count, capacity: one.capacity }))
            .collect(),
        lists: response
            .lists
            .into_iter()
            .map(|(name, one)| (name, List { values: Some(one.values), capacity: one.capacity }))
            .collect(),
    })
}
