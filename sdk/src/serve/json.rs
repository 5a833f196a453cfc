//! The JSON of the REST gateway. Pure.
//!
//! Names are those of the protocol's messages, every field is written, 64-bit integers are strings, and a message that
//! is not there is `null`. What is read is taken more generously: numbers or strings, unknown fields ignored.

use std::collections::BTreeMap;

use berth_api::sdk::beta;
use berth_api::sdk::v1::game_server::{ObjectMeta, Spec, Status, spec, status};
use berth_api::sdk::v1::{Duration, GameServer, KeyValue};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use tonic::Code;

/// What cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum JsonError {
    #[error("the body is not JSON: {reason}")]
    Syntax { reason: String },
    #[error("the body must be a JSON object")]
    NotAnObject,
    #[error("{field:?} must be a string")]
    NotAString { field: &'static str },
    #[error("{field:?} must be a 64-bit integer, as a number or a string")]
    NotAnInteger { field: &'static str },
    #[error("{field:?} must be an array of strings")]
    NotStrings { field: &'static str },
    #[error("a list has no field {field:?}")]
    NotInList { field: String },
}

/// Takes the first object from a body; an empty body is an empty message, and what follows the object is ignored.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, JsonError> {
    match serde_json::Deserializer::from_slice(body).into_iter::<Value>().next() {
        None => Ok(Map::new()),
        Some(Ok(Value::Object(object))) => Ok(object),
        Some(Ok(_)) => Err(JsonError::NotAnObject),
        Some(Err(error)) => Err(JsonError::Syntax { reason: error.to_string() }),
    }
}

/// Takes whole objects from the front of a stream's bytes and says how many; what is not whole yet stays.
pub(super) fn take_objects(bytes: &mut Vec<u8>) -> Result<usize, JsonError> {
    let mut objects = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let (mut count, mut end) = (0, 0);
    let ended = loop {
        match objects.next() {
            None => break Ok(()),
            Some(Ok(Value::Object(_))) => (count, end) = (count + 1, objects.byte_offset()),
            Some(Ok(_)) => break Err(JsonError::NotAnObject),
            Some(Err(error)) if error.is_eof() => break Ok(()),
            Some(Err(error)) => break Err(JsonError::Syntax { reason: error.to_string() }),
        }
    };
    // Objects before a broken one count; the caller asks again and then finds the broken one first.
    match ended {
        Err(error) if count == 0 => Err(error),
        Ok(()) | Err(_) => {
            bytes.drain(..end);
            if bytes.iter().all(u8::is_ascii_whitespace) {
                bytes.clear();
            }
            Ok(count)
        }
    }
}

pub(super) fn key_value(body: &[u8]) -> Result<KeyValue, JsonError> {
    let object = object(body)?;
    Ok(KeyValue { key: string(&object, "key")?, value: string(&object, "value")? })
}

pub(super) fn duration(body: &[u8]) -> Result<Duration, JsonError> {
    Ok(Duration { seconds: integer(&object(body)?, "seconds")? })
}

/// What is asked of a counter; who it is stands in the path.
pub(super) fn counter_update(body: &[u8], name: String) -> Result<beta::CounterUpdateRequest, JsonError> {
    let object = object(body)?;
    Ok(beta::CounterUpdateRequest {
        name,
        count: optional_integer(&object, "count")?,
        capacity: optional_integer(&object, "capacity")?,
        count_diff: integer(&object, "countDiff")?,
    })
}

/// What is asked of a list; who it is stands in the path. Without a mask, the fields that are there are what is meant.
pub(super) fn list_update(
    body: &[u8],
    name: String,
    mask: Option<Vec<String>>,
) -> Result<beta::UpdateListRequest, JsonError> {
    let object = object(body)?;
    let paths = match mask {
        Some(paths) => paths,
        None => {
            let mut fields: Vec<String> = object.keys().cloned().collect();
            fields.sort();
            if let Some(field) = fields.iter().find(|field| !LIST_FIELDS.contains(&field.as_str())) {
                return Err(JsonError::NotInList { field: field.chars().take(64).collect() });
            }
            fields
        }
    };
    let list =
        beta::List { name, capacity: integer(&object, "capacity")?, values: strings(&object, "values")? };
    let update_mask = Some(prost_types::FieldMask { paths });
    Ok(beta::UpdateListRequest { list: Some(list), update_mask })
}

const LIST_FIELDS: [&str; 3] = ["name", "capacity", "values"];

/// One text field.
pub(super) fn text(body: &[u8], field: &'static str) -> Result<String, JsonError> {
    string(&object(body)?, field)
}

/// One integer field.
pub(super) fn number(body: &[u8], field: &'static str) -> Result<i64, JsonError> {
    integer(&object(body)?, field)
}

fn strings(object: &Map<String, Value>, field: &'static str) -> Result<Vec<String>, JsonError> {
    let values = match object.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(_) => return Err(JsonError::NotStrings { field }),
    };
    let texts = values.iter().map(|value| value.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or(JsonError::NotStrings { field })
}

fn string(object: &Map<String, Value>, field: &'static str) -> Result<String, JsonError> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(JsonError::NotAString { field }),
    }
}

