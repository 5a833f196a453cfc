//! Which limit keeps a group, or the cluster, from getting more servers: from what AWS and Kubernetes say. Pure.

mod activities;
mod cluster;

use std::collections::BTreeMap;

pub use activities::{Activity, ActivityEnding, failures};
pub use cluster::{ClusterFacts, NodeGroup, NodeRoom, node_groups, of_cluster};

use crate::groups::Group;

/// Something that keeps servers from being made, or players from keeping theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// The largest size of the Auto Scaling group.
    GroupMaximum,
    /// The same, where sizes count weight units.
    WeightedMaximum,
    /// Game servers that a group may have.
    ServersPerGroup,
    /// Processors that the account may use.
    VcpuQuota,
    /// Addresses of a subnet.
    SubnetAddresses,
    /// EC2 has no such instance now.
    InstanceCapacity,
    /// A launch failed for another reason.
    LaunchFailed,
    /// The largest size by cluster-autoscaler.
    ClusterAutoscalerMaximum,
    /// Host ports of the nodes.
    HostPorts,
    /// Pods that a node may have.
    PodsPerNode,
    /// A scaling policy by utilization that nothing lets go down.
    UtilizationPolicy,
    /// Auto Scaling ends instances to balance zones.
    ZoneRebalancing,
    /// Nothing keeps instances with players.
    NoProtection,
    /// The group does not work.
    GroupNotActive,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::GroupMaximum,
        Self::WeightedMaximum,
        Self::ServersPerGroup,
        Self::VcpuQuota,
        Self::SubnetAddresses,
        Self::InstanceCapacity,
        Self::LaunchFailed,
        Self::ClusterAutoscalerMaximum,
        Self::HostPorts,
        Self::PodsPerNode,
        Self::UtilizationPolicy,
        Self::ZoneRebalancing,
        Self::NoProtection,
        Self::GroupNotActive,
    ];

    /// The reason of its Event, and the value of its label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GroupMaximum => "GroupMaximum",
            Self::WeightedMaximum => "WeightedMaximum",
            Self::ServersPerGroup => "ServersPerGroup",
            Self::VcpuQuota => "VcpuQuota",
            Self::SubnetAddresses => "SubnetAddresses",
            Self::InstanceCapacity => "InstanceCapacity",
            Self::LaunchFailed => "LaunchFailed",
            Self::ClusterAutoscalerMaximum => "ClusterAutoscalerMaximum",
            Self::HostPorts => "HostPorts",
            Self::PodsPerNode => "PodsPerNode",
            Self::UtilizationPolicy => "UtilizationPolicy",
            Self::ZoneRebalancing => "ZoneRebalancing",
            Self::NoProtection => "NoProtection",
            Self::GroupNotActive => "GroupNotActive",
        }
    }
}

/// A limit that bites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub limit: Limit,
    /// Whom: a group's name, or the cluster.
    pub subject: String,
    /// What is so, and what to do.
    pub message: String,
}

/// What the game server group says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFacts {
    /// `NO_PROTECTION` or `FULL_PROTECTION`.
    pub protection_policy: Option<String>,
    /// `SPOT_ONLY`, `SPOT_PREFERRED` or `ON_DEMAND_ONLY`.
    pub balancing_strategy: Option<String>,
    /// Such as `ACTIVE`.
    pub group_status: Option<String>,
    /// What is wrong, where something is.
    pub status_reason: Option<String>,
    /// Weight of each instance type.
    pub weights: BTreeMap<String, u32>,
}

/// What its Auto Scaling group says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalingFacts {
    /// The largest size, in weight units.
    pub maximum: u32,
    /// Instances that count towards the size, each with its weight units.
    pub weights: Vec<u32>,
    /// Its zones.
    pub zones: usize,
    /// Whether zones are balanced by ending instances.
    pub rebalances_zones: bool,
}

/// What is known of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What the group says; nothing where it could not be asked.
    pub group: Option<GroupFacts>,
    /// What its Auto Scaling group says.
    pub scaling: Option<ScalingFacts>,
    /// Instances that FleetIQ lists.
    pub instances: u64,
    /// What was launched or failed to be, the newest first.
    pub activities: Vec<Activity>,
    /// A policy scales the group by the share of its utilized game servers.
    pub scales_by_utilization: bool,
    /// An agent of one of its instances never lets an idle one go.
    pub keeps_idle: bool,
}

