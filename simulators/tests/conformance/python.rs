//! The vectors of the service with boto3.

use std::io::Write as _;
use std::process::Command;

use berth_dev::{python, source_folder};
use serde_json::{Value, json};

use crate::stage::Stage;
use berth_simulators::{Settings, Simulator};

#[tokio::test]
async fn boto3_sees_what_it_should() {
    let simulator = Simulator::start(&Settings::for_tests()).await.unwrap();
    let mut authority = tempfile::NamedTempFile::new().unwrap();
    authority.write_all(simulator.authority().as_bytes()).unwrap();
    let (endpoint, admin) = (simulator.endpoint(), simulator.admin_endpoint());
    let path = authority.path().to_owned();
    let seen = tokio::task::spawn_blocking(move || {
        let folder = source_folder().join("simulators/tests/boto3");
        let packages = python::packages(&folder.join("requirements.txt")).expect("boto3");
        let output = Command::new("python3")
            .arg(folder.join("vectors.py"))
            .env("PYTHONPATH", packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("AWS_ENDPOINT_URL", endpoint)
            .env("AWS_CA_BUNDLE", path)
            .env("AWS_ACCESS_KEY_ID", "simulator")
            .env("AWS_SECRET_ACCESS_KEY", "simulator")
            .env("AWS_DEFAULT_REGION", "eu-central-1")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("SIMULATOR_ADMIN", admin)
            .output()
            .expect("python3");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_str::<Value>(&told).unwrap_or_else(|error| panic!("{error}: {told}{complaint}"))
    })
    .await
    .unwrap();
    let expected = json!({
        "registered": "AVAILABLE",
        "has_request_id": true,
        "claimed": "CLAIMED",
        "claim_at_59_999": "CLAIMED",
        "claim_at_60_000": null,
        "second_claim": "ConflictException",
        "updated": "UTILIZED",
        "minute": 60.0,
        "back_to_available": "InvalidRequestException",
        "same_id_in_another_group": "ConflictException",
        "short_instance_id": "InvalidRequestException",
        "by_arn": "one",
        "pages": [2, 2, 2, 1],
        "distinct": 7,
        "throttled": "ThrottlingException",
        "scaling": [["gamelift-gameservergroup-pvp-eu", "InService", "HEALTHY", true]],
        "groups": ["gamelift-gameservergroup-pve-eu", "gamelift-gameservergroup-pvp-eu"],
        "unknown_hook": "ValidationError",
        "draining_for_ten_minutes": ["DRAINING"],
        "second_deregistration": "NotFoundException",
        "after_deregistration": [],
        "violations": ["terminated by a call of simulator"],
        "wrong_secret": "InvalidSignatureException",
        "wrong_secret_of_scaling": "SignatureDoesNotMatch",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&seen[name], value, "{name}");
    }
    simulator.stop().await.unwrap();
}

/// The requests of both clients are told apart by protocol.
#[tokio::test]
async fn the_rust_sdk_speaks_cbor() {
    let stage = Stage::new().await;
    stage.client().list_game_server_groups().send().await.unwrap();
    assert_eq!(stage.simulator.requests("ListGameServerGroups")[0]["protocol"], "cbor");
}
