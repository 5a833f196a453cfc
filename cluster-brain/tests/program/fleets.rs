//! Fleets: right numbers, new templates, and silence at rest.

use berth_api::lifecycle::State;
use berth_dev::{ControlPlaneOptions, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT, NAMESPACE, template};
use crate::truth::Truth;

#[tokio::test]
async fn a_fleet_grows_and_shrinks_to_the_right_numbers() {
    let cluster = Cluster::start().await;
    let agents = [cluster.agent("n1", Manner::default()).await, cluster.agent("n2", Manner::default()).await];
    let _brain = cluster.brain("brain");
    let truth = Truth::watch(&cluster);
    cluster.create_fleet("lobby", 0, json!({})).await;
    for count in [20, 5, 20, 0] {
        cluster.change_fleet("lobby", json!({ "replicas": count })).await;
        cluster.wait_for_ready("lobby", count).await;
    }
    let seen = truth.seen();
    assert_eq!(seen.ever.len(), 35, "20, then 15 more, and not one too many");
    assert_eq!(seen.most.values().copied().max(), Some(20));
    assert_eq!(seen.born_without_node, 0, "placed in the write that creates");
    for agent in &agents {
        let complaints = agent.complaints.lock().expect("the complaints");
        assert!(complaints.is_empty(), "{complaints:?}");
    }
    let sets = cluster.sets().list(&ListParams::default()).await.expect("the sets").items;
    assert_eq!(sets.len(), 1);
    let set = &sets[0];
    let servers_of_set = set.labels().get(berth_api::names::FLEET_LABEL).map(String::as_str);
    assert_eq!(servers_of_set, Some("lobby"));

    let events = Api::<Event>::namespaced(cluster.client.clone(), NAMESPACE);
    eventually(LIMIT, "an Event for each batch", async || {
        let events = events.list(&ListParams::default()).await.expect("the Events").items;
        let count = |reason: &str| {
            let of_reason = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
            of_reason.count()
        };
        let counts = (count("CreatingGameServerSet"), count("SuccessfulCreate"), count("SuccessfulDelete"));
        // Two batches of each; a gap in leading, or a conflict, makes two of one.
        let is_right = counts.0 == 1 && (2..=6).contains(&counts.1) && (2..=6).contains(&counts.2);
        if is_right { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await
    .expect("one Event for a batch");
}

#[tokio::test]
async fn packed_fills_a_node_and_distributed_spreads() {
    let cluster = Cluster::start().await;
    let _agents =
        [cluster.agent("n1", Manner::default()).await, cluster.agent("n2", Manner::default()).await];
    let _brain = cluster.brain("brain");
    for (fleet, scheduling, nodes) in [("packed", "Packed", 1), ("spread", "Distributed", 2)] {
        cluster.create_fleet(fleet, 6, json!({ "scheduling": scheduling })).await;
        cluster.wait_for_ready(fleet, 6).await;
        let servers = cluster.all_servers().await;
        let used: std::collections::BTreeSet<_> = servers.iter().filter_map(|one| one.node_name()).collect();
        assert_eq!(used.len(), nodes, "{fleet}: {used:?}");
        cluster.change_fleet(fleet, json!({ "replicas": 0 })).await;
        cluster.wait_for_ready(fleet, 0).await;
    }
}

/// Waits until the Fleet has this many servers, all Ready, all of this version, in one set.
async fn wait_for_version(cluster: &Cluster, fleet: &str, version: &str, count: usize) {
    eventually(LIMIT, format!("{count} servers of version {version}"), async || {
        let servers = cluster.all_servers().await;
        let current = servers.iter().filter(|server| {
            server.labels().get("version").map(String::as_str) == Some(version)
                && server.state() == Some(State::Ready)
        });
        let sets = cluster.sets().list(&ListParams::default()).await.expect("the sets").items.len();
        let seen = (servers.len(), current.count(), sets);
        if seen == (count, count, 1) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
    .expect("the new version alone");
    cluster.wait_for_ready(fleet, count).await;
}

#[tokio::test]
async fn a_new_template_replaces_the_old_one_by_either_strategy() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 10, json!({ "strategy": { "type": "Recreate" } })).await;
    wait_for_version(&cluster, "lobby", "one", 10).await;
    cluster.change_fleet("lobby", json!({ "template": template("two") })).await;
    wait_for_version(&cluster, "lobby", "two", 10).await;

    let truth = Truth::watch(&cluster);
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    cluster.change_fleet("lobby", json!({ "strategy": strategy, "template": template("three") })).await;
    wait_for_version(&cluster, "lobby", "three", 10).await;
    let most = truth.seen().most;
    assert!(most.values().all(|most| *most <= 10), "{most:?}");

    // The same again in other words is no new version.
    let before = cluster.sets().list(&ListParams::default()).await.expect("the sets").items.remove(0);
    let mut same = template("three");
    same["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("0.010");
    same["spec"]["template"]["spec"]["containers"][0]["env"] = json!([]);
    cluster.change_fleet("lobby", json!({ "template": same, "replicas": 11 })).await;
    wait_for_version(&cluster, "lobby", "three", 11).await;
    let after = cluster.sets().list(&ListParams::default()).await.expect("the sets").items.remove(0);
    assert_eq!(before.metadata.uid, after.metadata.uid);
}

#[tokio::test]
async fn a_session_is_never_ended_by_an_update_or_a_scale_down() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 4, json!({})).await;
    cluster.wait_for_ready("lobby", 4).await;
    let played = cluster.all_servers().await.remove(0).name_any();
    let state = |state: &str| Patch::Merge(json!({ "status": { "state": state } }));
    let allocate = cluster.servers().patch(&played, &PatchParams::default(), &state("Allocated")).await;
    let session = allocate.expect("an allocated server");
    cluster.change_fleet("lobby", json!({ "template": template("two") })).await;
    let others_are_new = async || {
        let servers = cluster.all_servers().await;
        let new = servers.iter().filter(|one| one.labels().get("version").map(String::as_str) == Some("two"));
        let seen = (servers.len(), new.count());
        if seen == (4, 3) { Ok(()) } else { Err(format!("{seen:?}")) }
    };
    eventually(LIMIT, "three new servers beside the session", others_are_new).await.expect("an update");
    cluster.change_fleet("lobby", json!({ "replicas": 0 })).await;
    eventually(LIMIT, "the session alone", async || {
        let servers = cluster.all_servers().await;
        if servers.len() == 1 { Ok(()) } else { Err(format!("{} servers", servers.len())) }
    })
    .await
    .expect("only the session left");
    let left = cluster.all_servers().await.remove(0);
    assert_eq!((left.metadata.uid, left.metadata.deletion_timestamp), (session.metadata.uid, None));
    // Once it ends, nothing is left, and so neither is its set.
    let end = cluster.servers().patch(&played, &PatchParams::default(), &state("Shutdown")).await;
    end.expect("a session at its end");
    wait_for_version(&cluster, "lobby", "two", 0).await;
}

/// Writes of brains in the audit log, leases left out.
pub(crate) fn writes(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_brain = lines.filter(|line| {
        let agent = line["userAgent"].as_str().unwrap_or_default();
        agent.starts_with("berth-brain") && line["objectRef"]["resource"] != "leases"
    });
    let told = |line: Value| format!("{} {}", line["verb"], line["objectRef"]);
    of_brain.map(told).collect()
}

#[tokio::test]
async fn at_rest_nothing_but_the_leader_lease_is_written() {
    let options = ControlPlaneOptions { audit: true, ..ControlPlaneOptions::default() };
    let cluster = Cluster::start_with(options).await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 10, json!({})).await;
    cluster.wait_for_ready("lobby", 10).await;

    let leases = Api::<Lease>::namespaced(cluster.client.clone(), berth_api::names::SYSTEM_NAMESPACE);
    let renewals = async |count: usize| {
        let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
        eventually(LIMIT, format!("{count} renewals of the leader lease"), async || {
            let lease = leases.get(berth_api::names::BRAIN_LEASE).await.expect("the leader lease");
            let mut seen = seen.lock().expect("the versions seen");
            seen.insert(lease.metadata.resource_version);
            if seen.len() > count { Ok(()) } else { Err(format!("{} renewals", seen.len())) }
        })
        .await
        .expect("renewals");
    };
    let log = || std::fs::read_to_string(cluster.plane.audit_log().expect("an audit log")).expect("the log");
    renewals(4).await;
    let before = writes(&log());
    let creates =
        before.iter().filter(|write| write.contains("\"create\"") && write.contains("\"gameservers\""));
    assert_eq!(creates.count(), 10, "the log knows the brain: {before:?}");
    let changes =
        before.iter().filter(|write| write.contains("\"patch\"") && write.contains("\"gameservers\""));
    assert_eq!(changes.count(), 0, "one write per server: {before:?}");
    renewals(10).await;
    let after = writes(&log());
    assert_eq!(after.len(), before.len(), "written at rest: {:?}", &after[before.len()..]);
}
