//! What happens when the agent goes away, comes back, misbehaves, or when the program itself ends.

use std::process::Command;

use berth_api::lifecycle::State;
use berth_api::link::{Change, ToAgent, Transport, VERSIONS};
use berth_api::sdk::v1::{Empty, KeyValue};
use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;

use crate::agent::{Agent, Program, uid, view, within};
use crate::games::{Pinging, client};

fn label(key: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: "1".to_owned() }
}

fn changed(key: &str) -> Change {
    Change::Label { key: key.to_owned(), value: "1".to_owned() }
}

#[tokio::test]
async fn open_streams_and_promises_outlive_the_agent() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    let mut client = client(&game).await;
    let pinging = Pinging::begin(client.clone());
    pinging.ping().await;
    let mut watch = client.watch_game_server(Empty {}).await.unwrap().into_inner();
    within("the present", watch.next()).await.unwrap().unwrap();

    for key in ["done", "heard"] {
        client.set_label(label(key)).await.unwrap();
    }
    assert_eq!(link.change().await, (uid("u1"), 1, changed("done")));
    assert_eq!(link.change().await, (uid("u1"), 2, changed("heard")));
    link.acknowledge("u1", 1).await;
    // The acknowledgement has arrived once a later frame has had its effect.
    link.introduce("u1", &view("u1", State::Ready), 0).await;
    let ready = within("a new view", watch.next()).await.unwrap().unwrap();
    assert_eq!(ready.status.unwrap().state, "Ready");

    // The agent dies, with its copies of the sockets.
    drop((link, game.sockets));
    client.set_label(label("unheard")).await.unwrap();
    client.get_game_server(Empty {}).await.unwrap();
    pinging.ping().await;

    let (mut link, handed_back) = agent.meet().await;
    let handed = &handed_back[&uid("u1")];
    let transports: Vec<Transport> = handed.iter().map(|(key, _)| key.transport).collect();
    assert_eq!(transports, [Transport::Grpc, Transport::Rest]);
    let sockets: Vec<std::net::TcpListener> =
        handed_back.into_values().flatten().map(|(_, socket)| socket.into()).collect();
    let addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    assert_eq!(addresses, [game.grpc, game.rest]);
    assert_eq!(link.change().await, (uid("u1"), 2, changed("heard")));
    assert_eq!(link.change().await, (uid("u1"), 3, changed("unheard")));

    link.introduce("u1", &view("u1", State::Allocated), 2).await;
    let allocated = within("a new view on the old stream", watch.next()).await.unwrap().unwrap();
    assert_eq!(allocated.status.unwrap().state, "Allocated");
    pinging.ping().await;
    pinging.end().await.unwrap();

    // Covered by the view is as good as acknowledged.
    drop(link);
    let (mut link, _) = agent.meet().await;
    assert_eq!(link.change().await, (uid("u1"), 3, changed("unheard")));
}

#[tokio::test]
async fn the_agents_copies_serve_the_next_process() {
    let agent = Agent::listen();
    let mut first = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    client(&game).await.ready(Empty {}).await.unwrap();
    assert_eq!(link.change().await, (uid("u1"), 1, Change::Ready));
    first.signal(Signal::KILL);
    first.ended().await;
    assert_eq!(within("the end of the link", link.try_next()).await, None);

    // A game that calls now is not refused: the listener is still there, and somebody will come.
    let connected = TcpStream::connect(game.grpc).await.expect("the listener outlives the process");
    let _second = Program::start(&agent.socket());
    let (mut link, handed_back) = agent.meet().await;
    assert_eq!(
        handed_back.into_iter().map(|(uid, held)| (uid, held.len())).collect::<Vec<_>>(),
        [(uid("u1"), 0)]
    );
    assert_eq!(link.change().await, (uid("u1"), 1, Change::Ready), "what the first one promised");
    link.introduce("u1", &view("u1", State::Ready), 1).await;
    link.pass("u1", &game, 1).await;
    client(&game).await.allocate(Empty {}).await.unwrap();
    assert!(matches!(link.change().await, (_, 2, Change::Allocate { .. })));
    drop(connected);
}

