//! What can be seen.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use berth_runtime::CancellationToken;
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scenario::{self, Scenario};
use crate::services::{Services, Shared};

/// How often a stream of events looks for new ones.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn router(stop: CancellationToken) -> Router<Shared> {
    Router::new()
        .route("/state", get(async |State(shared): State<Shared>| axum::Json(state(&mut shared.lock()))))
        .route("/servers", get(async |State(shared): State<Shared>| axum::Json(servers(&mut shared.lock()))))
        .route(
            "/instances",
            get(async |State(shared): State<Shared>| axum::Json(instances(&mut shared.lock()))),
        )
        .route("/audit", get(audit))
        .route("/stats", get(stats))
        .route("/requests", get(requests))
        .route("/scenarios", get(scenarios))
        .route("/events", get(events))
        .layer(Extension(stop))
}

/// Everything that the account has now.
pub(crate) fn state(services: &mut Services) -> Value {
    let now = services.bring_up();
    let groups = services.world.groups().collect::<Vec<_>>();
    let mut state = json!({ "now": now, "groups": groups });
    state["audit"] = json!(services.world.audit());
    state["instances"] = instances(services);
    state["servers"] = servers(services);
    state
}

fn servers(services: &mut Services) -> Value {
    let now = services.bring_up();
    let server = |server: &crate::world::Server| {
        let mut value = json!(server);
        value["claimed"] = server.is_claimed(now).into();
        value["silent_ms"] =
            json!(u64::try_from(now.duration_since(server.last_health).as_millis()).unwrap_or(0));
        value
    };
    services.world.servers().map(server).collect()
}

fn instances(services: &mut Services) -> Value {
    services.bring_up();
    services.world.instances().map(|instance| json!(instance)).collect()
}

async fn audit(State(shared): State<Shared>) -> axum::Json<Value> {
    let mut services = shared.lock();
    services.bring_up();
    axum::Json(json!(services.world.audit()))
}

async fn stats(State(shared): State<Shared>) -> axum::Json<Value> {
    let services = shared.lock();
    axum::Json(json!({
        "operations": services.throttle.operations(),
        "callers": services.throttle.callers(),
        "faults": services.faults.hits(),
        "metadata_reads_without_token": services.metadata.reads_without_token()
            .into_iter().map(|(id, reads)| (id.to_string(), reads)).collect::<BTreeMap<_, _>>(),
    }))
}

async fn scenarios() -> Result<axum::Json<Value>, super::Refused> {
    let scenarios = scenario::names().into_iter().map(|name| Ok((name, Scenario::named(name)?.about)));
    Ok(axum::Json(json!(scenarios.collect::<Result<BTreeMap<_, _>, super::Refused>>()?)))
}

#[derive(Deserialize)]
struct RequestFilter {
    op: Option<String>,
    instance: Option<String>,
}

async fn requests(State(shared): State<Shared>, Query(filter): Query<RequestFilter>) -> axum::Json<Value> {
    let services = shared.lock();
    let about = services.journal.about(filter.op.as_deref(), filter.instance.as_deref());
    axum::Json(about.map(|entry| json!(entry)).collect())
}

pub(super) async fn clock(State(shared): State<Shared>) -> axum::Json<Value> {
    let mut services = shared.lock();
    let now = services.bring_up();
    let pace = format!("{:?}", services.clock.pace()).to_lowercase();
    axum::Json(json!({ "now": now, "next_due": services.world.next_due(), "pace": pace }))
}

#[derive(Deserialize)]
struct EventFilter {
    #[serde(default)]
    since: u64,
    #[serde(default)]
    follow: bool,
}

/// Events after a number, as a list, or one a line for as long as somebody reads.
async fn events(
    State(shared): State<Shared>,
    Extension(stop): Extension<CancellationToken>,
    Query(filter): Query<EventFilter>,
) -> Response {
    if !filter.follow {
        let mut services = shared.lock();
        services.bring_up();
        return axum::Json(json!(services.world.events_since(filter.since))).into_response();
    }
    let lines = stream::unfold(filter.since, move |since| {
        let (shared, stop) = (shared.clone(), stop.clone());
        async move {
            loop {
                if let Some((last, lines)) = lines_since(&shared, since) {
                    return Some((Ok::<_, std::convert::Infallible>(lines), last));
                }
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        }
    });
    ([("content-type", "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

fn lines_since(shared: &Shared, since: u64) -> Option<(u64, Bytes)> {
    let mut services = shared.lock();
    services.bring_up();
    let events = services.world.events_since(since);
    let last = events.last()?.seq;
    let lines = events.iter().map(|event| format!("{}\n", json!(event))).collect::<String>();
    Some((last, lines.into()))
}
