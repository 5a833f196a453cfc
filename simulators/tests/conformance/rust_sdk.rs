//! The vectors of the service with AWS's own SDK for Rust, which speaks CBOR.

use std::fmt::Debug;
use std::time::Duration;

use aws_sdk_gamelift::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_gamelift::operation::RequestId as _;
use aws_sdk_gamelift::types::{
    ClaimFilterOption, FilterInstanceStatus, GameServer, GameServerClaimStatus, GameServerHealthCheck,
    GameServerInstanceStatus, GameServerUtilizationStatus,
};
use berth_dev::eventually;
use futures::future::join_all;
use serde_json::json;

use crate::stage::{GROUP, PATIENCE, Stage, https};

/// The code of an error as a program sees it.
fn code<E: ProvideErrorMetadata + Debug, R: Debug>(error: &SdkError<E, R>) -> Option<&str> {
    error.as_service_error().and_then(ProvideErrorMetadata::code)
}

async fn describe(stage: &Stage, server: &str) -> GameServer {
    let client = stage.client();
    let described = client.describe_game_server().game_server_group_name(GROUP).game_server_id(server);
    described.send().await.expect("described").game_server.expect("a server")
}

#[tokio::test]
async fn a_server_is_registered_claimed_utilized_and_described() {
    let stage = Stage::new().await;
    let client = stage.client();
    let registered = client
        .register_game_server()
        .game_server_group_name(GROUP)
        .game_server_id("one")
        .instance_id(&stage.instances[0])
        .connection_info("10.0.0.1:7777")
        .send()
        .await
        .unwrap();
    assert!(registered.request_id().is_some());
    let server = registered.game_server.unwrap();
    assert_eq!(server.utilization_status, Some(GameServerUtilizationStatus::Available));
    assert_eq!(server.claim_status, None);
    assert_eq!(server.connection_info.as_deref(), Some("10.0.0.1:7777"));
    let claimed = client.claim_game_server().game_server_group_name(GROUP).game_server_id("one");
    let claimed = claimed.game_server_data("map=harbour").send().await.unwrap().game_server.unwrap();
    assert_eq!(claimed.claim_status, Some(GameServerClaimStatus::Claimed));
    stage.simulator.advance(Duration::from_secs(7));
    let updated = client
        .update_game_server()
        .game_server_group_name(GROUP)
        .game_server_id("one")
        .utilization_status(GameServerUtilizationStatus::Utilized)
        .health_check(GameServerHealthCheck::Healthy)
        .send()
        .await
        .unwrap()
        .game_server
        .unwrap();
    assert_eq!(updated.claim_status, None);
    let seen = describe(&stage, "one").await;
    assert_eq!(seen.utilization_status, Some(GameServerUtilizationStatus::Utilized));
    assert_eq!(seen.game_server_data.as_deref(), Some("map=harbour"));
    let seconds = |time: Option<aws_sdk_gamelift::primitives::DateTime>| time.unwrap().secs();
    assert_eq!(seconds(seen.last_health_check_time) - seconds(seen.registration_time), 7);
    stage.simulator.stop().await.unwrap();
}

#[tokio::test]
async fn a_claim_lasts_sixty_seconds_to_the_millisecond() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.register(&client, "one").await;
    let claim = || client.claim_game_server().game_server_group_name(GROUP).game_server_id("one").send();
    claim().await.unwrap();
    stage.simulator.advance(Duration::from_millis(59_999));
    assert_eq!(describe(&stage, "one").await.claim_status, Some(GameServerClaimStatus::Claimed));
    stage.simulator.advance(Duration::from_millis(1));
    assert_eq!(describe(&stage, "one").await.claim_status, None);
    claim().await.unwrap();
}

