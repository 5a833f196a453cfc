//! Autoscalers: Fleets follow their policies, within limits that are named, and nothing is written where nothing changes.

use berth_api::conditions::Condition;
use berth_api::fleet_autoscaler::{FleetAutoscaler, FleetAutoscalerStatus, Policy};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::{ControlPlaneOptions, eventually};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::agent::Manner;
use crate::cluster::{Cluster, LIMIT, NAMESPACE, template};
use crate::fleets::writes;
use crate::oracle::{Answer, Oracle};
use crate::placement::told;
use crate::truth::Truth;

fn autoscalers(cluster: &Cluster) -> Api<FleetAutoscaler> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

/// One that looks every so many seconds.
async fn create(cluster: &Cluster, name: &str, fleet: &str, seconds: i32, policy: Value) {
    let autoscaler = json!({
        "metadata": {"name": name},
        "spec": {
            "fleetName": fleet,
            "policy": policy,
            "sync": {"type": "FixedInterval", "fixedInterval": {"seconds": seconds}},
        },
    });
    let autoscaler: FleetAutoscaler = serde_json::from_value(autoscaler).expect("an autoscaler");
    autoscalers(cluster).create(&PostParams::default(), &autoscaler).await.expect("a created autoscaler");
}

/// Gives it another policy; what the old one had goes.
async fn change(cluster: &Cluster, name: &str, policy: Value) {
    let policy: Policy = serde_json::from_value(policy).expect("a policy");
    eventually(LIMIT, format!("another policy for {name}"), async || {
        let mut found = autoscalers(cluster).get(name).await.map_err(|error| error.to_string())?;
        found.spec.policy = policy.clone();
        // A status that is written meanwhile makes it old.
        let replaced = autoscalers(cluster).replace(name, &PostParams::default(), &found).await;
        replaced.map(drop).map_err(|error| error.to_string())
    })
    .await
    .expect("a changed autoscaler");
}

async fn wait_for(
    cluster: &Cluster,
    name: &str,
    what: &str,
    is_so: impl Fn(&FleetAutoscalerStatus) -> bool,
) -> FleetAutoscalerStatus {
    eventually(LIMIT, format!("autoscaler {name}: {what}"), async || {
        let found = autoscalers(cluster).get(name).await.map_err(|error| error.to_string())?;
        let status = found.status.unwrap_or_default();
        if is_so(&status) { Ok(status) } else { Err(format!("{status:?}")) }
    })
    .await
    .expect("the status as asked")
}

fn condition<'a>(status: &'a FleetAutoscalerStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().flatten().find(|one| one.type_ == kind)
}

/// Waits until it cannot scale for this reason, and gives the message.
async fn wait_unable(cluster: &Cluster, name: &str, reason: &str) -> String {
    let is_so = |status: &FleetAutoscalerStatus| {
        !status.able_to_scale && condition(status, "AbleToScale").is_some_and(|one| one.reason == reason)
    };
    let status = wait_for(cluster, name, reason, is_so).await;
    assert_eq!((status.current_replicas, status.desired_replicas), (0, 0));
    assert_eq!(status.last_applied_policy, "");
    condition(&status, "AbleToScale").map(|one| one.message.clone()).unwrap_or_default()
}

async fn wait_for_size(cluster: &Cluster, fleet: &str, replicas: i32) {
    eventually(LIMIT, format!("{replicas} servers wanted by {fleet}"), async || {
        let found = cluster.fleets().get(fleet).await.map_err(|error| error.to_string())?;
        let wanted = found.spec.replicas();
        if wanted == replicas { Ok(()) } else { Err(format!("{wanted}, {:?}", found.status)) }
    })
    .await
    .expect("the size as asked");
}

