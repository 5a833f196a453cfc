//! The link from the agent's end, with the test in the part of `berth-sdk`: real sockets over a real socket.

#[path = "front_link/played.rs"]
mod played;

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use berth_agent::front::{FrontError, FrontEvent};
use berth_api::link::{
    Change, MAX_SOCKETS, Pulse, Seen, Sequence, ToAgent, ToSdk, Transport, VERSIONS, encode,
};
use berth_runtime::clock::Instant;
use tokio::net::UnixStream;

use self::played::{Place, is_listening, key, listener, uid, until_closed, view, within};

fn server(name: &str, shown: &str, applied: u64) -> ToSdk {
    ToSdk::Server { uid: uid(name), view: Box::new(view(shown)), applied: Sequence(applied) }
}

#[tokio::test]
async fn a_server_is_handed_over_with_listeners_that_work() {
    let place = Place::new();
    let mut front = place.listening().await;
    let (grpc, grpc_address) = listener(Transport::Grpc, 1);
    let (rest, rest_address) = listener(Transport::Rest, 1);
    front.handle.serve(uid("a"), view("lobby"), Sequence(3)).await;
    front.handle.listeners(uid("a"), vec![grpc, rest]).await;
    front.handle.started(uid("a"), Instant::now()).await;
    let mut sdk = place.connect().await;
    sdk.join(&[]).await;
    front.connected().await;
    assert_eq!(sdk.hear().await, server("a", "lobby", 3));
    let listeners = sdk.listeners("a").await;
    assert!(matches!(sdk.hear().await, ToSdk::Started { .. }));
    let keys: Vec<_> = listeners.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [key(Transport::Grpc, 1), key(Transport::Rest, 1)]);
    let addresses: Vec<_> = listeners
        .into_iter()
        .map(|(_, socket)| TcpListener::from(socket).local_addr().expect("an address"))
        .collect();
    assert_eq!(addresses, [grpc_address, rest_address]);
    front.handle.acknowledge(uid("a"), Sequence(4)).await;
    assert_eq!(sdk.hear().await, ToSdk::Acknowledge { uid: uid("a"), sequence: Sequence(4) });
    front.handle.forget(uid("a")).await;
    assert_eq!(sdk.hear().await, ToSdk::Forget { uid: uid("a") });
    until_closed(grpc_address).await;
    until_closed(rest_address).await;
    front.stop().await;
}

#[tokio::test]
async fn changes_and_pings_reach_the_core_in_order() {
    let place = Place::new();
    let mut front = place.listening().await;
    let mut sdk = place.connect().await;
    sdk.join(&[]).await;
    let label = Change::Label { key: "mode".to_owned(), value: "duel".to_owned() };
    sdk.say(&ToAgent::Change {
        uid: uid("a"),
        sequence: Sequence(1),
        change: Change::Ready,
        seen: Seen::default(),
    })
    .await;
    sdk.say(&ToAgent::Pings { uid: uid("a"), pulse: Pulse::Silent { missed: 3 } }).await;
    sdk.say(&ToAgent::Change {
        uid: uid("a"),
        sequence: Sequence(2),
        change: label.clone(),
        seen: Seen::default(),
    })
    .await;
    let connected = FrontEvent::Connected { process_id: "process-1".to_owned(), version: "0.9.0".to_owned() };
    assert_eq!(front.event().await, connected);
    let first = FrontEvent::Change {
        uid: uid("a"),
        sequence: Sequence(1),
        change: Change::Ready,
        seen: Seen::default(),
    };
    assert_eq!(front.event().await, first);
    let pings = FrontEvent::Pings { uid: uid("a"), pulse: Pulse::Silent { missed: 3 } };
    assert_eq!(front.event().await, pings);
    let second =
        FrontEvent::Change { uid: uid("a"), sequence: Sequence(2), change: label, seen: Seen::default() };
    assert_eq!(front.event().await, second);
    drop(sdk);
    assert_eq!(front.event().await, FrontEvent::Disconnected);
    front.stop().await;
}

#[tokio::test]
async fn a_link_that_is_down_never_blocks_the_core() {
    let place = Place::new();
    let front = place.start();
    within("the core", async {
        for number in 0..5_000 {
            front.handle.serve(uid(&(number % 50).to_string()), view("x"), Sequence(number)).await;
            front.handle.acknowledge(uid("0"), Sequence(number)).await;
        }
    })
    .await;
    front.handle.set_listening(true).await;
    within("the front", front.handle.held(uid("0"))).await;
    let mut sdk = place.connect().await;
    sdk.join(&[]).await;
    let mut servers = 0;
    while servers < 50 {
        match sdk.hear().await {
            ToSdk::Server { applied, .. } => {
                assert!(applied.0 >= 4_950, "the newest is said: {applied:?}");
                servers += 1;
            }
            ToSdk::Acknowledge { sequence, .. } => assert_eq!(sequence, Sequence(4_999)),
            other => panic!("{other:?}"),
        }
    }
    front.stop().await;
}

