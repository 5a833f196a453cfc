//! Rolling updates, with every event of every server looked at; and builds that cannot start.

use std::sync::atomic::Ordering;

use berth_api::lifecycle::State;
use berth_dev::eventually;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT, template};
use crate::placement::told;
use crate::truth::Truth;

#[tokio::test]
async fn a_new_image_never_leaves_fewer_servers_than_allowed_and_nothing_behind() {
    let cluster = Cluster::start().await;
    let _agents =
        [cluster.agent("n1", Manner::default()).await, cluster.agent("n2", Manner::default()).await];
    let _brain = cluster.brain("brain");
    let truth = Truth::watch(&cluster);
    cluster.create_fleet("lobby", 20, json!({})).await;
    cluster.wait_for_ready("lobby", 20).await;
    eventually(LIMIT, "the test to have seen all 20", async || {
        let most = truth.seen().most_in_all;
        if most == 20 { Ok(()) } else { Err(format!("{most}")) }
    })
    .await
    .expect("all seen");
    truth.mind_the_fewest();
    cluster.change_fleet("lobby", json!({ "template": template("two") })).await;
    eventually(LIMIT, "20 Ready servers of the new image and one set", async || {
        let servers = cluster.all_servers().await;
        let new = servers.iter().filter(|server| {
            server.labels().get("version").map(String::as_str) == Some("two")
                && server.state() == Some(State::Ready)
        });
        let sets = cluster.sets().list(&ListParams::default()).await.expect("the sets").items.len();
        let seen = (servers.len(), new.count(), sets);
        if seen == (20, 20, 1) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
    .expect("an update that ends");
    cluster.wait_for_ready("lobby", 20).await;
    let seen = truth.seen();
    // A quarter of 20 may be unavailable, and as many may be there beside the 20.
    assert!(
        seen.fewest_ready.is_some_and(|fewest| fewest >= 15),
        "{:?} could be allocated",
        seen.fewest_ready
    );
    assert!(seen.most_in_all <= 25, "{} at a time", seen.most_in_all);
    assert_eq!(seen.ever.len(), 40, "each was replaced once");
}

#[tokio::test]
async fn a_build_that_cannot_start_backs_off_and_says_so() {
    let cluster = Cluster::start().await;
    let agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    agent.crashes.store(true, Ordering::Relaxed);
    cluster.create_fleet("lobby", 2, json!({})).await;
    let last = "last: Unhealthy, Failed: the game has ended";
    cluster.fleet_says("lobby", "Progressing", "False", last).await;
    eventually(LIMIT, "an Event", async || {
        let told = told(&cluster, "ServersFail").await;
        if told.is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await
    .expect("an Event");
    // The wait grows.
    eventually(LIMIT, "a longer wait", async || {
        let said = cluster.fleet_condition("lobby", "Progressing", "False").await;
        let wait = said.rsplit_once("wait for ").and_then(|(_, wait)| wait.strip_suffix('s'));
        let seconds = wait.and_then(|wait| wait.parse::<u64>().ok());
        if seconds.is_some_and(|seconds| seconds >= 8) { Ok(()) } else { Err(said) }
    })
    .await
    .expect("a longer wait");
    // A build that starts ends it.
    agent.crashes.store(false, Ordering::Relaxed);
    cluster.wait_for_ready("lobby", 2).await;
    cluster.fleet_condition("lobby", "Progressing", "True").await;
}

#[tokio::test]
async fn sessions_outlast_an_update_and_the_update_ends_with_the_last() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 10, json!({})).await;
    cluster.wait_for_ready("lobby", 10).await;
    let state = |state: &str| Patch::Merge(json!({ "status": { "state": state } }));
    let sessions: Vec<String> =
        cluster.all_servers().await.iter().take(7).map(|one| one.name_any()).collect();
    for name in &sessions {
        let allocated = cluster.servers().patch(name, &PatchParams::default(), &state("Allocated")).await;
        allocated.expect("an allocated server");
    }
    cluster.change_fleet("lobby", json!({ "template": template("two") })).await;
    let versions = async || {
        let servers = cluster.all_servers().await;
        let of = |version: &str| {
            servers
                .iter()
                .filter(|one| one.labels().get("version").map(String::as_str) == Some(version))
                .count()
        };
        (of("one"), of("two"))
    };
    eventually(LIMIT, "three new servers beside the seven sessions", async || {
        let seen = versions().await;
        if seen == (7, 3) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
    .expect("an update as far as sessions let it");
    for name in &sessions {
        let live = cluster.servers().get(name).await.expect("a session");
        assert_eq!(live.state(), Some(State::Allocated), "{name} was cut");
        cluster.servers().patch(name, &PatchParams::default(), &state("Shutdown")).await.expect("an end");
    }
    eventually(LIMIT, "the new version alone", async || {
        let sets = cluster.sets().list(&ListParams::default()).await.expect("the sets").items.len();
        let seen = (versions().await, sets);
        if seen == ((0, 10), 1) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
    .expect("an update that ends");
    cluster.wait_for_ready("lobby", 10).await;
}