#[tokio::test]
async fn forgetting_a_server_ends_its_streams_and_listeners() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let (game, other) = (link.offer("u1").await, link.offer("u2").await);
    let mut reader = client(&game).await;
    let pinging = Pinging::begin(reader.clone());
    pinging.ping().await;
    let mut watch = reader.watch_game_server(Empty {}).await.unwrap().into_inner();
    within("the present", watch.next()).await.unwrap().unwrap();
    let address = game.grpc;
    drop(game);
    link.forget("u1").await;
    assert!(within("the end of the watch", watch.next()).await.is_none_or(|last| last.is_err()));
    assert!(pinging.end().await.is_err());
    within("the listener is closed", async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    client(&other).await.ready(Empty {}).await.unwrap();
    assert_eq!(link.change().await, (uid("u2"), 1, Change::Ready));
}

#[tokio::test]
async fn a_new_sandbox_replaces_the_listeners_of_the_old_one() {
    let agent = Agent::listen();
    let _program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let old = link.offer("u1").await;
    client(&old).await.ready(Empty {}).await.unwrap();
    link.change().await;
    let address = old.grpc;
    drop(old);
    let new = link.open("u1", 2).await;
    client(&new).await.allocate(Empty {}).await.unwrap();
    link.change().await;
    within("the old listener is closed", async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // One of the old sandbox that comes late is not served.
    let late = link.open("u1", 1).await;
    let address = late.grpc;
    drop(late);
    within("the late listener is closed", async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_breaks_the_rules_is_left_and_met_again() {
    let agent = Agent::listen();
    let program = Program::start(&agent.socket());
    let mut stranger = agent.connection().await;
    stranger.greet((VERSIONS.1 + 1, VERSIONS.1 + 2)).await;
    assert_eq!(within("the end of the link", stranger.try_next()).await, None);
    program.logged("speaks versions").await;
    let mut rude = agent.connection().await;
    assert!(matches!(rude.next().await, ToAgent::Hello { .. }));
    rude.forget("u1").await;
    assert_eq!(within("the end of the link", rude.try_next()).await, None);
    let (mut babbling, _) = agent.meet().await;
    babbling.send_raw(b"\0\0\0\x03{]}", &[]).await;
    assert_eq!(within("the end of the link", babbling.try_next()).await, None);
    let (mut empty_handed, _) = agent.meet().await;
    let keys = vec![berth_api::link::ListenerKey { transport: Transport::Grpc, ipv6: false, generation: 1 }];
    empty_handed.send(&berth_api::link::ToSdk::Listeners { uid: uid("u1"), keys }, &[]).await;
    assert_eq!(within("the end of the link", empty_handed.try_next()).await, None);
    let (mut link, _) = agent.meet().await;
    client(&link.offer("u1").await).await.ready(Empty {}).await.unwrap();
    assert_eq!(link.change().await, (uid("u1"), 1, Change::Ready));
}

#[tokio::test]
async fn asked_to_stop_it_says_its_last_words_and_ends_well() {
    let agent = Agent::listen();
    let mut program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let game = link.offer("u1").await;
    let mut caller = client(&game).await;
    let pinging = Pinging::begin(caller.clone());
    pinging.ping().await;
    caller.set_label(label("last")).await.unwrap();
    program.signal(Signal::TERM);
    assert_eq!(link.change().await, (uid("u1"), 1, changed("last")));
    assert_eq!(within("the end of the link", link.try_next()).await, None);
    assert!(program.ended().await.success(), "{}", program.log());
    assert!(pinging.end().await.is_err());
}

#[tokio::test]
async fn bad_configuration_is_named_and_ends_with_64() {
    let long = format!("/{}", "x".repeat(120));
    let cases = [
        (&["--link-socket", "relative"][..], "--link-socket"),
        (&["--link-socket", &long], "--link-socket"),
        (&["--state-dir", "relative"], "--state-dir"),
        (&["--link-sock"], "--link-sock"),
    ];
    for (arguments, named) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_berth-sdk")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{output:?}");
    }
}
