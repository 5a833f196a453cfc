//! Placing: servers that somebody created directly, that find no room, and that nodes hand back.

use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::eventually;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT, NAMESPACE};
use crate::truth::Truth;

/// The messages of the Events with this reason.
pub(crate) async fn told(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events = Api::<Event>::namespaced(cluster.client.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.expect("the Events").items;
    let of_reason = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    of_reason.filter_map(|event| event.message).collect()
}

#[tokio::test]
async fn a_directly_created_server_is_adopted_in_one_write() {
    let cluster = Cluster::start().await;
    let agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    let fields = json!({"counters": {"rooms": {"count": 2}}, "eviction": {"safe": "OnUpgrade"}});
    cluster.create_server("lone", json!({"mine": "1"}), fields).await;
    let server =
        cluster.wait_for_server("lone", "Ready", |server| server.state() == Some(State::Ready)).await;
    // Create, adoption, and the agent's two.
    assert_eq!(server.metadata.generation, Some(4));
    let status = server.status.clone().expect("a status");
    assert_eq!(json!(status.counters), json!({"rooms": {"count": 2, "capacity": 1000}}));
    assert_eq!(json!(status.eviction), json!({"safe": "OnUpgrade"}));
    assert_eq!(server.annotation("mine"), Some("1"));
    assert!(server.annotation(names::SDK_VERSION_ANNOTATION).is_some());
    let complaints = agent.complaints.lock().expect("the complaints").clone();
    assert!(complaints.is_empty(), "{complaints:?}");
    cluster.servers().delete("lone", &DeleteParams::default()).await.expect("a deletion");
    cluster.wait_until_gone("lone").await;
}

#[tokio::test]
async fn a_development_server_lives_and_dies_without_an_agent() {
    let cluster = Cluster::start().await;
    let _brain = cluster.brain("brain");
    let annotations = json!({names::DEV_ADDRESS_ANNOTATION: "192.168.1.7"});
    let ports = json!([{"name": "game", "portPolicy": "Static", "hostPort": 7009, "containerPort": 7000}]);
    for name in ["dev-one", "dev-two"] {
        cluster.create_server(name, annotations.clone(), json!({ "ports": ports })).await;
        let server =
            cluster.wait_for_server(name, "Ready", |server| server.state() == Some(State::Ready)).await;
        let status = server.status.expect("a status");
        assert_eq!((status.address.as_str(), status.node_name.as_str()), ("192.168.1.7", "192.168.1.7"));
        assert_eq!(json!(status.ports), json!([{"name": "game", "port": 7009}]));
    }
    let shutdown = Patch::Merge(json!({ "status": { "state": "Shutdown" } }));
    cluster.servers().patch("dev-one", &PatchParams::default(), &shutdown).await.expect("a shutdown");
    cluster.wait_until_gone("dev-one").await;
    cluster.servers().delete("dev-two", &DeleteParams::default()).await.expect("a deletion");
    cluster.wait_until_gone("dev-two").await;
}

#[tokio::test]
async fn what_finds_no_room_waits_says_why_and_goes_out_when_there_is_some() {
    let cluster = Cluster::start().await;
    let small = Manner { ports: 2, ..Manner::default() };
    let _small = cluster.agent("n1", small).await;
    let dedicated = json!({"spec": {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}});
    let _tainted = cluster.agent("n2", Manner { node: dedicated, ..Manner::default() }).await;
    let _brain = cluster.brain("brain");
    let truth = Truth::watch(&cluster);
    cluster.create_fleet("lobby", 4, json!({})).await;
    eventually(LIMIT, "two servers that wait, and say why", async || {
        let servers = cluster.all_servers().await;
        let waiting = servers.iter().filter(|server| server.node_name().is_none()).count();
        let said = told(&cluster, "NoRoom").await;
        let reason = "no node fits: 1 taint dedicated=x, 1 no free port in range default";
        let right = said.iter().filter(|message| *message == reason).count();
        if (servers.len(), waiting, right) == (4, 2, 2) {
            return Ok(());
        }
        Err(format!("{} servers, {waiting} waiting, said {said:?}", servers.len()))
    })
    .await
    .expect("waiting servers");
    // So does the set, and the Fleet.
    let said = "2 GameServers wait: no node fits: 1 taint dedicated=x, 1 no free port in range default";
    assert_eq!(cluster.fleet_says("lobby", "Placed", "False", said).await, said);

    // A waiting server can be deleted, and is replaced.
    let waiting = cluster.all_servers().await.into_iter().find(|server| server.node_name().is_none());
    let waiting = waiting.expect("a waiting server").name_any();
    cluster.servers().delete(&waiting, &DeleteParams::default()).await.expect("a deletion");
    cluster.wait_until_gone(&waiting).await;

    let _new = cluster.agent("n3", Manner::default()).await;
    cluster.wait_for_ready("lobby", 4).await;
    assert_eq!(truth.seen().ever.len(), 5);
    let placed = cluster.all_servers().await;
    let on = |node: &str| placed.iter().filter(|server| server.node_name() == Some(node)).count();
    assert_eq!((on("n1"), on("n2"), on("n3")), (2, 0, 2));
    cluster.fleet_condition("lobby", "Placed", "True").await;
}

#[tokio::test]
async fn a_server_that_is_handed_back_goes_elsewhere() {
    let cluster = Cluster::start().await;
    let _first = cluster.agent("n1", Manner { refuses: Some("no free port"), ..Manner::default() }).await;
    let _brain = cluster.brain("brain");
    cluster.create_server("lone", json!({}), json!({})).await;
    cluster
        .wait_for_server("lone", "told that it waits", |server| {
            let conditions = server.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|one| one.message == "no node fits: n1 said: no free port")
        })
        .await;
    let _second = cluster.agent("n2", Manner::default()).await;
    let server =
        cluster.wait_for_server("lone", "Ready", |server| server.state() == Some(State::Ready)).await;
    assert_eq!(server.node_name(), Some("n2"));
    assert!(server.annotation(names::RETURNED_ANNOTATION).is_some(), "it is remembered");
}

