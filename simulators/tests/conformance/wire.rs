//! What only shows on a bare connection: answers that break, answers that never come, nobody there.

use std::time::Duration;

use berth_dev::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stage::{PATIENCE, Stage};

/// Sends a request for metadata on a connection of its own, and gives everything that comes until it is closed.
async fn exchange(stage: &Stage, head: &str) -> std::io::Result<String> {
    let endpoint = stage.simulator.metadata_endpoint(&stage.instances[0]);
    let (address, path) = endpoint.trim_start_matches("http://").split_once('/').expect("a path");
    let mut stream = TcpStream::connect(address).await?;
    let (method, rest) = head.split_once(' ').expect("a method");
    let (below, headers) = rest.split_once('\n').unwrap_or((rest, ""));
    let request =
        format!("{method} /{path}/latest/{below} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    // An answer that broke off is what some of these tests want to see.
    if answer.is_empty() { end.map(|_| answer) } else { Ok(answer) }
}

const TOKEN: &str = "PUT api/token\nx-aws-ec2-metadata-token-ttl-seconds: 60\r\n";

#[tokio::test]
async fn an_answer_has_no_date_and_its_length() {
    let stage = Stage::new().await;
    let answer = exchange(&stage, TOKEN).await.unwrap().to_lowercase();
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("content-length: 56") && !answer.contains("\ndate:"), "{answer}");
}

#[tokio::test]
async fn connections_break_where_a_fault_wants_it() {
    let stage = Stage::new().await;
    for (at, expected) in [("before", (0, 0)), ("during_headers", (1, 12)), ("after_headers", (12, 4096))] {
        stage.fault(json!({"operations": ["Metadata"], "effects": [{"effect": "reset", "at": at}]}));
        let answer = exchange(&stage, TOKEN).await.unwrap_or_default();
        assert!((expected.0..=expected.1).contains(&answer.len()), "{at}: {answer:?}");
        let is_whole = answer.ends_with("cut");
        assert!(!is_whole, "{at}: {answer:?}");
    }
    stage.fault(json!({"operations": ["aws"], "effects": [{"effect": "truncate", "after": 1}]}));
    let client = stage.client_without_retries();
    let cut = client.list_game_server_groups().send().await.unwrap_err();
    assert!(cut.as_service_error().is_none(), "{cut:?}");
}

#[tokio::test]
async fn a_hanging_answer_does_not_come_and_the_simulator_can_still_be_stopped() {
    let stage = Stage::new().await;
    stage.fault(json!({"operations": ["Metadata"], "effects": [{"effect": "hang"}]}));
    let waited = timeout(Duration::from_millis(300), exchange(&stage, TOKEN)).await;
    assert!(waited.is_err(), "{waited:?}");
    timeout(PATIENCE, stage.simulator.stop()).await.expect("it stops").unwrap();
}

#[tokio::test]
async fn in_a_blackout_nobody_is_there() {
    let stage = Stage::new().await;
    let blackout = json!({"operations": ["imds"], "until_ms": 1000, "effects": [{"effect": "blackout"}]});
    stage.fault(blackout);
    let answer = exchange(&stage, TOKEN).await.unwrap_or_default();
    assert_eq!(answer, "");
    stage.client().list_game_server_groups().send().await.expect("the other side is there");
    stage.simulator.advance(Duration::from_secs(1));
    assert!(exchange(&stage, TOKEN).await.unwrap().starts_with("HTTP/1.1 200"));
}

