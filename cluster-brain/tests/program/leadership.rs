//! Several brains, and brains that die.

use std::time::{Duration, Instant};

use berth_api::names::{BRAIN_LEASE, SYSTEM_NAMESPACE};
use berth_dev::{ControlPlane, ControlPlaneOptions, Daemon, Launch, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT};
use crate::truth::Truth;

/// Waits until somebody else than `not` leads, and gives who, and the number of changes so far.
pub(crate) async fn leader(cluster: &Cluster, not: &str) -> (String, i32) {
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), SYSTEM_NAMESPACE);
    eventually(LIMIT, format!("a leader other than {not:?}"), async || {
        let lease = leases.get(BRAIN_LEASE).await.map_err(|error| error.to_string())?;
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder.is_empty() || holder == not {
            return Err(format!("held by {holder:?}"));
        }
        Ok((holder, spec.lease_transitions.unwrap_or(0)))
    })
    .await
    .expect("a leader")
}

/// The brain that says in its log that it leads.
fn leading(brains: &[Daemon]) -> Vec<usize> {
    let leads = |brain: &Daemon| {
        let log = std::fs::read_to_string(brain.log()).unwrap_or_default();
        log.lines().any(|line| line.contains("leader::keeper: leading"))
    };
    (0..brains.len()).filter(|index| leads(&brains[*index])).collect()
}

#[tokio::test]
async fn one_of_two_leads_and_the_other_takes_over() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let brains = [cluster.brain("brain-a"), cluster.brain("brain-b")];
    let (first, _) = leader(&cluster, "").await;
    cluster.create_fleet("lobby", 5, json!({})).await;
    cluster.wait_for_ready("lobby", 5).await;
    let leaders = leading(&brains);
    assert_eq!(leaders.len(), 1, "one leads");
    let (leading, standby) = (&brains[leaders[0]], &brains[1 - leaders[0]]);

    // A clean stop gives the lease back.
    let stopped = leading.terminate(LIMIT).await.expect("an end");
    assert!(stopped.is_none_or(|status| status.success()), "{stopped:?}\n{}", leading.last_words());
    let given_back = Instant::now();
    let (second, _) = leader(&cluster, &first).await;
    assert!(given_back.elapsed() < Duration::from_secs(2), "at once: {:?}", given_back.elapsed());
    cluster.change_fleet("lobby", json!({ "replicas": 8 })).await;
    cluster.wait_for_ready("lobby", 8).await;

    // One that dies is waited for as long as its lease lasts.
    leading.start_again().expect("a brain again");
    standby.kill().await.expect("a dead brain");
    leader(&cluster, &second).await;
    cluster.change_fleet("lobby", json!({ "replicas": 3 })).await;
    cluster.wait_for_ready("lobby", 3).await;
}

#[tokio::test]
async fn a_brain_that_is_killed_again_and_again_makes_not_one_too_many() {
    let cluster = Cluster::start().await;
    let _agents =
        [cluster.agent("n1", Manner::default()).await, cluster.agent("n2", Manner::default()).await];
    let brain = cluster.brain("brain");
    let truth = Truth::watch(&cluster);
    let (mut holder, _) = leader(&cluster, "").await;
    cluster.create_fleet("lobby", 300, json!({})).await;
    for count in [20, 90, 170, 260] {
        eventually(LIMIT, format!("{count} servers"), async || {
            let ever = truth.seen().ever.len();
            if ever >= count { Ok(()) } else { Err(format!("{ever} servers")) }
        })
        .await
        .expect("servers on their way");
        brain.restart().await.expect("a brain killed and started");
        (holder, _) = leader(&cluster, &holder).await;
    }
    cluster.wait_for_ready("lobby", 300).await;
    assert_eq!(truth.seen().ever.len(), 300);
}

#[tokio::test]
async fn an_api_server_that_falls_silent_gets_not_one_too_many() {
    let cluster = Cluster::start().await;
    let _agents =
        [cluster.agent("n1", Manner::default()).await, cluster.agent("n2", Manner::default()).await];
    let brain = cluster.brain("brain");
    let truth = Truth::watch(&cluster);
    leader(&cluster, "").await;
    cluster.create_fleet("lobby", 200, json!({})).await;
    for (turn, count) in [30, 120].into_iter().enumerate() {
        eventually(LIMIT, format!("{count} servers"), async || {
            let ever = truth.seen().ever.len();
            if ever >= count { Ok(()) } else { Err(format!("{ever} servers")) }
        })
        .await
        .expect("servers on their way");
        assert!(cluster.plane.api_server().pause());
        eventually(LIMIT, "the brain to stop acting", async || {
            let log = std::fs::read_to_string(brain.log()).unwrap_or_default();
            let stops = log.lines().filter(|line| line.contains("not leading any more")).count();
            if stops > turn { Ok(()) } else { Err(log.lines().last().unwrap_or_default().to_owned()) }
        })
        .await
        .expect("a brain that does not act");
        assert!(cluster.plane.api_server().resume());
    }
    cluster.wait_for_ready("lobby", 200).await;
    assert_eq!(truth.seen().ever.len(), 200);
}

#[tokio::test]
async fn without_its_resources_a_brain_says_what_is_missing_and_ends() {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await.expect("a control plane");
    let kubeconfig = plane.kubeconfig_path().to_string_lossy().into_owned();
    let launch =
        Launch::new("brain", env!("CARGO_BIN_EXE_berth-brain")).arguments(["--kubeconfig", &kubeconfig]);
    let brain = Daemon::start(plane.instance(), launch).expect("a brain");
    let ended = brain.wait(LIMIT).await.expect("an end");
    assert_eq!(ended.and_then(|status| status.code()), Some(1));
    let said = brain.last_words();
    assert!(said.contains("resource definition fleets.agones.dev is missing"), "{said}");
}

/// A leader lease as another controller of these resources holds it.
async fn foreign_lease(cluster: &Cluster, seconds: i32) -> Api<Lease> {
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "default");
    let lease = json!({
        "metadata": {"name": "agones-controller-lock"},
        "spec": {
            "holderIdentity": "the-other-one",
            "leaseDurationSeconds": seconds,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    let lease: Lease = serde_json::from_value(lease).expect("a Lease");
    leases.create(&PostParams::default(), &lease).await.expect("a created Lease");
    leases
}

#[tokio::test]
async fn beside_another_controller_that_is_at_work_a_brain_does_not_start() {
    let cluster = Cluster::start().await;
    let leases = foreign_lease(&cluster, 60).await;
    let renewals = cluster.spawner.spawn_child("the other controller", async move {
        let mut beat = tokio::time::interval(Duration::from_millis(100));
        for second in 0.. {
            beat.tick().await;
            let time = format!("2026-01-01T00:{:02}:{:02}.000000Z", second / 60 % 60, second % 60);
            let change = Patch::Merge(json!({ "spec": { "renewTime": time } }));
            let _ = leases.patch("agones-controller-lock", &PatchParams::default(), &change).await;
        }
    });
    let brain = cluster.brain("brain");
    let ended = brain.wait(LIMIT).await.expect("an end");
    assert_eq!(ended.and_then(|status| status.code()), Some(1));
    let said = brain.last_words();
    assert!(said.contains("the-other-one renews lease default/agones-controller-lock"), "{said}");
    renewals.abort();
}

#[tokio::test]
async fn a_leader_lease_that_was_left_behind_keeps_no_brain_from_starting() {
    let cluster = Cluster::start().await;
    foreign_lease(&cluster, 1).await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 1, json!({})).await;
    cluster.wait_for_ready("lobby", 1).await;
}