async fn wait_until_told(cluster: &Cluster, reason: &str, message: &str) {
    eventually(LIMIT, format!("{reason}: {message}"), async || {
        let told = told(cluster, reason).await;
        if told.iter().any(|said| said.contains(message)) { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .expect("the Event");
}

/// Gives so many Ready servers a session.
async fn allocate(cluster: &Cluster, count: usize) {
    let servers = cluster.all_servers().await;
    let is_ready = |server: &&GameServer| server.state() == Some(State::Ready);
    let ready: Vec<_> = servers.iter().filter(is_ready).take(count).collect();
    assert_eq!(ready.len(), count, "enough Ready servers");
    for server in ready {
        set_state(cluster, &server.name_any(), "Allocated").await;
    }
}

async fn set_state(cluster: &Cluster, name: &str, state: &str) {
    let change = Patch::Merge(json!({"status": {"state": state}}));
    cluster.servers().patch(name, &PatchParams::default(), &change).await.expect("a changed server");
}

fn buffer(size: i32, least: i32, most: i32) -> Value {
    let object = json!({"bufferSize": size, "minReplicas": least, "maxReplicas": most});
    json!({"type": "Buffer", "buffer": object})
}

#[tokio::test]
async fn a_buffer_follows_the_sessions_and_names_the_limit_that_bites() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    cluster.create_fleet("lobby", 0, json!({})).await;
    create(&cluster, "lobby", "lobby", 1, buffer(2, 2, 5)).await;
    cluster.wait_for_ready("lobby", 2).await;
    wait_until_told(&cluster, "AutoScalingFleet", "scaled Fleet lobby from 0 to 2").await;

    allocate(&cluster, 1).await;
    wait_for_size(&cluster, "lobby", 3).await;
    let free = wait_for(&cluster, "lobby", "3 of its own will", |status| status.desired_replicas == 3).await;
    assert!(free.able_to_scale && !free.scaling_limited && free.last_scale_time.is_some());
    assert_eq!((free.last_applied_policy.as_str(), free.conditions), ("Buffer", None));

    let two_are_free = async || {
        let said = cluster.fleets().get("lobby").await.map_err(|error| error.to_string())?.status;
        let ready = said.as_ref().map_or(0, |status| status.ready_replicas);
        if ready >= 2 { Ok(()) } else { Err(format!("{said:?}")) }
    };
    eventually(LIMIT, "two free servers", two_are_free).await.expect("two free servers");
    allocate(&cluster, 2).await;
    wait_for_size(&cluster, "lobby", 5).await;
    eventually(LIMIT, "two free servers", two_are_free).await.expect("two free servers");
    allocate(&cluster, 1).await;
    // Six would be wanted.
    let limited = wait_for(&cluster, "lobby", "the limit", |status| status.scaling_limited).await;
    assert_eq!(limited.desired_replicas, 5);
    let said = condition(&limited, "WithinLimits").expect("a condition");
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "MaxReplicas"));
    wait_until_told(&cluster, "ScalingLimited", "5 servers, limited by maxReplicas, 5").await;

    for server in cluster.all_servers().await {
        if server.state() == Some(State::Allocated) {
            set_state(&cluster, &server.name_any(), "Shutdown").await;
        }
    }
    cluster.wait_for_ready("lobby", 2).await;
    let free = wait_for(&cluster, "lobby", "no limit", |status| !status.scaling_limited).await;
    assert_eq!(condition(&free, "WithinLimits").expect("a condition").status, "True");
    assert_eq!(told(&cluster, "ScalingLimited").await.len(), 1, "told once");
}

#[tokio::test]
async fn a_counter_keeps_room_free() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    let mut counted = template("one");
    counted["spec"]["counters"] = json!({"rooms": {"count": 0, "capacity": 10}});
    cluster.create_fleet("lobby", 1, json!({ "template": counted })).await;
    cluster.wait_for_ready("lobby", 1).await;
    let object = json!({"key": "rooms", "bufferSize": 25, "maxCapacity": 45});
    create(&cluster, "lobby", "lobby", 1, json!({"type": "Counter", "counter": object})).await;
    // 10 rooms are free, 25 shall be.
    cluster.wait_for_ready("lobby", 3).await;
    let fill = async || {
        let servers = cluster.all_servers().await;
        let free = servers.iter().find(|server| server.state() == Some(State::Ready)).expect("a free server");
        let full = json!({"status": {"state": "Allocated", "counters": {"rooms": {"count": 10}}}});
        let name = free.name_any();
        let filled = cluster.servers().patch(&name, &PatchParams::default(), &Patch::Merge(full)).await;
        filled.expect("a full server");
    };
    fill().await;
    wait_for(&cluster, "lobby", "four servers", |status| status.current_replicas == 4).await;
    fill().await;
    // 20 are free of 40, and another 10 would be more than 45.
    let limited = wait_for(&cluster, "lobby", "the limit", |status| status.scaling_limited).await;
    assert_eq!(limited.desired_replicas, 4);
    assert_eq!(condition(&limited, "WithinLimits").expect("a condition").reason, "MaxCapacity");
    wait_until_told(&cluster, "ScalingLimited", "4 servers, limited by maxCapacity, 45").await;
}

