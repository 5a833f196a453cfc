//! Sessions: servers that somebody has taken, and that live until the story lets them go.

use berth_api::game_server::GameServer;
use berth_stories::harbour::Harbour;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

/// A player's session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) pod_uid: String,
}

/// Takes a server as a matchmaker does: the state, under the resource version that was read. None where somebody was
/// faster.
pub(crate) async fn allocate(harbour: &Harbour, server: &GameServer) -> anyhow::Result<Option<Session>> {
    let name = server.name_any();
    let Ok(pod) = harbour.pods().get(&name).await else { return Ok(None) };
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": server.resource_version(), "labels": { "match": name } },
        "status": { "state": "Allocated" },
    }));
    let taken = harbour.servers().patch(&name, &PatchParams::default(), &patch).await;
    Ok(settled(taken.map(drop))?.then(|| Session {
        uid: server.uid().unwrap_or_default(),
        pod_uid: pod.uid().unwrap_or_default(),
        name,
    }))
}

/// Whether the write was taken. That the object has changed or gone is no failure.
pub(crate) fn settled(answer: kube::Result<()>) -> anyhow::Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
