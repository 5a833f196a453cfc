//! Orders by path: what scenarios are made of, addressed to the thing that they are about.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, post, put};
use serde::Deserialize;
use serde_json::json;

use super::{Answer, Refused, order, read, required};
use crate::metadata::Switches;
use crate::services::Shared;
use crate::world::{GroupName, InstanceId, InstanceStatus, Order, Parameters, ServerId};

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/parameters", put(parameters))
        .route("/groups/{group}", put(group))
        .route("/groups/{group}/instances", post(launch))
        .route("/groups/{group}/instances/{instance}/status", post(status))
        .route("/groups/{group}/drain-type", post(drain_type))
        .route("/instances/{instance}/spot", post(spot))
        .route("/instances/{instance}/rebalance", post(rebalance))
        .route("/instances/{instance}/lifecycle", post(lifecycle))
        .route("/instances/{instance}/maintenance", post(maintenance))
        .route("/instances/{instance}/terminate", post(terminate))
        .route("/instances/{instance}/imds", put(imds))
        .route("/instances/{instance}/sessions", put(sessions))
        .route("/servers/{server}", delete(remove_server))
        .route("/servers/{server}/claim", post(steal_claim))
}

async fn parameters(State(shared): State<Shared>, body: bytes::Bytes) -> Answer {
    order(&shared, Order::Parameters { parameters: Box::new(read::<Parameters>(&body)?) })
}

async fn group(State(shared): State<Shared>, Path(group): Path<GroupName>, body: bytes::Bytes) -> Answer {
    order(&shared, Order::Group { group, change: read(&body)? })
}

async fn launch(State(shared): State<Shared>, Path(group): Path<GroupName>, body: bytes::Bytes) -> Answer {
    order(&shared, Order::Launch { group, wanted: read(&body)? })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    status: InstanceStatus,
}

async fn status(
    State(shared): State<Shared>,
    Path((group, instance)): Path<(GroupName, InstanceId)>,
    body: bytes::Bytes,
) -> Answer {
    let Status { status } = required(&body)?;
    let is_of_group =
        shared.lock().world.instance(instance.as_str()).is_some_and(|instance| instance.group == group);
    if !is_of_group {
        return Err(Refused::new(StatusCode::NOT_FOUND, format!("{group} has no instance {instance}")));
    }
    order(&shared, Order::Status { instance, status })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainType {
    #[serde(rename = "type")]
    instance_type: String,
}

async fn drain_type(
    State(shared): State<Shared>,
    Path(group): Path<GroupName>,
    body: bytes::Bytes,
) -> Answer {
    let DrainType { instance_type } = required(&body)?;
    order(&shared, Order::DrainType { group, instance_type })
}

async fn spot(State(shared): State<Shared>, Path(instance): Path<InstanceId>, body: bytes::Bytes) -> Answer {
    order(&shared, Order::Spot { instance, interruption: read(&body)? })
}

async fn rebalance(State(shared): State<Shared>, Path(instance): Path<InstanceId>) -> Answer {
    order(&shared, Order::Rebalance { instance })
}

async fn lifecycle(State(shared): State<Shared>, Path(instance): Path<InstanceId>) -> Answer {
    order(&shared, Order::Lifecycle { instance })
}

async fn maintenance(
    State(shared): State<Shared>,
    Path(instance): Path<InstanceId>,
    body: bytes::Bytes,
) -> Answer {
    order(&shared, Order::Maintenance { instance, event: required(&body)? })
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Terminate {
    hard: bool,
}

async fn terminate(
    State(shared): State<Shared>,
    Path(instance): Path<InstanceId>,
    body: bytes::Bytes,
) -> Answer {
    let Terminate { hard } = read(&body)?;
    order(&shared, Order::Terminate { instance, hard })
}

async fn imds(State(shared): State<Shared>, Path(instance): Path<InstanceId>, body: bytes::Bytes) -> Answer {
    let switches = read::<Switches>(&body)?;
    let mut services = shared.lock();
    let now = services.bring_up();
    if services.world.instance(instance.as_str()).is_none() {
        return Err(Refused::new(StatusCode::NOT_FOUND, format!("there is no instance {instance}")));
    }
    services.metadata.switch(&instance, switches, now);
    Ok(axum::Json(json!({})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sessions {
    live: u32,
}

async fn sessions(
    State(shared): State<Shared>,
    Path(instance): Path<InstanceId>,
    body: bytes::Bytes,
) -> Answer {
    let Sessions { live } = required(&body)?;
    order(&shared, Order::Sessions { instance, live })
}

async fn remove_server(State(shared): State<Shared>, Path(server): Path<ServerId>) -> Answer {
    order(&shared, Order::RemoveServer { server })
}

async fn steal_claim(State(shared): State<Shared>, Path(server): Path<ServerId>) -> Answer {
    order(&shared, Order::StealClaim { server })
}