fn integer(object: &Map<String, Value>, field: &'static str) -> Result<i64, JsonError> {
    optional_integer(object, field).map(Option::unwrap_or_default)
}

fn optional_integer(object: &Map<String, Value>, field: &'static str) -> Result<Option<i64>, JsonError> {
    let number = match object.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => serde_json::from_str::<serde_json::Number>(text).ok(),
        Some(Value::Number(number)) => Some(number.clone()),
        Some(_) => None,
    };
    number.as_ref().and_then(whole).map(Some).ok_or(JsonError::NotAnInteger { field })
}

/// A number without a fraction, also one that is written with a point or an exponent.
fn whole(number: &serde_json::Number) -> Option<i64> {
    /// Up to here a float tells every integer apart.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|_| number.is_f64())?;
        #[allow(clippy::cast_possible_truncation, reason = "it is whole and in range")]
        (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
    })
}

/// An answer without content.
pub(super) const EMPTY: &str = "{}";

/// A server.
pub(super) fn game_server(shown: &GameServer) -> String {
    write(&ShownServer::from(shown))
}

/// A counter.
pub(super) fn counter(counter: &beta::Counter) -> String {
    #[derive(Serialize)]
    struct Shown<'a> {
        name: &'a str,
        #[serde(serialize_with = "as_string")]
        count: i64,
        #[serde(serialize_with = "as_string")]
        capacity: i64,
    }
    write(&Shown { name: &counter.name, count: counter.count, capacity: counter.capacity })
}

/// A list.
pub(super) fn list(list: &beta::List) -> String {
    #[derive(Serialize)]
    struct Shown<'a> {
        name: &'a str,
        #[serde(serialize_with = "as_string")]
        capacity: i64,
        values: &'a [String],
    }
    write(&Shown { name: &list.name, capacity: list.capacity, values: &list.values })
}

/// Yes or no.
pub(super) fn bool(bool: bool) -> String {
    #[derive(Serialize)]
    struct Shown {
        bool: bool,
    }
    write(&Shown { bool })
}

/// A number of players.
pub(super) fn count(count: i64) -> String {
    #[derive(Serialize)]
    struct Shown {
        #[serde(serialize_with = "as_string")]
        count: i64,
    }
    write(&Shown { count })
}

/// Names of players.
pub(super) fn players(list: &[String]) -> String {
    #[derive(Serialize)]
    struct Shown<'a> {
        list: &'a [String],
    }
    write(&Shown { list })
}

/// One message of a stream.
pub(super) fn result(shown: &GameServer) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        result: ShownServer<'a>,
    }
    write(&Line { result: shown.into() })
}

/// An error.
pub(super) fn error(code: Code, message: &str) -> String {
    #[derive(Serialize)]
    struct Told<'a> {
        code: i32,
        message: &'a str,
        details: [(); 0],
    }
    write(&Told { code: code as i32, message, details: [] })
}

fn write(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings, numbers and maps with string keys are always JSON")
}

#[derive(Serialize)]
struct ShownServer<'a> {
    object_meta: Option<ShownMetadata<'a>>,
    spec: Option<ShownSpec>,
    status: Option<ShownStatus<'a>>,
}

