//! The shapes that clients of the gateway rely on.

use berth_api::game_server::{Counter, GameServerStatus, HealthRule, List, StatusPort};
use berth_api::lifecycle::State;
use berth_api::link::View;
use serde_json::json;

use super::*;

fn view() -> View {
    View {
        name: "local".to_owned(),
        namespace: "default".to_owned(),
        uid: "1234".to_owned(),
        resource_version: "77".to_owned(),
        generation: 1,
        creation_timestamp: 1_700_000_000,
        labels: [("islocal".to_owned(), "true".to_owned())].into(),
        annotations: [("annotation".to_owned(), "true".to_owned())].into(),
        health: Some(HealthRule {
            disabled: false,
            period: std::time::Duration::from_secs(3),
            failure_threshold: 5,
            initial_delay: std::time::Duration::from_secs(10),
        }),
        status: GameServerStatus {
            state: Some(State::Ready),
            address: "127.0.0.1".to_owned(),
            ports: Some(vec![StatusPort { name: Some("default".to_owned()), port: 7777 }]),
            counters: Some([("rooms".to_owned(), Counter { count: Some(1), capacity: Some(10) })].into()),
            lists: Some([("players".to_owned(), List { capacity: Some(100), values: None })].into()),
            ..GameServerStatus::default()
        },
        ..View::default()
    }
}

fn shown(view: &View) -> GameServer {
    crate::server::shape::message(view)
}

#[test]
fn a_server_has_every_field_and_its_64_bit_integers_are_strings() {
    let read: Value = serde_json::from_str(&game_server(&shown(&view()))).unwrap();
    assert_eq!(
        read,
        json!({
            "object_meta": {
                "name": "local", "namespace": "default", "uid": "1234", "resource_version": "77",
                "generation": "1", "creation_timestamp": "1700000000", "deletion_timestamp": "0",
                "annotations": {"annotation": "true"}, "labels": {"islocal": "true"},
            },
            "spec": {"health": {
                "disabled": false, "period_seconds": 3, "failure_threshold": 5, "initial_delay_seconds": 10,
            }},
            "status": {
                "state": "Ready", "address": "127.0.0.1", "addresses": [],
                "ports": [{"name": "default", "port": 7777}], "players": null,
                "counters": {"rooms": {"count": "1", "capacity": "10"}},
                "lists": {"players": {"capacity": "100", "values": []}},
            },
        })
    );
}

#[test]
fn what_is_not_there_is_empty_or_null() {
    let read: Value = serde_json::from_str(&game_server(&shown(&View::default()))).unwrap();
    assert_eq!(read["spec"], json!({"health": null}));
    assert_eq!(read["object_meta"]["labels"], json!({}));
    assert_eq!(
        read["status"],
        json!({
            "state": "", "address": "", "addresses": [], "ports": [], "players": null, "counters": {}, "lists": {}
        })
    );
}

#[test]
fn a_line_of_a_stream_begins_with_its_result() {
    assert!(result(&shown(&view())).starts_with(r#"{"result":{"object_meta":"#));
    assert!(!result(&shown(&view())).contains('\n'));
}

#[test]
fn an_error_has_code_message_and_details() {
    assert_eq!(error(Code::NotFound, "Not Found"), r#"{"code":5,"message":"Not Found","details":[]}"#);
}

#[test]
fn key_and_value() {
    let good = [
        (r#"{"key":"foo","value":"bar"}"#, ("foo", "bar")),
        (r#"{"key":"foo","value":null,"other":1}"#, ("foo", "")),
        ("", ("", "")),
        (" \n", ("", "")),
        (r#"{"key":"a"} garbage"#, ("a", "")),
    ];
    for (body, (key, value)) in good {
        let read = key_value(body.as_bytes()).unwrap();
        assert_eq!((read.key.as_str(), read.value.as_str()), (key, value), "{body}");
    }
    for bad in [r#"{"key":"foo","value":5}"#, "[]", "null", "5", "{", "nonsense", r#"{"key":{}}"#] {
        assert!(key_value(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn seconds_are_numbers_or_strings() {
    let good = [
        (r#"{"seconds":"5"}"#, 5),
        (r#"{"seconds":5}"#, 5),
        (r#"{"seconds":5.0}"#, 5),
        (r#"{"seconds":"-9223372036854775808"}"#, i64::MIN),
        (r#"{"seconds":null}"#, 0),
        ("{}", 0),
        ("", 0),
    ];
    for (body, seconds) in good {
        assert_eq!(duration(body.as_bytes()).unwrap().seconds, seconds, "{body}");
    }
    for bad in [
        r#"{"seconds":"five"}"#,
        r#"{"seconds":""}"#,
        r#"{"seconds":5.5}"#,
        r#"{"seconds":[]}"#,
        r#"{"seconds":1e300}"#,
    ] {
        assert!(duration(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_stream_of_pings_is_counted_however_it_is_cut() {
    let text = b"{}{} \n{\"a\":{\"b\":1}}\n";
    for cut in 1..text.len() {
        let mut bytes = Vec::new();
        let mut count = 0;
        for piece in text.chunks(cut) {
            bytes.extend_from_slice(piece);
            count += take_objects(&mut bytes).unwrap();
        }
        assert_eq!((count, bytes.len()), (3, 0), "cut at {cut}");
    }
}

#[test]
fn pings_before_a_broken_one_count() {
    let mut bytes = b"{}{}]".to_vec();
    assert_eq!(take_objects(&mut bytes).unwrap(), 2);
    assert!(take_objects(&mut bytes).is_err());
    assert!(take_objects(&mut b"5".to_vec()).is_err());
    let mut half = b"{\"a\"".to_vec();
    assert_eq!(take_objects(&mut half).unwrap(), 0);
    assert_eq!(half.len(), 4);
}
