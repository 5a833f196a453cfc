//! What a game meets at its REST port.

use std::net::SocketAddr;

use berth_api::lifecycle::State;
use berth_api::link::{Change, ToAgent};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::agent::{Agent, Link, Program, uid, view, within};

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

async fn send(address: SocketAddr, request: &str) -> BufReader<TcpStream> {
    let mut stream = within("a connection", TcpStream::connect(address)).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("is taken");
    BufReader::new(stream)
}

async fn head(stream: &mut BufReader<TcpStream>) -> (u16, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = within("the head of an answer", stream.read_line(&mut head)).await.expect("reads");
        assert_ne!(read, 0, "the answer ends in its head: {head:?}");
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head)
}

pub(crate) async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: Option<&str>,
) -> Answer {
    let length = body.map(|body| format!("Content-Length: {}\r\n", body.len())).unwrap_or_default();
    let body = body.unwrap_or_default();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: sdk\r\nConnection: close\r\n{headers}{length}\r\n{body}");
    let mut stream = send(address, &request).await;
    let (status, head) = head(&mut stream).await;
    let mut body = String::new();
    within("the body of an answer", stream.read_to_string(&mut body)).await.expect("reads");
    Answer { status, head, body }
}

struct Stage {
    agent: Agent,
    program: Program,
    link: Link,
    rest: SocketAddr,
    _game: crate::agent::Game,
}

async fn stage() -> Stage {
    let agent = Agent::listen();
    let program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    Stage { agent, program, link, rest: game.rest, _game: game }
}

#[tokio::test]
async fn a_server_is_shown_as_the_gateway_shows_it() {
    let stage = stage().await;
    let answer = ask(stage.rest, "GET", "/gameserver", "", None).await;
    assert_eq!(answer.status, 200);
    let head = answer.head.to_ascii_lowercase();
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    assert!(head.contains("grpc-metadata-content-type: application/grpc\r\n"), "{head}");
    let shown = answer.json();
    assert_eq!(shown["object_meta"]["generation"], json!("1"));
    assert_eq!(shown["object_meta"]["deletion_timestamp"], json!("0"));
    assert_eq!(shown["spec"]["health"]["period_seconds"], json!(3600));
    assert_eq!(shown["status"]["ports"], json!([{"name": "default", "port": 7777}]));
    assert_eq!(shown["status"]["addresses"], json!([]));
    assert_eq!(shown["status"]["players"], json!(null));
}

