//! Between the words of the allocator service and those of the resource. Pure.
//!
//! An enum's unknown number is its first word, as the peer has it. The older selector fields, the older metadata field,
//! and both forms together mean what they mean there.

use std::collections::{BTreeMap, HashMap};

use berth_api::allocation::proto::{self, allocation_request, game_server_selector, priority};
use berth_api::allocation::{
    AllocationSpec, AllocationState, AllocationStatus, CounterAction, CounterSelector, GameServerAllocation,
    ListAction, ListSelector, MetadataPatch, MultiClusterSetting, PlayerSelector, PrioritySpec, SelectorSpec,
};
use berth_runtime::error::chain;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use tonic::{Code, Status};

use crate::office::OfficeError;

/// The request as the resource.
pub(super) fn read(request: proto::AllocationRequest) -> GameServerAllocation {
    let scheduling = match request.scheduling() {
        allocation_request::SchedulingStrategy::Packed => "Packed",
        allocation_request::SchedulingStrategy::Distributed => "Distributed",
    };
    let multi_cluster = request.multi_cluster_setting.unwrap_or_default();
    let spec = AllocationSpec {
        multi_cluster_setting: MultiClusterSetting {
            enabled: multi_cluster.enabled,
            policy_selector: labels(multi_cluster.policy_selector.unwrap_or_default().match_labels),
        },
        required: selector(request.required_game_server_selector.unwrap_or_default()),
        preferred: request.preferred_game_server_selectors.into_iter().map(selector).collect(),
        priorities: request.priorities.iter().map(read_priority).collect(),
        selectors: request.game_server_selectors.into_iter().map(selector).collect(),
        scheduling: scheduling.to_owned(),
        metadata: metadata(request.metadata.or(request.meta_patch).unwrap_or_default()),
        counters: request.counters.into_iter().map(|(name, action)| (name, counter_action(action))).collect(),
        lists: request.lists.into_iter().map(|(name, action)| (name, list_action(action))).collect(),
    };
    GameServerAllocation {
        metadata: ObjectMeta { namespace: Some(request.namespace), ..ObjectMeta::default() },
        spec,
        ..GameServerAllocation::default()
    }
}

fn labels(labels: HashMap<String, String>) -> LabelSelector {
    let labels: BTreeMap<String, String> = labels.into_iter().collect();
    LabelSelector { match_labels: (!labels.is_empty()).then_some(labels), match_expressions: None }
}

fn selector(selector: proto::GameServerSelector) -> SelectorSpec {
    let state = match selector.game_server_state() {
        game_server_selector::GameServerState::Ready => "Ready",
        game_server_selector::GameServerState::Allocated => "Allocated",
    };
    // Unsigned there, signed here: what does not fit is more than any server has room for.
    let amount = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    SelectorSpec {
        labels: labels(selector.match_labels),
        game_server_state: Some(state.to_owned()),
        players: selector.players.map(|players| PlayerSelector {
            min_available: amount(players.min_available),
            max_available: amount(players.max_available),
        }),
        counters: selector.counters.into_iter().map(|(name, rule)| (name, counter_rule(rule))).collect(),
        lists: selector.lists.into_iter().map(|(name, rule)| (name, list_rule(rule))).collect(),
    }
}

fn counter_rule(rule: proto::CounterSelector) -> CounterSelector {
    CounterSelector {
        min_count: rule.min_count,
        max_count: rule.max_count,
        min_available: rule.min_available,
        max_available: rule.max_available,
    }
}

fn list_rule(rule: proto::ListSelector) -> ListSelector {
    ListSelector {
        contains_value: rule.contains_value,
        min_available: rule.min_available,
        max_available: rule.max_available,
    }
}

fn read_priority(said: &proto::Priority) -> PrioritySpec {
    PrioritySpec {
        kind: match said.r#type() {
            priority::Type::Counter => "Counter",
            priority::Type::List => "List",
        }
        .to_owned(),
        key: said.key.clone(),
        order: match said.order() {
            priority::Order::Ascending => "Ascending",
            priority::Order::Descending => "Descending",
        }
        .to_owned(),
    }
}

