//! The task that replaces the pods of `berth-sdk`, one after another.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_runtime::CancellationToken;
use berth_runtime::error::chain;
use k8s_openapi::api::core::v1::Pod;
use tracing::{info, warn};

use super::SdkUpdateMetrics;
use super::decide::{Seen, next};
use crate::effects::Effect;
use crate::stores::{SdkPod, Stores, World};
use crate::writes::Writer;

/// How often to look: an update takes hours, and a look costs nothing.
const TICK: Duration = Duration::from_secs(1);

/// Replaces pods.
pub(crate) struct SdkUpdater {
    pub(crate) stores: Arc<Stores>,
    pub(crate) writer: Writer,
    pub(crate) metrics: SdkUpdateMetrics,
}

impl SdkUpdater {
    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            // Where Berth may not see them there is nothing to do.
            () = self.stores.sdk_listed() => {}
        }
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = tick.tick() => self.turn().await,
            }
        }
        self.metrics.due.set(0);
        Ok(())
    }

    async fn turn(&self) {
        let (due, chosen) = self.stores.change(|world, _| (world.sdk_due(), choose(world)));
        self.metrics.due.set(i64::try_from(due).unwrap_or(i64::MAX));
        let Some(pod) = chosen else { return };
        match self.writer.delete::<Pod>(Effect::ReplaceSdk, &pod.key, &pod.uid).await {
            Ok(()) => {
                self.metrics.replaced.inc();
                info!(node = pod.node, pod = pod.key.name, "berth-sdk is replaced on an empty node");
            }
            Err(error) => {
                self.metrics.failed.inc();
                self.stores.change(|world, _| world.open_after_sdk());
                warn!(node = pod.node, error = %chain(&error), "berth-sdk was not replaced");
            }
        }
    }
}

/// The pod that goes now; its node takes no server from this moment on.
fn choose(world: &mut World) -> Option<Arc<SdkPod>> {
    if world.is_sdk_awaited() {
        return None;
    }
    world.open_after_sdk();
    let newest = world.newest_sdk()?;
    let pods: Vec<Arc<SdkPod>> = world.sdk_pods.iter().cloned().collect();
    let seen: Vec<Seen> = pods
        .iter()
        .map(|pod| Seen {
            is_old: pod.revision != newest,
            is_ready: pod.is_ready,
            is_ending: pod.is_ending,
            servers: world.keys_on(&pod.node).len() + world.loads_on(&pod.node).count(),
        })
        .collect();
    let pod = Arc::clone(&pods[next(&seen)?]);
    world.close_for_sdk(&pod.node);
    Some(pod)
}
