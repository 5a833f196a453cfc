//! The JSON of the REST route: the protocol's messages by their own names, 64-bit integers as strings. Pure.
//!
//! What is read is taken generously, as the gateway has it: numbers or strings, `null` for nothing, unknown fields and
//! unknown words of an enum ignored.

use std::collections::HashMap;

use berth_api::allocation::proto::{self, allocation_request, game_server_selector, priority};
use serde_json::{Map, Value, json};
use tonic::Code;

/// What cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonError {
    #[error("the body is not JSON: {0}")]
    Syntax(String),
    #[error("{0} must be {1}")]
    Kind(String, &'static str),
}

/// Reads a request; an empty body is an empty request.
pub(super) fn request(body: &[u8]) -> Result<proto::AllocationRequest, JsonError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(proto::AllocationRequest::default());
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| JsonError::Syntax(error.to_string()))?;
    let node = Node { value: &value, path: "the body".to_owned() };
    let object = node.object()?;
    let scheduling = object.get("scheduling").word(allocation_request::SchedulingStrategy::from_str_name)?;
    Ok(proto::AllocationRequest {
        namespace: object.get("namespace").string()?,
        multi_cluster_setting: object.get("multiClusterSetting").message(|object| {
            Ok(proto::MultiClusterSetting {
                enabled: object.get("enabled").truth()?,
                policy_selector: object.get("policySelector").message(|object| {
                    Ok(proto::LabelSelector { match_labels: object.get("matchLabels").map(Node::string)? })
                })?,
            })
        })?,
        required_game_server_selector: object.get("requiredGameServerSelector").message(selector)?,
        preferred_game_server_selectors: object.get("preferredGameServerSelectors").list(selector_of)?,
        scheduling,
        meta_patch: object.get("metaPatch").message(metadata)?,
        metadata: object.get("metadata").message(metadata)?,
        game_server_selectors: object.get("gameServerSelectors").list(selector_of)?,
        priorities: object.get("priorities").list(|node| {
            let object = node.object()?;
            Ok(proto::Priority {
                r#type: object.get("type").word(priority::Type::from_str_name)?,
                key: object.get("key").string()?,
                order: object.get("order").word(priority::Order::from_str_name)?,
            })
        })?,
        counters: object.get("counters").map(|node| {
            let object = node.object()?;
            Ok(proto::CounterAction {
                action: object.get("action").optional(Node::string)?,
                amount: object.get("amount").optional(Node::integer)?,
                capacity: object.get("capacity").optional(Node::integer)?,
            })
        })?,
        lists: object.get("lists").map(|node| {
            let object = node.object()?;
            Ok(proto::ListAction {
                add_values: object.get("addValues").list(Node::string)?,
                capacity: object.get("capacity").optional(Node::integer)?,
                delete_values: object.get("deleteValues").list(Node::string)?,
            })
        })?,
    })
}

fn selector_of(node: Node<'_>) -> Result<proto::GameServerSelector, JsonError> {
    selector(&node.object()?)
}

fn selector(object: &Object<'_>) -> Result<proto::GameServerSelector, JsonError> {
    let unsigned = |node: Node<'_>| node.unsigned();
    Ok(proto::GameServerSelector {
        match_labels: object.get("matchLabels").map(Node::string)?,
        game_server_state: object
            .get("gameServerState")
            .word(game_server_selector::GameServerState::from_str_name)?,
        players: object.get("players").message(|object| {
            Ok(proto::PlayerSelector {
                min_available: unsigned(object.get("minAvailable"))?,
                max_available: unsigned(object.get("maxAvailable"))?,
            })
        })?,
        counters: object.get("counters").map(|node| {
            let object = node.object()?;
            Ok(proto::CounterSelector {
                min_count: object.get("minCount").integer()?,
                max_count: object.get("maxCount").integer()?,
                min_available: object.get("minAvailable").integer()?,
                max_available: object.get("maxAvailable").integer()?,
            })
        })?,
        lists: object.get("lists").map(|node| {
            let object = node.object()?;
            Ok(proto::ListSelector {
                contains_value: object.get("containsValue").string()?,
                min_available: object.get("minAvailable").integer()?,
                max_available: object.get("maxAvailable").integer()?,
            })
        })?,
    })
}

fn metadata(object: &Object<'_>) -> Result<proto::MetaPatch, JsonError> {
    Ok(proto::MetaPatch {
        labels: object.get("labels").map(Node::string)?,
        annotations: object.get("annotations").map(Node::string)?,
    })
}

