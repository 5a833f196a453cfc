//! The agent's standing with FleetIQ, on the real wire: AWS's own client against the simulator.

mod fleetiq {
    mod channel;
    mod hook;
    mod idle;
    mod many;
    mod silence;
    pub(crate) mod stage;
}

use berth_agent::drain::Course;
use berth_agent::drain::marks::Phase;
use berth_agent::drain::notice::{Severity, Source};
use berth_agent::fleetiq::Offers;
use berth_agent::fleetiq::settings::Wanted;
use berth_api::game_node::Protection;
use berth_dev::eventually;
use serde_json::{Value, json};

use fleetiq::stage::{Agent, GROUP, Given, LIMIT, Stage, drained};

/// What changes something. Besides, FleetIQ may be asked for the instance's status at any time.
const CALLS: [&str; 4] =
    ["RegisterGameServer", "ClaimGameServer", "UpdateGameServer", "DeregisterGameServer"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_nothing_to_kept_in_three_calls_after_one_question() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::default());
    let standing = agent.stands(Protection::Protected).await;
    assert_eq!(
        (standing.group.as_deref(), standing.instance.as_deref()),
        (Some(GROUP), Some(&*stage.instance))
    );
    assert_eq!((standing.offers, standing.problem), (Offers::Allowed, None));
    assert!(standing.last_beat.is_some());
    assert_eq!(stage.attempts(CALLS), [1, 1, 1, 0]);
    assert!(stage.attempts(["DescribeGameServerInstances"]) >= [1]);
    assert_eq!(stage.server()["utilization"], "UTILIZED");
    let words = agent.tells("Registered").await;
    assert!(words.contains(&stage.instance) && words.contains(GROUP), "{words}");
    agent.stop().await;
    assert_eq!(stage.server()["utilization"], "UTILIZED", "a stop gives nothing back");
}

/// The adapter's daemon registered, claimed and utilized anew after each restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_one_sign_of_life() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::default());
    agent.stands(Protection::Protected).await;
    agent.stop().await;
    let before = stage.attempts(CALLS);
    let agent = Agent::start(&stage, Given::marked(Phase::Active));
    agent.counts("berth_fleetiq_last_beat_timestamp_seconds ", 1.0).await;
    let after = stage.attempts(CALLS);
    assert_eq!(after, [before[0], before[1], before[2] + 1, 0]);
    agent.stop().await;
}

/// The adapter's daemon only logged it, and the node stayed unprotected for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_fleetiq_has_forgotten_is_registered_again() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::marked(Phase::Active));
    let words = agent.tells("ProtectionLost").await;
    assert!(words.contains(&stage.instance), "{words}");
    agent.tells("Reregistered").await;
    agent.counts("berth_fleetiq_last_beat_timestamp_seconds ", 1.0).await;
    assert_eq!(stage.server()["utilization"], "UTILIZED");
    assert_eq!(agent.metric("berth_fleetiq_reregistered_total "), Some(1.0));
    agent.stop().await;
}

/// The adapter's daemon gave the instance back at each SIGTERM, and with it the protection of those who played.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_12_a_stop_gives_one_more_sign_of_life_if_the_last_is_old_and_gives_nothing_back() {
    let stage = Stage::new().await;
    let mut first = Agent::start(&stage, Given::default());
    first.stands(Protection::Protected).await;
    let before = stage.attempts(CALLS);
    first.stop().await;
    assert_eq!(stage.attempts(CALLS), before, "the last sign of life is young");
    // It does not know when the last sign was given.
    let mut second = Agent::start(&stage, Given::marked(Phase::Active));
    second.stands(Protection::Protected).await;
    second.stop().await;
    assert_eq!(stage.attempts(CALLS), [before[0], before[1], before[2] + 1, 0]);
    assert_eq!(stage.server()["utilization"], "UTILIZED");
}