fn metadata(patch: proto::MetaPatch) -> MetadataPatch {
    MetadataPatch {
        labels: patch.labels.into_iter().collect(),
        annotations: patch.annotations.into_iter().collect(),
    }
}

fn counter_action(action: proto::CounterAction) -> CounterAction {
    CounterAction { action: action.action, amount: action.amount, capacity: action.capacity }
}

fn list_action(action: proto::ListAction) -> ListAction {
    ListAction {
        add_values: action.add_values,
        delete_values: action.delete_values,
        capacity: action.capacity,
    }
}

/// The answer as the service tells it. `unallocated` is the HTTP status that tells that there is no server.
pub(super) fn answer(
    served: Result<GameServerAllocation, OfficeError>,
    unallocated: u16,
) -> Result<proto::AllocationResponse, Status> {
    let status = match served {
        Ok(allocation) => allocation.status,
        Err(error @ OfficeError::Invalid(_)) => return Err(Status::invalid_argument(error.to_string())),
        Err(error @ (OfficeError::Take(_) | OfficeError::Clusters(_))) => {
            return Err(Status::unknown(chain(&error)));
        }
    };
    match status.state {
        Some(AllocationState::Allocated) => Ok(response(status)),
        Some(AllocationState::Contention) => {
            Err(Status::aborted("too many concurrent requests have overwhelmed the system"))
        }
        Some(AllocationState::UnAllocated) | None => match code_of(unallocated) {
            Code::Ok => Ok(proto::AllocationResponse::default()),
            code => Err(Status::new(code, "there is no available GameServer to allocate")),
        },
    }
}

fn response(status: AllocationStatus) -> proto::AllocationResponse {
    use proto::allocation_response::{
        CounterStatus, GameServerMetadata, GameServerStatusAddress, GameServerStatusPort, ListStatus,
    };
    proto::AllocationResponse {
        game_server_name: status.game_server_name,
        ports: status
            .ports
            .into_iter()
            .map(|port| GameServerStatusPort {
                name: port.name.unwrap_or_default(),
                port: i32::from(port.port),
            })
            .collect(),
        address: status.address,
        node_name: status.node_name,
        source: status.source,
        metadata: status.metadata.map(|metadata| GameServerMetadata {
            labels: metadata.labels.into_iter().collect(),
            annotations: metadata.annotations.into_iter().collect(),
        }),
        addresses: status
            .addresses
            .into_iter()
            .map(|address| GameServerStatusAddress { r#type: address.kind, address: address.address })
            .collect(),
        counters: status
            .counters
            .into_iter()
            .map(|(name, counter)| {
                let shown = CounterStatus {
                    count: Some(counter.count.unwrap_or(0)),
                    capacity: Some(counter.capacity.unwrap_or(0)),
                };
                (name, shown)
            })
            .collect(),
        lists: status
            .lists
            .into_iter()
            .map(|(name, list)| {
                let shown = ListStatus {
                    values: list.values.unwrap_or_default(),
                    capacity: Some(list.capacity.unwrap_or(0)),
                };
                (name, shown)
            })
            .collect(),
    }
}

/// The gRPC code that stands for an HTTP status.
fn code_of(status: u16) -> Code {
    match status {
        200 => Code::Ok,
        499 => Code::Cancelled,
        500 => Code::Internal,
        400 => Code::InvalidArgument,
        504 => Code::DeadlineExceeded,
        404 => Code::NotFound,
        409 => Code::AlreadyExists,
        403 => Code::PermissionDenied,
        401 => Code::Unauthenticated,
        501 => Code::Unimplemented,
        503 => Code::Unavailable,
        _ => Code::ResourceExhausted,
    }
}

/// The HTTP status of the gateway that stands for a gRPC code.
pub(super) fn status_of(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::Cancelled => 499,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::DeadlineExceeded => 504,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::PermissionDenied => 403,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::Unauthenticated => 401,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
    }
}