#[tokio::test]
async fn every_route_answers_and_becomes_its_change() {
    let mut stage = stage().await;
    let label = || Change::Label { key: "foo".to_owned(), value: "bar".to_owned() };
    let annotation = || Change::Annotation { key: "foo".to_owned(), value: "bar".to_owned() };
    let pair = Some(r#"{"key":"foo","value":"bar"}"#);
    type Expected = fn(&Change) -> bool;
    let cases: [(&str, &str, Option<&str>, Expected); 7] = [
        ("POST", "/ready", Some("{}"), |change| *change == Change::Ready),
        ("POST", "/ready", None, |change| *change == Change::Ready),
        ("POST", "/allocate", Some(""), |change| matches!(change, Change::Allocate { .. })),
        ("POST", "/reserve", Some(r#"{"seconds":"500"}"#), |change| {
            matches!(change, Change::Reserve { until: Some(_) })
        }),
        ("POST", "/reserve", Some(r#"{"seconds":500}"#), |change| {
            matches!(change, Change::Reserve { until: Some(_) })
        }),
        ("POST", "/reserve", Some("{}"), |change| *change == Change::Reserve { until: None }),
        ("POST", "/shutdown", Some("{}"), |change| *change == Change::Shutdown),
    ];
    for (number, (method, path, body, is_expected)) in (1..).zip(cases) {
        let answer = ask(stage.rest, method, path, "", body).await;
        assert_eq!((answer.status, answer.json()), (200, json!({})), "{method} {path} {body:?}");
        let (_, sequence, change) = stage.link.change().await;
        assert_eq!(sequence, number);
        assert!(is_expected(&change), "{method} {path} {body:?}: {change:?}");
    }
    for (number, path, change) in [(8, "/metadata/label", label()), (9, "/metadata/annotation", annotation())]
    {
        assert_eq!(ask(stage.rest, "PUT", path, "", pair).await.status, 200);
        assert_eq!(stage.link.change().await, (uid("u1"), number, change));
    }
}

#[tokio::test]
async fn wrong_requests_are_told_as_the_gateway_tells_them() {
    let stage = stage().await;
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let cases = [
        ("GET", "/ready", "", None, 501, 12),
        ("OPTIONS", "/gameserver", "", None, 501, 12),
        ("POST", "/metadata/label", "", Some("{}"), 501, 12),
        ("GET", "/nothing", "", None, 404, 5),
        ("POST", "/gameserver/", "", Some("{}"), 404, 5),
        ("PUT", "/metadata/label", "", Some(r#"{"key":"foo","value":5}"#), 400, 3),
        ("PUT", "/metadata/label", "", Some(r#"{"key":"bad key","value":"5"}"#), 400, 3),
        ("PUT", "/metadata/label", "", Some("{"), 400, 3),
        ("POST", "/ready", "", Some("nonsense"), 400, 3),
        ("POST", "/ready", form, Some("a=b"), 400, 3),
        ("POST", "/reserve", "", Some(r#"{"seconds":"soon"}"#), 400, 3),
        ("GET", "/health", "", Some("{}"), 501, 12),
    ];
    for (method, path, headers, body, status, code) in cases {
        let answer = ask(stage.rest, method, path, headers, body).await;
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["code"]),
            (status, &json!(code)),
            "{method} {path} {body:?}: {told}"
        );
        assert_eq!(told["details"], json!([]));
    }
    let answer = ask(stage.rest, "POST", "/gameserver", form, Some("a=b")).await;
    assert_eq!((answer.status, &answer.json()["object_meta"]["uid"]), (200, &json!("u1")));
    let large = format!(r#"{{"key":"foo","value":"{}"}}"#, "x".repeat(2 << 20));
    let answer = ask(stage.rest, "PUT", "/metadata/annotation", "", Some(&large)).await;
    assert_eq!((answer.status, &answer.json()["code"]), (429, &json!(8)));
}

async fn count_pings(program: &Program) -> u64 {
    let scraped = ask(program.admin().await, "GET", "/metrics", "", None).await;
    let line = scraped.body.lines().find(|line| line.starts_with("berth_sdk_pings_total "));
    line.and_then(|line| line.split(' ').next_back()?.parse().ok()).expect("pings are counted")
}

#[tokio::test]
async fn every_object_in_the_body_of_health_is_a_ping() {
    let stage = stage().await;
    for (body, status, pings) in [
        (Some("{}"), 200, 1),
        (Some("{}{}{}"), 200, 4),
        (Some("{}\n{ }"), 200, 6),
        (Some(""), 400, 6),
        (None, 400, 6),
        (Some("{}]"), 400, 7),
        (Some("{}{"), 400, 8),
    ] {
        let answer = ask(stage.rest, "POST", "/health", "", body).await;
        assert_eq!(answer.status, status, "{body:?}: {}", answer.body);
        assert_eq!(count_pings(&stage.program).await, pings, "{body:?}");
        if body.is_none_or(str::is_empty) {
            assert_eq!(answer.body, "");
        }
    }
    assert_eq!(
        ask(stage.rest, "GET", "/health", "", None).await.status,
        400,
        "before the method is looked at"
    );
}

#[tokio::test]
async fn a_stream_of_pings_may_stay_open() {
    let stage = stage().await;
    let opening = "POST /health HTTP/1.1\r\nHost: sdk\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut stream = send(stage.rest, opening).await;
    for count in 1..=3 {
        stream.get_mut().write_all(b"2\r\n{}\r\n").await.unwrap();
        within("the ping is counted", async { while count_pings(&stage.program).await < count {} }).await;
    }
    stream.get_mut().write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(head(&mut stream).await.0, 200);
}

async fn line(stream: &mut BufReader<TcpStream>) -> Value {
    // One line comes in one chunk: its length, itself, an end of line.
    let mut length = String::new();
    within("the length of a chunk", stream.read_line(&mut length)).await.expect("reads");
    let length = usize::from_str_radix(length.trim(), 16).unwrap_or_else(|_| panic!("{length:?}"));
    let mut chunk = vec![0; length + 2];
    within("a chunk", stream.read_exact(&mut chunk)).await.expect("reads");
    assert_eq!(chunk[length - 1], b'\n');
    serde_json::from_slice(&chunk).expect("a line is JSON")
}

#[tokio::test]
async fn a_watch_is_a_line_per_change_and_outlives_the_agent() {
    let mut stage = stage().await;
    let mut stream = send(stage.rest, "GET /watch/gameserver HTTP/1.1\r\nHost: sdk\r\n\r\n").await;
    let (status, head) = head(&mut stream).await;
    assert_eq!(status, 200);
    assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{head}");
    assert_eq!(line(&mut stream).await["result"]["status"]["state"], json!("Scheduled"));
    drop(stage.link);
    (stage.link, _) = stage.agent.meet().await;
    stage.link.introduce("u1", &view("u1", State::Ready), 0).await;
    assert_eq!(line(&mut stream).await["result"]["status"]["state"], json!("Ready"));
    stage.link.forget("u1").await;
    let mut rest = String::new();
    within("the end of the watch", stream.read_to_string(&mut rest)).await.unwrap();
    assert_eq!(rest, "0\r\n\r\n");
}

async fn upgrade(stage: &Stage, path: &str) -> BufReader<TcpStream> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: sdk\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://elsewhere\r\n\r\n"
    );
    let mut stream = send(stage.rest, &request).await;
    let (status, head) = head(&mut stream).await;
    assert_eq!(status, 101, "{head}");
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    stream
}

/// The text of the next frame; nothing for the closing one.
async fn text(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut start = [0; 2];
    within("a frame", stream.read_exact(&mut start)).await.expect("reads");
    let length = match start[1] {
        126 => usize::from(stream.read_u16().await.expect("reads")),
        short => usize::from(short),
    };
    let mut payload = vec![0; length];
    within("the text of a frame", stream.read_exact(&mut payload)).await.expect("reads");
    match start[0] {
        0x81 => Some(String::from_utf8(payload).expect("text")),
        0x88 => None,
        other => panic!("a frame that begins with {other:#x}"),
    }
}

async fn say(stream: &mut BufReader<TcpStream>, text: &str) {
    // A mask of zeros leaves the text as it is.
    let mut frame = vec![0x81, 0x80 | u8::try_from(text.len()).expect("short"), 0, 0, 0, 0];
    frame.extend_from_slice(text.as_bytes());
    stream.get_mut().write_all(&frame).await.expect("is taken");
}

#[tokio::test]
async fn every_call_can_be_made_over_a_websocket() {
    let mut stage = stage().await;
    let mut watch = upgrade(&stage, "/watch/gameserver").await;
    let first = text(&mut watch).await.unwrap();
    assert!(first.starts_with(r#"{"result":{"object_meta":"#) && !first.contains('\n'), "{first}");
    stage.link.introduce("u1", &view("u1", State::Ready), 0).await;
    assert!(text(&mut watch).await.unwrap().contains(r#""state":"Ready""#));

    let mut pings = upgrade(&stage, "/health?method=POST").await;
    say(&mut pings, "{}").await;
    say(&mut pings, "{}").await;
    within("the pings are counted", async { while count_pings(&stage.program).await < 2 {} }).await;

    let mut ready = upgrade(&stage, "/ready?method=POST").await;
    say(&mut ready, "{}").await;
    assert_eq!(text(&mut ready).await.as_deref(), Some("{}"));
    assert_eq!(text(&mut ready).await, None);
    assert_eq!(stage.link.change().await, (uid("u1"), 1, Change::Ready));

    let mut wrong = upgrade(&stage, "/nothing").await;
    assert!(text(&mut wrong).await.unwrap().contains(r#""code":5"#));

    stage.link.forget("u1").await;
    assert_eq!(text(&mut watch).await, None);
    assert_eq!(text(&mut pings).await, None);
}

#[tokio::test]
async fn calls_connections_and_promises_are_counted() {
    let mut stage = stage().await;
    ask(stage.rest, "POST", "/ready", "", None).await;
    ask(stage.rest, "PUT", "/metadata/label", "", Some(r#"{"key":"bad key"}"#)).await;
    ask(stage.rest, "GET", "/nothing", "", None).await;
    assert!(matches!(stage.link.next().await, ToAgent::Change { .. }));
    let admin = stage.program.admin().await;
    let scraped = ask(admin, "GET", "/metrics", "", None).await.body;
    for line in [
        r#"berth_sdk_calls_total{transport="Rest",call="Ready",code="Ok"} 1"#,
        r#"berth_sdk_calls_total{transport="Rest",call="SetLabel",code="InvalidArgument"} 1"#,
        r#"berth_sdk_calls_total{transport="Rest",call="Unknown",code="NotFound"} 1"#,
        "berth_sdk_outbox_changes 1",
        "berth_sdk_servers 1",
        "berth_sdk_link_connected 1",
    ] {
        assert!(scraped.contains(line), "{line} is not in\n{scraped}");
    }
    assert_eq!(ask(admin, "GET", "/readyz", "", None).await.status, 200);
    stage.link.acknowledge("u1", 1).await;
    within("nothing is owed", async {
        while !ask(admin, "GET", "/metrics", "", None).await.body.contains("berth_sdk_outbox_changes 0") {}
    })
    .await;
}