#[tokio::test]
async fn a_second_claim_is_a_conflict_and_is_not_tried_again() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.register(&client, "one").await;
    let claim = || client.claim_game_server().game_server_group_name(GROUP).game_server_id("one").send();
    claim().await.unwrap();
    let refused = claim().await.unwrap_err();
    assert!(refused.as_service_error().is_some_and(|error| error.is_conflict_exception()), "{refused:?}");
    assert_eq!(stage.attempts("ClaimGameServer"), 2, "one attempt each");
}

#[tokio::test]
async fn a_utilized_server_does_not_become_available() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.register(&client, "one").await;
    let update = |status| {
        let update = client.update_game_server().game_server_group_name(GROUP).game_server_id("one");
        update.utilization_status(status).send()
    };
    update(GameServerUtilizationStatus::Utilized).await.unwrap();
    let refused = update(GameServerUtilizationStatus::Available).await.unwrap_err();
    assert!(refused.as_service_error().is_some_and(|error| error.is_invalid_request_exception()));
}

#[tokio::test]
async fn a_full_group_is_a_limit_that_the_sdk_takes_for_a_throttle() {
    let stage = Stage::new().await;
    let parameters = json!({"servers_per_group": 1});
    stage.simulator.order(json!({"order": "parameters", "parameters": parameters})).unwrap();
    let client = stage.client();
    stage.register(&client, "one").await;
    let register = client.register_game_server().game_server_group_name(GROUP).game_server_id("two");
    let refused = register.instance_id(&stage.instances[0]).send().await.unwrap_err();
    assert!(refused.as_service_error().is_some_and(|error| error.is_limit_exceeded_exception()));
    assert_eq!(stage.attempts("RegisterGameServer"), 1 + 3);
    let once = stage.client_without_retries();
    let register = once.register_game_server().game_server_group_name(GROUP).game_server_id("two");
    register.instance_id(&stage.instances[0]).send().await.unwrap_err();
    assert_eq!(stage.attempts("RegisterGameServer"), 1 + 3 + 1);
}

#[tokio::test]
async fn forty_one_updates_at_once_are_one_too_many() {
    let stage = Stage::new().await;
    let client = stage.client_without_retries();
    stage.register(&client, "one").await;
    let update = || {
        let update = client.update_game_server().game_server_group_name(GROUP).game_server_id("one");
        update.health_check(GameServerHealthCheck::Healthy).send()
    };
    let answers = join_all((0..41).map(|_| update())).await;
    let refused = answers.into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(code(&refused[0]), Some("ThrottlingException"));
    let error = refused[0].as_service_error().unwrap();
    let is_modelled = error.is_invalid_request_exception()
        || error.is_not_found_exception()
        || error.is_unauthorized_exception()
        || error.is_internal_service_exception();
    assert!(!is_modelled, "it can be told by its code alone");
}

#[tokio::test]
async fn the_sdk_tries_a_throttled_call_again() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.register(&client, "one").await;
    let limit = json!({"limits": {"UpdateGameServer": {"burst": 1, "per_second": 1}}});
    stage.simulator.throttle(limit).unwrap();
    let update = || {
        let update = client.update_game_server().game_server_group_name(GROUP).game_server_id("one");
        update.health_check(GameServerHealthCheck::Healthy).send()
    };
    update().await.unwrap();
    let refill = async {
        eventually(PATIENCE, "a throttled attempt", async || {
            if stage.attempts("UpdateGameServer") >= 2 { Ok(()) } else { Err("none") }
        })
        .await
        .unwrap();
        stage.simulator.advance(Duration::from_secs(1));
    };
    let (answer, ()) = tokio::join!(update(), refill);
    answer.unwrap();
    let requests = stage.simulator.requests("UpdateGameServer");
    let calls = requests[1..].iter().map(|one| one["invocation"].clone()).collect::<Vec<_>>();
    assert!(calls.len() >= 2 && calls.iter().all(|call| *call == calls[0]), "one call: {calls:?}");
    assert_eq!(requests[1]["decision"], "ThrottlingException");
    assert_eq!(requests[2]["attempt"], "attempt=2; max=3");
}

