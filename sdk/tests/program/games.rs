//! What a game meets at its gRPC port.

use std::time::Duration;

use berth_api::game_server::HealthRule;
use berth_api::lifecycle::State;
use berth_api::link::{Change, Pulse, ToAgent, ToSdk};
use berth_api::sdk::v1::sdk_client::SdkClient;
use berth_api::sdk::v1::{self, Empty, KeyValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::agent::{Agent, Game, Program, uid, view, within};

pub(crate) async fn client(game: &Game) -> SdkClient<Channel> {
    let address = format!("http://{}", game.grpc);
    within("a gRPC connection", SdkClient::connect(address)).await.expect("connects")
}

/// An open stream of pings: messages go in at one end, the answer comes when that end is dropped.
pub(crate) struct Pinging {
    pings: mpsc::Sender<Empty>,
    answer: tokio::task::JoinHandle<Result<(), Status>>,
}

impl Pinging {
    pub(crate) fn begin(mut client: SdkClient<Channel>) -> Self {
        let (pings, sent) = mpsc::channel(1);
        #[allow(clippy::disallowed_methods, reason = "a test has no task group")]
        let answer = tokio::spawn(async move { client.health(ReceiverStream::new(sent)).await.map(|_| ()) });
        Self { pings, answer }
    }

    pub(crate) async fn ping(&self) {
        within("a ping is taken", self.pings.send(Empty {})).await.expect("the stream is open");
    }

    pub(crate) async fn end(self) -> Result<(), Status> {
        drop(self.pings);
        within("the stream of pings is answered", self.answer).await.expect("no panic")
    }
}

#[tokio::test]
async fn a_game_lives_a_whole_life() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, handed_back) = agent.meet().await;
    assert!(handed_back.is_empty());
    let game = link.offer("u1").await;
    let mut client = client(&game).await;

    let shown = within("the server", client.get_game_server(Empty {})).await.unwrap().into_inner();
    assert_eq!(shown.object_meta.unwrap().name, "game-u1");
    assert_eq!(shown.status.unwrap().state, "Scheduled");

    client.ready(Empty {}).await.unwrap();
    assert_eq!(link.change().await, (uid("u1"), 1, Change::Ready));
    client.allocate(Empty {}).await.unwrap();
    let (_, 2, Change::Allocate { at }) = link.change().await else { panic!("no allocation") };
    assert!(at.ends_with('Z') && at.contains('T'), "{at}");
    client.reserve(v1::Duration { seconds: 600 }).await.unwrap();
    let (_, 3, Change::Reserve { until: Some(_) }) = link.change().await else { panic!("no reservation") };
    let pair = KeyValue { key: "mode".to_owned(), value: "duel".to_owned() };
    client.set_label(pair.clone()).await.unwrap();
    let label = Change::Label { key: pair.key.clone(), value: pair.value.clone() };
    assert_eq!(link.change().await, (uid("u1"), 4, label));
    client.set_annotation(pair.clone()).await.unwrap();
    assert_eq!(link.change().await, (uid("u1"), 5, Change::Annotation { key: pair.key, value: pair.value }));
    client.shutdown(Empty {}).await.unwrap();
    assert_eq!(link.change().await, (uid("u1"), 6, Change::Shutdown));
}

#[tokio::test]
async fn bad_metadata_is_refused_at_once_and_costs_nothing_else() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let mut client = client(&link.offer("u1").await).await;
    for (key, value) in [("bad key", "v"), ("k", "not valid!"), ("a/b", "v"), ("", "v")] {
        let pair = KeyValue { key: key.to_owned(), value: value.to_owned() };
        let refused = client.set_label(pair).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{key}={value}: {refused}");
    }
    client.ready(Empty {}).await.unwrap();
    assert_eq!(link.change().await, (uid("u1"), 1, Change::Ready));
}

#[tokio::test]
async fn silence_and_its_end_are_told() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let mut quick = view("u1", State::Ready);
    quick.health = Some(HealthRule {
        disabled: false,
        // Long enough that a busy machine tells the game's return before it is silent again.
        period: Duration::from_secs(10),
        failure_threshold: 1,
        initial_delay: Duration::from_millis(20),
    });
    link.introduce("u1", &quick, 0).await;
    let game = link.open("u1", 1).await;
    let mut client = client(&game).await;
    link.send(&ToSdk::Started { uid: uid("u1"), ago: Duration::ZERO }, &[]).await;
    assert!(matches!(link.next().await, ToAgent::Pings { pulse: Pulse::Silent { missed: 1 }, .. }));
    client.health(tokio_stream::iter([Empty {}])).await.unwrap();
    assert!(matches!(link.next().await, ToAgent::Pings { pulse: Pulse::Alive, .. }));
}

