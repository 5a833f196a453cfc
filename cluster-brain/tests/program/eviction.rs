//! The disruption budget of a namespace: there before the first server, kept, and alone.

use berth_api::names::DISRUPTION_BUDGET;
use berth_dev::eventually;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT, NAMESPACE};
use crate::placement::told;
use crate::truth::Truth;

#[tokio::test]
async fn a_namespace_has_its_budget_before_its_first_server_and_keeps_it() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let truth = Truth::watch(&cluster);
    let _brain = cluster.brain("brain");
    let budgets = Api::<PodDisruptionBudget>::namespaced(cluster.client.clone(), NAMESPACE);
    cluster.create_fleet("lobby", 2, json!({})).await;
    cluster.wait_for_ready("lobby", 2).await;
    let budget = budgets.get(DISRUPTION_BUDGET).await.expect("the budget");
    let version: u64 =
        budget.metadata.resource_version.clone().and_then(|text| text.parse().ok()).expect("a version");
    assert!(truth.seen().first_version.is_some_and(|first| version < first), "it came first");
    let wanted = json!({
        "maxUnavailable": "0%",
        "selector": {"matchLabels": {"agones.dev/safe-to-evict": "false"}},
    });
    assert_eq!(json!(budget.spec), wanted);

    // Whoever takes it away, or makes it allow something, does so for a moment.
    budgets.delete(DISRUPTION_BUDGET, &DeleteParams::default()).await.expect("a deletion");
    let is_right = async || {
        let found = budgets.get_opt(DISRUPTION_BUDGET).await.expect("an answer");
        let spec = json!(found.as_ref().and_then(|budget| budget.spec.as_ref()));
        if spec == wanted { Ok(()) } else { Err(spec.to_string()) }
    };
    eventually(LIMIT, "the budget made again", is_right).await.expect("the budget");
    let looser =
        Patch::Merge(json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}}));
    budgets.patch(DISRUPTION_BUDGET, &PatchParams::default(), &looser).await.expect("a looser budget");
    eventually(LIMIT, "the budget put right", is_right).await.expect("the budget");
}

#[tokio::test]
async fn a_second_budget_that_matches_is_told() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 1, json!({})).await;
    cluster.wait_for_ready("lobby", 1).await;
    let budgets = Api::<PodDisruptionBudget>::namespaced(cluster.client.clone(), NAMESPACE);
    let second: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "second"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"agones.dev/role": "gameserver"}}},
    }))
    .expect("a budget");
    budgets.create(&PostParams::default(), &second).await.expect("a created budget");
    let said = cluster.fleet_says("lobby", "OneDisruptionBudget", "False", "second").await;
    assert!(said.contains(DISRUPTION_BUDGET), "{said}");
    eventually(LIMIT, "an Event", async || {
        let told = told(&cluster, "SeveralDisruptionBudgets").await;
        if told.is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await
    .expect("an Event");
    budgets.delete("second", &DeleteParams::default()).await.expect("a deletion");
    cluster.fleet_condition("lobby", "OneDisruptionBudget", "True").await;
}