/// A request of a few lines, to the admin API.
async fn admin(stage: &Stage, method: &str, path: &str, body: &Value) -> (u16, String) {
    let endpoint = stage.simulator.admin_endpoint();
    let address = endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

#[tokio::test]
async fn everything_can_be_ordered_over_http() {
    let stage = Stage::new().await;
    let instance = stage.instances[0].clone();
    let client = stage.client();
    stage.register(&client, "one").await;
    let on = |rest: &str| format!("/instances/{instance}/{rest}");
    let event = json!({
        "id": "event-1", "code": "instance-stop",
        "not_before": "2026-09-21T12:00:00Z", "not_after": "2026-09-21T13:00:00Z",
    });
    for (method, path, body, status) in [
        ("GET", "/healthz".to_owned(), Value::Null, 200),
        ("PUT", "/groups/pve-eu".to_owned(), json!({"protection": "FULL_PROTECTION"}), 200),
        ("PUT", "/groups/pve-eu".to_owned(), json!({"protektion": "FULL_PROTECTION"}), 400),
        ("POST", "/groups/pve-eu/instances".to_owned(), Value::Null, 200),
        ("POST", "/groups/nobody/instances".to_owned(), Value::Null, 404),
        ("POST", format!("/groups/pvp-eu/instances/{instance}/status"), json!({"status": "DRAINING"}), 200),
        ("POST", format!("/groups/pvp-eu/instances/{instance}/status"), json!({"status": "ACTIVE"}), 409),
        ("POST", format!("/groups/pve-eu/instances/{instance}/status"), json!({"status": "ACTIVE"}), 404),
        ("POST", "/groups/pve-eu/drain-type".to_owned(), json!({"type": "c6i.large"}), 200),
        ("POST", on("spot"), json!({"in_ms": 600_000}), 200),
        ("POST", on("rebalance"), Value::Null, 200),
        ("POST", on("maintenance"), event, 200),
        ("PUT", on("imds"), json!({"is_optional": true}), 200),
        ("PUT", on("imds"), json!({"is_optionall": true}), 400),
        ("PUT", on("sessions"), json!({"live": 2}), 200),
        ("POST", "/servers/one/claim".to_owned(), Value::Null, 200),
        ("POST", "/servers/one/claim".to_owned(), Value::Null, 409),
        ("DELETE", "/servers/one".to_owned(), Value::Null, 200),
        ("DELETE", "/servers/one".to_owned(), Value::Null, 404),
        ("PUT", "/throttle".to_owned(), json!({"profile": "tight"}), 200),
        ("PUT", "/parameters".to_owned(), json!({"page_size": 2}), 200),
        ("PUT", "/style".to_owned(), json!({"error_names": "bare"}), 200),
        ("PUT", "/faults/slow".to_owned(), json!({"effects": [{"effect": "hang"}]}), 200),
        ("DELETE", "/faults/slow".to_owned(), Value::Null, 200),
        ("DELETE", "/faults/slow".to_owned(), Value::Null, 404),
        ("POST", "/orders".to_owned(), json!({"order": "stranger", "every_ms": null}), 200),
        ("POST", "/clock/advance".to_owned(), json!({"ms": 1000}), 200),
        ("GET", "/clock".to_owned(), Value::Null, 200),
        ("GET", "/state".to_owned(), Value::Null, 200),
        ("GET", "/servers".to_owned(), Value::Null, 200),
        ("GET", "/instances".to_owned(), Value::Null, 200),
        ("GET", "/events?since=1".to_owned(), Value::Null, 200),
        ("GET", "/audit".to_owned(), Value::Null, 200),
        ("GET", "/stats".to_owned(), Value::Null, 200),
        ("GET", "/scenarios".to_owned(), Value::Null, 200),
        ("GET", "/requests?op=RegisterGameServer".to_owned(), Value::Null, 200),
        (
            "POST",
            "/expect".to_owned(),
            json!({"pointer": "/instances/0/sessions", "equals": 7, "within_ms": 1}),
            409,
        ),
        ("POST", on("lifecycle"), Value::Null, 200),
        ("POST", on("terminate"), json!({"hard": true}), 200),
        ("POST", on("terminate"), Value::Null, 404),
        ("POST", "/reset".to_owned(), json!({"scenario": "spot"}), 200),
        ("POST", "/reset".to_owned(), json!({"scenario": "nothing"}), 404),
    ] {
        let (answered, told) = admin(&stage, method, &path, &body).await;
        assert_eq!(answered, status, "{method} {path} {body}: {told}");
    }
}

#[tokio::test]
async fn an_expectation_waits_until_it_is_true() {
    let stage = Stage::new().await;
    let expectation = json!({"pointer": "/servers/0/id", "equals": "one", "within_ms": 60_000});
    let register = async {
        eventually(PATIENCE, "the simulator", async || {
            if stage.simulator.state()["servers"] == json!([]) { Ok(()) } else { Err("servers") }
        })
        .await
        .unwrap();
        stage.register(&stage.client(), "one").await;
    };
    let ((status, told), ()) = tokio::join!(admin(&stage, "POST", "/expect", &expectation), register);
    assert_eq!(status, 200, "{told}");
}

#[tokio::test]
async fn events_can_be_followed() {
    let stage = Stage::new().await;
    let endpoint = stage.simulator.admin_endpoint();
    let mut stream = TcpStream::connect(endpoint.trim_start_matches("http://")).await.unwrap();
    stream.write_all(b"GET /events?since=0&follow=true HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut seen = String::new();
    for wanted in ["GroupCreated", "\"kind\":\"Rebalance\""] {
        timeout(PATIENCE, async {
            let mut buffer = [0; 4096];
            while !seen.contains(wanted) {
                let count = stream.read(&mut buffer).await.expect("an event");
                assert_ne!(count, 0, "the stream ended: {seen}");
                seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        })
        .await
        .unwrap_or_else(|_| panic!("no {wanted} in {seen}"));
        stage.simulator.order(json!({"order": "rebalance", "instance": stage.instances[0]})).unwrap();
    }
}
