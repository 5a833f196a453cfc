//! Names and addresses of a cluster, all from its number. Pure.
//!
//! ```text
//! machine          10.99.N.1  ── bridge bdN ──┬── bdNn1 ═ eth0  node 1  10.99.N.11   pods 10.(100+N).1.0/24
//! API server, clients, brain                  └── bdNn2 ═ eth0  node 2  10.99.N.12   pods 10.(100+N).2.0/24
//! ```

use std::net::Ipv4Addr;

/// A node's place in its cluster, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(u8);

impl NodeIndex {
    /// The last address of the subnet is the bridge's broadcast.
    pub const MOST: u8 = 200;

    /// `None` for 0 and for more than a subnet holds.
    #[must_use]
    pub fn new(index: usize) -> Option<Self> {
        let index = u8::try_from(index).ok()?;
        (1..=Self::MOST).contains(&index).then_some(Self(index))
    }
}

impl std::fmt::Display for NodeIndex {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// The addresses of one cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network {
    number: u8,
}

impl Network {
    pub(crate) fn of_instance(number: u8) -> Self {
        Self { number }
    }

    /// The device that joins all nodes and the machine.
    pub(crate) fn bridge(self) -> String {
        format!("bd{}", self.number)
    }

    /// The machine's address on the bridge.
    pub(crate) fn machine(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, self.number, 1)
    }

    pub(crate) fn node(self, index: NodeIndex) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, self.number, 10 + index.0)
    }

    /// The machine's end of the cable to a node.
    pub(crate) fn link(self, index: NodeIndex) -> String {
        format!("bd{}n{index}", self.number)
    }

    /// The addresses of a node's pods.
    pub(crate) fn pods(self, index: NodeIndex) -> String {
        format!("{}/24", self.first_pod(index))
    }

    /// The address that the addresses of a node's pods begin with.
    pub(crate) fn first_pod(self, index: NodeIndex) -> Ipv4Addr {
        Ipv4Addr::new(10, 100 + self.number, index.0, 0)
    }

    /// The addresses of all pods.
    pub(crate) fn all_pods(self) -> String {
        format!("10.{}.0.0/16", 100 + self.number)
    }

    /// A node's control group, which no other node on this machine has.
    pub(crate) fn cgroup(self, index: NodeIndex) -> String {
        format!("berth-{}-node-{index}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_of_every_cluster_has_addresses_of_its_own() {
        let (network, index) = (Network::of_instance(7), NodeIndex::new(2).unwrap());
        assert_eq!(network.node(index).to_string(), "10.99.7.12");
        assert_eq!(network.pods(index), "10.107.2.0/24");
        assert_eq!(network.link(index), "bd7n2");
        assert_eq!(network.cgroup(index), "berth-7-node-2");
    }

    #[test]
    fn a_subnet_holds_so_many_nodes() {
        assert_eq!(NodeIndex::new(0), None);
        assert_eq!(NodeIndex::new(201), None);
        let last = NodeIndex::new(200).unwrap();
        assert_eq!(Network::of_instance(99).node(last), Ipv4Addr::new(10, 99, 99, 210));
    }

    #[test]
    fn a_device_name_fits_the_kernel() {
        assert!(Network::of_instance(99).link(NodeIndex::new(200).unwrap()).len() <= 15);
    }
}
