//! What drains a node the Kubernetes way, by evictions, is stopped by a game that must not be evicted and by no other.

use std::path::Path;

use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::eventually;
use berth_stories::game::{game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, story};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, EvictParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::json;

/// The budget that tools and people know by this name.
const BUDGET: &str = "agones-gameserver-safe-to-evict-false";

#[test]
fn a_game_that_must_not_be_evicted_is_not_and_another_is() {
    story(|world| async {
        let stage = world.stage("evict").await?;
        let api =
            Api::namespaced_with(world.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        for safe in ["Never", "OnUpgrade", "Always"] {
            let mut spec = spec(&pod(&json!([game_container(&[])]), &json!([])));
            spec["eviction"] = json!({ "safe": safe });
            apply_strictly(&api, &game_server(&safe.to_lowercase(), &spec)).await?;
        }
        for name in ["never", "onupgrade", "always"] {
            stage.until_state(name, State::Ready).await?;
        }
        let budgets = Api::<PodDisruptionBudget>::namespaced(world.client(), &stage.namespace);
        // A pod that kubelet does not call Running and ready yet is nobody's loss to an eviction.
        eventually(STEP, "a budget that counts one healthy pod and allows no disruption", async || {
            let budget = budgets.get(BUDGET).await.map_err(|error| error.to_string())?;
            let status = budget.status.unwrap_or_default();
            if (status.expected_pods, status.current_healthy, status.disruptions_allowed) == (1, 1, 0)
                && status.observed_generation == budget.metadata.generation
            {
                Ok(())
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await?;

        let asking_once =
            Api::<Pod>::namespaced(asks_once(world.cluster.kubeconfig_path()).await?, &stage.namespace);
        let refusal = asking_once.evict("never", &EvictParams::default()).await;
        match refusal {
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, 429, "{status:?}");
                assert!(status.message.contains("disruption budget"), "{status:?}");
            }
            other => anyhow::bail!("the eviction was answered with {other:?}"),
        }
        for name in ["onupgrade", "always"] {
            stage.pods().evict(name, &EvictParams::default()).await?;
            let evicted = stage.until_state(name, State::Unhealthy).await?;
            let reason = evicted.annotation(names::REASON_ANNOTATION).unwrap_or_default();
            assert!(reason.starts_with("Pod"), "{name}: {reason}");
        }
        stage.until_state("never", State::Ready).await?;
        assert_eq!(stage.pods().get("never").await?.metadata.deletion_timestamp, None);
        stage.strike().await
    });
}

/// A refused eviction is a reason to ask again, and a client does so for minutes, unless it is told not to.
async fn asks_once(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}