#[tokio::test]
async fn an_autoscaler_without_its_fleet_waits_and_chains_name_who_decides() {
    let cluster = Cluster::start().await;
    let _brain = cluster.brain("brain");
    // It would not look again before the test has failed.
    let over = json!({"end": "2026-01-01T00:00:00Z"});
    let entry = |schedule: Value| {
        let mut entry = json!({"id": "evening", "type": "Schedule", "schedule": schedule});
        entry["schedule"]["policy"] = buffer(5, 0, 9);
        let mut last = buffer(3, 0, 9);
        last["id"] = json!("default");
        json!({"type": "Chain", "chain": [entry, last]})
    };
    create(&cluster, "lobby", "lobby", 3600, entry(json!({"between": over}))).await;
    let message = wait_unable(&cluster, "lobby", "FleetMissing").await;
    assert_eq!(message, "there is no Fleet lobby in this namespace");
    wait_until_told(&cluster, "FailedGetFleet", "there is no Fleet lobby").await;

    cluster.create_fleet("lobby", 0, json!({})).await;
    wait_for_size(&cluster, "lobby", 3).await;
    let by = |name: &'static str| move |status: &FleetAutoscalerStatus| status.last_applied_policy == name;
    wait_for(&cluster, "lobby", "the last entry", by("Chain:default:Buffer")).await;
    wait_until_told(&cluster, "ChainPolicy", "Chain:default:Buffer decides").await;

    let always = json!({"timezone": "Australia/Sydney", "startCron": "* * * * *", "duration": "1h"});
    change(&cluster, "lobby", entry(json!({"activePeriod": always}))).await;
    wait_for_size(&cluster, "lobby", 5).await;
    wait_for(&cluster, "lobby", "the schedule", by("Chain:evening:Schedule")).await;

    let module = json!({"type": "Wasm", "wasm": {"from": {"url": {"url": "https://modules.example"}}}});
    change(&cluster, "lobby", module).await;
    let message = wait_unable(&cluster, "lobby", "NotSupported").await;
    assert!(message.contains("Wasm"), "{message}");
    let nowhere = json!({"startCron": "0 14 * * *", "timezone": "Mars/Olympus"});
    let schedule = json!({"activePeriod": nowhere, "policy": buffer(1, 0, 9)});
    change(&cluster, "lobby", json!({"type": "Schedule", "schedule": schedule})).await;
    let message = wait_unable(&cluster, "lobby", "InvalidPolicy").await;
    assert!(message.contains("there is no time zone \"Mars/Olympus\""), "{message}");
    wait_for_size(&cluster, "lobby", 5).await;
}

