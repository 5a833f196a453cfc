//! Larger runs, whose size is small in a test: a variable of the environment asks for more. What they measure is printed.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::{Duration, Instant};

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names::{LOST_ANNOTATION, SYSTEM_NAMESPACE};
use berth_dev::{ControlPlaneOptions, eventually};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use rand::Rng;
use serde_json::json;

use crate::agent::{Agent, Manner};
use crate::cluster::{Cluster, LIMIT, template};
use crate::fencing::allocate;
use crate::fleets::writes;
use crate::leadership::leader;
use crate::truth::Truth;

/// The number that a variable of the environment asks for, or that of a test.
fn asked<Number: FromStr>(variable: &str, in_test: Number) -> Number {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty());
    text.map_or(in_test, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}")))
}

async fn agents(cluster: &Cluster, count: usize) -> Vec<Agent> {
    let mut agents = Vec::new();
    for number in 1..=count {
        agents.push(cluster.agent(&format!("n{number}"), Manner::default()).await);
    }
    agents
}

fn is_version(server: &GameServer, version: &str) -> bool {
    server.labels().get("version").map(String::as_str) == Some(version)
}

/// A session of some length, which nobody but itself ends.
async fn play(cluster: &Cluster, session: &GameServer, length: Duration) {
    tokio::time::sleep(length).await;
    let name = session.name_any();
    let live = cluster.servers().get(&name).await.expect("a session");
    let is_whole = live.uid() == session.uid() && live.state() == Some(State::Allocated);
    assert!(is_whole && live.metadata.deletion_timestamp.is_none(), "{name} was cut: {:?}", live.status);
    let end = Patch::Merge(json!({ "status": { "state": "Shutdown" } }));
    cluster.servers().patch(&name, &PatchParams::default(), &end).await.expect("the end of a session");
}

#[tokio::test]
async fn a_large_update_cuts_no_session_and_ends_with_the_last() {
    let count: usize = asked("BERTH_UPDATE_SERVERS", 40);
    let longest: u64 = asked("BERTH_UPDATE_SESSION_MILLIS", 8_000);
    let wanted = i32::try_from(count).expect("a small number");
    let cluster = Cluster::start().await;
    let _agents = agents(&cluster, 4).await;
    let _brain = cluster.brain("brain");
    let truth = Truth::watch(&cluster);
    cluster.create_fleet("lobby", wanted, json!({})).await;
    cluster.wait_for_ready("lobby", count).await;
    let mut sessions = Vec::new();
    for server in cluster.all_servers().await.iter().take(count * 7 / 10) {
        sessions.push(allocate(&cluster, &server.name_any()).await);
    }
    let free = count - sessions.len();
    eventually(LIMIT, "the test to have seen all sessions begin", async || {
        let ready = truth.ready();
        if ready == free { Ok(()) } else { Err(format!("{ready} Ready")) }
    })
    .await
    .expect("all seen");
    truth.mind_the_fewest();
    let began = Instant::now();
    cluster.change_fleet("lobby", json!({ "template": template("two") })).await;
    let played = futures::stream::iter(&sessions).for_each_concurrent(None, |session| {
        let length = Duration::from_millis(rand::rng().random_range(0..=longest));
        play(&cluster, session, length)
    });
    played.await;
    let last_end = began.elapsed();
    eventually(LIMIT, "the new version alone", async || {
        let servers = cluster.all_servers().await;
        let new = servers.iter().filter(|one| is_version(one, "two") && one.state() == Some(State::Ready));
        let sets = cluster.sets().list(&ListParams::default()).await.expect("the sets").items.len();
        let seen = (servers.len(), new.count(), sets);
        if seen == (count, count, 1) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
    .expect("an update that ends");
    let seen = truth.seen();
    let fewest = seen.fewest_ready.expect("what was minded");
    println!(
        "{count} servers, {} sessions of up to {longest} ms: the last ended after {last_end:?}, the update after {:?}; \
         {fewest} could be allocated at least, {} were there at most",
        sessions.len(),
        began.elapsed(),
        seen.most_in_all
    );
    assert!(seen.most_in_all <= count + count.div_ceil(4), "{} at a time", seen.most_in_all);
    // A quarter may be unavailable, where sessions count as available.
    let limit = (count - count / 4).saturating_sub(sessions.len());
    assert!(fewest >= limit, "{fewest} could be allocated, {limit} allowed");
}

/// When the lease of a node ends, as its agent renewed it last.
async fn end_of_lease(cluster: &Cluster, node: &str) -> Timestamp {
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), SYSTEM_NAMESPACE);
    let spec = leases.get(node).await.expect("the lease").spec.expect("a spec");
    let renewed = spec.renew_time.expect("a renewal").0;
    let seconds = i64::from(spec.lease_duration_seconds.expect("a duration"));
    renewed.checked_add(jiff::SignedDuration::from_secs(seconds)).expect("a time")
}

