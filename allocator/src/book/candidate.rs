//! What allocation needs of one game server: a small part, since there may be ten thousand of them.

use std::collections::BTreeMap;

use berth_api::allocation::Wanted;
use berth_api::game_server::{Counter, GameServer, List};
use berth_api::lifecycle::State;

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
        if server.metadata.deletion_timestamp.is_some() {
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
