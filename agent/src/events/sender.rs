//! The task that writes Events.

use std::convert::Infallible;
use std::time::Duration;

use berth_api::names;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use berth_runtime::error::chain;
use berth_runtime::kube_client::within;
use k8s_openapi::api::core::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tracing::debug;

use super::EventMetrics;
use crate::lease::Authority;

/// Writes what comes, until asked to stop. One that the API server does not take is dropped.
///
/// # Errors
/// None.
pub async fn run(
    client: Client,
    authority: Authority,
    limit: Duration,
    mut waiting: mpsc::Receiver<Event>,
    metrics: EventMetrics,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let params = PostParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PostParams::default() };
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            event = waiting.recv() => event,
        };
        let Some(event) = event else {
            stop.cancelled().await;
            return Ok(());
        };
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let written = match authority.check(Instant::now()) {
            Ok(_) => within(limit, events.create(&params, &event)).await.map_err(|error| chain(&error)),
            Err(error) => Err(error.to_string()),
        };
        match written {
            Ok(_) => metrics.sent.inc(),
            Err(error) => {
                debug!(namespace, error, "Event dropped");
                metrics.dropped.inc()
            }
        };
    }
}
