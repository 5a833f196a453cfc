//! Nodes whose agents fall silent, and nodes that are gone.

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names::LOST_ANNOTATION;
use berth_dev::eventually;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::agent::{Agent, Manner};
use crate::cluster::{Cluster, LIMIT, NAMESPACE};
use crate::placement::told;

/// Makes a server a session.
pub(crate) async fn allocate(cluster: &Cluster, name: &str) -> GameServer {
    let allocated = Patch::Merge(json!({ "status": { "state": "Allocated" } }));
    cluster.servers().patch(name, &PatchParams::default(), &allocated).await.expect("an allocated server")
}

/// A Fleet of six on three nodes, with a session on n1.
async fn fleet_with_a_session(cluster: &Cluster) -> (Vec<Agent>, GameServer) {
    let mut agents = Vec::new();
    for name in ["n1", "n2", "n3"] {
        agents.push(cluster.agent(name, Manner::default()).await);
    }
    cluster.create_fleet("lobby", 6, json!({ "scheduling": "Distributed" })).await;
    cluster.wait_for_ready("lobby", 6).await;
    // A node is offered once its lease was seen renewed: the first servers may have been placed before that.
    for _ in 0..5 {
        if on_each_node(cluster).await == [2, 2, 2] {
            break;
        }
        cluster.change_fleet("lobby", json!({ "replicas": 0 })).await;
        cluster.wait_for_ready("lobby", 0).await;
        cluster.change_fleet("lobby", json!({ "replicas": 6 })).await;
        cluster.wait_for_ready("lobby", 6).await;
    }
    assert_eq!(on_each_node(cluster).await, [2, 2, 2]);
    let servers = cluster.all_servers().await;
    let on_first = servers.iter().find(|server| server.node_name() == Some("n1")).expect("a server on n1");
    let session = allocate(cluster, &on_first.name_any()).await;
    (agents, session)
}

/// How many servers each node has.
async fn on_each_node(cluster: &Cluster) -> [usize; 3] {
    let servers = cluster.all_servers().await;
    ["n1", "n2", "n3"].map(|node| servers.iter().filter(|server| server.node_name() == Some(node)).count())
}

/// How many servers are Ready on other nodes than n1, how many were lost with n1, and how many there are.
async fn census(cluster: &Cluster) -> (usize, usize, usize) {
    let servers = cluster.all_servers().await;
    let ready =
        |server: &&GameServer| server.state() == Some(State::Ready) && server.node_name() != Some("n1");
    let lost = |server: &&GameServer| server.annotation(LOST_ANNOTATION).is_some();
    (servers.iter().filter(ready).count(), servers.iter().filter(lost).count(), servers.len())
}

async fn wait_for_census(cluster: &Cluster, what: &str, wanted: (usize, usize, usize)) {
    eventually(LIMIT, what, async || {
        let seen = census(cluster).await;
        if seen == wanted { Ok(()) } else { Err(format!("Ready, lost, all: {seen:?}")) }
    })
    .await
    .expect("the servers as asked");
}

#[tokio::test]
async fn a_silent_node_is_made_up_for_and_its_session_outlives_the_silence() {
    let cluster = Cluster::start().await;
    let _brain = cluster.brain("brain");
    let (agents, session) = fleet_with_a_session(&cluster).await;
    agents[0].fall_silent();
    wait_for_census(&cluster, "the Ready one of n1 replaced", (5, 1, 7)).await;
    let kept = cluster.servers().get(&session.name_any()).await.expect("the session");
    assert_eq!((kept.uid(), kept.state()), (session.uid(), Some(State::Allocated)));
    assert_eq!(kept.annotation(LOST_ANNOTATION), None);
    eventually(LIMIT, "the Fleet to count nobody who cannot be reached", async || {
        let fleet = cluster.fleets().get("lobby").await.expect("the Fleet").status.unwrap_or_default();
        let counted = (fleet.ready_replicas, fleet.allocated_replicas);
        if counted == (5, 1) { Ok(()) } else { Err(format!("Ready and Allocated: {counted:?}")) }
    })
    .await
    .expect("the right counts");
    eventually(LIMIT, "the silence to be told", async || {
        let said = told(&cluster, "NodeSilent").await;
        let is_told = said.iter().any(|said| said.contains("the agent of n1 is silent"));
        if is_told { Ok(()) } else { Err(format!("{said:?}")) }
    })
    .await
    .expect("an Event");

    // On heal the surplus goes, and the session stays.
    agents[0].come_back();
    wait_for_census(&cluster, "the surplus gone", (5, 0, 6)).await;
    let kept = cluster.servers().get(&session.name_any()).await.expect("the session");
    assert_eq!((kept.uid(), kept.state()), (session.uid(), Some(State::Allocated)));
}

