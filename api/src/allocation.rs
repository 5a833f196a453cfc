//! GameServerAllocation (`allocation.agones.dev/v1`): one request for one game server, and its answer.
//!
//! The types of this file carry what was said, word for word, so that the answer can repeat it; [`Request`] is what it
//! means, and comes out of [`GameServerAllocation::read`] only where nothing is wrong. The gRPC form of the same is
//! [`proto`].

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize};

use crate::game_server::{Counter, List, NodeAddress, StatusPort};

mod read;
mod request;

pub use read::{Fault, FaultKind};
pub use request::{
    Amounts, CounterChange, CounterChoice, Direction, ListChange, ListChoice, PlayerChoice, Priority,
    PriorityKind, Request, Selector, Wanted,
};

/// The group and version of the resource.
pub const API_VERSION: &str = "allocation.agones.dev/v1";
/// Its kind.
pub const KIND: &str = "GameServerAllocation";

/// Package `allocation`: the allocator service's messages, generated from `proto/`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated code follows the protocol, not our style"
)]
pub mod proto {
    include!("generated/allocation.rs");
}

/// One request for one game server, and its answer. Nothing of it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GameServerAllocation {
    /// Group and version, as the caller wrote it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind, as the caller wrote it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The namespace counts; the name becomes the game server's.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "or_default")]
    pub spec: AllocationSpec,
    /// What came of it.
    #[serde(deserialize_with = "or_default")]
    pub status: AllocationStatus,
}

/// What is wanted, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationSpec {
    /// Whether other clusters are asked too.
    #[serde(deserialize_with = "or_default")]
    pub multi_cluster_setting: MultiClusterSetting,
    /// Older form of [`AllocationSpec::selectors`]: tried last.
    #[serde(deserialize_with = "or_default")]
    pub required: SelectorSpec,
    /// Older form of [`AllocationSpec::selectors`]: tried first.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<SelectorSpec>,
    /// What a server that counts is ordered by, after the strategy.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<PrioritySpec>,
    /// In order: a server that fits an earlier one is better.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<SelectorSpec>,
    /// `Packed` or `Distributed`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub scheduling: String,
    /// Labels and annotations that the server gets.
    #[serde(deserialize_with = "or_default")]
    pub metadata: MetadataPatch,
    /// What happens to its counters.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, CounterAction>,
    /// What happens to its lists.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub lists: BTreeMap<String, ListAction>,
}

/// Whether other clusters are asked too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiClusterSetting {
    /// They are.
    #[serde(skip_serializing_if = "is_false")]
    pub enabled: bool,
    /// The policies that count.
    #[serde(deserialize_with = "or_default")]
    pub policy_selector: LabelSelector,
}

/// Which servers fit, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorSpec {
    /// By label.
    #[serde(flatten)]
    pub labels: LabelSelector,
    /// `Ready` or `Allocated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub game_server_state: Option<String>,
    /// By room for players.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub players: Option<PlayerSelector>,
    /// By counters.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, CounterSelector>,
    /// By lists.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub lists: BTreeMap<String, ListSelector>,
}

/// By room for players.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlayerSelector {
    /// At least so much room.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_available: i64,
    /// At most so much; 0 means that players do not matter.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_available: i64,
}

/// By one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterSelector {
    /// At least this count.
    pub min_count: i64,
    /// At most this count; 0 means no limit.
    pub max_count: i64,
    /// At least so much room.
    pub min_available: i64,
    /// At most so much room; 0 means no limit.
    pub max_available: i64,
}

/// By one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListSelector {
    /// It holds this entry; empty means any.
    pub contains_value: String,
    /// At least so much room.
    pub min_available: i64,
    /// At most so much room; 0 means no limit.
    pub max_available: i64,
}

/// What servers are ordered by, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrioritySpec {
    /// `Counter` or `List`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub key: String,
    /// `Ascending` (least room first) or `Descending`.
    pub order: String,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetadataPatch {
    /// Labels.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What happens to one counter, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CounterAction {
    /// `Increment` or `Decrement`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// By so much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<i64>,
    /// Its new capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
}

/// What happens to one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListAction {
    /// Entries it gets.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub add_values: Vec<String>,
    /// Entries it loses.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub delete_values: Vec<String>,
    /// Its new capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AllocationState {
    /// A server was allocated.
    Allocated,
    /// There is none.
    #[default]
    UnAllocated,
    /// There are some, and others were faster each time.
    Contention,
}

impl AllocationState {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allocated => "Allocated",
            Self::UnAllocated => "UnAllocated",
            Self::Contention => "Contention",
        }
    }
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationStatus {
    /// What came of it; absent in a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<AllocationState>,
    /// Name of the server.
    pub game_server_name: String,
    /// Its ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<StatusPort>,
    /// Its address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Every address of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
    /// Its node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// `local`, or the endpoint of the cluster that answered.
    pub source: String,
    /// Its labels and annotations, after the allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataPatch>,
    /// Its counters, after the allocation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, Counter>,
    /// Its lists, after the allocation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lists: BTreeMap<String, List>,
}

/// `null` means the same as leaving a field out.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_zero(value: &i64) -> bool {
    *value == 0
}