#[tokio::test]
async fn a_core_that_is_slow_stops_the_reading_and_loses_nothing() {
    const CHANGES: u64 = 20_000;
    let place = Place::new();
    let mut front = place.listening().await;
    let mut sdk = place.connect().await;
    sdk.join(&[]).await;
    let talk = async {
        for number in 1..=CHANGES {
            let change = Change::Annotation { key: "filler".to_owned(), value: "x".repeat(100) };
            sdk.say(&ToAgent::Change {
                uid: uid("a"),
                sequence: Sequence(number),
                change,
                seen: Seen::default(),
            })
            .await;
        }
        sdk
    };
    let core = async {
        // Full up to the brim, the front still takes commands.
        front.counts("berth_front_events_waiting 256\n").await;
        for number in 0..600 {
            within("the front", front.handle.serve(uid("a"), view("x"), Sequence(number))).await;
        }
        front.connected().await;
        for number in 1..=CHANGES {
            match front.event().await {
                FrontEvent::Change { sequence, .. } => assert_eq!(sequence, Sequence(number)),
                other => panic!("{other:?}"),
            }
        }
        front
    };
    let (sdk, front) = within("all changes", futures::future::join(talk, core)).await;
    drop(sdk);
    front.stop().await;
}

#[tokio::test]
async fn after_a_reconnect_listeners_are_sent_only_where_they_lack() {
    let place = Place::new();
    let mut front = place.listening().await;
    let (grpc, _) = listener(Transport::Grpc, 1);
    let (rest, _) = listener(Transport::Rest, 1);
    front.handle.serve(uid("a"), view("lobby"), Sequence(0)).await;
    front.handle.listeners(uid("a"), vec![grpc, rest]).await;
    let mut sdk = place.connect().await;
    sdk.join(&[]).await;
    front.connected().await;
    sdk.hear().await;
    let held = sdk.listeners("a").await;
    drop(sdk);
    assert_eq!(front.event().await, FrontEvent::Disconnected);

    // It comes back with both: nothing is sent.
    let mut sdk = place.connect().await;
    sdk.join(&[("a", held.iter().map(|(key, socket)| (*key, socket)).collect())]).await;
    let keys: Vec<_> = held.iter().map(|(key, _)| *key).collect();
    assert_eq!(front.event().await, FrontEvent::HandedBack { uid: uid("a"), keys: keys.clone() });
    front.connected().await;
    assert_eq!(sdk.hear().await, server("a", "lobby", 0));
    front.handle.serve(uid("a"), view("newer"), Sequence(1)).await;
    assert_eq!(sdk.hear().await, server("a", "newer", 1));
    drop(sdk);
    assert_eq!(front.event().await, FrontEvent::Disconnected);

    // It lost one: that one is sent.
    let mut sdk = place.connect().await;
    sdk.join(&[("a", vec![(held[0].0, &held[0].1)])]).await;
    assert_eq!(sdk.hear().await, server("a", "newer", 1));
    let sent = sdk.listeners("a").await;
    assert_eq!(sent.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [keys[1]]);

    // The sandbox is made again.
    let (again, address) = listener(Transport::Grpc, 2);
    front.handle.listeners(uid("a"), vec![again]).await;
    let sent = sdk.listeners("a").await;
    assert_eq!(sent[0].0, key(Transport::Grpc, 2));
    assert_eq!(front.handle.held(uid("a")).await, [key(Transport::Grpc, 2)]);
    assert!(is_listening(address).await);
    front.stop().await;
}

