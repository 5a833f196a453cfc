//! The example game as a process, against an SDK server made from the server half of the protocol.

mod fake_sdk;
mod process;

use berth_api::sdk::v1::game_server::Status as GameServerStatus;
use berth_api::sdk::v1::game_server::status::Port;

use crate::fake_sdk::{FakeSdk, game_server};
use crate::process::Process;

#[tokio::test]
async fn ready_and_pings_come_by_themselves() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &["--health-period", "20ms"]).await;
    sdk.calls_until("Ready and three pings", |calls| {
        calls.contains(&"Ready".to_owned()) && calls.iter().filter(|call| *call == "Health").count() >= 3
    })
    .await;
    assert_eq!(game.ask("a nonce of 17").await, "ACK: a nonce of 17\n");
}

#[tokio::test]
async fn commands_reach_the_sdk_and_are_answered() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &["--ready=false", "--health-period", "1h"]).await;
    sdk.calls_until("the first ping", |calls| calls == ["Health"]).await;
    let cases = [
        ("GAMESERVER", "NAME: lobby\n", "GetGameServer"),
        ("READY\n", "ACK: READY\n", "Ready"),
        ("ALLOCATE", "ACK: ALLOCATE\n", "Allocate"),
        ("RESERVE 1500ms", "ACK: RESERVE 1500ms\n", "Reserve 2"),
        ("LABEL map dunes", "ACK: LABEL map dunes\n", "SetLabel map=dunes"),
        ("ANNOTATION note a b", "ACK: ANNOTATION note a b\n", "SetAnnotation note=a b"),
        ("HEALTH", "ACK: HEALTH\n", "Health"),
        ("GET_COUNTER_COUNT rooms", "COUNTER: 1\n", "GetCounter rooms"),
        ("INCREMENT_COUNTER rooms 4", "COUNTER: 5\n", "UpdateCounter rooms diff=4"),
        ("SET_COUNTER_CAPACITY rooms 20", "CAPACITY: 20\n", "UpdateCounter rooms capacity=20"),
        ("APPEND_LIST_VALUE players bob", "VALUES: ann,bob\n", "AddListValue players bob"),
        ("LIST_CONTAINS players ann", "FOUND: true\n", "GetList players"),
        ("SET_LIST_CAPACITY players 8", "CAPACITY: 8\n", "UpdateList players capacity=8"),
        ("DELETE_LIST_VALUE players bob", "VALUES: ann\n", "RemoveListValue players bob"),
    ];
    for (number, (line, answer, call)) in cases.into_iter().enumerate() {
        assert_eq!(game.ask(line).await, answer, "{line}");
        let calls = sdk.calls_until(line, |calls| calls.len() >= number + 2).await;
        assert_eq!(calls.last().map(String::as_str), Some(call), "{line}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_sdk_and_a_wrong_command_are_told_to_the_sender() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &[]).await;
    for (line, answer) in [
        ("LABEL bad! x", "ERROR: SetLabel: InvalidArgument: key is no qualified name\n"),
        ("GET_COUNTER none", "ERROR: GetCounter: NotFound: no such counter\n"),
        ("RESERVE soon", "ERROR: usage: RESERVE [duration, such as 10s]\n"),
    ] {
        assert_eq!(game.ask(line).await, answer, "{line}");
    }
    let answer = game.ask("PLAYER_CONNECT ann").await;
    assert!(answer.starts_with("ERROR: PlayerConnect: Unimplemented"), "{answer}");
}

#[tokio::test]
async fn tcp_answers_line_by_line() {
    let sdk = FakeSdk::start().await;
    let game = Process::start(&sdk, &["--udp=false"]).await;
    let answers = game.converse("hello\nGAMESERVER\r\nLABEL map\n").await;
    assert_eq!(answers, "ACK: hello\nNAME: lobby\nERROR: usage: LABEL [key value]\n");
}

#[tokio::test]
async fn passthrough_listens_on_the_host_port_once_it_is_known() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::launch(sdk.port(), &["--passthrough"]);
    sdk.calls_until("a watch", |calls| calls.contains(&"WatchGameServer".to_owned())).await;
    // A port that was free a moment ago: whoever takes it meanwhile fails the game, which says so.
    let free = FakeSdk::reserve().port();
    let mut known = game_server("Scheduled");
    let ports = vec![Port { name: "default".to_owned(), port: free.into() }];
    known.status = known.status.map(|status| GameServerStatus { ports, ..status });
    sdk.publish(known);
    assert_eq!(game.line_with("listening udp=").await, format!("listening udp=127.0.0.1:{free}"));
    assert_eq!(game.line_with("listening tcp=").await, format!("listening tcp=127.0.0.1:{free}"));
}