#[tokio::test]
async fn a_session_that_began_on_a_silent_node_is_kept_and_another_goes_for_it() {
    let cluster = Cluster::start().await;
    let _brain = cluster.brain("brain");
    let (agents, session) = fleet_with_a_session(&cluster).await;
    agents[0].fall_silent();
    wait_for_census(&cluster, "the Ready one of n1 replaced", (5, 1, 7)).await;
    let lost = cluster.all_servers().await.into_iter().find(|one| one.annotation(LOST_ANNOTATION).is_some());
    let second = allocate(&cluster, &lost.expect("a lost server").name_any()).await;
    agents[0].come_back();
    wait_for_census(&cluster, "two sessions, and one Ready server less", (4, 0, 6)).await;
    for one in [session, second] {
        let kept = cluster.servers().get(&one.name_any()).await.expect("the session");
        assert_eq!((kept.uid(), kept.state()), (one.uid(), Some(State::Allocated)));
    }
}

/// A pod of a server, as an agent makes one.
async fn make_pod(cluster: &Cluster, server: &GameServer) -> Api<Pod> {
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), NAMESPACE);
    let pod = json!({
        "metadata": {
            "name": server.name_any(),
            "ownerReferences": [{
                "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": server.name_any(),
                "uid": server.metadata.uid, "controller": true,
            }],
        },
        "spec": {
            "nodeName": server.node_name(),
            "automountServiceAccountToken": false,
            "containers": [{"name": "game", "image": "game:one"}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    pods.create(&PostParams::default(), &pod).await.expect("a created pod");
    pods
}

#[tokio::test]
async fn a_node_that_is_gone_takes_its_sessions_with_it_and_leaves_nothing() {
    let cluster = Cluster::start().await;
    let _brain = cluster.brain("brain");
    let (mut agents, session) = fleet_with_a_session(&cluster).await;
    let pods = make_pod(&cluster, &session).await;
    cluster.remove_node(agents.remove(0)).await;
    wait_for_census(&cluster, "six Ready servers elsewhere and no other", (6, 0, 6)).await;
    cluster.wait_until_gone(&session.name_any()).await;
    let left = pods.get_opt(&session.name_any()).await.expect("an answer");
    assert!(left.is_none(), "its pod: {:?}", left.map(|pod| pod.metadata));
}

#[tokio::test]
async fn what_never_started_goes_elsewhere() {
    let cluster = Cluster::start().await;
    let first = cluster.agent("n1", Manner { is_stuck: true, ..Manner::default() }).await;
    let _brain = cluster.brain("brain");
    cluster.create_server("lone", json!({}), json!({})).await;
    cluster.create_fleet("lobby", 1, json!({})).await;
    let lone =
        cluster.wait_for_server("lone", "handed over", |server| server.node_name() == Some("n1")).await;
    let of_set = eventually(LIMIT, "a server of the Fleet", async || {
        let servers = cluster.all_servers().await;
        servers.into_iter().find(|one| one.name_any() != "lone").ok_or_else(|| "none".to_owned())
    });
    let of_set = of_set.await.expect("a server");
    let pods = make_pod(&cluster, &of_set).await;
    let _second = cluster.agent("n2", Manner::default()).await;
    first.fall_silent();
    // Without a pod it is the same server.
    let moved =
        cluster.wait_for_server("lone", "Ready on n2", |server| server.state() == Some(State::Ready)).await;
    assert_eq!((moved.node_name(), moved.uid()), (Some("n2"), lone.uid()));
    // With one it is another, and the pod that nobody started is gone.
    eventually(LIMIT, "another server of the Fleet", async || {
        let servers = cluster.all_servers().await;
        let other = servers.iter().find(|one| {
            one.name_any() != "lone"
                && one.name_any() != of_set.name_any()
                && one.state() == Some(State::Ready)
        });
        other.map(|_| ()).ok_or_else(|| format!("{} servers", servers.len()))
    })
    .await
    .expect("a replacement");
    let left = pods.get_opt(&of_set.name_any()).await.expect("an answer");
    assert!(left.is_none(), "{:?}", left.map(|pod| pod.metadata));
}

#[tokio::test]
async fn when_most_agents_fall_silent_nothing_is_taken_back_until_they_are_few() {
    let cluster = Cluster::start().await;
    let brain = cluster.brain("brain");
    let (agents, _session) = fleet_with_a_session(&cluster).await;
    agents[0].fall_silent();
    agents[1].fall_silent();
    eventually(LIMIT, "the brain to say that it holds", async || {
        let log = std::fs::read_to_string(brain.log()).unwrap_or_default();
        let held = ["n1", "n2"].iter().filter(|node| {
            log.lines().any(|line| {
                line.contains("too many agents fell silent together") && line.contains(&format!("\"{node}\""))
            })
        });
        let count = held.count();
        if count == 2 { Ok(()) } else { Err(format!("{count} nodes held")) }
    })
    .await
    .expect("nodes that are held");
    assert_eq!(census(&cluster).await, (4, 0, 6), "nothing was taken back");
    let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(cluster.client.clone(), "default");
    eventually(LIMIT, "Events at the GameNodes", async || {
        let all = events.list(&Default::default()).await.expect("the Events").items;
        let told = all.iter().filter(|event| event.reason.as_deref() == Some("NodesSilentTogether")).count();
        if told >= 2 { Ok(()) } else { Err(format!("{told} Events")) }
    })
    .await
    .expect("Events");
    // One comes back: the other is alone now.
    agents[1].come_back();
    wait_for_census(&cluster, "the Ready one of n1 replaced", (5, 1, 7)).await;
}

/// Changes what the control plane says of a node.
async fn change_node(cluster: &Cluster, name: &str, status: Value) {
    let nodes = Api::<Node>::all(cluster.client.clone());
    let change = Patch::Merge(json!({ "status": status }));
    nodes.patch_status(name, &PatchParams::default(), &change).await.expect("a changed Node");
}

#[tokio::test]
async fn a_session_is_given_up_when_its_node_booted_again_or_all_of_it_is_silent_for_too_long() {
    let cluster = Cluster::start().await;
    let _brain = cluster.brain_with("brain", &["--session-lost-after", "1s"]);
    let mut agents = Vec::new();
    for name in ["n1", "n2"] {
        agents.push(cluster.agent(name, Manner::default()).await);
    }
    for (name, status, reason) in [
        ("n1", json!({"nodeInfo": {"bootID": "another"}}), "NodeRebooted"),
        ("n2", json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}), "NodeSilent"),
    ] {
        let selector = json!({"template": {"spec": {
            "nodeName": null,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [name]}]}]}}},
            "containers": [{"name": "game", "image": "game:one"}],
        }}});
        cluster.create_server(name, json!({}), selector).await;
        cluster.wait_for_server(name, "Ready", |server| server.state() == Some(State::Ready)).await;
        allocate(&cluster, name).await;
        let index = if name == "n1" { 0 } else { 1 };
        agents[index].fall_silent();
        change_node(&cluster, name, status).await;
        let ended = cluster
            .wait_for_server(name, "Unhealthy", |server| server.state() == Some(State::Unhealthy))
            .await;
        let said = ended.annotation(berth_api::names::REASON_ANNOTATION).expect("a reason");
        assert!(said.starts_with(reason), "{said}");
        agents[index].come_back();
        let nodes = Api::<Node>::all(cluster.client.clone());
        nodes.get(name).await.expect("the Node is still there");
    }
    for name in ["n1", "n2"] {
        cluster.servers().delete(name, &DeleteParams::default()).await.expect("a deletion");
        cluster.wait_until_gone(name).await;
    }
}
