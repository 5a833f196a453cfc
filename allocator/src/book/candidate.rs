//! What allocation needs of one game server: a small part, since there may be ten thousand of them.

use std::collections::BTreeMap;

use berth_api::allocation::Wanted;
use berth_api::game_server::{Counter, GameServer, List};
use berth_api::lifecycle::State;
use berth_api::names::LOST_ANNOTATION;

/// A version of one object, in one life of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// UID.
    pub uid: String,
    /// Resource version, as the API server wrote it.
    pub resource: String,
}

impl Version {
    /// The version of an object.
    pub fn of(server: &GameServer) -> Self {
        Self {
            uid: server.metadata.uid.clone().unwrap_or_default(),
            resource: server.metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    /// Whether this comes after `other`. Resource versions of one resource are ordered numbers (Kubernetes promises so
    /// since 1.35, and all releases before keep it); one that is no number is taken for newer.
    pub fn follows(&self, other: &Self) -> bool {
        match (self.resource.parse::<u128>(), other.resource.parse::<u128>()) {
            (Ok(ours), Ok(theirs)) => ours > theirs,
            (Ok(_) | Err(_), Ok(_) | Err(_)) => self.resource != other.resource,
        }
    }

    /// Whether the name has been given to another object since.
    pub fn is_of_another_life(&self, other: &Self) -> bool {
        self.uid != other.uid
    }
}

/// Player tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Players {
    /// Players connected.
    pub count: i64,
    /// Players that fit.
    pub capacity: i64,
}

/// A game server that may be allocated.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which version of it this is.
    pub version: Version,
    /// Its state.
    pub state: Wanted,
    /// Its node; empty for a development server.
    pub node: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Player tracking, where it has it.
    pub players: Option<Players>,
    /// Its counters.
    pub counters: BTreeMap<String, Counter>,
    /// Its lists.
    pub lists: BTreeMap<String, List>,
}

impl Candidate {
    /// The server as a candidate; `None` where it may not be allocated.
    pub fn read(server: &GameServer) -> Option<Self> {
        // One that the brain has given up has been replaced already, and goes once its agent is back.
        if server.metadata.deletion_timestamp.is_some() || server.annotation(LOST_ANNOTATION).is_some() {
            return None;
        }
        let status = server.status.as_ref()?;
        let state = match status.state? {
            State::Ready => Wanted::Ready,
            State::Allocated => Wanted::Allocated,
            State::PortAllocation
            | State::Creating
            | State::Starting
            | State::Scheduled
            | State::RequestReady
            | State::Shutdown
            | State::Error
            | State::Unhealthy
            | State::Reserved => return None,
        };
        let players = status
            .players
            .as_ref()
            .map(|players| Players { count: players.count, capacity: players.capacity });
        Some(Self {
            version: Version::of(server),
            state,
            node: status.node_name.clone(),
            labels: server.metadata.labels.clone().unwrap_or_default(),
            players,
            counters: status.counters.clone().unwrap_or_default(),
            lists: status.lists.clone().unwrap_or_default(),
        })
    }
}

/// How much fits still.
pub fn room_of_counter(counter: &Counter) -> i64 {
    counter.capacity.unwrap_or(0).saturating_sub(counter.count.unwrap_or(0))
}

/// How much fits still.
pub fn room_of_list(list: &List) -> i64 {
    let held = list.values.as_ref().map_or(0, Vec::len);
    list.capacity.unwrap_or(0).saturating_sub(i64::try_from(held).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(metadata: Value, status: Value) -> Option<Candidate> {
        let spec = json!({ "template": {} });
        let server = json!({ "metadata": metadata, "spec": spec, "status": status });
        Candidate::read(&serde_json::from_value(server).unwrap())
    }

    #[test]
    fn only_what_is_ready_or_in_use_and_stays_may_be_allocated() {
        for state in State::ALL {
            let may = matches!(state, State::Ready | State::Allocated);
            assert_eq!(read(json!({ "name": "a" }), json!({ "state": state })).is_some(), may, "{state:?}");
        }
        let ready = || json!({ "state": "Ready" });
        assert_eq!(read(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }), ready()), None);
        assert_eq!(
            read(json!({ "annotations": { LOST_ANNOTATION: "2026-01-01T00:00:00Z" } }), ready()),
            None
        );
        assert_eq!(read(json!({}), json!({})), None);
    }

    #[test]
    fn versions_are_ordered_as_numbers() {
        let version = |resource: &str| Version { uid: String::new(), resource: resource.to_owned() };
        assert!(version("10").follows(&version("9")));
        assert!(!version("9").follows(&version("10")));
        assert!(!version("9").follows(&version("9")));
        assert!(version("word").follows(&version("9")));
        assert!(!version("word").follows(&version("word")));
    }
}