#[tokio::test]
async fn a_reservation_ends_by_itself() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let mut client = client(&link.offer("u1").await).await;
    client.reserve(v1::Duration { seconds: 1 }).await.unwrap();
    let (_, 1, Change::Reserve { until }) = link.change().await else { panic!("no reservation") };
    let mut reserved = view("u1", State::Reserved);
    reserved.status.reserved_until = until;
    link.introduce("u1", &reserved, 1).await;
    assert_eq!(link.change().await, (uid("u1"), 2, Change::Ready));
}

#[tokio::test]
async fn a_watch_begins_with_the_present_and_a_slow_reader_blocks_nobody() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    let (mut slow, mut quick) = (client(&game).await, client(&game).await);
    let mut unread = slow.watch_game_server(Empty {}).await.unwrap().into_inner();
    let mut read = quick.watch_game_server(Empty {}).await.unwrap().into_inner();
    let first = within("the present", read.next()).await.unwrap().unwrap();
    assert_eq!(first.status.unwrap().state, "Scheduled");
    // More than every buffer between here and there holds.
    const TURNS: usize = 400;
    for turn in 1..=TURNS {
        let mut view = view("u1", State::Ready);
        view.resource_version = turn.to_string();
        view.annotations.insert("filler".to_owned(), "x".repeat(16 * 1024));
        link.introduce("u1", &view, 0).await;
    }
    let newest = TURNS.to_string();
    let is_newest = |shown: &v1::GameServer| {
        shown.object_meta.as_ref().is_some_and(|metadata| metadata.resource_version == newest)
    };
    within("the newest, for a quick reader", async {
        while !is_newest(&read.next().await.unwrap().unwrap()) {}
    })
    .await;
    let mut taken = 1;
    within("the newest, for a slow reader", async {
        while !is_newest(&unread.next().await.unwrap().unwrap()) {
            taken += 1;
        }
    })
    .await;
    assert!(taken < TURNS, "the slow reader was given all {taken}");
}

#[tokio::test]
async fn calls_wait_for_the_introduction() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.open("u1", 1).await;
    let mut reader = client(&game).await;
    let mut caller = reader.clone();
    let pinging = Pinging::begin(reader.clone());
    pinging.ping().await;
    pinging.end().await.unwrap();
    let asked = async { tokio::join!(reader.get_game_server(Empty {}), caller.ready(Empty {})) };
    let introduced = async {
        tokio::task::yield_now().await;
        link.introduce("u1", &view("u1", State::Scheduled), 7).await;
    };
    let ((shown, ready), ()) = within("answers", async { tokio::join!(asked, introduced) }).await;
    assert_eq!(shown.unwrap().into_inner().object_meta.unwrap().uid, "u1");
    ready.unwrap();
    // Seven changes that this journal knows nothing of: an earlier one may have given more numbers than that.
    let (_, sequence, change) = link.change().await;
    assert!(sequence > 8 && change == Change::Ready, "{sequence} {change:?}");
}

#[tokio::test]
async fn http2_pings_of_a_client_are_answered_however_many_there_are() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    let mut stream = TcpStream::connect(game.grpc).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answered = 0;
    for _ in 0..500 {
        stream.write_all(b"\0\0\x08\x06\0\0\0\0\0knocking").await.unwrap();
        loop {
            let mut head = [0; 9];
            within("a frame", stream.read_exact(&mut head)).await.expect("the connection is open");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await.unwrap();
            assert_ne!(head[3], 7, "GOAWAY after {answered} pings");
            if (head[3], head[4]) == (6, 1) {
                answered += 1;
                break;
            }
        }
    }
    assert_eq!(answered, 500);
}

#[tokio::test]
async fn broken_and_greedy_clients_cost_their_neighbour_nothing() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let (noisy, quiet) = (link.offer("noisy").await, link.offer("quiet").await);
    let mut neighbour = client(&quiet).await;
    let mut open = Vec::new();
    for index in 0..600_usize {
        let address = if index % 2 == 0 { noisy.grpc } else { noisy.rest };
        let mut stream = within("a connection", TcpStream::connect(address)).await.expect("connects");
        let nonsense: &[u8] = match index % 5 {
            0 => b"",
            1 => b"GET / HTTP/1.1\r\n",
            2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            3 => b"\0\x01\x02\x03nonsense\r\n\r\n",
            _ => b"POST /metadata/label HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n{",
        };
        // It may have been closed already; that is an answer too.
        let _ = stream.write_all(nonsense).await;
        open.push(stream);
    }
    within("a ping", neighbour.health(tokio_stream::iter([Empty {}, Empty {}]))).await.unwrap();
    within("a call", neighbour.ready(Empty {})).await.unwrap();
    assert_eq!(link.change().await, (uid("quiet"), 1, Change::Ready));
}
