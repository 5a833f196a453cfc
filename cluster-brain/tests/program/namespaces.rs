//! Namespaces that games were not let into.

use berth_api::fleet::Fleet;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::{eventually, install};
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT, template};

#[tokio::test]
async fn a_namespace_that_is_not_enabled_says_so_with_the_remedy() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let arena: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "arena"}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &arena).await.expect("a created namespace");
    let fleets = Api::<Fleet>::namespaced(cluster.client.clone(), "arena");
    let servers = Api::<GameServer>::namespaced(cluster.client.clone(), "arena");
    let fleet = json!({"metadata": {"name": "lobby"}, "spec": {"replicas": 1, "template": template("one")}});
    let fleet: Fleet = serde_json::from_value(fleet).expect("a Fleet");
    fleets.create(&PostParams::default(), &fleet).await.expect("a created Fleet");
    let lone = json!({"metadata": {"name": "lone"}, "spec": template("lone")["spec"]});
    let lone: GameServer = serde_json::from_value(lone).expect("a GameServer");
    servers.create(&PostParams::default(), &lone).await.expect("a created GameServer");

    let remedy = "kubectl apply --namespace arena -k manifests/game-namespace";
    let standing = async |status: &str| {
        let fleet = fleets.get("lobby").await.expect("the Fleet");
        let conditions = fleet.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_so = |one: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
            one.type_ == "NamespaceEnabled" && one.status == status
        };
        conditions.iter().find(is_so).map(|one| one.message.clone()).ok_or_else(|| format!("{conditions:?}"))
    };
    let said = eventually(LIMIT, "the Fleet to say so", async || standing("False").await).await;
    let said = said.expect("a condition");
    assert!(said.contains(remedy), "{said}");
    let events = Api::<Event>::namespaced(cluster.client.clone(), "arena");
    let told = eventually(LIMIT, "an Event at both", async || {
        let all = events.list(&ListParams::default()).await.expect("the Events").items;
        let of_reason =
            all.into_iter().filter(|event| event.reason.as_deref() == Some("NamespaceNotEnabled"));
        let told: Vec<Event> = of_reason.collect();
        let about = |kind: &str| told.iter().any(|event| event.involved_object.kind.as_deref() == Some(kind));
        if about("Fleet") && about("GameServer") { Ok(told) } else { Err(format!("{} Events", told.len())) }
    });
    let told = told.await.expect("Events");
    assert!(
        told.iter().all(|event| event.message.as_ref().is_some_and(|said| said.contains(remedy))),
        "{told:?}"
    );

    // Once it is enabled, all goes on by itself.
    install::enable_namespace(&cluster.client, "arena").await.expect("an enabled namespace");
    eventually(LIMIT, "the Fleet to say that it is enabled", async || standing("True").await)
        .await
        .expect("so");
    eventually(LIMIT, "servers on their way", async || {
        let servers = servers.list(&ListParams::default()).await.expect("the servers").items;
        let placed = servers
            .iter()
            .filter(|server| server.state() == Some(State::Creating) && server.node_name() == Some("n1"));
        let count = placed.count();
        if count == 2 { Ok(()) } else { Err(format!("{count} of {}", servers.len())) }
    })
    .await
    .expect("both handed over");
}
