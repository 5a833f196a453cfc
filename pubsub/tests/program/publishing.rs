//! What is published and kept.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_api::notice::{
    InstanceStatus, PublisherState, RetainedGroup, RetainedInstance, group_key, instance_key, publisher_key,
};
use berth_dev::eventually;
use tokio::time::Instant;

use crate::redis::{Asker, Subscriber};
use crate::stage::{GROUP, PATIENCE, Stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_on_the_channel_are_those_that_readers_know() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    let mut subscriber = Subscriber::of(&stage, &[&instance]).await;
    let mut asker = Asker::of(&stage).await;
    let running = stage.start(stage.settings()).await;
    let arn = "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu";
    let bytes = |status: &str| {
        format!(
            "{{\"GameServerGroupName\": \"pvp-eu\", \"GameServerGroupArn\": \"{arn}\", \"InstanceId\": \"{instance}\", \
             \"InstanceStatus\": \"{status}\"}}"
        )
    };
    assert_eq!(subscriber.next().await, (instance.clone(), bytes("ACTIVE")));
    assert!(asker.get(&instance_key(&instance)).await.is_some(), "kept before it was said");
    stage.set_status(&instance, "DRAINING");
    assert_eq!(subscriber.wait_for("DRAINING").await.1, bytes("DRAINING"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_subscriber_finds_what_was_said() {
    let stage = Stage::new(2).await;
    let instance = stage.instances()[0].clone();
    stage.set_status(&instance, "DRAINING");
    let mut settings = stage.settings();
    // Nobody says anything again while this test runs.
    settings.heartbeat_period = Duration::from_secs(3600);
    let running = stage.start(settings).await;
    running.wait_for_metric("berth_pubsub_messages_total{kind=\"change\"}", 2.0).await;
    // Only now: the message is gone.
    let mut asker = Asker::of(&stage).await;
    let key = instance_key(&instance);
    let kept = asker.wait_for(&key, "the protection that Auto Scaling shows", |kept| {
        kept.is_some_and(|kept| kept.contains("ProtectedFromScaleIn"))
    });
    let kept: RetainedInstance = serde_json::from_str(&kept.await.unwrap()).unwrap();
    assert_eq!(kept.message.instance_status, InstanceStatus::Draining);
    assert_eq!(kept.message.instance_id, instance);
    assert_eq!(kept.protected_from_scale_in, Some(false), "nobody is registered on it");
    assert!(kept.changed_at <= kept.observed_at && kept.observed_at.ends_with('Z'), "{kept:?}");
    let life = asker.life(&key).await;
    assert!((120_000..=180_000).contains(&life), "three minutes at first: {life}");
    let key = group_key(GROUP);
    let group =
        asker.wait_for(&key, "the policy", |kept| kept.is_some_and(|kept| kept.contains("FULL_PROTECTION")));
    let group: RetainedGroup = serde_json::from_str(&group.await.unwrap()).unwrap();
    // A DRAINING instance is replaced where there is room.
    assert_eq!((group.draining, group.instance_count), (1, group.active + 1));
    assert_eq!(group.group_status.as_deref(), Some("ACTIVE"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_said_at_once_and_the_same_once_a_heartbeat() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    let mut subscriber = Subscriber::of(&stage, &[&instance]).await;
    let mut settings = stage.settings();
    settings.heartbeat_period = Duration::from_secs(2);
    let heartbeat = settings.heartbeat_period;
    let running = stage.start(settings).await;
    subscriber.next().await;
    let first = Instant::now();
    for _ in 0..3 {
        assert!(subscriber.next().await.1.contains("ACTIVE"));
    }
    // What is measured here lags behind what was sent by as much as this machine is busy. Polls are eight times as frequent.
    assert!(first.elapsed() > heartbeat * 2, "{:?}", first.elapsed());
    stage.set_status(&instance, "DRAINING");
    subscriber.wait_for("DRAINING").await;
    // As something new, and not because its time had come.
    running.wait_for_metric("berth_pubsub_messages_total{kind=\"change\"}", 2.0).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_gone_is_forgotten_and_nothing_is_said_of_it() {
    let stage = Stage::new(2).await;
    let [stays, goes] = [0, 1].map(|index| stage.instances()[index].clone());
    let running = stage.start(stage.settings()).await;
    let mut asker = Asker::of(&stage).await;
    asker.wait_for(&instance_key(&goes), "a status", |kept| kept.is_some()).await;
    let order = serde_json::json!({"order": "terminate", "instance": goes, "hard": true});
    stage.simulator.order(order).unwrap();
    asker.wait_for(&instance_key(&goes), "nothing", |kept| kept.is_none()).await;
    let mut subscriber = Subscriber::of(&stage, &[&goes, &stays]).await;
    for _ in 0..3 {
        assert_eq!(subscriber.next().await.0, stays, "only what is there is spoken of");
    }
    assert!(asker.get(&instance_key(&stays)).await.is_some());
    running.stop().await;
}

/// Defect 27 of publishers before this one: a group that is missing ended the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_27_one_missing_group_does_not_stop_the_others() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    let mut subscriber = Subscriber::of(&stage, &[&instance]).await;
    let settings = stage.settings();
    stage.write_groups(&["missing", "pvp-eu", "a group with a bad name", "gone"]);
    let running = stage.start(settings).await;
    subscriber.wait_for("ACTIVE").await;
    stage.set_status(&instance, "DRAINING");
    subscriber.wait_for("DRAINING").await;
    let missing =
        "berth_pubsub_aws_calls_total{operation=\"DescribeGameServerInstances\",outcome=\"missing\"}";
    running.wait_for_metric(missing, 4.0).await;
    let mut asker = Asker::of(&stage).await;
    let state = asker.wait_for(&publisher_key("missing"), "an error", |kept| kept.is_some()).await;
    let state: PublisherState = serde_json::from_str(&state.unwrap()).unwrap();
    assert!(state.last_success.is_none() && state.consecutive_errors > 0, "{state:?}");
    assert!(state.last_error.is_some_and(|error| error.contains("NotFoundException")));
    assert_eq!(running.ask("/readyz").await.0, 200, "who serves one group is not out of service");
    running.stop().await;
}

/// Defect 28: errors were not looked at, and paging stopped early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_28_every_page_is_read_and_a_page_that_fails_removes_nothing() {
    let stage = Stage::new(7).await;
    stage.page_size(2);
    let all: BTreeSet<String> = stage.instances().into_iter().collect();
    // The first page, and from then on nothing.
    stage.fault(serde_json::json!({
        "operations": ["DescribeGameServerInstances"],
        "calls": [2, 1_000_000],
        "effects": [{"effect": "unauthorized"}],
    }));
    let running = stage.start(stage.settings()).await;
    let mut asker = Asker::of(&stage).await;
    let denied = "berth_pubsub_aws_calls_total{operation=\"DescribeGameServerInstances\",outcome=\"denied\"}";
    running.wait_for_metric(denied, 1.0).await;
    running.wait_for_metric("berth_pubsub_messages_total{kind=\"change\"}", 2.0).await;
    assert_eq!(kept(&mut asker, &all).await, 2, "what was read counts");
    stage.simulator.fault("fault", serde_json::Value::Null).unwrap();
    eventually(PATIENCE, "all seven to be kept", async || {
        let mut asker = Asker::of(&stage).await;
        let count = kept(&mut asker, &all).await;
        if count == 7 { Ok(()) } else { Err(format!("{count} are")) }
    })
    .await
    .unwrap();
    // Every poll fails at its first page now.
    stage.fault(serde_json::json!({
        "operations": ["DescribeGameServerInstances"],
        "effects": [{"effect": "unauthorized"}],
    }));
    let so_far = running.metric(denied).await;
    running.wait_for_metric(denied, so_far + 2.0).await;
    assert_eq!(kept(&mut asker, &all).await, 7, "nothing is removed for a failure");
    running.stop().await;
}

async fn kept(asker: &mut Asker, instances: &BTreeSet<String>) -> usize {
    let mut count = 0;
    for instance in instances {
        count += usize::from(asker.get(&instance_key(instance)).await.is_some());
    }
    count
}

/// Defect 29: nobody could tell "no change" from "nobody is there".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_29_a_dead_publisher_shows() {
    let stage = Stage::new(1).await;
    let mut settings = stage.settings();
    settings.poll_period = Duration::from_secs(1);
    let running = stage.start(settings).await;
    let mut asker = Asker::of(&stage).await;
    let state = asker.wait_for(&publisher_key(GROUP), "a success", |kept| kept.is_some()).await;
    let state: PublisherState = serde_json::from_str(&state.unwrap()).unwrap();
    assert!(state.last_success.is_some() && state.consecutive_errors == 0, "{state:?}");
    running.stop().await;
    asker.wait_for(&publisher_key(GROUP), "nothing, two periods later", |kept| kept.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_up_quota_slows_the_polls_down_and_they_recover() {
    let stage = Stage::new(1).await;
    let running = stage.start(stage.settings()).await;
    let usual = running.metric("berth_pubsub_longest_period_seconds").await;
    stage
        .simulator
        .throttle(serde_json::json!({
            "limits": {"DescribeGameServerInstances": {"burst": 0.0, "per_second": 0.0}}
        }))
        .unwrap();
    let period = "berth_pubsub_longest_period_seconds";
    running.wait_for_metric(period, 1.0).await;
    assert!(usual < 0.3, "{usual}");
    stage.simulator.throttle(serde_json::json!({"profile": "off"})).unwrap();
    eventually(PATIENCE, "the usual period", async || {
        let period = running.metric(period).await;
        if period < 0.3 { Ok(()) } else { Err(format!("{period} s")) }
    })
    .await
    .unwrap();
    let throttled =
        "berth_pubsub_aws_calls_total{operation=\"DescribeGameServerInstances\",outcome=\"throttled\"}";
    assert!(running.metric(throttled).await >= 2.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_nobody_knows_is_not_told() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    let running = stage.start(stage.settings()).await;
    let mut asker = Asker::of(&stage).await;
    asker.wait_for(&instance_key(&instance), "a status", |kept| kept.is_some()).await;
    // {"GameServerInstances": [{"InstanceId": …, "InstanceStatus": "RESTING"}]}
    let mut body = vec![0xa1, 0x73];
    body.extend(b"GameServerInstances");
    body.extend([0x81, 0xa2, 0x6a]);
    body.extend(b"InstanceId");
    body.extend([0x73]);
    body.extend(instance.as_bytes());
    body.extend([0x6e]);
    body.extend(b"InstanceStatus");
    body.extend([0x67]);
    body.extend(b"RESTING");
    stage.fault(serde_json::json!({
        "operations": ["DescribeGameServerInstances"],
        "effects": [{"effect": "raw", "status": 200, "content_type": "application/cbor", "body": body}],
    }));
    asker.wait_for(&instance_key(&instance), "nothing", |kept| kept.is_none()).await;
    running.wait_for_metric("berth_pubsub_unknown_statuses_total", 1.0).await;
    running.stop().await;
}