/// What the account is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Game servers that a group may have.
    pub servers_per_group: u32,
}

/// What was found at the last survey, as others need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// By name.
    pub groups: BTreeMap<String, GroupFacts>,
    /// Whether Auto Scaling keeps an instance from being scaled in, where it was asked.
    pub protected: BTreeMap<String, bool>,
}

/// The limits that bite a group.
#[must_use]
pub fn of_group(group: &Group, facts: &Facts, rules: Rules) -> Vec<Finding> {
    let scaling_group = group.scaling_group();
    let mut found: Vec<(Limit, String)> = Vec::new();
    if let Some(scaling) = &facts.scaling {
        let weights = facts.group.as_ref().map(|group| &group.weights);
        found.extend(maximum(&scaling_group, scaling, weights));
        if scaling.rebalances_zones && scaling.zones > 1 {
            let message = format!(
                "Auto Scaling group {scaling_group} balances its {} zones and may end instances with players for it; \
                 suspend its process AZRebalance",
                scaling.zones
            );
            found.push((Limit::ZoneRebalancing, message));
        }
    }
    if facts.instances >= u64::from(rules.servers_per_group) {
        let message = format!(
            "it has {} instances, and {} game servers are allowed in a group; ask AWS for more, or spread over groups",
            facts.instances, rules.servers_per_group
        );
        found.push((Limit::ServersPerGroup, message));
    }
    found.extend(failures(&facts.activities));
    if facts.scales_by_utilization && facts.keeps_idle {
        let message = format!(
            "a policy of {scaling_group} follows PercentUtilizedGameServers, which stays at 100 % where agents never let an \
             idle instance go; give them BERTH_FLEETIQ_IDLE_RELEASE, or remove the policy"
        );
        found.push((Limit::UtilizationPolicy, message));
    }
    if let Some(said) = &facts.group {
        if said.protection_policy.as_deref() == Some("NO_PROTECTION") {
            let message =
                "its policy is NO_PROTECTION: instances with players may be ended; set it to FULL_PROTECTION";
            found.push((Limit::NoProtection, message.to_owned()));
        }
        if let Some(status) = said.group_status.as_deref().filter(|status| *status != "ACTIVE") {
            let reason = said.status_reason.as_deref().filter(|reason| !reason.is_empty());
            let message = format!("it is {status}: {}", reason.unwrap_or("no reason is given"));
            found.push((Limit::GroupNotActive, message));
        }
    }
    let named = |(limit, message)| Finding {
        limit,
        subject: group.name().to_owned(),
        message: format!("game server group {group}: {message}"),
    };
    found.into_iter().map(named).collect()
}