#[tokio::test]
async fn a_server_that_is_handed_back_twice_is_given_up() {
    let cluster = Cluster::start().await;
    let _agents = [
        cluster.agent("n1", Manner { refuses: Some("no free port"), ..Manner::default() }).await,
        cluster.agent("n2", Manner { refuses: Some("no free port"), ..Manner::default() }).await,
    ];
    let _brain = cluster.brain("brain");
    cluster.create_server("lone", json!({}), json!({})).await;
    let server =
        cluster.wait_for_server("lone", "in Error", |server| server.state() == Some(State::Error)).await;
    let reason = server.annotation(names::REASON_ANNOTATION).expect("a reason").to_owned();
    assert_eq!(reason, "HandedBack: handed back 2 times: n1 and n2 said: no free port");
    assert!(server.annotation(names::ERRORED_AT_ANNOTATION).is_some());

    // Of a set it is replaced by another.
    let truth = Truth::watch(&cluster);
    cluster.create_fleet("lobby", 1, json!({})).await;
    eventually(LIMIT, "a second server of the set", async || {
        let ever = truth.seen().ever.len();
        if ever >= 3 { Ok(()) } else { Err(format!("{ever} servers ever, the lone one included")) }
    })
    .await
    .expect("a replacement");
    let most = truth.seen().most;
    assert!(most.values().all(|most| *most <= 1), "{most:?}");
}

#[tokio::test]
async fn a_server_of_a_node_that_is_gone_is_let_go() {
    let cluster = Cluster::start().await;
    let agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    cluster.create_server("lone", json!({}), json!({})).await;
    cluster.wait_for_server("lone", "Ready", |server| server.state() == Some(State::Ready)).await;
    cluster.remove_node(agent).await;
    cluster.servers().delete("lone", &DeleteParams::default()).await.expect("a deletion");
    cluster.wait_until_gone("lone").await;
}

#[tokio::test]
async fn a_port_that_is_taken_on_every_node_is_said_by_name() {
    let cluster = Cluster::start().await;
    let _agents =
        [cluster.agent("node-a", Manner::default()).await, cluster.agent("node-b", Manner::default()).await];
    let _brain = cluster.brain("brain");
    let port = |policy: &str| {
        let port = json!({"name": "game", "portPolicy": policy, "hostPort": 7777, "containerPort": 7000});
        json!({ "ports": [port] })
    };
    for name in ["one", "two"] {
        cluster.create_server(name, json!({}), port("Static")).await;
        cluster.wait_for_server(name, "Ready", |server| server.state() == Some(State::Ready)).await;
    }
    let servers = cluster.all_servers().await;
    let nodes: std::collections::BTreeSet<_> = servers.iter().filter_map(|one| one.node_name()).collect();
    assert_eq!(nodes.len(), 2, "taken on one node, it lands on the other");
    cluster.create_server("three", json!({}), port("Static")).await;
    let said = "no node fits: port 7777/UDP is taken on node-a and node-b";
    let waiting = cluster.wait_for_server("three", "told why it waits", |server| {
        let conditions = server.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|one| one.type_ == "Placed" && one.status == "False" && one.message == said)
    });
    assert_eq!(waiting.await.node_name(), None);
    eventually(LIMIT, "an Event that says so", async || {
        let told = told(&cluster, "NoRoom").await;
        if told.iter().any(|message| message == said) { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .expect("an Event");
    // As soon as one of them goes, it is placed, and says so.
    cluster.servers().delete("one", &DeleteParams::default()).await.expect("a deletion");
    let placed =
        cluster.wait_for_server("three", "Ready", |server| server.state() == Some(State::Ready)).await;
    assert!(placed.node_name().is_some());
    let conditions = placed.status.and_then(|status| status.conditions).expect("conditions");
    assert_eq!((conditions[0].type_.as_str(), conditions[0].status.as_str()), ("Placed", "True"));
}
