//! Room: servers that no node takes ask for it by placeholders, and come where a real scheduler puts those.

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::{ControlPlaneOptions, eventually};
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use serde_json::{Value, json};

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT, NAMESPACE, template};

async fn cluster() -> Cluster {
    Cluster::start_with(ControlPlaneOptions { scheduler: true, ..ControlPlaneOptions::default() }).await
}

fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

async fn placeholders(cluster: &Cluster) -> Vec<Pod> {
    let ours = ListParams::default().labels(names::PLACEHOLDER_LABEL);
    pods(cluster).list(&ours).await.expect("the placeholders").items
}

async fn wait_for_placeholders(cluster: &Cluster, count: usize) -> Vec<Pod> {
    eventually(LIMIT, format!("{count} placeholders"), async || {
        let found = placeholders(cluster).await;
        if found.len() == count { Ok(found) } else { Err(format!("{found:?}")) }
    })
    .await
    .expect("as many placeholders as asked")
}

/// A node that the scheduler knows, with its labels and this much processor time; played agents make no pods.
fn manner(name: &str, milli_cpu: i64, ports: i64) -> Manner {
    let amounts = json!({"cpu": format!("{milli_cpu}m"), "memory": "64Gi", "pods": "110"});
    let node = json!({
        "metadata": {"labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": amounts, "capacity": amounts},
    });
    Manner { milli_cpu, ports, node, ..Manner::default() }
}

/// As the scheduler sees a node that is full of game pods.
async fn fill(cluster: &Cluster, node: &str) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": format!("games-of-{node}")},
        "spec": {"nodeName": node, "containers": [
            {"name": "game", "image": "game", "resources": {"requests": {"cpu": "10m"}}},
        ]},
    }))
    .expect("a pod");
    pods(cluster).create(&PostParams::default(), &pod).await.expect("a created pod");
}

fn waits(server: &GameServer) -> bool {
    server.node_name().is_none() && server.state() == Some(State::Creating)
}

fn says(server: &GameServer, part: &str) -> bool {
    let conditions = server.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Placed" && one.message.contains(part))
}

async fn waiting(cluster: &Cluster) -> GameServer {
    let found = cluster.all_servers().await.into_iter().find(waits);
    found.expect("a server that waits")
}

#[tokio::test]
async fn a_server_without_room_asks_for_it_and_comes_where_it_is_made() {
    let cluster = cluster().await;
    // Room for one, and none in the scheduler's eyes.
    let first = manner("n1", 15, 100);
    let _first = cluster.agent("n1", first).await;
    fill(&cluster, "n1").await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 2, json!({})).await;
    let asked = wait_for_placeholders(&cluster, 1).await.remove(0);
    let server = waiting(&cluster).await;
    let owners: Vec<_> = asked.owner_references().iter().map(|owner| owner.uid.clone()).collect();
    assert_eq!(owners, [server.uid().expect("a UID")]);
    let spec = asked.spec.clone().expect("a spec");
    let requests = json!(spec.containers[0].resources)["requests"].clone();
    assert_eq!(requests, json!({"cpu": "10m", "memory": "16777216"}), "what its server asks for");
    assert_eq!((spec.priority, spec.termination_grace_period_seconds), (Some(0), Some(0)));
    let said = "1 GameServer waits: no node fits: 1 not enough cpu";
    assert_eq!(cluster.fleet_says("lobby", "Placed", "False", said).await, said);

    // Somebody brings a node; its agent takes a while.
    let second = manner("n2", 15, 100);
    let node = cluster.node("n2", &second).await;
    let name = server.name_any();
    let part = "there is room on n2, whose agent does not take it yet";
    cluster.wait_for_server(&name, "told of the room", |server| says(server, part)).await;
    let _second = cluster.agent_on(&node, second).await;
    let placed = cluster.wait_for_server(&name, "Ready", |one| one.state() == Some(State::Ready)).await;
    assert_eq!(placed.node_name(), Some("n2"));
    wait_for_placeholders(&cluster, 0).await;
    fill(&cluster, "n2").await;
    cluster.wait_for_ready("lobby", 2).await;
    cluster.fleet_condition("lobby", "Placed", "True").await;

    // One that is wanted no more takes its placeholder with it, and one whose placeholder is lost asks again.
    cluster.change_fleet("lobby", json!({ "replicas": 3 })).await;
    let lost = wait_for_placeholders(&cluster, 1).await.remove(0);
    pods(&cluster).delete(&lost.name_any(), &DeleteParams::default()).await.expect("a lost placeholder");
    eventually(LIMIT, "another placeholder", async || {
        let found = placeholders(&cluster).await;
        let is_new = found.len() == 1 && found[0].uid() != lost.uid();
        if is_new { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await
    .expect("another placeholder");
    cluster.change_fleet("lobby", json!({ "replicas": 2 })).await;
    wait_for_placeholders(&cluster, 0).await;
    cluster.wait_for_ready("lobby", 2).await;
}

#[tokio::test]
async fn a_placeholder_keeps_away_from_nodes_that_lack_what_the_scheduler_does_not_know() {
    let cluster = cluster().await;
    let _first = cluster.agent("n1", manner("n1", 4000, 1)).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 2, json!({})).await;
    let asked = wait_for_placeholders(&cluster, 1).await.remove(0);
    let terms = json!(asked.spec)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"]
        .clone();
    let apart = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]});
    assert_eq!(terms[0]["matchExpressions"], json!([apart]));
    let _second = cluster.agent("n2", manner("n2", 4000, 1)).await;
    cluster.wait_for_ready("lobby", 2).await;
    wait_for_placeholders(&cluster, 0).await;
}

