//! What `berth-agent status --json` prints is what `docs/status.schema.json` says.

use std::path::Path;

use berth_agent::drain::Course;
use berth_agent::drain::notice::{Notice, Severity, Source};
use berth_agent::fleetiq::Standing;
use berth_agent::game_server::{Amount, Line, Moment};
use berth_agent::hook::{Holding, Stage};
use berth_agent::socket::views::{Heard, LeaseView, Status};
use berth_api::game_node::{GameNodeStatus, PortCount, Protection};
use berth_api::game_server::StatusPort;
use berth_api::lifecycle::State;
use jiff::Timestamp;
use serde_json::{Value, json};

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/status.schema.json");
    let text = std::fs::read_to_string(path).expect("the schema");
    serde_json::from_str(&text).expect("it is JSON")
}

/// As much of JSON Schema as ours uses. What the schema does not name is wrong here, though readers must bear it.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target =
            root.pointer(reference.trim_start_matches('#')).ok_or(format!("{at}: no {reference}"))?;
        return check(root, target, value, at);
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{at}: {value} is none of {allowed:?}"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_of_kind = match &schema["type"] {
        Value::String(one) => one == kind,
        Value::Array(several) => several.contains(&json!(kind)),
        _ => true,
    };
    if !is_of_kind {
        return Err(format!("{at}: {value} is no {}", schema["type"]));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            return Err(format!("{at}: {name} is missing"));
        }
    }
    for (name, part) in value.as_object().into_iter().flatten() {
        let of = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        let of = of.ok_or(format!("{at}: the schema has no {name}"))?;
        check(root, of, part, &format!("{at}.{name}"))?;
    }
    for part in value.as_array().into_iter().flatten() {
        check(root, &schema["items"], part, &format!("{at}[]"))?;
    }
    Ok(())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn line() -> Line {
    Line {
        namespace: "games".into(),
        name: "lobby".into(),
        uid: "u".into(),
        state: State::Allocated,
        since: at(1).to_string(),
        deleting: false,
        address: "10.0.0.1".into(),
        ports: vec![StatusPort { name: Some("game".into()), port: 7000 }],
        pod: Some("p".into()),
        sdk: "open".into(),
        reason: Some("because".into()),
        players: Some(Amount { count: 1, capacity: 2 }),
        amounts: [("rooms".to_owned(), Amount { count: 1, capacity: 2 })].into(),
        history: vec![Moment { state: State::Allocated, since: at(1).to_string() }],
    }
}

fn courses() -> [Course; 5] {
    let notice = || Notice {
        source: Source::Spot,
        severity: Severity::Spot,
        reason: "because".into(),
        deadline: Some(at(100)),
    };
    [
        Course::Open,
        Course::Closed { notice: notice(), let_go_at: at(30) },
        Course::Spare { notice: notice(), is_empty: true },
        Course::Draining { notice: notice() },
        Course::Drained { notice: notice() },
    ]
}

/// How FleetIQ and a lifecycle hook stand.
struct Stands(Standing, Holding);

fn status(course: &Course, picture: &GameNodeStatus, stands: &Stands, servers: Vec<Line>) -> Value {
    let lease = LeaseView { held: true, epoch: 1, remaining_milliseconds: 2 };
    let heard = Heard { lease, course, standing: &stands.0, holding: &stands.1 };
    serde_json::to_value(Status::new("node-1", picture, heard, servers)).expect("JSON")
}

#[test]
fn a_status_full_and_empty_is_as_the_schema_says() {
    let schema = schema();
    let picture = GameNodeStatus {
        phase_since: Some(at(1).to_string()),
        phase_reason: Some("because".into()),
        ports: [("default".to_owned(), PortCount { total: 2, free: 1 })].into(),
        ..GameNodeStatus::default()
    };
    let standing = Standing {
        protection: Protection::Protected,
        group: Some("pvp".into()),
        instance: Some("i-1".into()),
        last_beat: Some(at(70)),
        problem: Some("none".into()),
        ..Standing::default()
    };
    let holding = |stage| Holding {
        hook: "drain".parse().ok(),
        group: Some("pvp".into()),
        stage,
        last_beat: Some(at(70)),
        expires_at: Some(at(100)),
        problem: Some("none".into()),
    };
    for stage in [Stage::Idle, Stage::Asked, Stage::Waits, Stage::Passed, Stage::Completed] {
        let stands = Stands(standing.clone(), holding(stage));
        let full = status(&Course::Open, &picture, &stands, Vec::new());
        check(&schema, &schema, &full, "status").expect("as the schema says");
    }
    let standing = Stands(standing, holding(Stage::Waits));
    let none = Stands(Standing::default(), Holding::default());
    for course in courses() {
        let full = status(&course, &picture, &standing, vec![line()]);
        check(&schema, &schema, &full, "status").expect("as the schema says");
        let empty = status(&course, &GameNodeStatus::default(), &none, Vec::new());
        check(&schema, &schema, &empty, "status").expect("as the schema says");
        assert!(check(&schema, &schema, &json!({}), "status").is_err(), "the check refuses something");
    }
    // Every field that the schema names is there in the fullest status.
    let full = status(&courses()[1], &picture, &standing, vec![line()]);
    for name in schema["properties"].as_object().expect("properties").keys() {
        assert!(full.get(name).is_some(), "{name}");
    }
    for name in schema["$defs"]["server"]["properties"].as_object().expect("properties").keys() {
        assert!(full["servers"][0].get(name).is_some(), "{name}");
    }
}