/// The size that keeps the group from having one instance more.
fn maximum(
    scaling_group: &str,
    scaling: &ScalingFacts,
    weights: Option<&BTreeMap<String, u32>>,
) -> Option<(Limit, String)> {
    let used: u32 = scaling.weights.iter().sum();
    let lightest = weights.and_then(|weights| weights.values().copied().min()).unwrap_or(1).max(1);
    if used.saturating_add(lightest) <= scaling.maximum {
        return None;
    }
    let (count, maximum) = (scaling.weights.len(), scaling.maximum);
    let is_weighted = lightest > 1 || scaling.weights.iter().any(|weight| *weight > 1);
    Some(if is_weighted {
        let message = format!(
            "its {count} instances are {used} of at most {maximum} weight units, and the lightest needs {lightest}; the \
             maximum counts units, not instances: raise MaxSize of {scaling_group}"
        );
        (Limit::WeightedMaximum, message)
    } else {
        let message =
            format!("it has {count} of at most {maximum} instances; raise MaxSize of {scaling_group}");
        (Limit::GroupMaximum, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { servers_per_group: 1000 };

    fn group() -> Group {
        Group::parse("pvp-eu").unwrap()
    }

    fn limits(facts: &Facts, rules: Rules) -> Vec<&'static str> {
        of_group(&group(), facts, rules).iter().map(|finding| finding.limit.as_str()).collect()
    }

    fn scaling(maximum: u32, weights: &[u32]) -> Facts {
        let scaling =
            ScalingFacts { maximum, weights: weights.to_vec(), zones: 1, ..ScalingFacts::default() };
        Facts { scaling: Some(scaling), ..Facts::default() }
    }

    fn saying(said: GroupFacts) -> Facts {
        Facts { group: Some(said), ..Facts::default() }
    }

    #[test]
    fn the_maximum_bites_where_not_one_more_instance_fits() {
        assert_eq!(limits(&scaling(3, &[1, 1]), RULES), [""; 0]);
        assert_eq!(limits(&scaling(2, &[1, 1]), RULES), ["GroupMaximum"]);
        assert_eq!(limits(&scaling(10, &[2; 5]), RULES), ["WeightedMaximum"]);
        assert_eq!(
            limits(&scaling(11, &[2; 5]), RULES),
            [""; 0],
            "one of weight 1 fits, by all that is known"
        );
        let mut heavy = scaling(11, &[2; 5]);
        let weights = BTreeMap::from([("c6i.large".to_owned(), 2), ("c6i.xlarge".to_owned(), 4)]);
        heavy.group = Some(GroupFacts { weights, ..GroupFacts::default() });
        assert_eq!(limits(&heavy, RULES), ["WeightedMaximum"]);
        let message = &of_group(&group(), &heavy, RULES)[0].message;
        assert!(message.contains("5 instances are 10 of at most 11 weight units"), "{message}");
    }

    /// Somebody wanted 100 servers and got 54 with one group, 60 with two, and nothing said why: weights of two units
    /// each, and a maximum that counts units.
    #[test]
    fn fifty_four_servers_of_a_hundred_are_explained() {
        let mut facts = scaling(109, &[2; 54]);
        let weights = BTreeMap::from([("c6i.xlarge".to_owned(), 2)]);
        facts.group = Some(GroupFacts { weights, ..GroupFacts::default() });
        let found = of_group(&group(), &facts, RULES);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].message,
            "game server group pvp-eu: its 54 instances are 108 of at most 109 weight units, and the lightest needs 2; \
             the maximum counts units, not instances: raise MaxSize of gamelift-gameservergroup-pvp-eu"
        );
    }

    #[test]
    fn a_full_group_is_told() {
        let facts = |instances| Facts { instances, ..Facts::default() };
        assert_eq!(limits(&facts(999), RULES), [""; 0]);
        assert_eq!(limits(&facts(1000), RULES), ["ServersPerGroup"]);
        assert_eq!(limits(&facts(1000), Rules { servers_per_group: 2000 }), [""; 0]);
    }

    #[test]
    fn what_works_against_players_is_told() {
        let policy = |policy: &str| {
            saying(GroupFacts {
                protection_policy: Some(policy.to_owned()),
                group_status: Some("ACTIVE".to_owned()),
                ..GroupFacts::default()
            })
        };
        assert_eq!(limits(&policy("NO_PROTECTION"), RULES), ["NoProtection"]);
        assert_eq!(limits(&policy("FULL_PROTECTION"), RULES), [""; 0]);
        let status = |status: &str| {
            saying(GroupFacts { group_status: Some(status.to_owned()), ..GroupFacts::default() })
        };
        assert_eq!(limits(&status("ERROR"), RULES), ["GroupNotActive"]);
        let balanced = |zones, rebalances_zones| Facts {
            scaling: Some(ScalingFacts { maximum: 9, zones, rebalances_zones, ..ScalingFacts::default() }),
            ..Facts::default()
        };
        assert_eq!(limits(&balanced(3, true), RULES), ["ZoneRebalancing"]);
        assert_eq!(limits(&balanced(3, false), RULES), [""; 0]);
        assert_eq!(limits(&balanced(1, true), RULES), [""; 0]);
        let followed = Facts { scales_by_utilization: true, ..Facts::default() };
        assert_eq!(limits(&followed, RULES), [""; 0], "idle instances are let go");
        let kept = Facts { keeps_idle: true, ..followed };
        assert_eq!(limits(&kept, RULES), ["UtilizationPolicy"]);
        assert_eq!(limits(&Facts { scales_by_utilization: false, ..kept }, RULES), [""; 0]);
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        assert_eq!(limits(&Facts::default(), RULES), [""; 0]);
        assert_eq!(limits(&saying(GroupFacts::default()), RULES), [""; 0]);
    }

    #[test]
    fn each_limit_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = Limit::ALL.iter().map(|limit| limit.as_str()).collect();
        assert_eq!(words.len(), Limit::ALL.len());
    }
}