/// The adapter's daemon, once restarted, registered a node that had been drained, and went on beating after it had given
/// an instance back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_node_is_given_back_once_and_left_alone() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::default());
    agent.stands(Protection::Protected).await;
    agent.course.send_replace(drained(Severity::Draining));
    let standing = agent.stands(Protection::Released).await;
    assert!(matches!(standing.offers, Offers::Withheld { .. }), "{standing:?}");
    agent.tells("Deregistered").await;
    assert_eq!(stage.server(), Value::Null);
    let before = stage.attempts(CALLS);
    agent.stop().await;
    let mut next = Agent::start(&stage, Given::marked(Phase::Deregistered));
    next.stands(Protection::Released).await;
    next.counts("berth_metadata_reads_total ", 4.0).await;
    next.stop().await;
    assert_eq!(stage.attempts(CALLS), before, "not a single call more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_opened_again_is_registered_like_a_new_one() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::default());
    agent.stands(Protection::Protected).await;
    agent.course.send_replace(drained(Severity::Ordered));
    agent.stands(Protection::Released).await;
    agent.course.send_replace(Course::Open);
    agent.stands(Protection::Protected).await;
    assert_eq!(stage.attempts(["RegisterGameServer", "DeregisterGameServer"]), [2, 1]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_gives_the_instance_back_for_good() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::default());
    agent.stands(Protection::Protected).await;
    stage.fault(json!({"operations": ["DeregisterGameServer"], "effects": [{"effect": "unauthorized"}]}));
    let refused = agent.deregister().await.unwrap_err();
    assert!(refused.contains("denied"), "{refused}");
    stage.fault(Value::Null);
    let mut next = Agent::start(&stage, Given::marked(Phase::Active));
    // It may not be clear yet which instance this is.
    let given_back = eventually(LIMIT, "the instance to be given back", async || next.deregister().await);
    let words = given_back.await.unwrap();
    assert!(words.contains(&stage.instance), "{words}");
    next.stands(Protection::Released).await;
    assert_eq!(stage.server(), Value::Null);
    agent.stop().await;
    next.stop().await;
}

