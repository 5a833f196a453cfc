//! Clients that are broken, slow, hungry or hostile: they cost themselves something, and their neighbours nothing.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::agent::{Agent, Game, Link, Program, within};
use crate::rest::ask;

/// What opens an HTTP/2 connection, and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("short").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A call over gRPC, by headers that need no table but the static one.
fn call(path: &str, body: &[u8]) -> Vec<u8> {
    // POST and http, then a path and two headers as literals.
    let mut block = vec![0x83, 0x86];
    let mut literal = |name: &str, value: &str| {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend(text.as_bytes());
        }
    };
    literal(":path", path);
    literal(":authority", "sdk");
    literal("content-type", "application/grpc");
    literal("te", "trailers");
    [PREFACE.to_vec(), frame(1, 4, 1, &block), frame(0, 1, 1, body)].concat()
}

fn seeds_for_grpc() -> Vec<(&'static str, Vec<u8>)> {
    let garbage: Vec<u8> =
        (0..4096_u32).map(|number| u8::try_from(number * 131 % 251).expect("small")).collect();
    let message = |body: &[u8]| {
        let length = u32::try_from(body.len()).expect("short").to_be_bytes();
        [[0].as_slice(), &length, body].concat()
    };
    let update = "/agones.dev.sdk.beta.SDK/UpdateCounter";
    vec![
        ("nothing", Vec::new()),
        ("garbage", garbage.clone()),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: sdk\r\n\r\n".to_vec()),
        ("garbage after the preface", [PREFACE, &garbage].concat()),
        ("a frame larger than any", [PREFACE, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat()),
        ("a header block that is none", [PREFACE, &frame(1, 4, 1, &garbage[..200])].concat()),
        (
            "headers without an end",
            [PREFACE.to_vec(), frame(1, 0, 1, &[0x83]), frame(9, 0, 1, &garbage[..64]).repeat(200)].concat(),
        ),
        ("data for nobody", [PREFACE, &frame(0, 0, 99, b"hello")].concat()),
        ("a thousand settings", [PREFACE, &frame(4, 0, 0, &[0, 3, 0, 0, 0, 1]).repeat(1000)].concat()),
        ("a thousand pings", [PREFACE, &frame(6, 0, 0, &[7; 8]).repeat(1000)].concat()),
        ("streams opened and reset", {
            let pairs = (0..500_u32).map(|index| index * 2 + 1);
            let opened = pairs
                .flat_map(|id| [frame(1, 4, id, &[0x83, 0x86]), frame(3, 0, id, &[0, 0, 0, 8])].concat());
            PREFACE.iter().copied().chain(opened).collect()
        }),
        ("a message longer than any", call(update, &[0, 0xff, 0xff, 0xff, 0xff])),
        ("a message that is cut off", call(update, &[0, 0, 0, 1, 0, 9, 9])),
        ("a compressed message", call(update, &[1, 0, 0, 0, 1, 9])),
        ("a message that is none", call(update, &message(&garbage[..512]))),
        ("a field that is deeper than it is long", call(update, &message(&[10, 127, 10, 126, 10, 125]))),
        ("a call that is not there", call("/agones.dev.sdk.SDK/Dance", &message(&[]))),
        ("a path that is none", call("no path at all", &message(&[]))),
    ]
}

fn seeds_for_rest() -> Vec<(&'static str, Vec<u8>)> {
    let put = |headers: &str, body: &str| {
        format!("PUT /metadata/label HTTP/1.1\r\nHost: sdk\r\n{headers}\r\n{body}").into_bytes()
    };
    let upgrade = "GET /health?method=POST HTTP/1.1\r\nHost: sdk\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let socket = |frames: &[u8]| [upgrade.as_bytes(), frames].concat();
    vec![
        ("nothing", Vec::new()),
        ("garbage", (0..=255).collect()),
        ("a line without an end", vec![b'G'; 300_000]),
        ("a header without an end", [b"GET / HTTP/1.1\r\nA: ".as_slice(), &vec![b'a'; 500_000]].concat()),
        ("ten thousand headers", format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(10_000)).into_bytes()),
        ("a length that is none", put("Content-Length: -1\r\n", "{}")),
        ("two lengths", put("Content-Length: 2\r\nContent-Length: 3\r\n", "{}")),
        ("a body that is cut off", put("Content-Length: 1000\r\n", "{")),
        ("a chunk that is none", put("Transfer-Encoding: chunked\r\n", "zz\r\n")),
        ("a chunk larger than any", put("Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n{}")),
        ("a body larger than any", put("Content-Length: 4000000\r\n", &"[".repeat(4_000_000))),
        ("arrays in arrays", put("Content-Length: 100000\r\n", &"[".repeat(100_000))),
        ("a ping without an end", {
            let body = "{".repeat(200_000);
            format!("POST /health HTTP/1.1\r\nHost: sdk\r\nContent-Length: 200000\r\n\r\n{body}").into_bytes()
        }),
        ("a number beyond any", put("Content-Length: 21\r\n", r#"{"key":1e99999999999}"#)),
        ("a surrogate alone", put("Content-Length: 16\r\n", r#"{"key":"\ud800"}"#)),
        (
            "a frame that is longer than any",
            socket(&[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ),
        ("a frame without a mask", socket(&[0x81, 2, b'{', b'}'])),
        ("a frame of a kind that is none", socket(&[0x8f, 0x80, 0, 0, 0, 0])),
        ("text that is none", socket(&[0x81, 0x82, 0, 0, 0, 0, 0xff, 0xfe])),
    ]
}

struct Stage {
    _agent: Agent,
    program: Program,
    _link: Link,
    rough: Game,
    neighbour: Game,
}

async fn stage() -> Stage {
    let agent = Agent::listen();
    let program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let (rough, neighbour) = (link.offer("rough").await, link.offer("neighbour").await);
    Stage { _agent: agent, program, _link: link, rough, neighbour }
}

impl Stage {
    async fn neighbour_is_served(&self, during: &str) {
        let answer = within(during, ask(self.neighbour.rest, "POST", "/health", "", Some("{}"))).await;
        assert_eq!(answer.status, 200, "{during}");
    }

    fn nobody_panicked(&self) {
        let log = self.program.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// Says something, hears what there is to hear, and hangs up.
async fn say(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    // The other side may hang up first, and may then not take everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard).await;
}

#[tokio::test]
async fn nonsense_on_either_port_harms_nobody() {
    let stage = stage().await;
    let ports = [(stage.rough.grpc, seeds_for_grpc()), (stage.rough.rest, seeds_for_rest())];
    for (address, seeds) in ports {
        for (name, seed) in seeds {
            within(name, say(address, &seed)).await;
            // The same again, hung up on in the middle.
            within(name, say(address, &seed[..seed.len() / 2])).await;
            stage.neighbour_is_served(name).await;
        }
    }
    let answer = ask(stage.rough.rest, "GET", "/gameserver", "", None).await;
    assert_eq!(answer.status, 200, "its own server goes on as well");
    stage.nobody_panicked();
}

#[tokio::test]
async fn clients_that_never_finish_take_their_own_places_only() {
    let stage = stage().await;
    let mut open = Vec::new();
    for _ in 0..300 {
        for (address, begun) in
            [(stage.rough.grpc, PREFACE), (stage.rough.rest, b"POST /ready HTTP/1.1\r\nHost: s".as_slice())]
        {
            let mut stream = TcpStream::connect(address).await.expect("connects");
            let _ = stream.write_all(begun).await;
            open.push(stream);
        }
    }
    stage.neighbour_is_served("six hundred that never finish").await;
    drop(open);
    let admin = stage.program.admin().await;
    within("nobody is connected", async {
        let none = r#"berth_sdk_connections{transport="Rest"} 0"#;
        while !ask(admin, "GET", "/metrics", "", None).await.body.contains(none) {}
    })
    .await;
    assert_eq!(
        ask(stage.rough.rest, "GET", "/gameserver", "", None).await.status,
        200,
        "there is room again"
    );
    stage.nobody_panicked();
}