#[tokio::test]
async fn the_paginator_sees_seven_instances_in_four_pages() {
    let stage = Stage::new().await;
    let wanted = json!({"order": "launch", "group": GROUP, "wanted": {"count": 4}});
    stage.simulator.order(wanted).unwrap();
    let client = stage.client();
    let mut pages = client
        .describe_game_server_instances()
        .game_server_group_name(GROUP)
        .limit(2)
        .into_paginator()
        .send();
    let mut ids = Vec::new();
    let mut sizes = Vec::new();
    while let Some(page) = pages.next().await {
        let instances = page.unwrap().game_server_instances.unwrap_or_default();
        sizes.push(instances.len());
        ids.extend(instances.into_iter().map(|instance| instance.instance_id.unwrap()));
    }
    assert_eq!(sizes, [2, 2, 2, 1]);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7);
}

#[tokio::test]
async fn silence_ends_a_registration() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.register(&client, "one").await;
    let update = || {
        let update = client.update_game_server().game_server_group_name(GROUP).game_server_id("one");
        update.health_check(GameServerHealthCheck::Healthy).send()
    };
    stage.simulator.advance(Duration::from_secs(239));
    update().await.unwrap();
    stage.simulator.advance(Duration::from_secs(240));
    let refused = update().await.unwrap_err();
    assert!(refused.as_service_error().is_some_and(|error| error.is_not_found_exception()));
}

#[tokio::test]
async fn a_deregistration_works_once_with_either_body() {
    let stage = Stage::new().await;
    let client = stage.client();
    for style in [json!({}), json!({"empty_map_for_nothing": true})] {
        stage.simulator.style(style).unwrap();
        stage.register(&client, "one").await;
        let deregister =
            || client.deregister_game_server().game_server_group_name(GROUP).game_server_id("one").send();
        deregister().await.unwrap();
        let refused = deregister().await.unwrap_err();
        assert!(refused.as_service_error().is_some_and(|error| error.is_not_found_exception()));
    }
}

#[tokio::test]
async fn the_client_copes_with_every_manner_of_writing() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.register(&client, "one").await;
    for style in [
        json!({"cbor_indefinite": true}),
        json!({"cbor_integer_times": true}),
        json!({"error_names": "bare"}),
        json!({"error_names": "namespaced"}),
    ] {
        stage.simulator.style(style.clone()).unwrap();
        let seen = describe(&stage, "one").await;
        assert!(seen.registration_time.is_some(), "{style}");
        let missing = client.describe_game_server().game_server_group_name(GROUP).game_server_id("two");
        let refused = missing.send().await.unwrap_err();
        assert!(
            refused.as_service_error().is_some_and(|error| error.is_not_found_exception()),
            "{style}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn a_filter_leaves_a_draining_instance_out() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.register(&client, "one").await;
    let status = json!({"order": "status", "instance": stage.instances[0], "status": "DRAINING"});
    stage.simulator.order(status).unwrap();
    let active = ClaimFilterOption::builder().instance_statuses(FilterInstanceStatus::Active).build();
    let claim = || client.claim_game_server().game_server_group_name(GROUP).game_server_id("one");
    let refused = claim().filter_option(active).send().await.unwrap_err();
    assert!(refused.as_service_error().is_some_and(|error| error.is_out_of_capacity_exception()));
    claim().send().await.unwrap();
    let described = client.describe_game_server_instances().game_server_group_name(GROUP);
    let described = described.instance_ids(&stage.instances[0]).send().await.unwrap();
    let instances = described.game_server_instances.unwrap();
    assert_eq!(instances[0].instance_status, Some(GameServerInstanceStatus::Draining));
}

#[tokio::test]
async fn an_empty_map_is_an_answer_without_members() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.fault(json!({"effects": [{"effect": "raw", "status": 200, "body": [160]}]}));
    let described = client.describe_game_server().game_server_group_name(GROUP).game_server_id("one");
    assert_eq!(described.send().await.unwrap().game_server, None);
}

