//! Counters, lists and players: the same calls over both transports, the same answers, and what the agent hears of them.

use std::net::SocketAddr;

use berth_api::game_server::{Counter, List, PlayersStatus};
use berth_api::lifecycle::State;
use berth_api::link::{Change, View};
use berth_api::sdk::alpha::sdk_client::SdkClient as AlphaClient;
use berth_api::sdk::alpha::{self, PlayerId};
use berth_api::sdk::beta;
use berth_api::sdk::beta::sdk_client::SdkClient as BetaClient;
use serde_json::{Value, json};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::agent::{Agent, Game, Link, Program, view, within};
use crate::rest::ask as ask_rest;

/// One call.
#[derive(Clone, Debug)]
enum Ask {
    GetCounter(&'static str),
    UpdateCounter(&'static str, Option<i64>, Option<i64>, i64),
    GetList(&'static str),
    /// Capacity, values, and what the mask names.
    UpdateList(&'static str, i64, &'static [&'static str], &'static [&'static str]),
    Add(&'static str, &'static str),
    Remove(&'static str, &'static str),
    Connect(&'static str),
    Disconnect(&'static str),
    SetCapacity(i64),
    Capacity,
    Count,
    IsConnected(&'static str),
    Connected,
}

/// What it is answered: the message as JSON, or a code.
type Told = Result<Value, i32>;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

async fn by_rest(address: SocketAddr, ask: &Ask) -> Told {
    let number = |number: &i64| number.to_string();
    let (method, path, body) = match ask {
        Ask::GetCounter(name) => ("GET", format!("/v1beta1/counters/{name}"), None),
        Ask::UpdateCounter(name, capacity, count, diff) => {
            let mut body = serde_json::Map::new();
            for (field, value) in [("capacity", capacity), ("count", count)] {
                if let Some(value) = value {
                    body.insert(field.to_owned(), json!(number(value)));
                }
            }
            body.insert("countDiff".to_owned(), json!(number(diff)));
            ("PATCH", format!("/v1beta1/counters/{name}"), Some(Value::Object(body)))
        }
        Ask::GetList(name) => ("GET", format!("/v1beta1/lists/{name}"), None),
        Ask::UpdateList(name, capacity, values, mask) => {
            let body = json!({"capacity": number(capacity), "values": values});
            ("PATCH", format!("/v1beta1/lists/{name}?updateMask={}", mask.join(",")), Some(body))
        }
        Ask::Add(name, value) => {
            ("POST", format!("/v1beta1/lists/{name}:addValue"), Some(json!({"value": value})))
        }
        Ask::Remove(name, value) => {
            ("POST", format!("/v1beta1/lists/{name}:removeValue"), Some(json!({"value": value})))
        }
        Ask::Connect(id) => ("POST", "/alpha/player/connect".to_owned(), Some(json!({"playerID": id}))),
        Ask::Disconnect(id) => ("POST", "/alpha/player/disconnect".to_owned(), Some(json!({"playerID": id}))),
        Ask::SetCapacity(count) => {
            ("PUT", "/alpha/player/capacity".to_owned(), Some(json!({"count": number(count)})))
        }
        Ask::Capacity => ("GET", "/alpha/player/capacity".to_owned(), None),
        Ask::Count => ("GET", "/alpha/player/count".to_owned(), None),
        Ask::IsConnected(id) => ("GET", format!("/alpha/player/connected/{id}"), None),
        Ask::Connected => ("GET", "/alpha/player/connected".to_owned(), None),
    };
    let body = body.map(|body| body.to_string());
    let answer = ask_rest(address, method, &path, "", body.as_deref()).await;
    let told = answer.json();
    if answer.status == 200 {
        return Ok(told);
    }
    assert_eq!(told["details"], json!([]), "{told}");
    let code = i32::try_from(told["code"].as_i64().expect("a code")).expect("a small one");
    assert_eq!(answer.status, if code == 3 { 400 } else { 500 }, "{told}");
    Err(code)
}

async fn by_grpc(channel: &Channel, ask: &Ask) -> Told {
    let (mut beta, mut alpha) = (BetaClient::new(channel.clone()), AlphaClient::new(channel.clone()));
    let empty = alpha::Empty {};
    let player = |id: &str| PlayerId { player_id: id.to_owned() };
    let told = match ask {
        Ask::GetCounter(name) => {
            counter(beta.get_counter(beta::GetCounterRequest { name: (*name).to_owned() }).await)
        }
        Ask::UpdateCounter(name, capacity, count, diff) => {
            let asked = beta::CounterUpdateRequest {
                name: (*name).to_owned(),
                count: *count,
                capacity: *capacity,
                count_diff: *diff,
            };
            let request = beta::UpdateCounterRequest { counter_update_request: Some(asked) };
            counter(beta.update_counter(request).await)
        }
        Ask::GetList(name) => list(beta.get_list(beta::GetListRequest { name: (*name).to_owned() }).await),
        Ask::UpdateList(name, capacity, values, mask) => {
            let list_of = beta::List { name: (*name).to_owned(), capacity: *capacity, values: words(values) };
            let update_mask = Some(prost_types::FieldMask { paths: words(mask) });
            list(beta.update_list(beta::UpdateListRequest { list: Some(list_of), update_mask }).await)
        }
        Ask::Add(name, value) => {
            let request = beta::AddListValueRequest { name: (*name).to_owned(), value: (*value).to_owned() };
            list(beta.add_list_value(request).await)
        }
        Ask::Remove(name, value) => {
            let request =
                beta::RemoveListValueRequest { name: (*name).to_owned(), value: (*value).to_owned() };
            list(beta.remove_list_value(request).await)
        }
        Ask::Connect(id) => bool(alpha.player_connect(player(id)).await),
        Ask::Disconnect(id) => bool(alpha.player_disconnect(player(id)).await),
        Ask::SetCapacity(count) => {
            alpha.set_player_capacity(alpha::Count { count: *count }).await.map(|_| json!({}))
        }
        Ask::Capacity => count(alpha.get_player_capacity(empty).await),
        Ask::Count => count(alpha.get_player_count(empty).await),
        Ask::IsConnected(id) => bool(alpha.is_player_connected(player(id)).await),
        Ask::Connected => {
            let told = alpha.get_connected_players(empty).await;
            told.map(|told| json!({"list": told.into_inner().list}))
        }
    };
    told.map_err(|status: Status| status.code() as i32)
}

fn counter(told: Result<tonic::Response<beta::Counter>, Status>) -> Result<Value, Status> {
    let told = told?.into_inner();
    Ok(counted(&told.name, told.count, told.capacity))
}

fn list(told: Result<tonic::Response<beta::List>, Status>) -> Result<Value, Status> {
    let told = told?.into_inner();
    Ok(json!({"name": told.name, "capacity": told.capacity.to_string(), "values": told.values}))
}

fn bool(told: Result<tonic::Response<alpha::Bool>, Status>) -> Result<Value, Status> {
    Ok(json!({"bool": told?.into_inner().bool}))
}

fn count(told: Result<tonic::Response<alpha::Count>, Status>) -> Result<Value, Status> {
    Ok(json!({"count": told?.into_inner().count.to_string()}))
}

fn counted(name: &str, count: i64, capacity: i64) -> Value {
    json!({"name": name, "count": count.to_string(), "capacity": capacity.to_string()})
}

fn listed(name: &str, capacity: i64, values: &[&str]) -> Value {
    json!({"name": name, "capacity": capacity.to_string(), "values": values})
}

fn countable(uid: &str) -> View {
    let mut view = view(uid, State::Ready);
    let counter = |count, capacity| Counter { count: Some(count), capacity: Some(capacity) };
    let list = |capacity, values: &[&str]| List { capacity: Some(capacity), values: Some(words(values)) };
    view.status.counters =
        Some([("rooms".to_owned(), counter(1, 10)), ("seats".to_owned(), counter(10, 100))].into());
    view.status.lists = Some(
        [
            ("players".to_owned(), list(100, &["test0", "test1", "test2"])),
            ("maps".to_owned(), list(10, &["one", "two"])),
        ]
        .into(),
    );
    view
}

struct Stage {
    _agent: Agent,
    _program: Program,
    link: Link,
}

impl Stage {
    async fn set() -> Self {
        let agent = Agent::listen();
        let program = Program::start(&agent.socket());
        let (link, _) = agent.meet().await;
        Self { _agent: agent, _program: program, link }
    }

    async fn offer(&mut self, view: &View) -> Game {
        self.link.introduce(&view.uid, view, 0).await;
        self.link.open(&view.uid, 1).await
    }

    /// What the server becomes once the agent has done all that it hears of, up to and with this number.
    async fn applied(&mut self, view: &View, until: u64) -> View {
        let mut view = view.clone();
        loop {
            let (uid, number, change) = self.link.change().await;
            assert_eq!(uid.0, view.uid);
            apply(&mut view, &change);
            if number >= until {
                return view;
            }
        }
    }
}

/// What an agent that nobody interferes with makes of a change.
fn apply(view: &mut View, change: &Change) {
    match change {
        Change::Counter { name, by } => {
            let counter =
                view.status.counters.as_mut().and_then(|counters| counters.get_mut(name)).expect("a counter");
            *counter = by.apply(counter);
        }
        Change::List { name, by } => {
            let list = view.status.lists.as_mut().and_then(|lists| lists.get_mut(name)).expect("a list");
            *list = by.apply(list);
        }
        Change::Players { by } => {
            view.status.players = Some(by.apply(&view.status.players.clone().unwrap_or_default()));
        }
        other => panic!("{other:?} was not asked for"),
    }
}

async fn channel(game: &Game) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", game.grpc)).expect("an address");
    within("a gRPC connection", endpoint.connect()).await.expect("connects")
}

/// Makes the calls over both transports, on a server each, and compares what they are told.
async fn both(calls: &[(&str, Ask, Told)]) {
    let mut stage = Stage::set().await;
    let (rest, grpc) = (stage.offer(&countable("rest")).await, stage.offer(&countable("grpc")).await);
    let channel = channel(&grpc).await;
    for (name, ask, expected) in calls {
        let told = within(name, by_rest(rest.rest, ask)).await;
        assert_eq!(&told, expected, "{name}, by REST: {ask:?}");
        let told = within(name, by_grpc(&channel, ask)).await;
        assert_eq!(&told, expected, "{name}, by gRPC: {ask:?}");
    }
}

#[tokio::test]
async fn counters_are_answered_as_they_will_be() {
    let rooms = |count, capacity| Ok(counted("rooms", count, capacity));
    let seats = |count, capacity| Ok(counted("seats", count, capacity));
    let update = Ask::UpdateCounter;
    both(&[
        ("a counter that is not there", Ask::GetCounter("nope"), Err(2)),
        ("nor can it be changed", update("nope", None, None, 1), Err(2)),
        ("as it is", Ask::GetCounter("rooms"), rooms(1, 10)),
        ("capacity and count", update("rooms", Some(11), Some(5), 0), rooms(5, 11)),
        ("out of range", update("rooms", None, None, 7), Err(2)),
        ("count, then difference", update("rooms", None, Some(2), 1), rooms(3, 11)),
        ("what was asked for is read", Ask::GetCounter("rooms"), rooms(3, 11)),
        ("nothing is asked for", update("rooms", None, None, 0), Err(2)),
        ("a count beyond the capacity", update("rooms", None, Some(12), 0), Err(2)),
        ("a capacity below zero", update("rooms", Some(-1), None, 0), Err(2)),
        ("a count below zero", update("rooms", None, Some(-1), 0), Err(2)),
        ("too much", update("seats", None, None, 100), Err(2)),
        ("all three", update("seats", Some(25), Some(0), 25), seats(25, 25)),
        ("no room at all", update("seats", Some(0), None, 0), seats(0, 0)),
        ("nothing fits", update("seats", None, None, 1), Err(2)),
        ("the largest", update("seats", Some(i64::MAX), None, 0), seats(0, i64::MAX)),
        ("all of it", update("seats", None, None, i64::MAX), seats(i64::MAX, i64::MAX)),
        ("no more than that", update("seats", None, None, 1), Err(2)),
        ("bit by bit", update("seats", None, None, -1), seats(i64::MAX - 1, i64::MAX)),
    ])
    .await;
}

#[tokio::test]
async fn lists_are_answered_as_they_will_be() {
    let players = |capacity, values: &[&str]| Ok(listed("players", capacity, values));
    let maps = |capacity, values: &[&str]| Ok(listed("maps", capacity, values));
    let update = Ask::UpdateList;
    both(&[
        ("a list that is not there", Ask::GetList("nope"), Err(2)),
        ("nor can it be changed", update("nope", 1, &[], &["capacity"]), Err(2)),
        ("nor added to", Ask::Add("nope", "a"), Err(2)),
        ("nor taken from", Ask::Remove("nope", "a"), Err(2)),
        ("more than any list may have", update("players", 1001, &[], &["capacity"]), Err(2)),
        ("fewer than none", update("players", -1, &[], &["capacity"]), Err(2)),
        (
            "both",
            update("players", 90, &["player3", "player4"], &["capacity", "values"]),
            players(90, &["player3", "player4"]),
        ),
        (
            "what the mask names and is not there is cleared",
            update("players", 1, &[], &["values"]),
            players(90, &[]),
        ),
        ("a mask of nothing", update("players", 1, &["a"], &[]), players(90, &[])),
        ("one more", Ask::Add("players", "player9"), players(90, &["player9"])),
        ("twice", Ask::Add("players", "player9"), Err(2)),
        ("one that is not there", Ask::Remove("players", "nope"), Err(2)),
        ("one less", Ask::Remove("players", "player9"), players(90, &[])),
        ("a smaller capacity", update("maps", 8, &[], &["capacity"]), maps(8, &["one", "two"])),
        ("removed", Ask::Remove("maps", "one"), maps(8, &["two"])),
        ("and at the end again", Ask::Add("maps", "one"), maps(8, &["two", "one"])),
        (
            "what stays keeps its place",
            update("maps", 0, &["one", "x", "two"], &["values"]),
            maps(8, &["two", "one", "x"]),
        ),
        ("what does not fit is cut off", update("maps", 2, &[], &["capacity"]), maps(2, &["two", "one"])),
        ("full", Ask::Add("maps", "y"), Err(2)),
        ("as it is", Ask::GetList("maps"), maps(2, &["two", "one"])),
    ])
    .await;
}

#[tokio::test]
async fn players_come_and_go() {
    let yes = || Ok(json!({"bool": true}));
    let no = || Ok(json!({"bool": false}));
    let count = |count: &str| Ok(json!({"count": count}));
    both(&[
        ("nobody is tracked", Ask::Count, count("0")),
        ("no room", Ask::Connect("u1"), Err(2)),
        ("room", Ask::SetCapacity(5), Ok(json!({}))),
        ("one", Ask::Connect("u1"), yes()),
        ("the same again", Ask::Connect("u1"), no()),
        ("another", Ask::Connect("u2"), yes()),
        ("how many", Ask::Count, count("2")),
        ("of how many", Ask::Capacity, count("5")),
        ("who", Ask::Connected, Ok(json!({"list": ["u1", "u2"]}))),
        ("is one there", Ask::IsConnected("u1"), yes()),
        ("is another", Ask::IsConnected("u3"), no()),
        ("one leaves", Ask::Disconnect("u1"), yes()),
        ("who was not there", Ask::Disconnect("u1"), no()),
        ("less room sends nobody away", Ask::SetCapacity(0), Ok(json!({}))),
        ("who stays", Ask::Connected, Ok(json!({"list": ["u2"]}))),
        ("below zero", Ask::SetCapacity(-1), Err(2)),
    ])
    .await;
}

#[tokio::test]
async fn the_agent_hears_what_it_needs_to_come_to_the_same() {
    let mut stage = Stage::set().await;
    let view = countable("u1");
    let game = stage.offer(&view).await;
    let asks = [
        Ask::UpdateCounter("seats", Some(25), Some(0), 25),
        Ask::Add("maps", "three"),
        Ask::UpdateList("maps", 8, &[], &["capacity"]),
        Ask::SetCapacity(2),
        Ask::Connect("u1"),
        Ask::UpdateCounter("rooms", None, None, 2),
        Ask::Remove("maps", "one"),
    ];
    for ask in &asks {
        within("a call", by_rest(game.rest, ask)).await.expect("is done");
    }
    let after = stage.applied(&view, 7).await;
    let counters = after.status.counters.unwrap();
    assert_eq!(counters["seats"], Counter { count: Some(25), capacity: Some(25) });
    assert_eq!(counters["rooms"], Counter { count: Some(3), capacity: Some(10) });
    // A smaller capacity takes nothing back that was answered before.
    let maps = List { capacity: Some(8), values: Some(words(&["two", "three"])) };
    assert_eq!(after.status.lists.unwrap()["maps"], maps);
    let players = PlayersStatus { count: 1, capacity: 2, ids: Some(words(&["u1"])) };
    assert_eq!(after.status.players, Some(players));
}

#[tokio::test]
async fn what_is_pending_is_counted_once_and_what_others_write_is_seen() {
    let mut stage = Stage::set().await;
    let view = countable("u1");
    let game = stage.offer(&view).await;
    let more = Ask::UpdateCounter("rooms", None, None, 2);
    assert_eq!(by_rest(game.rest, &more).await, Ok(counted("rooms", 3, 10)));
    // The agent has done it, on top of what somebody else has written.
    let mut done = stage.applied(&view, 1).await;
    let rooms = done.status.counters.as_mut().unwrap().get_mut("rooms").unwrap();
    assert_eq!(rooms.count, Some(3));
    rooms.count = Some(7);
    stage.link.introduce("u1", &done, 1).await;
    let read =
        async { while by_rest(game.rest, &Ask::GetCounter("rooms")).await != Ok(counted("rooms", 7, 10)) {} };
    within("the counter as the API server has it", read).await;
    assert_eq!(by_rest(game.rest, &more).await, Ok(counted("rooms", 9, 10)));
    assert_eq!(by_rest(game.rest, &more).await, Err(2));
}

#[tokio::test]
async fn operations_that_nobody_has_confirmed_survive_the_death_of_the_program() {
    let agent = Agent::listen();
    let mut program = Program::start(&agent.socket());
    let (mut link, _) = agent.meet().await;
    let view = countable("u1");
    link.introduce("u1", &view, 0).await;
    let game = link.open("u1", 1).await;
    for _ in 0..5 {
        let more = Ask::UpdateCounter("rooms", None, None, 1);
        within("a call", by_rest(game.rest, &more)).await.expect("is done");
    }
    program.signal(rustix::process::Signal::KILL);
    program.ended().await;
    let _next = Program::start(&agent.socket());
    (link, _) = agent.meet().await;
    link.introduce("u1", &view, 0).await;
    link.pass("u1", &game, 1).await;
    assert_eq!(
        within("a read", by_rest(game.rest, &Ask::GetCounter("rooms"))).await,
        Ok(counted("rooms", 6, 10))
    );
    let mut after = view;
    while after.status.counters.as_ref().unwrap()["rooms"].count != Some(6) {
        let (_, _, change) = link.change().await;
        apply(&mut after, &change);
    }
}

#[tokio::test]
async fn bodies_are_read_as_the_gateway_reads_them() {
    let mut stage = Stage::set().await;
    let game = stage.offer(&countable("u1")).await;
    let (counter, list) = ("/v1beta1/counters/rooms", "/v1beta1/lists/players");
    let add = "/v1beta1/lists/players:addValue";
    let cases = [
        ("PATCH", counter, r#"{"count":5,"capacity":"11","other":1}"#, 200),
        ("PATCH", counter, r#"{"count":null,"countDiff":1}"#, 200),
        ("PATCH", counter, r#"{"count":{"value":"3"}}"#, 400),
        ("PATCH", counter, r#"{"countDiff":"many"}"#, 400),
        ("PATCH", counter, "[]", 400),
        ("PATCH", counter, "{}", 500),
        ("PUT", counter, "{}", 501),
        ("PATCH", list, r#"{"capacity":"90","foo":1}"#, 400),
        ("PATCH", list, r#"{"capacity":"90","values":[1]}"#, 400),
        ("PATCH", list, r#"{"capacity":"90","values":["player3","player4"]}"#, 200),
        ("PATCH", "/v1beta1/lists/players?updateMask=capacity", r#"{"capacity":80,"foo":1}"#, 200),
        ("PATCH", "/v1beta1/lists/players?update_mask=color", r#"{"capacity":80}"#, 500),
        ("PATCH", list, "{}", 200),
        ("POST", add, r#"{"value":5}"#, 400),
        ("POST", add, "", 200),
        ("POST", list, "{}", 501),
        ("POST", "/alpha/player/connect", r#"{"playerID":7}"#, 400),
        ("PUT", "/alpha/player/capacity", r#"{"count":7}"#, 200),
        ("POST", "/alpha/player/capacity", r#"{"count":7}"#, 501),
        ("GET", "/v1beta1/counters/", "", 404),
    ];
    for (method, path, body, status) in cases {
        let answer = ask_rest(game.rest, method, path, "", Some(body)).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.body);
    }
    let told = ask_rest(game.rest, "GET", list, "", None).await.json();
    assert_eq!(told, listed("players", 80, &["player3", "player4", ""]));
    let huge = json!({"value": "x".repeat(600 * 1024)}).to_string();
    let answer = ask_rest(game.rest, "POST", add, "", Some(&huge)).await;
    assert_eq!(answer.status, 400, "no object has room for it: {}", answer.body);
}
