//! The way behind the curtain: orders, faults, quotas and time over HTTP and JSON, and everything that can be seen.

mod expect;
mod orders;
mod views;

use std::convert::Infallible;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use berth_runtime::CancellationToken;
use berth_runtime::error::chain;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::faults::Rule;
use crate::scenario::{Scenario, ScenarioError};
use crate::services::Shared;
use crate::throttle::ThrottleChange;
use crate::wire::WireStyle;
use crate::world::{Order, OrderError};

pub(crate) use views::state;

/// Why something was not done, as an answer.
struct Refused {
    status: StatusCode,
    why: String,
}

impl Refused {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, axum::Json(json!({ "error": self.why }))).into_response()
    }
}

impl From<OrderError> for Refused {
    fn from(error: OrderError) -> Self {
        let status = match &error {
            OrderError::Missing { .. } => StatusCode::NOT_FOUND,
            OrderError::DrainingStays | OrderError::Refused(_) => StatusCode::CONFLICT,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ScenarioError> for Refused {
    fn from(error: ScenarioError) -> Self {
        Self::new(StatusCode::NOT_FOUND, chain(&error))
    }
}

type Answer = Result<axum::Json<Value>, Refused>;

/// Carries out an order at the time of the clock.
fn order(shared: &Shared, order: Order) -> Answer {
    let mut services = shared.lock();
    services.bring_up();
    Ok(axum::Json(services.world.perform(order)?))
}

/// A body, or nothing said at all.
fn read<T: for<'de> Deserialize<'de> + Default>(body: &[u8]) -> Result<T, Refused> {
    if body.is_empty() {
        return Ok(T::default());
    }
    required(body)
}

fn required<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Answers until `stop`.
///
/// # Errors
/// When the listener fails.
pub(crate) async fn serve(
    socket: TcpListener,
    shared: Shared,
    stop: CancellationToken,
) -> Result<(), std::io::Error> {
    axum::serve(socket, router(shared, stop.clone())).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn router(shared: Shared, stop: CancellationToken) -> Router {
    Router::new()
        .route("/healthz", get(async || Ok::<_, Infallible>("ok\n")))
        .route("/reset", post(reset))
        .route("/orders", post(any_order))
        .route("/throttle", put(throttle))
        .route("/style", put(style))
        .route("/faults", delete(clear_faults))
        .route("/faults/{name}", put(put_fault).delete(remove_fault))
        .route("/clock", get(views::clock))
        .route("/clock/advance", post(advance))
        .route("/expect", post(expect::expect))
        .merge(orders::router())
        .merge(views::router(stop))
        .with_state(shared)
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Reset {
    scenario: Option<String>,
}

async fn reset(State(shared): State<Shared>, body: bytes::Bytes) -> Answer {
    let Reset { scenario } = read(&body)?;
    let scenario = scenario.as_deref().map(Scenario::named).transpose()?;
    let mut services = shared.lock();
    services.reset(scenario.as_ref())?;
    Ok(axum::Json(json!({ "seed": services.seed() })))
}

async fn any_order(State(shared): State<Shared>, body: bytes::Bytes) -> Answer {
    order(&shared, required(&body)?)
}

async fn throttle(State(shared): State<Shared>, body: bytes::Bytes) -> Answer {
    let change = required::<ThrottleChange>(&body)?;
    shared.lock().throttle.change(change);
    Ok(axum::Json(json!({})))
}

async fn style(State(shared): State<Shared>, body: bytes::Bytes) -> Answer {
    let style = read::<WireStyle>(&body)?;
    shared.lock().style = style;
    Ok(axum::Json(json!({})))
}

async fn put_fault(State(shared): State<Shared>, Path(name): Path<String>, body: bytes::Bytes) -> Answer {
    let rule = required::<Rule>(&body)?;
    let mut services = shared.lock();
    let now = services.bring_up();
    services.faults.put(name, rule, now);
    Ok(axum::Json(json!({})))
}

async fn remove_fault(State(shared): State<Shared>, Path(name): Path<String>) -> Answer {
    if shared.lock().faults.remove(&name) {
        return Ok(axum::Json(json!({})));
    }
    Err(Refused::new(StatusCode::NOT_FOUND, format!("there is no fault {name}")))
}

async fn clear_faults(State(shared): State<Shared>) -> Answer {
    shared.lock().faults.clear();
    Ok(axum::Json(json!({})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    ms: crate::world::Milliseconds,
}

async fn advance(State(shared): State<Shared>, body: bytes::Bytes) -> Answer {
    let Advance { ms } = required(&body)?;
    let mut services = shared.lock();
    services.clock.advance(ms.duration());
    Ok(axum::Json(json!({ "now": services.bring_up() })))
}