/// Throttles ended the adapter's daemon, and its restart made them worse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttles_and_server_errors_are_outlasted_and_counted() {
    let stage = Stage::new().await;
    let throttle = json!({"effect": "error", "name": "ThrottlingException", "message": "Rate exceeded"});
    let broken = json!({"effect": "error", "name": "InternalServiceException", "status": 500});
    stage
        .simulator
        .fault("throttle", json!({"operations": ["aws"], "calls": [1, 1], "effects": [throttle]}))
        .unwrap();
    stage
        .simulator
        .fault("broken", json!({"operations": ["ClaimGameServer"], "calls": [1, 1], "effects": [broken]}))
        .unwrap();
    let mut agent = Agent::start(&stage, Given::default());
    agent.stands(Protection::Protected).await;
    let throttled = r#"berth_fleetiq_calls_total{operation="DescribeGameServerInstances",code="throttled"} "#;
    assert_eq!(agent.metric(throttled), Some(1.0));
    assert_eq!(
        agent.metric(r#"berth_fleetiq_calls_total{operation="ClaimGameServer",code="server"} "#),
        Some(1.0)
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_group_is_told_and_not_asked_three_times_at_once() {
    let stage = Stage::new().await;
    stage.order(json!({"order": "parameters", "parameters": {"servers_per_group": 0}}));
    let mut agent = Agent::start(&stage, Given::default());
    let words = agent.tells("RegistrationFails").await;
    assert!(words.contains("RegisterGameServer") && words.contains("limit_exceeded"), "{words}");
    assert_eq!(stage.attempts(["RegisterGameServer"]), [1]);
    let standing = agent.stands_with(|standing| standing.problem.is_some()).await;
    assert_eq!(standing.protection, Protection::Unregistered);
    assert!(matches!(standing.offers, Offers::Withheld { .. }), "{standing:?}");
    assert!(standing.problem.is_some_and(|problem| problem.contains("quota")));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_is_told_by_the_name_of_its_operation() {
    let stage = Stage::new().await;
    stage.fault(json!({"operations": ["ClaimGameServer"], "effects": [{"effect": "unauthorized"}]}));
    let mut agent = Agent::start(&stage, Given::default());
    let words = agent.tells("RegistrationFails").await;
    assert!(words.contains("ClaimGameServer") && words.contains("permission"), "{words}");
    assert_eq!(agent.standing.borrow().protection, Protection::Registered);
    agent.stop().await;
}

/// The adapter's daemon left a claim that lapses when it died between the claim and the use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_were_lost_cost_a_call_and_nothing_else() {
    for operation in ["RegisterGameServer", "ClaimGameServer", "UpdateGameServer"] {
        let stage = Stage::new().await;
        let lost = json!([{"effect": "apply_then_fail"}]);
        stage.fault(json!({"operations": [operation], "calls": [1, 1], "effects": lost}));
        let mut agent = Agent::start(&stage, Given::default());
        agent.stands(Protection::Protected).await;
        assert_eq!(stage.server()["utilization"], "UTILIZED", "{operation}");
        agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_of_another_instance_is_left_alone() {
    let stage = Stage::new().await;
    stage.order(json!({"order": "launch", "group": GROUP, "wanted": {"ids": ["i-0aaaaaaaaaaaaaaaa"]}}));
    let config = stage.aws().build();
    let client = aws_sdk_gamelift::Client::from_conf(config);
    let register =
        client.register_game_server().game_server_group_name(GROUP).game_server_id(&stage.instance);
    register.instance_id("i-0aaaaaaaaaaaaaaaa").send().await.expect("registered");
    let mut agent = Agent::start(&stage, Given::default());
    let words = agent.tells("RegistrationFails").await;
    assert!(words.contains("another instance"), "{words}");
    assert_eq!(stage.attempts(["ClaimGameServer", "UpdateGameServer", "DeregisterGameServer"]), [0, 0, 0]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spot_notice_before_the_registration_keeps_it_from_being_made() {
    let stage = Stage::new().await;
    let course = Course::Draining { notice: fleetiq::stage::notice(Severity::Spot) };
    let mut agent = Agent::start(&stage, Given { course, ..Given::default() });
    agent.stands(Protection::Unregistered).await;
    agent.counts("berth_metadata_reads_total ", 4.0).await;
    assert_eq!(stage.attempts(CALLS), [0; 4]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_of_a_warm_pool_is_registered_once_it_is_in_service() {
    let stage = Stage::launched(json!({"warmed": true})).await;
    let mut agent = Agent::start(&stage, Given::default());
    let standing = agent.stands(Protection::Unregistered).await;
    assert!(matches!(standing.offers, Offers::Withheld { .. }), "{standing:?}");
    agent.counts("berth_metadata_reads_total ", 4.0).await;
    assert_eq!(stage.attempts(CALLS), [0; 4]);
    stage.order(json!({"order": "start-warmed", "instance": stage.instance}));
    stage.simulator.advance(std::time::Duration::from_secs(30));
    agent.stands(Protection::Protected).await;
    agent.stop().await;
}

/// The adapter's daemon took its node's name from the metadata; a Node's name may be another instance's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_instance_makes_no_call() {
    let stage = Stage::new().await;
    let provider_id = Some("aws:///eu-central-1a/i-0aaaaaaaaaaaaaaaa".to_owned());
    let mut agent = Agent::start(&stage, Given { provider_id, ..Given::default() });
    let words = agent.tells("IdentityUnclear").await;
    assert!(words.contains("i-0aaaaaaaaaaaaaaaa") && words.contains(&stage.instance), "{words}");
    let standing = agent.stands(Protection::Unregistered).await;
    assert!(matches!(standing.offers, Offers::Withheld { .. }), "{standing:?}");
    assert_eq!(stage.attempts(CALLS), [0; 4]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_group_is_found_where_the_environment_does_not_say() {
    let stage = Stage::new().await;
    let tags = json!({"aws:autoscaling:groupName": format!("gamelift-gameservergroup-{GROUP}")});
    for given in [
        Given { group: None, label: Some(GROUP.to_owned()), ..Given::default() },
        Given { group: None, ..Given::default() },
    ] {
        let has_label = given.label.is_some();
        stage.simulator.metadata(&stage.instance, json!({"tags": tags})).unwrap();
        let mut agent = Agent::start(&stage, given);
        let standing = agent.stands(Protection::Protected).await;
        assert_eq!(standing.group.as_deref(), Some(GROUP), "by the label: {has_label}");
        agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_group_there_is_no_fleetiq_unless_it_is_wanted() {
    let stage = Stage::new().await;
    let agent = Agent::start(&stage, Given { group: None, ..Given::default() });
    agent.counts("berth_metadata_reads_total ", 4.0).await;
    assert_eq!(agent.standing.borrow().protection, Protection::NotConfigured);
    let mut wanted = Agent::start(&stage, Given { group: None, wanted: Wanted::On, ..Given::default() });
    let words = wanted.tells("IdentityUnclear").await;
    assert!(words.contains("GAME_SERVER_GROUP_NAME"), "{words}");
    assert_eq!(stage.attempts(CALLS), [0; 4]);
    agent.stop().await;
    wanted.stop().await;
}

/// A mark of another instance is void: the Node's name was used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_of_another_instance_is_void() {
    let stage = Stage::new().await;
    let given = Given {
        marked_instance: Some("i-0aaaaaaaaaaaaaaaa".to_owned()),
        ..Given::marked(Phase::Deregistered)
    };
    let mut agent = Agent::start(&stage, given);
    agent.stands(Protection::Protected).await;
    agent.stop().await;
}

/// FleetIQ's own judgement is asked for where nobody publishes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_agent_on_a_draining_instance_gives_notice_and_does_not_register() {
    let stage = Stage::new().await;
    stage.order(json!({"order": "status", "instance": stage.instance, "status": "DRAINING"}));
    let mut agent = Agent::start(&stage, Given::default());
    let notice = agent.signals().await;
    assert_eq!((notice.source, notice.severity), (Source::FleetIq, Severity::Draining));
    agent.course.send_replace(drained(Severity::Draining));
    agent.stands(Protection::Released).await;
    assert_eq!(stage.attempts(["RegisterGameServer", "ClaimGameServer", "UpdateGameServer"]), [0, 0, 0]);
    agent.stop().await;
}

/// The token request is never answered, as in a pod that is one hop too far away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_metadata_the_agent_knows_itself_and_registers() {
    let stage = Stage::new().await;
    stage.simulator.metadata(&stage.instance, json!({"hop_limit_one": true})).unwrap();
    let provider_id = Some(format!("aws:///eu-central-1a/{}", stage.instance));
    let mut agent = Agent::start(&stage, Given { provider_id, ..Given::default() });
    agent.stands(Protection::Protected).await;
    agent.counts(r#"berth_metadata_errors_total{code="timeout"} "#, 1.0).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spot_notice_a_rebalance_and_an_end_by_auto_scaling_are_passed_on_once() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::default());
    stage.order(json!({"order": "rebalance", "instance": stage.instance}));
    let notice = agent.signals().await;
    assert_eq!((notice.source, notice.severity), (Source::Rebalance, Severity::Advice));
    stage.order(json!({"order": "spot", "instance": stage.instance}));
    let notice = agent.signals().await;
    assert_eq!((notice.source, notice.severity), (Source::Spot, Severity::Spot));
    assert!(notice.deadline.is_some());
    stage.order(json!({"order": "lifecycle", "instance": stage.instance}));
    let notice = agent.signals().await;
    assert_eq!((notice.source, notice.severity), (Source::Lifecycle, Severity::AutoScaling));
    let reads = agent.metric("berth_metadata_reads_total ").expect("reads");
    agent.counts("berth_metadata_reads_total ", reads + 6.0).await;
    assert!(agent.signals.try_recv().is_err(), "nothing is said twice");
    agent.stop().await;
}

/// Elsewhere a token that was refused stayed in use for hours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_33_tokens_that_died_and_a_busy_service_do_not_hide_a_spot_notice() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::default());
    agent.counts("berth_metadata_reads_total ", 3.0).await;
    stage.simulator.metadata(&stage.instance, json!({"invalidate_tokens": true})).unwrap();
    let reads = agent.metric("berth_metadata_reads_total ").expect("reads");
    agent.counts("berth_metadata_reads_total ", reads + 3.0).await;
    assert_eq!(
        agent.metric(r#"berth_metadata_errors_total{code="unauthorized"} "#),
        None,
        "a new token was had"
    );
    stage.simulator.metadata(&stage.instance, json!({"busy_probability": 1.0})).unwrap();
    agent.counts(r#"berth_metadata_errors_total{code="busy"} "#, 1.0).await;
    stage.simulator.metadata(&stage.instance, json!({"refuses": true})).unwrap();
    agent.counts(r#"berth_metadata_errors_total{code="unreachable"} "#, 1.0).await;
    stage.simulator.metadata(&stage.instance, json!({})).unwrap();
    stage.order(json!({"order": "spot", "instance": stage.instance}));
    let notice = agent.signals().await;
    assert_eq!(notice.source, Source::Spot);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protection_is_seen_by_the_account_itself() {
    let stage = Stage::new().await;
    let mut agent = Agent::start(&stage, Given::default());
    agent.stands(Protection::Protected).await;
    eventually(LIMIT, "protection", async || {
        let state = stage.simulator.state();
        let instances = state["instances"].as_array().cloned().unwrap_or_default();
        let ours = instances.into_iter().find(|one| one["id"] == stage.instance).unwrap_or_default();
        if ours["kept"]["is_kept"] == true { Ok(()) } else { Err(ours.to_string()) }
    })
    .await
    .unwrap();
    agent.stop().await;
}