#[tokio::test]
async fn an_agent_made_anew_gets_the_listeners_back() {
    let place = Place::new();
    let first = place.listening().await;
    let (grpc, address) = listener(Transport::Grpc, 4);
    first.handle.serve(uid("a"), view("lobby"), Sequence(0)).await;
    first.handle.listeners(uid("a"), vec![grpc]).await;
    let mut sdk = place.connect().await;
    sdk.join(&[]).await;
    sdk.hear().await;
    let held = sdk.listeners("a").await;
    first.stop().await;
    assert!(is_listening(address).await, "berth-sdk still listens");
    assert!(!place.socket().exists(), "the socket is removed by an orderly end");

    let mut front = place.listening().await;
    let mut sdk = place.connect().await;
    sdk.join(&[("a", held.iter().map(|(key, socket)| (*key, socket)).collect())]).await;
    let keys = vec![key(Transport::Grpc, 4)];
    assert_eq!(front.event().await, FrontEvent::HandedBack { uid: uid("a"), keys: keys.clone() });
    front.connected().await;
    assert_eq!(front.handle.held(uid("a")).await, keys);
    front.handle.serve(uid("a"), view("lobby"), Sequence(0)).await;
    front.handle.settled().await;
    assert_eq!(sdk.hear().await, server("a", "lobby", 0));

    // Now berth-sdk dies, and loses its own.
    drop((sdk, held));
    assert_eq!(front.event().await, FrontEvent::Disconnected);
    assert!(is_listening(address).await, "the copy outlives it");
    let mut sdk = place.connect().await;
    sdk.join(&[]).await;
    assert_eq!(sdk.hear().await, server("a", "lobby", 0));
    let sent = sdk.listeners("a").await;
    assert_eq!(
        TcpListener::from(sent.into_iter().next().expect("one").1).local_addr().expect("bound"),
        address
    );
    front.stop().await;
}

#[tokio::test]
async fn what_nobody_serves_is_kept_until_the_core_has_settled() {
    let place = Place::new();
    let mut front = place.listening().await;
    let (stranger, address) = listener(Transport::Grpc, 1);
    let mut sdk = place.connect().await;
    sdk.join(&[("stranger", vec![(stranger.0, &stranger.1)])]).await;
    front.event().await;
    front.connected().await;
    assert_eq!(front.handle.held(uid("stranger")).await, [key(Transport::Grpc, 1)]);
    drop(stranger);
    assert!(is_listening(address).await, "kept aside");
    front.handle.settled().await;
    assert_eq!(sdk.hear().await, ToSdk::Forget { uid: uid("stranger") });
    until_closed(address).await;
    front.stop().await;
}

#[tokio::test]
async fn sockets_that_do_not_listen_are_not_taken() {
    let place = Place::new();
    let mut front = place.listening().await;
    let file: OwnedFd = fs::File::open("/dev/null").expect("opens").into();
    let mut sdk = place.connect().await;
    sdk.join(&[("a", vec![(key(Transport::Grpc, 1), &file)])]).await;
    assert_eq!(front.event().await, FrontEvent::HandedBack { uid: uid("a"), keys: Vec::new() });
    assert!(front.handle.held(uid("a")).await.is_empty());
    front.counts("berth_front_sockets_refused_total 1\n").await;
    front.stop().await;
}

