//! The things of the account: groups, instances and game servers, and what can be told from each alone.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::words::{
    Balancing, GroupName, GroupStatus, HookResult, InstanceId, InstanceStatus, Market, Milliseconds,
    Protection, ServerId, Utilization,
};

/// How long a claim lasts. AWS says so; it is no parameter.
pub(crate) const CLAIM: Duration = Duration::from_secs(60);

/// A kind of instance, and how much of the group's size one counts for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstanceDefinition {
    #[serde(rename = "type")]
    pub(crate) instance_type: String,
    #[serde(default = "one")]
    pub(crate) weight: u32,
}

fn one() -> u32 {
    1
}

/// Something that wants to be asked before an instance ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hook {
    pub(crate) name: String,
    pub(crate) heartbeat_timeout_ms: Milliseconds,
    #[serde(default = "abandon")]
    pub(crate) default_result: HookResult,
}

fn abandon() -> HookResult {
    HookResult::Abandon
}

/// A game server group and its Auto Scaling group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Group {
    pub(crate) name: GroupName,
    pub(crate) role: String,
    pub(crate) balancing: Balancing,
    pub(crate) protection: Protection,
    pub(crate) suspended: bool,
    pub(crate) types: Vec<InstanceDefinition>,
    pub(crate) not_viable: BTreeSet<String>,
    pub(crate) zones: Vec<String>,
    pub(crate) minimum: u32,
    pub(crate) maximum: u32,
    pub(crate) desired: u32,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) status: GroupStatus,
    pub(crate) status_reason: String,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    /// The share of utilized game servers that the scaling policy holds, in percent.
    pub(crate) utilization_target: Option<f64>,
    /// A Scale timer is planned.
    pub(crate) is_followed: bool,
    /// What stopped the last launch, as the scaling activity says it.
    pub(crate) ceiling: Option<String>,
}

impl Group {
    pub(crate) fn weight_of(&self, instance_type: &str) -> u32 {
        let definition = self.types.iter().find(|definition| definition.instance_type == instance_type);
        definition.map_or(1, |definition| definition.weight)
    }

    /// The type that would be launched next.
    pub(crate) fn viable_type(&self) -> Option<&InstanceDefinition> {
        self.types.iter().find(|definition| !self.not_viable.contains(&definition.instance_type))
    }
}

/// Why an instance ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// It was DRAINING, and nothing kept it.
    Reaped,
    /// The group got smaller.
    ScaledIn,
    /// Somebody called `TerminateInstanceInAutoScalingGroup`.
    TerminateCall { by: String },
    /// Auto Scaling wanted it so, without FleetIQ: zones are balanced, say.
    AutoScaling,
    /// EC2 took it back.
    Spot,
    /// Somebody pulled the plug.
    PowerOff,
    /// Its group was deleted.
    GroupDeleted,
}

impl Cause {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Reaped => "reaped while draining".to_owned(),
            Self::ScaledIn => "scaled in".to_owned(),
            Self::TerminateCall { by } => format!("terminated by a call of {by}"),
            Self::AutoScaling => "terminated by auto scaling".to_owned(),
            Self::Spot => "spot interruption".to_owned(),
            Self::PowerOff => "power off".to_owned(),
            Self::GroupDeleted => "group deleted".to_owned(),
        }
    }
}

/// Where an instance is in its life, as Auto Scaling sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    Pending,
    InService,
    /// Stopped, to be started when it is wanted.
    Warmed,
    /// A hook is asked; it goes on without an answer when its time is over.
    Waiting {
        hook: String,
        cause: Cause,
        since: Timestamp,
        until: Timestamp,
    },
    /// Shutting down.
    Ending {
        cause: Cause,
    },
}

impl Stage {
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::Ending { .. })
    }

    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::InService => "InService",
            Self::Warmed => "Warmed:Stopped",
            Self::Waiting { .. } => "Terminating:Wait",
            Self::Ending { .. } => "Terminating",
        }
    }

    /// What the metadata say the instance is on its way to.
    pub(crate) fn target(&self) -> &'static str {
        match self {
            Self::Pending | Self::InService => "InService",
            Self::Warmed => "Warmed:Stopped",
            Self::Waiting { .. } | Self::Ending { .. } => "Terminated",
        }
    }
}

/// What EC2 told an instance.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Notices {
    pub(crate) spot: Option<SpotNotice>,
    pub(crate) rebalance: Option<Timestamp>,
    pub(crate) maintenance: Vec<Maintenance>,
}

/// A Spot interruption as the metadata tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SpotNotice {
    pub(crate) action: String,
    pub(crate) time: Timestamp,
}

/// A scheduled event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Maintenance {
    pub(crate) id: String,
    pub(crate) code: String,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    #[serde(default = "active")]
    pub(crate) state: String,
}

fn active() -> String {
    "active".to_owned()
}

/// An EC2 instance of a group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    pub(crate) group: GroupName,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) market: Market,
    pub(crate) launched: Timestamp,
    pub(crate) order: u64,
    pub(crate) address: std::net::Ipv4Addr,
    pub(crate) status: InstanceStatus,
    pub(crate) status_since: Timestamp,
    pub(crate) stage: Stage,
    pub(crate) healthy: bool,
    /// By a call of `SetInstanceProtection`.
    pub(crate) protected_by_call: bool,
    /// By FleetIQ: since when, or since when no more.
    pub(crate) kept: Kept,
    /// Sessions that are really on it, as whoever runs the test told us.
    pub(crate) sessions: u32,
    pub(crate) notices: Notices,
    /// A Reap timer is planned.
    pub(crate) reap_planned: bool,
}

/// Whether FleetIQ keeps an instance from scale-in, and since when that is so.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Kept {
    pub(crate) is_kept: bool,
    pub(crate) since: Timestamp,
}

/// A game server: to FleetIQ that is whatever was registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Server {
    pub(crate) id: ServerId,
    /// Tells one registration from the next of the same id.
    pub(crate) serial: u64,
    pub(crate) group: GroupName,
    pub(crate) instance: InstanceId,
    pub(crate) connection: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) utilization: Utilization,
    pub(crate) last_claim: Option<Timestamp>,
    pub(crate) claim_open: bool,
    pub(crate) registered: Timestamp,
    pub(crate) last_health: Timestamp,
    pub(crate) unhealthy_since: Option<Timestamp>,
}

impl Server {
    /// At exactly sixty seconds a claim is gone.
    pub(crate) fn is_claimed(&self, now: Timestamp) -> bool {
        self.claim_open && self.last_claim.is_some_and(|claim| now < claim + CLAIM)
    }

    pub(crate) fn is_utilized(&self) -> bool {
        self.utilization == Utilization::Utilized
    }
}
