//! GameNode (`berth.dev/v1`, cluster-scoped, named after its node): the picture of one node.
//!
//! `spec` is written by the brain and by operators, `status` by the node's agent alone.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::game_server::NodeAddress;
use crate::lifecycle::State;

/// What is ordered of a node.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1",
    kind = "GameNode",
    plural = "gamenodes",
    schema = "disabled",
    status = "GameNodeStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct GameNodeSpec {
    /// An order to empty the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOrder>,
    /// The brain's word that the node is not needed for now: the `idleSince` of the status that it answers. Taken off
    /// when the node is needed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surplus: Option<String>,
}

/// An order to empty a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainOrder {
    /// Who ordered it.
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// RFC 3339 time by which the node will be gone; absent means when the last session ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodePhase {
    /// The agent has started and does not yet take servers.
    #[default]
    Starting,
    /// Servers may be handed over.
    Active,
    /// Nobody needs the node for now. Its instance may be taken away, or come back.
    Idle,
    /// Somebody else has closed the node for new pods.
    Cordoned,
    /// The node is being emptied.
    Draining,
    /// No session is left.
    Drained,
    /// The node has left.
    Gone,
}

/// Standing of the instance with FleetIQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protection {
    /// FleetIQ is not in use here.
    #[default]
    NotConfigured,
    /// Not yet known to FleetIQ.
    Unregistered,
    /// Known, and free to be taken away.
    Registered,
    /// Kept while players are on it.
    Protected,
    /// FleetIQ has lost it.
    Missing,
    /// Given back.
    Released,
}

/// What the node's agent says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GameNodeStatus {
    /// Where the node is in its life.
    #[serde(default)]
    pub phase: NodePhase,
    /// RFC 3339 time of the last change of phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_since: Option<String>,
    /// Why this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_reason: Option<String>,
    /// Standing with FleetIQ.
    #[serde(default)]
    pub protection: Protection,
    /// FleetIQ's game server group of the instance, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether its agent lets go of the instance when nobody needs it.
    #[serde(default)]
    pub releases_idle: bool,
    /// RFC 3339 time since when no session is on the node, told once that is long enough for its agent to let go of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<String>,
    /// RFC 3339 time by which the node will be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// UID of the Node object the agent serves.
    #[serde(default)]
    pub node_uid: String,
    /// Kernel boot of the node.
    #[serde(default)]
    pub boot_id: String,
    /// Epoch of the agent's lease.
    #[serde(default)]
    pub epoch: i32,
    /// Version of the agent.
    #[serde(default)]
    pub agent_version: String,
    /// Versions of the hand-over that the agent reads.
    #[serde(default)]
    pub format_versions: Vec<u32>,
    /// Addresses of the node.
    #[serde(default)]
    pub addresses: Vec<NodeAddress>,
    /// What pods may use in all.
    #[serde(default)]
    pub allocatable: Room,
    /// What pods that are no game servers use, and what is kept for the node's own daemons.
    #[serde(default)]
    pub others: Room,
    /// What is left.
    #[serde(default)]
    pub free: Room,
    /// Host ports by range.
    #[serde(default)]
    pub ports: BTreeMap<String, PortCount>,
    /// Host ports left, over all ranges.
    #[serde(default)]
    pub ports_free: i64,
    /// Game servers on the node.
    #[serde(default)]
    pub servers: i64,
    /// Of these, Allocated.
    #[serde(default)]
    pub allocated: i64,
    /// Game servers by state.
    #[serde(default)]
    pub servers_by_state: BTreeMap<State, i64>,
}

/// Room for pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// Processor time, in thousandths of a core.
    #[serde(default)]
    pub milli_cpu: i64,
    /// Memory, in bytes.
    #[serde(default)]
    pub memory_bytes: i64,
    /// Pods.
    #[serde(default)]
    pub pods: i64,
}

/// Host ports of one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCount {
    /// Ports in the range.
    #[serde(default)]
    pub total: i64,
    /// Ports nobody has.
    #[serde(default)]
    pub free: i64,
}
