//! GameServerSet (`agones.dev/v1`): so many game servers of one version of a template.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::fleet::{AllocationOverflow, CounterSum, PlayerSum, Priority};
use crate::game_server::Scheduling;
use crate::template::GameServerTemplate;

/// What a Fleet, or the author of a lone set, wants.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "agones.dev",
    version = "v1",
    kind = "GameServerSet",
    plural = "gameserversets",
    shortname = "gss",
    shortname = "gsset",
    namespaced,
    schema = "disabled",
    status = "GameServerSetStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct GameServerSetSpec {
    /// Servers wanted.
    pub replicas: i32,
    /// Marks for servers that are allocated beyond `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_overflow: Option<AllocationOverflow>,
    /// How servers spread over nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Which servers go first at a scale-down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priorities: Option<Vec<Priority>>,
    /// The game server; never changes.
    pub template: GameServerTemplate,
}

impl GameServerSetSpec {
    /// How servers spread over nodes.
    pub fn scheduling(&self) -> Scheduling {
        self.scheduling.unwrap_or_default()
    }
}

/// What is known of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GameServerSetStatus {
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
    /// Servers being deleted.
    #[serde(default)]
    pub shutdown_replicas: i32,
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
