//! GameServer (`agones.dev/v1`): one dedicated game server, its one pod and what is known of it.
//!
//! A spec is kept as its author wrote it: absent stays absent, so that a template can be carried and compared. What a
//! field means when it is absent is an *effective value* (methods named after the field). The pod template is carried
//! as raw JSON, since a typed round trip would drop every field newer than this crate.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conditions::Condition;
use crate::lifecycle::State;

pub mod counters;
mod effective;
pub mod lists;
pub mod players;
mod ports;

pub use effective::HealthRule;
pub use ports::{PortPolicy, PortProtocol, PortSpec, StatusPort, split_both_protocols};

/// What the author of a game server wants.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "agones.dev",
    version = "v1",
    kind = "GameServer",
    plural = "gameservers",
    shortname = "gs",
    namespaced,
    schema = "disabled",
    status = "GameServerStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct GameServerSpec {
    /// Name of the container that is the game; see [`GameServerSpec::game_container`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The ports that players reach the game by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<PortSpec>>,
    /// When silence means failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthSpec>,
    /// How servers spread over nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Where the SDK listens in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdk_server: Option<SdkServerSpec>,
    /// Initial player capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub players: Option<PlayersSpec>,
    /// Counters the server starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<BTreeMap<String, Counter>>,
    /// Lists the server starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<BTreeMap<String, List>>,
    /// Which disruptions the server tolerates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Eviction>,
    /// Always 1: lets a PodDisruptionBudget count the owner of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immutable_replicas: Option<i32>,
    /// The pod, as the author wrote it.
    pub template: PodTemplate,
}

/// A pod template, verbatim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodTemplate(pub Value);

impl PodTemplate {
    /// The template as typed fields, for decisions; never to be written back.
    ///
    /// # Errors
    /// Names the field that does not decode.
    pub fn read(&self) -> Result<PodTemplateSpec, serde_json::Error> {
        serde_json::from_value(self.0.clone())
    }
}

/// When silence means failure, as written; see [`HealthRule`] for what holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthSpec {
    /// No pings are expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Seconds within which a ping is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<i64>,
    /// Missed pings in a row that mean failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<i64>,
    /// Seconds after the start of the game in which nothing is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_delay_seconds: Option<i64>,
}

/// How servers spread over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scheduling {
    /// Fill nodes, so that others become empty and can be given back.
    #[default]
    Packed,
    /// Spread evenly.
    Distributed,
}

/// Where the SDK listens in the pod, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SdkServerSpec {
    /// `Error`, `Info`, `Debug` or `Trace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// Port of the gRPC listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_port: Option<u16>,
    /// Port of the REST listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_port: Option<u16>,
}

/// Initial player capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlayersSpec {
    /// Players that fit at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_capacity: Option<i64>,
}

/// A named number with an upper bound, in spec and status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The present number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Its upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
}

/// A named set of words with an upper bound of entries, in spec and status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Upper bound of entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
    /// The entries, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

/// Which disruptions the server tolerates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// The rule; absent means [`EvictionSafe::Never`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe: Option<EvictionSafe>,
}

/// When a server may be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EvictionSafe {
    /// At any time.
    Always,
    /// For a node upgrade, not for a scale-down.
    OnUpgrade,
    /// Not at all.
    #[default]
    Never,
}

/// What is known of a game server. Written together with the object; there is no status subresource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GameServerStatus {
    /// Absent until somebody has taken the server on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// One entry per port of the spec, in its order.
    #[serde(default)]
    pub ports: Option<Vec<StatusPort>>,
    /// The address that players use.
    #[serde(default)]
    pub address: String,
    /// Every address of the node, then the pod's own.
    #[serde(default)]
    pub addresses: Option<Vec<NodeAddress>>,
    /// The node the server was handed to; empty while it has none.
    #[serde(default)]
    pub node_name: String,
    /// RFC 3339 end of a reservation.
    #[serde(default)]
    pub reserved_until: Option<String>,
    /// Player tracking, where it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub players: Option<PlayersStatus>,
    /// Live counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<BTreeMap<String, Counter>>,
    /// Live lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<BTreeMap<String, List>>,
    /// The eviction rule in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Eviction>,
    /// Always 1, see [`GameServerSpec::immutable_replicas`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immutable_replicas: Option<i32>,
    /// What is not as it should be, see [`crate::conditions`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// One address with its kind (`InternalIP`, `ExternalDNS`, `PodIP` …).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// Kind, in the words of a Node's status.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}

/// Player tracking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayersStatus {
    /// Players connected.
    #[serde(default)]
    pub count: i64,
    /// Players that fit.
    #[serde(default)]
    pub capacity: i64,
    /// Their names, in the order they came.
    #[serde(default)]
    pub ids: Option<Vec<String>>,
}

impl GameServer {
    /// The state, where somebody has taken the server on.
    pub fn state(&self) -> Option<State> {
        self.status.as_ref().and_then(|status| status.state)
    }

    /// The node the server was handed to.
    pub fn node_name(&self) -> Option<&str> {
        self.status.as_ref().map(|status| status.node_name.as_str()).filter(|name| !name.is_empty())
    }

    /// Somebody has asked for deletion, by the API or by the state Shutdown.
    pub fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.state() == Some(State::Shutdown)
    }

    /// One annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// A development server: no pod, no agent, an address given by its author.
    pub fn dev_address(&self) -> Option<&str> {
        self.annotation(crate::names::DEV_ADDRESS_ANNOTATION)
    }
}
