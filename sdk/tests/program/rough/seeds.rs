//! Nonsense, each kind by its name.

/// What it is, and its bytes.
pub(crate) type Seed = (&'static str, Vec<u8>);

/// What opens an HTTP/2 connection, and an empty SETTINGS frame.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

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

/// A message as gRPC frames it.
fn message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    [[0].as_slice(), &length, body].concat()
}

/// What nobody should say at the gRPC port, and what only comes near to it.
pub(crate) fn for_grpc() -> Vec<Seed> {
    let garbage: Vec<u8> =
        (0..4096_u32).map(|number| u8::try_from(number * 131 % 251).expect("small")).collect();
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

/// The same for the REST port.
pub(crate) fn for_rest() -> Vec<Seed> {
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

/// What a game may well say at the gRPC port, so that what is made of it comes as far as it can.
pub(crate) fn fair_for_grpc() -> Vec<Seed> {
    let key_and_value: &[u8] = &[10, 1, b'a', 18, 1, b'b'];
    vec![
        ("ready", call("/agones.dev.sdk.SDK/Ready", &message(&[]))),
        ("allocate", call("/agones.dev.sdk.SDK/Allocate", &message(&[]))),
        ("reserve", call("/agones.dev.sdk.SDK/Reserve", &message(&[8, 10]))),
        ("a ping", call("/agones.dev.sdk.SDK/Health", &message(&[]))),
        ("a look", call("/agones.dev.sdk.SDK/GetGameServer", &message(&[]))),
        ("a watch", call("/agones.dev.sdk.SDK/WatchGameServer", &message(&[]))),
        ("a label", call("/agones.dev.sdk.SDK/SetLabel", &message(key_and_value))),
        ("an annotation", call("/agones.dev.sdk.SDK/SetAnnotation", &message(key_and_value))),
        ("a counter", call("/agones.dev.sdk.beta.SDK/GetCounter", &message(&[10, 1, b'a']))),
        ("a list", call("/agones.dev.sdk.beta.SDK/AddListValue", &message(key_and_value))),
    ]
}

/// The same at the REST port.
pub(crate) fn fair_for_rest() -> Vec<Seed> {
    let say = |line: &str, body: &str| {
        format!("{line} HTTP/1.1\r\nHost: sdk\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let pair = r#"{"key":"a","value":"b"}"#;
    vec![
        ("ready", say("POST /ready", "{}")),
        ("allocate", say("POST /allocate", "{}")),
        ("reserve", say("POST /reserve", r#"{"seconds":"10"}"#)),
        ("a ping", say("POST /health", "{}")),
        ("a look", say("GET /gameserver", "")),
        ("a watch", say("GET /watch/gameserver", "")),
        ("a label", say("PUT /metadata/label", pair)),
        ("an annotation", say("PUT /metadata/annotation", pair)),
        ("a counter", say("PATCH /v1beta1/counters/rooms", r#"{"count":"1"}"#)),
        ("a list", say("POST /v1beta1/lists/players:addValue", r#"{"value":"x"}"#)),
    ]
}
