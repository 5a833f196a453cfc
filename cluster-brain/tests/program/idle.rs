//! Nodes that nobody needs: told so in answer to their question, and fetched back by a server that waits. The brain may die
//! at either.

use berth_api::game_node::GameNode;
use berth_api::lifecycle::State;
use berth_brain::Effect;
use berth_dev::eventually;
use berth_runtime::kill_point::{KillPoint, Side};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::agent::{Agent, Manner};
use crate::cluster::{Cluster, LIMIT};

/// A cluster of two nodes with room for two servers each, of which a Fleet has two.
async fn cluster() -> (Cluster, [Agent; 2]) {
    let cluster = Cluster::start().await;
    let manner = || Manner { milli_cpu: 25, ..Manner::default() };
    let agents = [cluster.agent("n1", manner()).await, cluster.agent("n2", manner()).await];
    for node in ["n1", "n2"] {
        say(&cluster, node, json!({"protection": "Protected", "releasesIdle": true})).await;
    }
    (cluster, agents)
}

fn game_nodes(cluster: &Cluster) -> Api<GameNode> {
    Api::all(cluster.client.clone())
}

async fn say(cluster: &Cluster, node: &str, status: Value) {
    let change = Patch::Merge(json!({ "status": status }));
    let said = game_nodes(cluster).patch_status(node, &PatchParams::default(), &change).await;
    said.expect("a GameNode that says so");
}

async fn word(cluster: &Cluster, node: &str) -> Option<String> {
    game_nodes(cluster).get(node).await.expect("a GameNode").spec.surplus
}

async fn wait_for_word(cluster: &Cluster, node: &str, expected: Option<&str>) {
    eventually(LIMIT, format!("{node} to be told {expected:?}"), async || {
        let word = word(cluster, node).await;
        if word.as_deref() == expected { Ok(()) } else { Err(format!("{word:?}")) }
    })
    .await
    .expect("a word");
}

async fn wait_for_ready_on(cluster: &Cluster, node: &str, count: usize) {
    eventually(LIMIT, format!("{count} Ready on {node}"), async || {
        let servers = cluster.all_servers().await;
        let there: Vec<_> = servers.iter().filter(|server| server.node_name() == Some(node)).collect();
        let is_so = there.len() == count && there.iter().all(|one| one.state() == Some(State::Ready));
        if is_so {
            Ok(())
        } else {
            Err(format!("{:?}", there.iter().map(|one| one.state()).collect::<Vec<_>>()))
        }
    })
    .await
    .expect("servers");
}

fn time(minute: u32) -> String {
    format!("2026-09-21T10:{minute:02}:00Z")
}

#[tokio::test]
async fn a_node_that_is_not_needed_is_told_so_and_fetched_back_for_a_server_that_waits() {
    let (cluster, _agents) = cluster().await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 2, json!({})).await;
    wait_for_ready_on(&cluster, "n1", 2).await;
    // Both ask. What is on the first has no room elsewhere once the second goes.
    say(&cluster, "n2", json!({"idleSince": time(1)})).await;
    say(&cluster, "n1", json!({"idleSince": time(1)})).await;
    wait_for_word(&cluster, "n2", Some(&time(1))).await;
    say(&cluster, "n2", json!({"phase": "Idle", "idleSince": null, "protection": "Registered"})).await;

    cluster.change_fleet("lobby", json!({ "replicas": 3 })).await;
    wait_for_word(&cluster, "n2", None).await;
    assert_eq!(word(&cluster, "n1").await, None, "it is needed all the time");
    say(&cluster, "n2", json!({"phase": "Starting"})).await;
    say(&cluster, "n2", json!({"phase": "Active", "protection": "Protected"})).await;
    wait_for_ready_on(&cluster, "n2", 1).await;

    // One server is on each, and either has room for both: the one that would be filled last goes.
    say(&cluster, "n1", json!({"idleSince": null})).await;
    cluster.change_fleet("lobby", json!({ "replicas": 2 })).await;
    wait_for_ready_on(&cluster, "n2", 0).await;
    say(&cluster, "n2", json!({"idleSince": time(2)})).await;
    wait_for_word(&cluster, "n2", Some(&time(2))).await;
    // Its agent is another by now, and counts from its own beginning.
    say(&cluster, "n2", json!({"idleSince": time(3)})).await;
    wait_for_word(&cluster, "n2", Some(&time(3))).await;
    // Somebody has closed it: the word means nothing any more.
    say(&cluster, "n2", json!({"phase": "Cordoned", "idleSince": null})).await;
    wait_for_word(&cluster, "n2", None).await;
}