#[derive(Serialize)]
struct ShownMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    resource_version: &'a str,
    #[serde(serialize_with = "as_string")]
    generation: i64,
    #[serde(serialize_with = "as_string")]
    creation_timestamp: i64,
    #[serde(serialize_with = "as_string")]
    deletion_timestamp: i64,
    annotations: BTreeMap<&'a str, &'a str>,
    labels: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct ShownSpec {
    health: Option<ShownHealth>,
}

#[derive(Serialize)]
struct ShownHealth {
    disabled: bool,
    period_seconds: i32,
    failure_threshold: i32,
    initial_delay_seconds: i32,
}

#[derive(Serialize)]
struct ShownStatus<'a> {
    state: &'a str,
    address: &'a str,
    addresses: Vec<ShownAddress<'a>>,
    ports: Vec<ShownPort<'a>>,
    players: Option<ShownPlayers<'a>>,
    counters: BTreeMap<&'a str, ShownCounter>,
    lists: BTreeMap<&'a str, ShownList<'a>>,
}

#[derive(Serialize)]
struct ShownAddress<'a> {
    r#type: &'a str,
    address: &'a str,
}

#[derive(Serialize)]
struct ShownPort<'a> {
    name: &'a str,
    port: i32,
}

#[derive(Serialize)]
struct ShownPlayers<'a> {
    #[serde(serialize_with = "as_string")]
    count: i64,
    #[serde(serialize_with = "as_string")]
    capacity: i64,
    ids: &'a [String],
}

#[derive(Serialize)]
struct ShownCounter {
    #[serde(serialize_with = "as_string")]
    count: i64,
    #[serde(serialize_with = "as_string")]
    capacity: i64,
}

#[derive(Serialize)]
struct ShownList<'a> {
    #[serde(serialize_with = "as_string")]
    capacity: i64,
    values: &'a [String],
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn as_string<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

impl<'a> From<&'a GameServer> for ShownServer<'a> {
    fn from(shown: &'a GameServer) -> Self {
        Self {
            object_meta: shown.object_meta.as_ref().map(Into::into),
            spec: shown.spec.as_ref().map(Into::into),
            status: shown.status.as_ref().map(Into::into),
        }
    }
}

impl<'a> From<&'a ObjectMeta> for ShownMetadata<'a> {
    fn from(metadata: &'a ObjectMeta) -> Self {
        let sorted = |map: &'a std::collections::HashMap<String, String>| {
            map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
        };
        Self {
            name: &metadata.name,
            namespace: &metadata.namespace,
            uid: &metadata.uid,
            resource_version: &metadata.resource_version,
            generation: metadata.generation,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            annotations: sorted(&metadata.annotations),
            labels: sorted(&metadata.labels),
        }
    }
}

impl From<&Spec> for ShownSpec {
    fn from(spec: &Spec) -> Self {
        let shown = |health: spec::Health| ShownHealth {
            disabled: health.disabled,
            period_seconds: health.period_seconds,
            failure_threshold: health.failure_threshold,
            initial_delay_seconds: health.initial_delay_seconds,
        };
        Self { health: spec.health.map(shown) }
    }
}

impl<'a> From<&'a Status> for ShownStatus<'a> {
    fn from(status: &'a Status) -> Self {
        let address = |one: &'a status::Address| ShownAddress { r#type: &one.r#type, address: &one.address };
        let port = |one: &'a status::Port| ShownPort { name: &one.name, port: one.port };
        let players = |all: &'a status::PlayerStatus| ShownPlayers {
            count: all.count,
            capacity: all.capacity,
            ids: &all.ids,
        };
        let counter = |one: &status::CounterStatus| ShownCounter { count: one.count, capacity: one.capacity };
        let list = |one: &'a status::ListStatus| ShownList { capacity: one.capacity, values: &one.values };
        Self {
            state: &status.state,
            address: &status.address,
            addresses: status.addresses.iter().map(address).collect(),
            ports: status.ports.iter().map(port).collect(),
            players: status.players.as_ref().map(players),
            counters: status.counters.iter().map(|(name, one)| (name.as_str(), counter(one))).collect(),
            lists: status.lists.iter().map(|(name, one)| (name.as_str(), list(one))).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
