//! Instance metadata with the SDK's own client, its trap included.

use std::time::Duration;

use aws_config::imds::client::Client;
use aws_config::provider_config::ProviderConfig;
use aws_smithy_http_client::Builder;
use berth_dev::eventually;
use serde_json::json;

use crate::stage::{PATIENCE, Stage};

/// A client that waits so long for an answer.
fn client_with(stage: &Stage, instance: &str, patience: Duration) -> Client {
    let config = ProviderConfig::without_region().with_http_client(Builder::new().build_http());
    Client::builder()
        .configure(&config)
        .endpoint(stage.simulator.metadata_endpoint(instance))
        .expect("an endpoint")
        .max_attempts(2)
        .connect_timeout(patience)
        .read_timeout(patience)
        .operation_attempt_timeout(patience)
        .operation_timeout(patience * 3)
        .build()
}

fn client(stage: &Stage, instance: &str) -> Client {
    client_with(stage, instance, PATIENCE)
}

#[tokio::test]
async fn the_sdk_reads_an_instance_and_its_notice() {
    let stage = Stage::new().await;
    let instance = stage.instances[0].clone();
    let client = client(&stage, &instance);
    let id = client.get("/latest/meta-data/instance-id").await.unwrap();
    assert_eq!(id.as_ref(), instance);
    assert!(client.get("/latest/meta-data/spot/instance-action").await.is_err(), "no notice yet");
    stage.simulator.order(json!({"order": "spot", "instance": instance})).unwrap();
    let notice = client.get("/latest/meta-data/spot/instance-action").await.unwrap();
    let notice = serde_json::from_str::<serde_json::Value>(notice.as_ref()).unwrap();
    let now = stage.simulator.state()["now"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let time = notice["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(notice["action"], "terminate");
    assert_eq!(time.as_second() - now.as_second(), 120);
}

/// The client keeps its token until it has expired by its own clock: a program has to build a new client after a 401.
#[tokio::test]
async fn a_client_whose_token_died_does_not_recover_and_a_new_one_does() {
    let stage = Stage::new().await;
    let instance = stage.instances[0].clone();
    let stuck = client(&stage, &instance);
    stuck.get("/latest/meta-data/instance-id").await.unwrap();
    stage.simulator.metadata(&instance, json!({"invalidate_tokens": true})).unwrap();
    for _ in 0..2 {
        assert!(stuck.get("/latest/meta-data/instance-id").await.is_err());
    }
    client(&stage, &instance).get("/latest/meta-data/instance-id").await.unwrap();
}

#[tokio::test]
async fn a_token_that_never_arrives_is_a_timeout() {
    let stage = Stage::new().await;
    let instance = stage.instances[0].clone();
    stage.simulator.metadata(&instance, json!({"hop_limit_one": true})).unwrap();
    let client = client_with(&stage, &instance, Duration::from_millis(500));
    assert!(client.get("/latest/meta-data/instance-id").await.is_err());
    stage.simulator.metadata(&instance, json!({})).unwrap();
    eventually(PATIENCE, "the metadata", async || {
        client.get("/latest/meta-data/instance-id").await.map(drop).map_err(|error| error.to_string())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn credentials_from_the_metadata_open_the_front_door() {
    let stage = Stage::new().await;
    let client = client(&stage, &stage.instances[0]);
    let path = "/latest/meta-data/iam/security-credentials/";
    let role = client.get(path).await.unwrap();
    let text = client.get(format!("{path}{}", role.as_ref())).await.unwrap();
    let role = serde_json::from_str::<serde_json::Value>(text.as_ref()).unwrap();
    let text = |name: &str| role[name].as_str().unwrap().to_owned();
    let credentials = aws_sdk_gamelift::config::Credentials::new(
        text("AccessKeyId"),
        text("SecretAccessKey"),
        Some(text("Token")),
        None,
        "metadata",
    );
    let config = stage.client_without_retries().config().to_builder().credentials_provider(credentials);
    let gamelift = aws_sdk_gamelift::Client::from_conf(config.build());
    gamelift.list_game_server_groups().send().await.unwrap();
}
