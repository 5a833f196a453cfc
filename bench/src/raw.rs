//! What the API server can do: the rate X at which it takes writes of GameServers, and the latency w of one alone.
//!
//! Written are annotations of the servers that are there, so that size, admission and watchers are those of Berth's own
//! writes.

use std::time::{Duration, Instant};

use berth_api::game_server::GameServer;
use futures::StreamExt as _;
use futures::stream;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::table::{figure, quantile};

/// Writes at once: as many as the brain makes.
pub(crate) const PARALLEL: usize = 16;
/// Writes that the rate is measured over.
const WRITES: usize = 1500;
/// Writes that the latency is measured over.
const ALONE: usize = 100;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    /// X, in writes a second.
    pub(crate) rate: f64,
    /// w.
    pub(crate) latency: Duration,
}

/// Measures both on these servers, with `parallel` writes at once.
pub(crate) async fn measure(servers: &Api<GameServer>, parallel: usize) -> anyhow::Result<Raw> {
    let names: Vec<String> =
        servers.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    anyhow::ensure!(!names.is_empty(), "there is no server to write to");
    let write = async |number: usize| {
        let name = &names[number % names.len()];
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "bench": number.to_string() } } }));
        let began = Instant::now();
        servers.patch_metadata(name, &PatchParams::default(), &patch).await?;
        Ok::<_, kube::Error>(began.elapsed())
    };
    let mut alone = Vec::new();
    for number in 0..ALONE {
        alone.push(write(number).await?.as_secs_f64());
    }
    let began = Instant::now();
    let mut all = stream::iter(ALONE..ALONE + WRITES).map(write).buffer_unordered(parallel);
    while let Some(done) = all.next().await {
        done?;
    }
    Ok(Raw {
        rate: figure(WRITES) / began.elapsed().as_secs_f64(),
        latency: Duration::from_secs_f64(quantile(&alone, 0.5)),
    })
}