#[tokio::test]
async fn a_webhook_is_asked_over_https_and_a_fleet_at_rest_is_left_alone() {
    let options = ControlPlaneOptions { audit: true, ..ControlPlaneOptions::default() };
    let cluster = Cluster::start_with(options).await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let brain = cluster.brain("brain");
    let mut oracle = Oracle::start(&cluster, Answer::Scale(4)).await;
    let policy = |bundle: &k8s_openapi::ByteString| json!({"type": "Webhook", "webhook": {"url": oracle.url, "caBundle": bundle}});
    let (trusting, other) =
        (policy(&oracle.bundle), policy(&Oracle::start(&cluster, Answer::Fail).await.bundle));
    cluster.create_fleet("lobby", 1, json!({})).await;
    create(&cluster, "lobby", "lobby", 1, trusting.clone()).await;
    cluster.wait_for_ready("lobby", 4).await;
    wait_for(&cluster, "lobby", "the webhook's word", |status| {
        status.last_applied_policy == "Webhook" && status.current_replicas == 4
    })
    .await;

    let question = oracle.wait_for_questions(1).await;
    assert_eq!((question.method.as_str(), question.path.as_str()), ("POST", "/scale/fleets"));
    assert_eq!(question.content_type, "application/json");
    let request = &question.body["request"];
    assert_eq!((&request["name"], &request["namespace"]), (&json!("lobby"), &json!(NAMESPACE)));
    assert_eq!(request["status"]["replicas"], 4);
    assert!(request["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{request}");
    assert_eq!(question.body["response"], Value::Null);

    let log = || std::fs::read_to_string(cluster.plane.audit_log().expect("an audit log")).expect("the log");
    let of_scaling = |log: String| -> Vec<String> {
        let all = writes(&log).into_iter();
        all.filter(|write| !write.contains("\"gameservers\"") && !write.contains("\"events\"")).collect()
    };
    // Answers that change nothing: two that say the same, and two that say that nothing shall be done.
    oracle.wait_for_questions(2).await;
    let before = of_scaling(log());
    assert!(before.iter().any(|write| write.contains("\"fleetautoscalers\"")), "{before:?}");
    oracle.wait_for_questions(2).await;
    oracle.say(Answer::Keep);
    oracle.wait_for_questions(3).await;
    let after = of_scaling(log());
    assert_eq!(after.len(), before.len(), "written at rest: {:?}", &after[before.len()..]);
    assert_eq!(oracle.connections(), 1, "one connection for all questions");

    oracle.say(Answer::Fail);
    let message = wait_unable(&cluster, "lobby", "WebhookFailed").await;
    assert!(message.contains("answered 500"), "{message}");
    wait_until_told(&cluster, "FleetAutoscaler", "answered 500").await;
    wait_for_size(&cluster, "lobby", 4).await;
    change(&cluster, "lobby", other).await;
    wait_for(&cluster, "lobby", "an authority that is not trusted", |status| {
        condition(status, "AbleToScale").is_some_and(|one| one.message.contains("invalid peer certificate"))
    })
    .await;

    // Another brain takes over where this one was.
    drop(brain);
    change(&cluster, "lobby", trusting).await;
    oracle.say(Answer::Scale(2));
    let _brain = cluster.brain("successor");
    wait_for_size(&cluster, "lobby", 2).await;
    let able = wait_for(&cluster, "lobby", "able again", |status| status.able_to_scale).await;
    assert_eq!(condition(&able, "AbleToScale").expect("a condition").status, "True");
}

#[tokio::test]
async fn a_session_that_ends_between_two_looks_is_not_replaced_in_vain() {
    let cluster = Cluster::start().await;
    let _agent = cluster.agent("n1", Manner::default()).await;
    let _brain = cluster.brain("brain");
    let truth = Truth::watch(&cluster);
    cluster.create_fleet("lobby", 1, json!({})).await;
    create(&cluster, "buffer", "lobby", 3, buffer(1, 1, 10)).await;
    cluster.wait_for_ready("lobby", 1).await;
    let first = cluster.all_servers().await.remove(0).name_any();
    allocate(&cluster, 1).await;
    wait_for_size(&cluster, "lobby", 2).await;
    eventually(LIMIT, "a Ready server beside the session", async || {
        let servers = cluster.all_servers().await;
        let ready = servers.iter().filter(|one| one.state() == Some(State::Ready)).count();
        if (servers.len(), ready) == (2, 1) { Ok(()) } else { Err(format!("{} servers", servers.len())) }
    })
    .await
    .expect("a buffer");
    set_state(&cluster, &first, "Shutdown").await;
    wait_for_size(&cluster, "lobby", 1).await;
    cluster.wait_for_ready("lobby", 1).await;
    assert_eq!(truth.seen().ever.len(), 2, "no third was made for it");
}