#[tokio::test]
async fn only_the_user_of_berth_sdk_comes_in() {
    let own = rustix::process::geteuid().as_raw();
    if own != 0 {
        eprintln!("skipped: only root can give a socket to another group");
        return;
    }
    let stranger = Place { sdk_uid: Some(65_532), ..Place::new() };
    let front = stranger.listening().await;
    let mode = fs::metadata(stranger.socket()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    // Root may open the socket all the same.
    let mut sdk = stranger.connect().await;
    assert_eq!(sdk.try_hear().await, None);
    front.counts("berth_front_disconnects_total{reason=\"wrong_uid\"} 1\n").await;
    front.stop().await;

    let right = Place { sdk_uid: Some(own), ..Place::new() };
    let mut front = right.listening().await;
    let mut sdk = right.connect().await;
    sdk.join(&[]).await;
    front.connected().await;
    front.stop().await;
}

#[tokio::test]
async fn a_broken_peer_is_sent_away_and_the_next_one_is_welcome() {
    let place = Place::new();
    let mut front = place.listening().await;
    let hello = |versions| ToAgent::Hello { versions, sdk: String::new(), process_id: String::new() };
    let frame = |frame: &ToAgent| encode(frame).expect("encodes");
    let missing = ToAgent::HandBack { uid: uid("a"), keys: vec![key(Transport::Grpc, 1)] };
    let ready = ToAgent::Change {
        uid: uid("a"),
        sequence: Sequence(1),
        change: Change::Ready,
        seen: Seen::default(),
    };
    let table: Vec<(&str, &str, Vec<u8>)> = vec![
        ("nonsense", "frame", b"\0\0\0\x04!!!!".to_vec()),
        ("a length beyond the limit", "frame", vec![0xff; 64]),
        ("no version in common", "version", frame(&hello((99, 100)))),
        ("no hello", "out_of_turn", frame(&ready)),
        ("hello twice", "out_of_turn", [frame(&hello(VERSIONS)), frame(&hello(VERSIONS))].concat()),
        ("listeners without sockets", "sockets", [frame(&hello(VERSIONS)), frame(&missing)].concat()),
        (
            "handed back after the end",
            "out_of_turn",
            [frame(&hello(VERSIONS)), frame(&ToAgent::HandBackEnds), frame(&ToAgent::HandBackEnds)].concat(),
        ),
    ];
    let mut times = std::collections::BTreeMap::<&str, u32>::new();
    for (name, reason, bytes) in table {
        let mut sdk = place.connect().await;
        sdk.send(&bytes, &[]).await;
        sdk.until_sent_away().await;
        let count = times.entry(reason).or_default();
        *count += 1;
        eprintln!("{name} was sent away");
        front.counts(&format!("berth_front_disconnects_total{{reason=\"{reason}\"}} {count}\n")).await;
    }
    front.connected().await;
    assert_eq!(front.event().await, FrontEvent::Disconnected);
    let mut sdk = place.connect().await;
    sdk.join(&[]).await;
    front.connected().await;
    front.stop().await;
}

#[tokio::test]
async fn sockets_without_end_break_the_connection() {
    let place = Place::new();
    let front = place.listening().await;
    let mut sdk = place.connect().await;
    sdk.hello().await;
    let file: OwnedFd = fs::File::open("/dev/null").expect("opens").into();
    let many = vec![&file; MAX_SOCKETS];
    // A frame that never ends, and sockets with each byte of it.
    let flood = async {
        sdk.send(&1_000_u32.to_be_bytes(), &many).await;
        for _ in 0..4 {
            sdk.send(b"x", &many).await;
        }
        sdk
    };
    flood.await.until_sent_away().await;
    front.counts("berth_front_disconnects_total{reason=\"sockets\"} 1\n").await;
    front.stop().await;
}

#[tokio::test]
async fn the_newest_connection_wins() {
    let place = Place::new();
    let mut front = place.listening().await;
    let mut old = place.connect().await;
    old.join(&[]).await;
    front.connected().await;
    let mut new = place.connect().await;
    new.join(&[]).await;
    assert_eq!(old.try_hear().await, None);
    assert_eq!(front.event().await, FrontEvent::Disconnected);
    front.connected().await;
    front.counts("berth_front_disconnects_total{reason=\"replaced\"} 1\n").await;
    front.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_sent_away() {
    let place = Place::new();
    let front = place.start();
    front.handle.set_listening(true).await;
    front.handle.held(uid("nobody")).await;
    let mut silent = UnixStream::connect(place.socket()).await.expect("it listens");
    let mut rest = Vec::new();
    // Time moves by itself while everybody waits.
    let read = tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut rest).await;
    assert_eq!(read.expect("it is closed"), 0);
    front.counts("berth_front_disconnects_total{reason=\"overdue\"} 1\n").await;
}

#[tokio::test]
async fn listening_can_be_ended_and_begun_again() {
    let place = Place::new();
    let mut front = place.start();
    within("the front", front.handle.held(uid("nobody"))).await;
    assert!(!place.socket().exists(), "nothing is listened on before it is asked for");
    for _ in 0..2 {
        front.handle.set_listening(true).await;
        front.handle.set_listening(true).await;
        within("the front", front.handle.held(uid("nobody"))).await;
        let mut sdk = place.connect().await;
        sdk.join(&[]).await;
        front.connected().await;
        front.handle.set_listening(false).await;
        assert_eq!(front.event().await, FrontEvent::Disconnected);
        assert_eq!(sdk.try_hear().await, None);
        assert!(!place.socket().exists());
    }
    front.stop().await;
}

#[tokio::test]
async fn an_old_socket_is_replaced_and_anything_else_respected() {
    let place = Place::new();
    fs::create_dir_all(place.socket().parent().expect("a folder")).expect("made");
    let stale = std::os::unix::net::UnixListener::bind(place.socket()).expect("bound");
    drop(stale);
    let front = place.listening().await;
    // A successor takes the path over; our end leaves its socket alone.
    let successor = place.listening().await;
    front.stop().await;
    assert!(place.socket().exists());
    place.connect().await.join(&[]).await;
    successor.stop().await;

    fs::write(place.socket(), "something precious").expect("written");
    let front = place.start();
    front.handle.set_listening(true).await;
    let ended = within("the end", front.task).await.expect("no panic");
    assert!(matches!(ended, Err(FrontError::Occupied { .. })), "{ended:?}");
    assert_eq!(fs::read_to_string(place.socket()).expect("still there"), "something precious");
}