#[tokio::test]
async fn an_answer_in_the_other_protocol_has_no_code_and_is_not_tried_again() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.fault(json!({"effects": [{"effect": "wrong_protocol"}]}));
    let described = client.describe_game_server().game_server_group_name(GROUP).game_server_id("one");
    let refused = described.send().await.unwrap_err();
    assert_eq!(code(&refused), None, "{refused:?}");
    assert_eq!(stage.attempts("DescribeGameServer"), 1);
}

#[tokio::test]
async fn a_plain_503_is_tried_three_times_and_has_no_code() {
    let stage = Stage::new().await;
    let client = stage.client();
    let busy = json!({"effect": "raw", "status": 503, "content_type": "text/plain", "body": "busy"});
    stage.fault(json!({"effects": [busy]}));
    let described = client.describe_game_server().game_server_group_name(GROUP).game_server_id("one");
    let refused = described.send().await.unwrap_err();
    assert_eq!(code(&refused), None, "{refused:?}");
    assert_eq!(stage.attempts("DescribeGameServer"), 3);
}

#[tokio::test]
async fn a_missing_permission_is_told_by_its_code_after_one_attempt() {
    let stage = Stage::new().await;
    let client = stage.client();
    stage.fault(json!({"effects": [{"effect": "unauthorized"}]}));
    let described = client.describe_game_server().game_server_group_name(GROUP).game_server_id("one");
    let refused = described.send().await.unwrap_err();
    assert_eq!(code(&refused), Some("AccessDeniedException"));
    assert_eq!(stage.attempts("DescribeGameServer"), 1);
}

#[tokio::test]
async fn an_ambiguous_registration_was_made() {
    let stage = Stage::new().await;
    let client = stage.client_without_retries();
    stage.fault(json!({"calls": [1, 1], "effects": [{"effect": "apply_then_fail"}]}));
    let register = || {
        let register = client.register_game_server().game_server_group_name(GROUP).game_server_id("one");
        register.instance_id(&stage.instances[0]).send()
    };
    let unanswered = register().await.unwrap_err();
    assert!(unanswered.as_service_error().is_none(), "{unanswered:?}");
    let refused = register().await.unwrap_err();
    assert!(refused.as_service_error().is_some_and(|error| error.is_conflict_exception()));
}

#[tokio::test]
async fn strangers_are_turned_away_by_name() {
    let stage = Stage::new().await;
    for (key, secret, region, expected) in [
        ("simulator", "wrong", "eu-central-1", "InvalidSignatureException"),
        ("nobody", "simulator", "eu-central-1", "UnrecognizedClientException"),
        ("simulator", "simulator", "us-east-1", "InvalidSignatureException"),
    ] {
        let client = stage.client_of(key, secret, region, 1);
        let refused = client.list_game_server_groups().send().await.unwrap_err();
        assert_eq!(code(&refused), Some(expected), "{key} {secret} {region}");
    }
    stage.client_without_retries().list_game_server_groups().send().await.unwrap();
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_does_not_talk() {
    let (stage, other) = (Stage::new().await, Stage::new().await);
    let config = stage.client_without_retries().config().to_builder();
    let client =
        aws_sdk_gamelift::Client::from_conf(config.http_client(https(other.simulator.authority())).build());
    let refused = client.list_game_server_groups().send().await.unwrap_err();
    assert!(matches!(refused, SdkError::DispatchFailure(_)), "{refused:?}");
    assert_eq!(stage.attempts("ListGameServerGroups"), 0);
}

#[tokio::test]
async fn a_virtual_date_does_not_disturb_the_client() {
    let stage = Stage::new().await;
    let client = stage.client_without_retries();
    stage.simulator.advance(Duration::from_secs(30 * 24 * 60 * 60));
    for _ in 0..3 {
        client.list_game_server_groups().send().await.unwrap();
    }
}