/// The template, whose pod has these fields too.
fn asking(fields: &Value) -> Value {
    let mut template = template("one");
    for (field, value) in fields.as_object().expect("an object") {
        template["spec"]["template"]["spec"][field] = value.clone();
    }
    template
}

#[tokio::test]
async fn what_only_the_scheduler_understands_is_left_to_it() {
    let cluster = cluster().await;
    let _first = cluster.agent("n1", manner("n1", 4000, 100)).await;
    let _second = cluster.agent("n2", manner("n2", 4000, 100)).await;
    let buddy: Pod = serde_json::from_value(json!({
        "metadata": {"name": "buddy", "labels": {"app": "voice"}},
        "spec": {"nodeName": "n2", "containers": [{"name": "voice", "image": "voice"}]},
    }))
    .expect("a pod");
    pods(&cluster).create(&PostParams::default(), &buddy).await.expect("a created pod");
    let _brain = cluster.brain("brain");

    // Beside that pod, though the brain would take the first node.
    let beside = json!([{"labelSelector": {"matchLabels": {"app": "voice"}}, "topologyKey": "kubernetes.io/hostname"}]);
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": beside}});
    cluster.create_fleet("beside", 3, json!({ "template": asking(&json!({ "affinity": affinity })) })).await;
    cluster.wait_for_ready("beside", 3).await;
    let nodes: Vec<_> = cluster
        .all_servers()
        .await
        .iter()
        .filter_map(|server| server.node_name().map(str::to_owned))
        .collect();
    assert_eq!(nodes, ["n2", "n2", "n2"]);
    wait_for_placeholders(&cluster, 0).await;
    cluster.change_fleet("beside", json!({ "replicas": 0 })).await;
    cluster.wait_for_ready("beside", 0).await;

    // A scheduler of its own, whose word is binding.
    let other = asking(&json!({"schedulerName": "another"}));
    cluster.create_fleet("other", 1, json!({ "template": other })).await;
    let asked = wait_for_placeholders(&cluster, 1).await.remove(0);
    let name = waiting(&cluster).await.name_any();
    let part = "left to the scheduler for its scheduler another";
    cluster.wait_for_server(&name, "told who decides", |server| says(server, part)).await;
    let target =
        ObjectReference { kind: Some("Node".to_owned()), name: Some("n2".to_owned()), ..Default::default() };
    let metadata = ObjectMeta { name: asked.metadata.name.clone(), ..ObjectMeta::default() };
    let binding = Binding { metadata, target };
    let bound: Result<Value, _> = pods(&cluster)
        .create_subresource("binding", &asked.name_any(), &PostParams::default(), &binding)
        .await;
    bound.expect("a bound placeholder");
    let placed = cluster.wait_for_server(&name, "Ready", |one| one.state() == Some(State::Ready)).await;
    assert_eq!(placed.node_name(), Some("n2"));
    wait_for_placeholders(&cluster, 0).await;
}
