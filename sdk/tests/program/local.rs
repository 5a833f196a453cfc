//! `berth-sdk --local`: what a game meets on the machine of whoever programs it.

use berth_api::sdk::v1::sdk_client::SdkClient;
use berth_api::sdk::v1::{Duration, Empty, KeyValue};
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;

use crate::agent::{Program, within};
use crate::rest::ask;

#[tokio::test]
async fn a_game_meets_the_usual_server_and_what_it_asks_for_happens() {
    let program = Program::local(None);
    let rest = program.local_address("Rest").await;
    let shown = ask(rest, "GET", "/gameserver", "", None).await.json();
    assert_eq!(shown["object_meta"]["generation"], json!("1"));
    assert_eq!(shown["object_meta"]["deletion_timestamp"], json!("0"));
    assert_eq!(shown["object_meta"]["labels"], json!({"islocal": "true"}));
    let status = &shown["status"];
    assert_eq!((&status["state"], &status["addresses"]), (&json!("Ready"), &json!([])));
    assert_eq!(status["ports"], json!([{"name": "default", "port": 7777}]));
    assert_eq!(
        (&status["counters"]["rooms"], &status["players"]),
        (&json!({"count": "1", "capacity": "10"}), &json!(null))
    );

    let calls = [
        ("POST", "/ready", Some("{}"), 200, json!({})),
        ("POST", "/ready", None, 200, json!({})),
        ("POST", "/health", Some("{}"), 200, json!({})),
        ("PUT", "/metadata/label", Some(r#"{"key":"foo","value":"bar"}"#), 200, json!({})),
        (
            "PATCH",
            "/v1beta1/counters/rooms",
            Some(r#"{"count":"5","capacity":"11"}"#),
            200,
            json!({"name": "rooms", "count": "5", "capacity": "11"}),
        ),
        (
            "PATCH",
            "/v1beta1/lists/players",
            Some(r#"{"capacity":"90","values":["player3","player4"]}"#),
            200,
            json!({"name": "players", "capacity": "90", "values": ["player3", "player4"]}),
        ),
        ("PUT", "/alpha/player/capacity", Some(r#"{"count":"5"}"#), 200, json!({})),
        ("POST", "/alpha/player/connect", Some(r#"{"playerID":"u1"}"#), 200, json!({"bool": true})),
        ("POST", "/allocate", None, 200, json!({})),
    ];
    for (method, path, body, code, expected) in calls {
        let answer = ask(rest, method, path, "", body).await;
        assert_eq!((answer.status, answer.json()), (code, expected), "{method} {path}");
    }
    let shown = ask(rest, "GET", "/gameserver", "", None).await.json();
    assert_eq!(shown["object_meta"]["labels"]["agones.dev/sdk-foo"], json!("bar"));
    assert_eq!(shown["status"]["state"], json!("Allocated"));
    assert_eq!(shown["status"]["counters"]["rooms"], json!({"count": "5", "capacity": "11"}));
    assert_eq!(shown["status"]["players"], json!({"count": "1", "capacity": "5", "ids": ["u1"]}));
}

#[tokio::test]
async fn the_same_server_speaks_grpc_and_a_reservation_ends() {
    let program = Program::local(None);
    let address = format!("http://{}", program.local_address("Grpc").await);
    let mut client = within("a connection", SdkClient::connect(address)).await.expect("connects");
    let mut watch = client.watch_game_server(Empty {}).await.expect("watches").into_inner();
    let state = |server: berth_api::sdk::v1::GameServer| server.status.expect("a status").state;
    assert_eq!(state(within("the present", watch.next()).await.expect("one").expect("one")), "Ready");
    client.reserve(Duration { seconds: 1 }).await.expect("is done");
    let shown = client.get_game_server(Empty {}).await.expect("is shown").into_inner();
    assert_eq!(state(shown), "Reserved", "a call is answered once it has happened");
    for expected in ["Reserved", "Ready"] {
        let seen = within(expected, async {
            loop {
                let seen = state(watch.next().await.expect("open").expect("one"));
                if seen == expected {
                    return seen;
                }
            }
        });
        assert_eq!(seen.await, expected);
    }
    let pair = KeyValue { key: "bad key".to_owned(), value: String::new() };
    assert_eq!(client.set_label(pair).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    client.shutdown(Empty {}).await.expect("is done");
    let shown = client.get_game_server(Empty {}).await.expect("the program goes on").into_inner();
    assert_eq!(state(shown), "Shutdown");
}

async fn shown(rest: std::net::SocketAddr) -> Value {
    ask(rest, "GET", "/gameserver", "", None).await.json()
}

#[tokio::test]
async fn a_file_is_the_server_and_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.yaml");
    std::fs::write(&path, "metadata: {name: mine}\nspec: {counters: {rooms: {count: 3, capacity: 9}}}\n")
        .unwrap();
    let program = Program::local(Some(&path));
    let rest = program.local_address("Rest").await;
    let first = shown(rest).await;
    assert_eq!((&first["status"]["state"], &first["status"]["counters"]), (&json!(""), &json!({})));
    assert_eq!(first["object_meta"]["creation_timestamp"], json!("-62135596800"));
    assert_eq!(
        (&first["object_meta"]["name"], &first["object_meta"]["generation"]),
        (&json!("mine"), &json!("0"))
    );
    ask(rest, "POST", "/ready", "", None).await;
    assert_eq!(shown(rest).await["status"]["state"], json!("Ready"));
    // As many editors do: another file takes its name.
    let other = folder.path().join("other");
    std::fs::write(&other, "metadata: {name: yours}\nstatus: {state: Reserved, address: 10.0.0.9}\n")
        .unwrap();
    std::fs::rename(&other, &path).unwrap();
    within("the new server", async { while shown(rest).await["object_meta"]["name"] != json!("yours") {} })
        .await;
    assert_eq!(shown(rest).await["status"]["state"], json!("Reserved"));
    ask(rest, "POST", "/allocate", "", None).await;
    assert_eq!(shown(rest).await["status"]["state"], json!("Allocated"));
}

#[tokio::test]
async fn a_file_that_holds_no_server_is_named() {
    let mut program = Program::local(Some(std::path::Path::new("/nowhere/server.yaml")));
    assert_eq!(program.ended().await.code(), Some(1));
    program.logged("/nowhere/server.yaml").await;
}
