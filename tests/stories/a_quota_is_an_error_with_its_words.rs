//! A namespace whose quota forbids the pod: an Error at once, with the quota's own words, instead of endless tries.

use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::eventually;
use berth_stories::game::{game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, story};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, PostParams};
use serde_json::json;

#[test]
fn a_pod_that_a_quota_forbids_is_an_error_that_names_it() {
    story(|world| async {
        let stage = world.stage("quota").await?;
        let quotas = Api::<ResourceQuota>::namespaced(world.client(), &stage.namespace);
        let none: ResourceQuota = serde_json::from_value(json!({
            "metadata": { "name": "no-more-pods" }, "spec": { "hard": { "pods": "0" } },
        }))?;
        quotas.create(&PostParams::default(), &none).await?;
        // Kubernetes enforces a quota once it has counted.
        eventually(STEP, "a quota that is counted", async || {
            let status = quotas.get("no-more-pods").await.map_err(|error| error.to_string())?.status;
            let status = status.unwrap_or_default();
            if status.hard.is_some() { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await?;
        let api =
            Api::namespaced_with(world.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        let template = pod(&json!([game_container(&[])]), &json!([]));
        apply_strictly(&api, &game_server("forbidden", &spec(&template))).await?;
        let server = stage.until_state("forbidden", State::Error).await?;
        let reason = server.annotation(names::REASON_ANNOTATION).unwrap_or_default();
        assert!(reason.contains("exceeded quota: no-more-pods"), "{reason}");
        assert!(server.annotation(names::ERRORED_AT_ANNOTATION).is_some());
        stage.strike().await
    });
}
