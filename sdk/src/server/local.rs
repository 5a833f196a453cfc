//! A game server that stands in no cluster: what it is at first, and what becomes of it when its game asks for something.
//! Pure.

use berth_api::game_server::{Counter, GameServerStatus, HealthRule, List, StatusPort};
use berth_api::lifecycle::State;
use berth_api::link::{Change, View};
use berth_api::names::{LAST_ALLOCATED_ANNOTATION, SDK_PREFIX};
use jiff::Timestamp;
use serde::Deserialize;

/// Unix seconds of a time that nobody has given, as clients of the protocol know it: the first second of year 1.
const NO_TIME: i64 = -62_135_596_800;

/// What is read of a file with a GameServer: what a game may see, as it is written there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    metadata: WrittenMetadata,
    spec: WrittenSpec,
    status: GameServerStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WrittenMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    generation: i64,
    creation_timestamp: Option<Timestamp>,
    labels: std::collections::BTreeMap<String, String>,
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WrittenSpec {
    health: WrittenHealth,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WrittenHealth {
    disabled: bool,
    period_seconds: u32,
    failure_threshold: u32,
    initial_delay_seconds: u32,
}

/// The server of a file, in YAML or JSON.
pub(crate) fn read(text: &str) -> Result<View, serde_yaml_ng::Error> {
    let Written { metadata, spec, status } = serde_yaml_ng::from_str(text)?;
    let seconds = |seconds: u32| std::time::Duration::from_secs(seconds.into());
    Ok(View {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp.map_or(NO_TIME, Timestamp::as_second),
        deletion_timestamp: 0,
        annotations: metadata.annotations,
        labels: metadata.labels,
        health: Some(HealthRule {
            disabled: spec.health.disabled,
            period: seconds(spec.health.period_seconds),
            failure_threshold: spec.health.failure_threshold,
            initial_delay: seconds(spec.health.initial_delay_seconds),
        }),
        status,
    })
}

/// The server that is there without a file.
pub(crate) fn usual(now: Timestamp) -> View {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    View {
        name: "local".to_owned(),
        namespace: "default".to_owned(),
        uid: "1234".to_owned(),
        resource_version: "v1".to_owned(),
        generation: 1,
        creation_timestamp: now.as_second(),
        deletion_timestamp: 0,
        annotations: [("annotation".to_owned(), "true".to_owned())].into(),
        labels: [("islocal".to_owned(), "true".to_owned())].into(),
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
            lists: Some(
                [(
                    "players".to_owned(),
                    List { capacity: Some(100), values: Some(words(&["test0", "test1", "test2"])) },
                )]
                .into(),
            ),
            ..GameServerStatus::default()
        },
    }
}

/// Does what the game asks for: here nothing stands against it.
pub(crate) fn apply(view: &mut View, change: &Change) {
    let status = &mut view.status;
    match change {
        Change::Ready => (status.state, status.reserved_until) = (Some(State::Ready), None),
        Change::Allocate { at } => {
            (status.state, status.reserved_until) = (Some(State::Allocated), None);
            view.annotations.insert(LAST_ALLOCATED_ANNOTATION.to_owned(), at.clone());
        }
        Change::Reserve { until } => {
            (status.state, status.reserved_until) = (Some(State::Reserved), until.clone());
        }
        Change::Shutdown => (status.state, status.reserved_until) = (Some(State::Shutdown), None),
        Change::Label { key, value } => {
            view.labels.insert(format!("{SDK_PREFIX}{key}"), value.clone());
        }
        Change::Annotation { key, value } => {
            view.annotations.insert(format!("{SDK_PREFIX}{key}"), value.clone());
        }
        Change::Counter { name, by } => {
            if let Some(counter) = status.counters.as_mut().and_then(|counters| counters.get_mut(name)) {
                *counter = by.apply(counter);
            }
        }
        Change::List { name, by } => {
            if let Some(list) = status.lists.as_mut().and_then(|lists| lists.get_mut(name)) {
                *list = by.apply(list);
            }
        }
        Change::Players { by } => {
            status.players = Some(by.apply(&status.players.clone().unwrap_or_default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_as_it_is_written() {
        let text = "apiVersion: agones.dev/v1\nkind: GameServer\nmetadata:\n  name: mine\n  labels: {a: b}\n\
                    spec:\n  counters: {rooms: {count: 3, capacity: 9}}\n  template: {spec: {containers: []}}\n";
        let view = read(text).unwrap();
        assert_eq!((view.name.as_str(), view.labels["a"].as_str()), ("mine", "b"));
        assert_eq!((view.creation_timestamp, view.generation), (-62_135_596_800, 0));
        assert_eq!((view.status.state, view.status.counters), (None, None));
        let json = r#"{"status":{"state":"Scheduled","counters":{"rooms":{"count":3,"capacity":9}}}}"#;
        let view = read(json).unwrap();
        assert_eq!(view.status.state, Some(State::Scheduled));
        assert_eq!(view.status.counters.unwrap()["rooms"].count, Some(3));
        assert!(read("status: {state: Dancing}").is_err());
        assert!(read("[").is_err());
    }

    #[test]
    fn what_is_asked_for_happens() {
        let mut view = usual(Timestamp::UNIX_EPOCH);
        apply(&mut view, &Change::Reserve { until: Some("t".to_owned()) });
        assert_eq!(view.status.reserved_until.as_deref(), Some("t"));
        apply(&mut view, &Change::Allocate { at: "t1".to_owned() });
        assert_eq!((view.session().as_deref(), view.status.reserved_until), (Some("t1"), None));
    }
}
