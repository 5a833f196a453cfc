//! Fleet (`agones.dev/v1`): so many game servers of one template, and how they change.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::game_server::Scheduling;
use crate::template::GameServerTemplate;

/// What the author of a Fleet wants.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "agones.dev",
    version = "v1",
    kind = "Fleet",
    plural = "fleets",
    shortname = "flt",
    namespaced,
    schema = "disabled",
    status = "FleetStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct FleetSpec {
    /// Servers wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Marks for servers that are allocated beyond `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_overflow: Option<AllocationOverflow>,
    /// How a new template replaces the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// How servers spread over nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Which servers go first at a scale-down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priorities: Option<Vec<Priority>>,
    /// The game server, as its author wrote it.
    pub template: GameServerTemplate,
}

impl FleetSpec {
    /// Servers wanted; absent means none.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(0).max(0)
    }

    /// How servers spread over nodes.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling.unwrap_or_default()
    }
}

/// Marks for servers that are allocated beyond the wanted number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationOverflow {
    /// Labels to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// How a new template replaces the old one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// The kind; absent means [`StrategyKind::RollingUpdate`].
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<StrategyKind>,
    /// Steps of a rolling update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// Kinds of [`Strategy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StrategyKind {
    /// All old servers go at once, then new ones come.
    Recreate,
    /// New servers come and old ones go in steps.
    #[default]
    RollingUpdate,
}

/// Steps of a rolling update: a number, or a percentage such as `25%`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// Servers above the wanted number; absent means `25%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// Servers that may be missing; absent means `25%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// One rule of an order among servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priority {
    /// What `key` names.
    #[serde(rename = "type")]
    pub kind: PriorityKind,
    /// Name of the counter or list.
    pub key: String,
    /// Whether little or much room comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<PriorityOrder>,
}

/// What a [`Priority`] looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PriorityKind {
    /// A counter.
    #[default]
    Counter,
    /// A list.
    List,
}

/// Order of a [`Priority`] by room left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PriorityOrder {
    /// Little room first.
    #[default]
    Ascending,
    /// Much room first.
    Descending,
}

/// What is known of a Fleet: sums over its sets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetStatus {
    /// Servers that are not being deleted.
    #[serde(default)]
    pub replicas: i32,
    /// Of these, Ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Of these, Reserved.
    #[serde(default)]
    pub reserved_replicas: i32,
    /// Of these, Allocated.
    #[serde(default)]
    pub allocated_replicas: i32,
    /// Sums of player tracking, where it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub players: Option<PlayerSum>,
    /// Sums of counters by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<BTreeMap<String, CounterSum>>,
    /// Sums of lists by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<BTreeMap<String, CounterSum>>,
    /// What is not as it should be, see [`crate::conditions`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// Sum of player tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayerSum {
    /// Players connected.
    #[serde(default)]
    pub count: i64,
    /// Players that fit.
    #[serde(default)]
    pub capacity: i64,
}

/// Sum of one counter, or of the entries of one list, over servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CounterSum {
    /// Count on Allocated servers.
    #[serde(default)]
    pub allocated_count: i64,
    /// Capacity of Allocated servers.
    #[serde(default)]
    pub allocated_capacity: i64,
    /// Count on all servers.
    #[serde(default)]
    pub count: i64,
    /// Capacity of all servers.
    #[serde(default)]
    pub capacity: i64,
}

impl CounterSum {
    /// The sum of two, held at the largest number instead of overflowing.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            allocated_count: self.allocated_count.saturating_add(other.allocated_count),
            allocated_capacity: self.allocated_capacity.saturating_add(other.allocated_capacity),
            count: self.count.saturating_add(other.count),
            capacity: self.capacity.saturating_add(other.capacity),
        }
    }
}
