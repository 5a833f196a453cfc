//! What a game may see of its server. Pure.

use berth_api::game_server::GameServer;
use berth_api::link::{Sequence, View};
use berth_api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The view of a server as it is now.
pub(super) fn view(server: &GameServer) -> View {
    let metadata = &server.metadata;
    let seconds = |time: Option<&Time>| time.map_or(0, |time| time.0.as_second());
    View {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        creation_timestamp: seconds(metadata.creation_timestamp.as_ref()),
        deletion_timestamp: seconds(metadata.deletion_timestamp.as_ref()),
        annotations: metadata.annotations.clone().unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        health: Some(server.spec.health_rule()),
        status: server.status.clone().unwrap_or_default(),
    }
}

/// The last change of the game that the server contains.
pub(super) fn applied(server: &GameServer) -> Sequence {
    let noted = server.annotation(names::SDK_APPLIED_ANNOTATION);
    Sequence(noted.and_then(|text| text.parse().ok()).unwrap_or_default())
}