#[tokio::test]
async fn a_node_with_servers_goes_when_they_have_room_elsewhere_and_they_are_made_there() {
    let (cluster, _agents) = cluster().await;
    let _brain = cluster.brain("brain");
    // So that one is on each.
    cluster.create_fleet("lobby", 2, json!({"scheduling": "Distributed"})).await;
    wait_for_ready_on(&cluster, "n1", 1).await;
    wait_for_ready_on(&cluster, "n2", 1).await;
    cluster.create_fleet("arena", 1, json!({})).await;
    wait_for_ready_on(&cluster, "n1", 2).await;
    say(&cluster, "n2", json!({"idleSince": time(1)})).await;
    // Whoever wants its servers spread keeps both nodes, until it wants none.
    cluster.change_fleet("lobby", json!({ "replicas": 0 })).await;
    wait_for_word(&cluster, "n2", Some(&time(1))).await;
    wait_for_ready_on(&cluster, "n1", 1).await;

    // The second is used after all; then the first may go, and its server with it.
    say(&cluster, "n2", json!({"idleSince": null})).await;
    wait_for_word(&cluster, "n2", None).await;
    say(&cluster, "n1", json!({"idleSince": time(2)})).await;
    wait_for_word(&cluster, "n1", Some(&time(2))).await;
    say(&cluster, "n1", json!({"phase": "Idle", "idleSince": null})).await;
    let there = cluster.all_servers().await.into_iter().find(|one| one.node_name() == Some("n1"));
    let name = there.and_then(|server| server.metadata.name).expect("its server");
    cluster.servers().delete(&name, &Default::default()).await.expect("withdrawn by the agent");
    wait_for_ready_on(&cluster, "n2", 1).await;
}

#[tokio::test]
async fn a_brain_that_dies_at_its_word_leaves_nothing_undone() {
    let (cluster, _agents) = cluster().await;
    let first = cluster.brain("first");
    cluster.create_fleet("lobby", 2, json!({})).await;
    wait_for_ready_on(&cluster, "n1", 2).await;
    first.terminate(LIMIT).await.expect("an end");
    let points = Effect::OF_IDLE.iter().flat_map(|effect| Side::ALL.map(|side| (*effect, side)));
    for (number, (effect, side)) in (1_u32..).zip(points) {
        let since = time(number);
        let point = KillPoint::new(effect, side);
        let dying = cluster.brain_dying_at(&format!("dying-{number}"), &point);
        say(&cluster, "n2", json!({"idleSince": since})).await;
        if effect == Effect::FetchBack {
            wait_for_word(&cluster, "n2", Some(&since)).await;
            say(&cluster, "n2", json!({"phase": "Idle", "idleSince": null})).await;
            cluster.change_fleet("lobby", json!({ "replicas": 3 })).await;
        }
        dying.wait(LIMIT).await.expect("a death").unwrap_or_else(|| panic!("{point} was not reached"));
        let next = cluster.brain(&format!("next-{number}"));
        if effect == Effect::FetchBack {
            wait_for_word(&cluster, "n2", None).await;
            say(&cluster, "n2", json!({"phase": "Active"})).await;
            wait_for_ready_on(&cluster, "n2", 1).await;
            cluster.change_fleet("lobby", json!({ "replicas": 2 })).await;
            wait_for_ready_on(&cluster, "n2", 0).await;
        } else {
            wait_for_word(&cluster, "n2", Some(&since)).await;
            say(&cluster, "n2", json!({"idleSince": null})).await;
            wait_for_word(&cluster, "n2", None).await;
        }
        next.terminate(LIMIT).await.expect("an end");
    }
}