/// One value and where it stands.
struct Node<'a> {
    value: &'a Value,
    path: String,
}

/// One object and where it stands.
struct Object<'a> {
    fields: &'a Map<String, Value>,
    path: String,
}

static NULL: Value = Value::Null;

impl<'a> Object<'a> {
    fn get(&self, field: &str) -> Node<'a> {
        Node { value: self.fields.get(field).unwrap_or(&NULL), path: format!("{}.{field}", self.path) }
    }
}

impl<'a> Node<'a> {
    fn wrong<T>(&self, kind: &'static str) -> Result<T, JsonError> {
        Err(JsonError::Kind(self.path.clone(), kind))
    }

    fn object(&self) -> Result<Object<'a>, JsonError> {
        match self.value {
            Value::Object(fields) => Ok(Object { fields, path: self.path.clone() }),
            _ => self.wrong("an object"),
        }
    }

    fn optional<T>(self, read: impl FnOnce(Self) -> Result<T, JsonError>) -> Result<Option<T>, JsonError> {
        if self.value.is_null() { Ok(None) } else { read(self).map(Some) }
    }

    fn message<T>(
        self,
        read: impl FnOnce(&Object<'a>) -> Result<T, JsonError>,
    ) -> Result<Option<T>, JsonError> {
        self.optional(|node| read(&node.object()?))
    }

    fn list<T>(self, read: impl Fn(Self) -> Result<T, JsonError>) -> Result<Vec<T>, JsonError> {
        let Value::Array(values) = self.value else {
            return if self.value.is_null() { Ok(Vec::new()) } else { self.wrong("a list") };
        };
        let one = |(index, value)| read(Node { value, path: format!("{}[{index}]", self.path) });
        values.iter().enumerate().map(one).collect()
    }

    fn map<T>(self, read: impl Fn(Self) -> Result<T, JsonError>) -> Result<HashMap<String, T>, JsonError> {
        if self.value.is_null() {
            return Ok(HashMap::new());
        }
        let object = self.object()?;
        let one = |key: &String| Ok((key.clone(), read(object.get(key))?));
        object.fields.keys().map(one).collect()
    }

    fn string(self) -> Result<String, JsonError> {
        match self.value {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            _ => self.wrong("a string"),
        }
    }

    fn truth(self) -> Result<bool, JsonError> {
        match self.value {
            Value::Null => Ok(false),
            Value::Bool(truth) => Ok(*truth),
            _ => self.wrong("true or false"),
        }
    }

    fn integer(self) -> Result<i64, JsonError> {
        let read = match self.value {
            Value::Null => Some(0),
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        read.map_or_else(|| self.wrong("a 64-bit integer, as a number or a string"), Ok)
    }

    fn unsigned(self) -> Result<u64, JsonError> {
        let read = match self.value {
            Value::Null => Some(0),
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        read.map_or_else(|| self.wrong("a whole number that is not negative, or such a string"), Ok)
    }

    /// A word of an enum, or its number; an unknown word is the first.
    fn word<E: Into<i32>>(self, read: impl Fn(&str) -> Option<E>) -> Result<i32, JsonError> {
        match self.value {
            Value::Null => Ok(0),
            Value::String(word) => Ok(read(word).map_or(0, Into::into)),
            Value::Number(number) => {
                let number = number.as_i64().and_then(|number| i32::try_from(number).ok());
                number.map_or_else(|| self.wrong("a word or its number"), Ok)
            }
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => self.wrong("a word or its number"),
        }
    }
}

/// Writes an answer: every field, but no metadata where there is none.
pub(super) fn response(response: &proto::AllocationResponse) -> Value {
    let ports: Vec<Value> =
        response.ports.iter().map(|port| json!({ "name": port.name, "port": port.port })).collect();
    let addresses: Vec<Value> = response
        .addresses
        .iter()
        .map(|address| json!({ "type": address.r#type, "address": address.address }))
        .collect();
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    let counters: Map<String, Value> = response
        .counters
        .iter()
        .map(|(name, counter)| {
            (name.clone(), json!({ "count": number(counter.count), "capacity": number(counter.capacity) }))
        })
        .collect();
    let lists: Map<String, Value> = response
        .lists
        .iter()
        .map(|(name, list)| {
            (name.clone(), json!({ "values": list.values, "capacity": number(list.capacity) }))
        })
        .collect();
    let mut written = json!({
        "gameServerName": response.game_server_name,
        "ports": ports,
        "address": response.address,
        "nodeName": response.node_name,
        "source": response.source,
        "addresses": addresses,
        "counters": counters,
        "lists": lists,
    });
    if let Some(metadata) = &response.metadata {
        written["metadata"] = json!({ "labels": metadata.labels, "annotations": metadata.annotations });
    }
    written
}

/// Writes an error.
pub(super) fn error(code: Code, message: &str) -> Value {
    json!({ "code": code as i32, "message": message, "details": [] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_generously() {
        let body = json!({
            "namespace": "games",
            "scheduling": "Distributed",
            "unknown": [1],
            "multiClusterSetting": { "enabled": true, "policySelector": { "matchLabels": { "a": "b" } } },
            "gameServerSelectors": [{
                "matchLabels": { "c": "d" },
                "gameServerState": "ALLOCATED",
                "players": { "minAvailable": "1", "maxAvailable": 10 },
                "counters": { "rooms": { "minAvailable": "2" } },
                "lists": { "players": { "containsValue": "x" } },
            }],
            "priorities": [{ "type": "List", "key": "players", "order": "Descending" }],
            "counters": { "rooms": { "action": "Increment", "amount": "3", "capacity": null } },
            "lists": { "players": { "addValues": ["y"], "deleteValues": ["z"], "capacity": 4 } },
            "metadata": { "labels": { "e": "f" } },
            "metaPatch": null,
        });
        let read = request(body.to_string().as_bytes()).unwrap();
        assert_eq!((read.namespace.as_str(), read.scheduling), ("games", 1));
        assert!(read.multi_cluster_setting.unwrap().enabled);
        let selector = &read.game_server_selectors[0];
        assert_eq!(selector.game_server_state, 1);
        assert_eq!(
            selector.players.map(|players| (players.min_available, players.max_available)),
            Some((1, 10))
        );
        assert_eq!(selector.counters["rooms"].min_available, 2);
        assert_eq!(selector.lists["players"].contains_value, "x");
        assert_eq!((read.priorities[0].r#type, read.priorities[0].order), (1, 1));
        let action = &read.counters["rooms"];
        assert_eq!(
            (action.action.as_deref(), action.amount, action.capacity),
            (Some("Increment"), Some(3), None)
        );
        assert_eq!(read.lists["players"].capacity, Some(4));
        assert_eq!(read.metadata.unwrap().labels["e"], "f");
        assert_eq!(read.meta_patch, None);
    }

    #[test]
    fn an_unknown_word_is_ignored_and_nothing_is_an_empty_request() {
        assert_eq!(request(br#"{"scheduling":"Nope"}"#).unwrap().scheduling, 0);
        assert_eq!(request(b" ").unwrap(), proto::AllocationRequest::default());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (body, said) in [
            ("[]", "the body must be an object"),
            (r#"{"namespace":1}"#, "the body.namespace must be a string"),
            (
                r#"{"counters":{"a":{"amount":"x"}}}"#,
                "the body.counters.a.amount must be a 64-bit integer, as a number or a string",
            ),
            (r#"{"gameServerSelectors":[1]}"#, "the body.gameServerSelectors[0] must be an object"),
            (
                r#"{"gameServerSelectors":[{"players":{"minAvailable":-1}}]}"#,
                "the body.gameServerSelectors[0].players.minAvailable must be a whole number that is not negative, \
                 or such a string",
            ),
        ] {
            assert_eq!(request(body.as_bytes()).unwrap_err().to_string(), said);
        }
        assert!(request(b"{").unwrap_err().to_string().starts_with("the body is not JSON"));
    }

    #[test]
    fn an_answer_has_every_field() {
        let written = response(&proto::AllocationResponse {
            game_server_name: "gs1".to_owned(),
            counters: HashMap::from([(
                "rooms".to_owned(),
                proto::allocation_response::CounterStatus { count: Some(1), capacity: Some(10) },
            )]),
            ..proto::AllocationResponse::default()
        });
        assert_eq!(
            written,
            json!({
                "gameServerName": "gs1", "ports": [], "address": "", "nodeName": "", "source": "",
                "addresses": [], "counters": { "rooms": { "count": "1", "capacity": "10" } }, "lists": {},
            })
        );
    }
}