#[tokio::test]
async fn a_node_that_dies_full_is_made_up_for_and_its_sessions_stay_until_it_is_gone() {
    const SERVERS: usize = 20;
    const SESSIONS: usize = 5;
    let cluster = Cluster::start().await;
    let mut agents = agents(&cluster, 1).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 20, json!({})).await;
    cluster.wait_for_ready("lobby", SERVERS).await;
    for name in ["n2", "n3", "n4"] {
        agents.push(cluster.agent(name, Manner::default()).await);
    }
    let mut sessions = Vec::new();
    for server in cluster.all_servers().await.iter().take(SESSIONS) {
        assert_eq!(server.node_name(), Some("n1"));
        sessions.push(allocate(&cluster, &server.name_any()).await);
    }
    let ids: BTreeSet<_> = sessions.iter().map(|session| session.uid()).collect();
    agents[0].fall_silent();
    let lapse = end_of_lease(&cluster, "n1").await;
    let census = async || {
        let servers = cluster.all_servers().await;
        let elsewhere = servers.iter().filter(|one| one.node_name().is_some_and(|node| node != "n1")).count();
        let kept = |one: &&GameServer| ids.contains(&one.uid()) && one.state() == Some(State::Allocated);
        let lost = servers.iter().filter(|one| one.annotation(LOST_ANNOTATION).is_some()).count();
        (elsewhere, servers.iter().filter(kept).count(), lost)
    };
    let replaced = (SERVERS - SESSIONS, SESSIONS, SERVERS - SESSIONS);
    let wait = async |what: &str, wanted: (usize, usize, usize)| {
        eventually(LIMIT, what, async || {
            let seen = census().await;
            if seen == wanted { Ok(()) } else { Err(format!("elsewhere, kept, lost: {seen:?}")) }
        })
        .await
        .expect("the servers as asked");
    };
    wait("the Ready ones replaced", replaced).await;
    println!(
        "{} replacements written {:#} after the lapse",
        replaced.0,
        Timestamp::now().duration_since(lapse)
    );
    // Nothing new goes there.
    cluster.change_fleet("lobby", json!({ "replicas": SERVERS + 4 })).await;
    wait("four more elsewhere", (replaced.0 + 4, SESSIONS, replaced.2)).await;

    let dead = agents.remove(0);
    cluster.remove_node(dead).await;
    eventually(LIMIT, "all of them elsewhere, and nothing left of the node", async || {
        let servers = cluster.all_servers().await;
        let ready = |one: &&GameServer| one.state() == Some(State::Ready) && one.node_name() != Some("n1");
        let seen = (servers.len(), servers.iter().filter(ready).count());
        if seen == (SERVERS + 4, SERVERS + 4) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
    .expect("a Fleet made whole");
}

#[tokio::test]
async fn brains_that_are_killed_under_load_lose_nothing_and_make_nothing_twice() {
    const SIZES: [usize; 2] = [60, 30];
    let kills: usize = asked("BERTH_BRAIN_KILLS", 10);
    let cluster = Cluster::start().await;
    let _agents = agents(&cluster, 3).await;
    let brains = [cluster.brain("brain-a"), cluster.brain("brain-b")];
    let truth = Truth::watch(&cluster);
    let (mut holder, _) = leader(&cluster, "").await;
    cluster.create_fleet("lobby", 30, json!({})).await;
    cluster.wait_for_ready("lobby", 30).await;
    let mut sessions = Vec::new();
    for server in cluster.all_servers().await.iter().take(5) {
        sessions.push(allocate(&cluster, &server.name_any()).await);
    }
    let mut gaps = Vec::new();
    for turn in 0..kills {
        // Whoever leads is in the middle of it.
        cluster.change_fleet("lobby", json!({ "replicas": SIZES[turn % SIZES.len()] })).await;
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(0..600))).await;
        let leads = brains.iter().position(|brain| {
            let log = std::fs::read_to_string(brain.log()).unwrap_or_default();
            log.contains(&holder)
        });
        let leading = &brains[leads.expect("the log of the leader")];
        leading.kill().await.expect("a dead brain");
        let killed = Instant::now();
        (holder, _) = leader(&cluster, &holder).await;
        gaps.push(killed.elapsed());
        leading.start_again().expect("a brain again");
    }
    cluster.change_fleet("lobby", json!({ "replicas": SIZES[0] })).await;
    eventually(LIMIT, "every server there, and the Fleet to know", async || {
        let servers = cluster.all_servers().await;
        let ready = servers.iter().filter(|one| one.state() == Some(State::Ready)).count();
        let seen = (servers.len(), ready);
        if seen == (SIZES[0], SIZES[0] - sessions.len()) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await
    .expect("the right number of servers");
    gaps.sort_unstable();
    let (middle, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    println!("{kills} leaders killed: the next led after {middle:?} in the middle, {longest:?} at most");
    assert_eq!(truth.seen().most.values().copied().max(), Some(SIZES[0]), "never one too many");
    for session in &sessions {
        let kept = cluster.servers().get(&session.name_any()).await.expect("the session");
        assert_eq!((kept.uid(), kept.state()), (session.uid(), Some(State::Allocated)));
    }
}

#[tokio::test]
async fn many_servers_at_rest_cost_nothing_but_leases() {
    let count: i32 = asked("BERTH_REST_SERVERS", 500);
    let rest = Duration::from_secs(asked("BERTH_REST_SECONDS", 30));
    let options = ControlPlaneOptions { audit: true, ..ControlPlaneOptions::default() };
    let cluster = Cluster::start_with(options).await;
    let _agents = agents(&cluster, 10).await;
    let _brain = cluster.brain("brain");
    let began = Instant::now();
    cluster.create_fleet("lobby", count, json!({ "scheduling": "Distributed" })).await;
    eventually(LIMIT * 3, format!("{count} Ready servers"), async || {
        let status = cluster.fleets().get("lobby").await.map_err(|error| error.to_string())?.status;
        let ready = status.map(|status| status.ready_replicas);
        if ready == Some(count) { Ok(()) } else { Err(format!("{ready:?} Ready")) }
    })
    .await
    .expect("a Fleet");
    println!("{count} servers Ready after {:?}", began.elapsed());
    let path = cluster.plane.audit_log().expect("an audit log").to_owned();
    let written = || writes(&std::fs::read_to_string(&path).expect("the log"));
    // The last Events are written a moment after what they tell of.
    let settled = std::cell::RefCell::new(0);
    eventually(LIMIT, "the last writes", async || {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = settled.replace(written().len());
        if before == *settled.borrow() { Ok(()) } else { Err(format!("{before} and more")) }
    })
    .await
    .expect("an end of the writes");
    let before = written();
    // Nothing is to happen, so there is nothing else to wait for.
    tokio::time::sleep(rest).await;
    let after = written();
    assert!(before.len() >= usize::try_from(count).expect("a number"), "the log knows the brain");
    assert_eq!(after.len(), before.len(), "written at rest: {:?}", &after[before.len()..]);
    println!("{count} servers at rest for {rest:?}: no write but of leases");
}
