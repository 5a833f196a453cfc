//! What is owed to `berth-sdk`, and when.

use std::fs::File;
use std::time::Duration;

use berth_api::link::Transport;

use super::*;

fn uid(name: &str) -> ServerUid {
    ServerUid(name.to_owned())
}

fn key(transport: Transport, generation: u32) -> ListenerKey {
    ListenerKey { transport, ipv6: false, generation }
}

fn both(generation: u32) -> Vec<(ListenerKey, OwnedFd)> {
    [Transport::Grpc, Transport::Rest]
        .into_iter()
        .map(|transport| (key(transport, generation), File::open("/dev/null").expect("opens").into()))
        .collect()
}

fn view(name: &str) -> Box<View> {
    Box::new(View { name: name.to_owned(), ..View::default() })
}

fn up(servers: &mut Servers) {
    servers.begin();
    servers.hand_back_ends();
}

/// Everything that is owed, in short words.
fn said(servers: &mut Servers) -> Vec<String> {
    let now = Instant::now();
    std::iter::from_fn(|| servers.next(now))
        .map(|Outgoing { frame, sockets }| match frame {
            ToSdk::Hello { .. } => "hello".to_owned(),
            ToSdk::Server { uid, view, applied } => format!("server {uid} {} {}", view.name, applied.0),
            ToSdk::Listeners { uid, keys } => {
                assert_eq!(keys.len(), sockets.len());
                let generations: Vec<String> = keys.iter().map(|key| key.generation.to_string()).collect();
                format!("listeners {uid} {}", generations.join(","))
            }
            ToSdk::Started { uid, .. } => format!("started {uid}"),
            ToSdk::Acknowledge { uid, sequence } => format!("acknowledge {uid} {}", sequence.0),
            ToSdk::Forget { uid } => format!("forget {uid}"),
        })
        .collect()
}

#[test]
fn nothing_is_said_before_the_other_side_has_said_what_it_holds() {
    let mut servers = Servers::default();
    servers.serve(uid("a"), view("one"), Sequence(0));
    assert!(said(&mut servers).is_empty());
    servers.begin();
    servers.serve(uid("b"), view("two"), Sequence(0));
    assert!(said(&mut servers).is_empty());
    servers.hand_back_ends();
    assert_eq!(said(&mut servers), ["server b two 0", "server a one 0"]);
    assert!(said(&mut servers).is_empty());
}

#[test]
fn a_server_comes_before_its_listeners_and_its_start() {
    let mut servers = Servers::default();
    up(&mut servers);
    servers.listeners(uid("a"), both(1));
    servers.started(uid("a"), Instant::now());
    assert!(said(&mut servers).is_empty(), "it is not served yet");
    servers.serve(uid("a"), view("one"), Sequence(4));
    servers.started(uid("a"), Instant::now());
    assert_eq!(said(&mut servers), ["server a one 4", "listeners a 1,1", "started a"]);
}

#[test]
fn the_newest_view_overtakes_older_ones() {
    let mut servers = Servers::default();
    up(&mut servers);
    for number in 0..100 {
        servers.serve(uid("a"), view(&number.to_string()), Sequence(number));
        servers.acknowledge(uid("a"), Sequence(number));
    }
    assert_eq!(said(&mut servers), ["server a 99 99", "acknowledge a 99"]);
}

#[test]
fn after_a_new_connection_everything_is_said_again_but_what_was_handed_back() {
    let mut servers = Servers::default();
    up(&mut servers);
    servers.serve(uid("a"), view("one"), Sequence(2));
    servers.listeners(uid("a"), both(1));
    servers.started(uid("a"), Instant::now());
    servers.acknowledge(uid("a"), Sequence(3));
    let everything = ["server a one 2", "listeners a 1,1", "started a", "acknowledge a 3"];
    assert_eq!(said(&mut servers), everything);
    up(&mut servers);
    assert_eq!(said(&mut servers), everything);
    servers.begin();
    servers.hand_back(uid("a"), both(1).into_iter().take(1).collect()).expect("room");
    servers.hand_back_ends();
    assert_eq!(said(&mut servers), ["server a one 2", "listeners a 1", "started a", "acknowledge a 3"]);
}

#[test]
fn what_is_handed_back_is_kept_aside_until_it_is_served() {
    let mut servers = Servers::default();
    servers.begin();
    servers.hand_back(uid("a"), both(3)).expect("room");
    servers.hand_back_ends();
    assert!(said(&mut servers).is_empty());
    assert_eq!(servers.held(&uid("a")), [key(Transport::Grpc, 3), key(Transport::Rest, 3)]);
    servers.serve(uid("a"), view("one"), Sequence(0));
    assert_eq!(said(&mut servers), ["server a one 0"]);
    // Our copies outlive the other process.
    up(&mut servers);
    assert_eq!(said(&mut servers), ["server a one 0", "listeners a 3,3"]);
}