#[tokio::test]
async fn exit_answers_calls_shutdown_and_ends_with_0() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &[]).await;
    assert_eq!(game.ask("EXIT").await, "ACK: EXIT\n");
    assert_eq!(game.exit_code().await, Some(0));
    assert!(sdk.calls().contains(&"Shutdown".to_owned()));
}

#[tokio::test]
async fn crash_ends_with_its_code_and_calls_nothing() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &[]).await;
    assert_eq!(game.ask("CRASH 3").await, "ACK: CRASH 3\n");
    assert_eq!(game.exit_code().await, Some(3));
    assert!(!sdk.calls().contains(&"Shutdown".to_owned()));
}

#[tokio::test]
async fn sigterm_ends_it_cleanly() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &[]).await;
    game.terminate();
    assert_eq!(game.exit_code().await, Some(0));
}

#[tokio::test]
async fn an_unhealthy_game_pings_no_more() {
    let sdk = FakeSdk::start().await;
    let arguments = ["--ready=false", "--health-period", "5ms", "--automatic-shutdown-delay", "300ms"];
    let mut game = Process::start(&sdk, &arguments).await;
    sdk.calls_until("a ping", |calls| calls.contains(&"Health".to_owned())).await;
    assert_eq!(game.ask("UNHEALTHY").await, "ACK: UNHEALTHY\n");
    // Calls on the same connection: when these are answered, pings sent before have been read.
    for _ in 0..3 {
        assert_eq!(game.ask("GAMESERVER").await, "NAME: lobby\n");
    }
    assert_eq!(game.ask("READY").await, "ACK: READY\n");
    assert_eq!(game.exit_code().await, Some(0));
    let calls = sdk.calls();
    let ready = calls.iter().position(|call| call == "Ready").expect("Ready was called");
    let later = calls[ready..].iter().filter(|call| *call == "Health").count();
    assert!(later < 10, "{later} pings in the 300 ms after UNHEALTHY, of about 60 without it");
}

#[tokio::test]
async fn watch_logs_each_change() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &[]).await;
    assert_eq!(game.ask("WATCH").await, "ACK: WATCH\n");
    game.line_with("watch game_server=lobby state=Ready").await;
    sdk.publish(game_server("Reserved"));
    game.line_with("watch game_server=lobby state=Reserved").await;
}

#[tokio::test]
async fn it_can_end_by_itself_after_ready_or_allocated() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &["--automatic-shutdown-delay", "10ms"]).await;
    assert_eq!(game.exit_code().await, Some(0));
    assert!(sdk.calls().contains(&"Shutdown".to_owned()));

    let sdk = FakeSdk::start().await;
    let mut game = Process::start(&sdk, &["--automatic-shutdown-after-allocated"]).await;
    sdk.calls_until("Ready and a watch", |calls| {
        calls.contains(&"Ready".to_owned()) && calls.contains(&"WatchGameServer".to_owned())
    })
    .await;
    assert!(!sdk.calls().contains(&"Shutdown".to_owned()));
    let mut allocated = game_server("Allocated");
    allocated.status.get_or_insert_with(GameServerStatus::default).address = "192.0.2.1".to_owned();
    sdk.publish(allocated);
    assert_eq!(game.exit_code().await, Some(0));
    assert!(sdk.calls().contains(&"Shutdown".to_owned()));
}

#[tokio::test]
async fn an_init_container_pings_once_and_is_done() {
    let sdk = FakeSdk::start().await;
    let mut game = Process::launch(sdk.port(), &["--init-health"]);
    assert_eq!(game.exit_code().await, Some(0));
    assert_eq!(sdk.calls(), ["Health"]);
}

#[tokio::test]
async fn an_sdk_server_that_comes_late_is_waited_for() {
    let reserved = FakeSdk::reserve();
    let port = reserved.port();
    let mut game = Process::launch(port, &[]);
    game.line_with("sdk not reachable yet").await;
    let sdk = reserved.listen();
    sdk.calls_until("Ready", |calls| calls.contains(&"Ready".to_owned())).await;
}

#[tokio::test]
async fn an_sdk_server_that_never_comes_is_named_in_the_end() {
    let reserved = FakeSdk::reserve();
    let mut game = Process::launch(reserved.port(), &["--connect-limit", "0s"]);
    assert_eq!(game.exit_code().await, Some(1));
    let said = game.errors().await;
    assert!(
        said.contains(&format!("could not reach the SDK server at http://127.0.0.1:{}", reserved.port())),
        "{said}"
    );
}

#[tokio::test]
async fn bad_configuration_ends_with_64() {
    for arguments in [&["--udp=false", "--tcp=false"][..], &["--ready-delay", "soon"], &["--nonsense"]] {
        let mut game = Process::launch(1, arguments);
        assert_eq!(game.exit_code().await, Some(64), "{arguments:?}");
    }
}
