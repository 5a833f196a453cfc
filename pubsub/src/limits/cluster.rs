//! Limits of the cluster: what its autoscaler may do, and what its nodes have room for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Finding, Limit};

/// What the cluster as a whole is called.
const CLUSTER: &str = "cluster";

/// A node group as cluster-autoscaler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    /// Its name: on AWS, that of the Auto Scaling group.
    pub name: String,
    /// Nodes that it wants the group to have.
    pub target: u32,
    /// The most that it may want.
    pub maximum: u32,
}

/// What a node that takes game servers has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRoom {
    /// Pods.
    pub pods: i64,
    /// Host ports by range.
    pub ports: BTreeMap<String, i64>,
}

/// What is known of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Node groups of cluster-autoscaler.
    pub node_groups: Vec<NodeGroup>,
    /// Game servers that no node has room for.
    pub waiting: u64,
    /// Nodes that take game servers.
    pub nodes: Vec<NodeRoom>,
    /// FleetIQ's groups of which an agent never lets an idle instance go.
    pub keeping_idle: BTreeSet<String>,
}

/// The limits that bite. Of those of cluster-autoscaler only `scaling_groups` count: other groups are nobody's game.
#[must_use]
pub fn of_cluster(facts: &ClusterFacts, scaling_groups: &BTreeSet<String>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for group in &facts.node_groups {
        if group.target >= group.maximum && scaling_groups.contains(&group.name) {
            let NodeGroup { name, target, maximum } = group;
            found.push(Finding {
                limit: Limit::ClusterAutoscalerMaximum,
                subject: name.clone(),
                message: format!(
                    "cluster-autoscaler wants {target} nodes in {name} and may want no more than {maximum}; raise its \
                     maximum for this group, which is the Auto Scaling group's or that of its flag --nodes"
                ),
            });
        }
    }
    if facts.waiting == 0 || facts.nodes.is_empty() {
        return found;
    }
    let waiting = facts.waiting;
    let mut add = |limit, message| found.push(Finding { limit, subject: CLUSTER.to_owned(), message });
    if facts.nodes.iter().all(|node| node.pods <= 0) {
        let message = format!(
            "{waiting} game servers wait, and each of the {} game nodes has as many pods as its kubelet takes; raise \
             maxPods of the nodes, or add nodes",
            facts.nodes.len()
        );
        add(Limit::PodsPerNode, message);
    }
    let ranges: BTreeSet<&String> = facts.nodes.iter().flat_map(|node| node.ports.keys()).collect();
    for range in ranges {
        let free: i64 = facts.nodes.iter().filter_map(|node| node.ports.get(range)).sum();
        if free <= 0 {
            let message = format!(
                "{waiting} game servers wait, and no game node has a free host port in range {range}; widen \
                 BERTH_PORT_RANGES of the agents, or add nodes"
            );
            add(Limit::HostPorts, message);
            // One Event names the limit; the first range shows where.
            break;
        }
    }
    found
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    node_groups: Vec<StatusGroup>,
}

#[derive(Deserialize)]
struct StatusGroup {
    name: String,
    #[serde(default)]
    health: StatusHealth,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusHealth {
    #[serde(default)]
    cloud_provider_target: Option<u32>,
    #[serde(default)]
    max_size: Option<u32>,
}

/// Reads the status that cluster-autoscaler writes, which is YAML from its version 1.30 on. What it leaves out is zero.
///
/// # Errors
/// When it is something else.
pub fn node_groups(status: &str) -> Result<Vec<NodeGroup>, serde_yaml_ng::Error> {
    let status: Status = serde_yaml_ng::from_str(status)?;
    let read = |group: StatusGroup| {
        let maximum = group.health.max_size?;
        Some(NodeGroup { name: group.name, target: group.health.cloud_provider_target.unwrap_or(0), maximum })
    };
    Ok(status.node_groups.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "
time: 2026-09-21 10:00:00.1 +0000 UTC
autoscalerStatus: Running
clusterWide: {health: {status: Healthy}}
nodeGroups:
- name: gamelift-gameservergroup-pvp-eu
  health:
    status: Healthy
    nodeCounts: {registered: {total: 5, ready: 5}}
    cloudProviderTarget: 5
    minSize: 1
    maxSize: 5
  scaleUp: {status: NoActivity}
- name: web
  health: {cloudProviderTarget: 2, maxSize: 2}
- name: gamelift-gameservergroup-pve-eu
  health: {maxSize: 3}
";

    fn group(name: &str, target: u32, maximum: u32) -> NodeGroup {
        NodeGroup { name: name.to_owned(), target, maximum }
    }

    fn ours() -> BTreeSet<String> {
        ["pvp-eu", "pve-eu"].map(|name| format!("gamelift-gameservergroup-{name}")).into()
    }

    #[test]
    fn the_status_of_cluster_autoscaler_is_read() {
        let groups = node_groups(STATUS).unwrap();
        assert_eq!(
            groups,
            [
                group("gamelift-gameservergroup-pvp-eu", 5, 5),
                group("web", 2, 2),
                group("gamelift-gameservergroup-pve-eu", 0, 3)
            ]
        );
        let facts = ClusterFacts { node_groups: groups, ..ClusterFacts::default() };
        let found = of_cluster(&facts, &ours());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].limit, Limit::ClusterAutoscalerMaximum);
        assert_eq!(found[0].subject, "gamelift-gameservergroup-pvp-eu");
        assert_eq!(node_groups("Cluster-autoscaler status at 2023:").unwrap(), [], "of an older one");
        assert!(node_groups("- Cluster-autoscaler: [").is_err());
    }

    fn node(pods: i64, ports: &[(&str, i64)]) -> NodeRoom {
        NodeRoom { pods, ports: ports.iter().map(|(range, free)| ((*range).to_owned(), *free)).collect() }
    }

    #[test]
    fn full_nodes_bite_only_where_a_server_waits() {
        for (name, waiting, nodes, expected) in [
            ("nobody waits", 0, vec![node(0, &[("default", 0)])], vec![]),
            ("no nodes", 3, vec![], vec![]),
            ("room everywhere", 3, vec![node(5, &[("default", 5)])], vec![]),
            (
                "no pods anywhere",
                3,
                vec![node(0, &[("default", 5)]), node(-1, &[])],
                vec![Limit::PodsPerNode],
            ),
            ("pods on one", 3, vec![node(0, &[]), node(1, &[])], vec![]),
            ("no ports anywhere", 3, vec![node(9, &[("default", 0)]); 2], vec![Limit::HostPorts]),
            ("ports on one", 3, vec![node(9, &[("default", 0)]), node(9, &[("default", 1)])], vec![]),
            ("one range of two", 3, vec![node(9, &[("default", 4), ("tcp", 0)])], vec![Limit::HostPorts]),
            (
                "neither",
                3,
                vec![node(0, &[("default", 0), ("tcp", 0)])],
                vec![Limit::PodsPerNode, Limit::HostPorts],
            ),
        ] {
            let facts = ClusterFacts { waiting, nodes, ..ClusterFacts::default() };
            let found: Vec<_> = of_cluster(&facts, &ours()).iter().map(|finding| finding.limit).collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}