#[test]
fn once_settled_what_is_not_served_is_forgotten() {
    let mut servers = Servers::default();
    servers.begin();
    servers.hand_back(uid("stranger"), both(1)).expect("room");
    servers.hand_back(uid("known"), both(1)).expect("room");
    servers.hand_back_ends();
    servers.serve(uid("known"), view("one"), Sequence(0));
    servers.listeners(uid("coming"), both(1));
    servers.settle();
    assert_eq!(said(&mut servers), ["server known one 0", "forget stranger"]);
    assert_eq!(servers.counts(), (1, 4));
    servers.begin();
    servers.hand_back(uid("late"), both(1)).expect("room");
    servers.hand_back_ends();
    assert!(said(&mut servers).contains(&"forget late".to_owned()));
    assert!(servers.held(&uid("late")).is_empty());
}

#[test]
fn settling_without_a_link_drops_what_is_kept_aside() {
    let mut servers = Servers::default();
    servers.begin();
    servers.hand_back(uid("stranger"), both(1)).expect("room");
    servers.hand_back_ends();
    servers.end();
    assert_eq!(servers.counts(), (0, 2));
    servers.settle();
    assert_eq!(servers.counts(), (0, 0));
}

#[test]
fn a_forgotten_server_is_forgotten_whatever_was_owed() {
    let mut servers = Servers::default();
    up(&mut servers);
    servers.serve(uid("a"), view("one"), Sequence(0));
    servers.listeners(uid("a"), both(1));
    servers.forget(uid("a"));
    assert_eq!(servers.counts(), (0, 0));
    assert_eq!(said(&mut servers), ["forget a"]);
    servers.forget(uid("never heard of"));
    assert_eq!(said(&mut servers), ["forget never heard of"]);
    assert!(servers.entries.is_empty());
}

#[test]
fn a_server_forgotten_while_it_is_handed_back_does_not_come_back() {
    let mut servers = Servers::default();
    servers.serve(uid("a"), view("one"), Sequence(0));
    servers.begin();
    servers.forget(uid("a"));
    servers.hand_back(uid("a"), both(1)).expect("room");
    assert!(servers.held(&uid("a")).is_empty());
    servers.hand_back_ends();
    assert_eq!(said(&mut servers), ["forget a"]);
    assert!(servers.entries.is_empty());
}

#[test]
fn a_server_served_again_after_forget_starts_afresh() {
    let mut servers = Servers::default();
    up(&mut servers);
    servers.serve(uid("a"), view("one"), Sequence(0));
    servers.listeners(uid("a"), both(1));
    assert_eq!(said(&mut servers).len(), 2);
    servers.forget(uid("a"));
    servers.serve(uid("a"), view("two"), Sequence(0));
    servers.listeners(uid("a"), both(1));
    assert_eq!(said(&mut servers), ["forget a", "server a two 0", "listeners a 1,1"]);
}

#[test]
fn listeners_of_an_older_sandbox_are_closed_and_never_taken() {
    let mut servers = Servers::default();
    servers.serve(uid("a"), view("one"), Sequence(0));
    servers.listeners(uid("a"), both(2));
    servers.begin();
    servers.hand_back(uid("a"), both(1)).expect("room");
    servers.hand_back_ends();
    assert_eq!(servers.held(&uid("a")), [key(Transport::Grpc, 2), key(Transport::Rest, 2)]);
    assert_eq!(said(&mut servers), ["server a one 0", "listeners a 2,2"]);
    servers.listeners(uid("a"), both(3));
    assert_eq!(servers.held(&uid("a")), [key(Transport::Grpc, 3), key(Transport::Rest, 3)]);
    assert_eq!(said(&mut servers), ["listeners a 3,3"]);
}

#[test]
fn changes_of_an_unknown_server_can_be_acknowledged() {
    let mut servers = Servers::default();
    servers.acknowledge(uid("a"), Sequence(1));
    assert!(servers.entries.is_empty(), "without a link there is nobody to tell");
    up(&mut servers);
    servers.acknowledge(uid("a"), Sequence(7));
    assert_eq!(said(&mut servers), ["acknowledge a 7"]);
    assert!(servers.entries.is_empty());
}

#[test]
fn the_time_since_the_start_is_counted_when_it_is_said() {
    let mut servers = Servers::default();
    let start = Instant::now();
    up(&mut servers);
    servers.serve(uid("a"), view("one"), Sequence(0));
    servers.started(uid("a"), start);
    let later = start + Duration::from_secs(5);
    let started = std::iter::from_fn(|| servers.next(later)).find_map(|outgoing| match outgoing.frame {
        ToSdk::Started { ago, .. } => Some(ago),
        _ => None,
    });
    assert_eq!(started, Some(Duration::from_secs(5)));
}

#[test]
fn more_servers_than_can_be_are_refused() {
    let mut servers = Servers::default();
    servers.begin();
    for number in 0..MAX_SERVERS {
        servers.hand_back(uid(&number.to_string()), Vec::new()).expect("room");
    }
    assert_eq!(servers.hand_back(uid("one more"), Vec::new()), Err(TooMany));
    assert_eq!(servers.hand_back(uid("0"), Vec::new()), Ok(()));
}
