//! What the node holds at this moment: pods that take its room and ports, and addresses that are given out. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;

use super::admission::{self, Holding, NodeFacts, Refusal, holding};

/// Pods by UID, and addresses.
#[derive(Debug)]
pub(super) struct Book {
    node: NodeFacts,
    network: Ipv4Addr,
    held: BTreeMap<String, Holding>,
    addresses: BTreeSet<u8>,
}

impl Book {
    pub(super) fn new(node: NodeFacts, network: Ipv4Addr) -> Self {
        Self { node, network, held: BTreeMap::new(), addresses: BTreeSet::new() }
    }

    /// Takes a pod on, or says why not.
    pub(super) fn admit(&mut self, uid: &str, pod: &Pod) -> Result<(), Refusal> {
        match admission::refusal(pod, &self.node, self.held.values()) {
            Some(refusal) => Err(refusal),
            None => {
                self.held.insert(uid.to_owned(), pod.spec.as_ref().map(holding).unwrap_or_default());
                Ok(())
            }
        }
    }

    /// Room and ports of a pod are free again.
    pub(super) fn release(&mut self, uid: &str) {
        self.held.remove(uid);
    }

    /// An address that no pod has. None when all are given out.
    pub(super) fn address(&mut self) -> Option<Ipv4Addr> {
        let free = (2..255).find(|last| !self.addresses.contains(last))?;
        self.addresses.insert(free);
        let [a, b, c, _] = self.network.octets();
        Some(Ipv4Addr::new(a, b, c, free))
    }

    /// An address may be given out again.
    pub(super) fn give_back(&mut self, address: Ipv4Addr) {
        self.addresses.remove(&address.octets()[3]);
    }
}
