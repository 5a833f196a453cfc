//! Which port belongs to whom. Pure.
//!
//! A number that the ledger chooses is given to one tenant alone, for both protocols, so that players never reach a
//! neighbour by the other one; a number that an author chose is taken for its protocol only. Numbers are given out
//! going round the range, so that one that was just given back rests as long as possible.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::game_node::PortCount;
use berth_api::game_server::{PortPolicy, PortProtocol, PortSpec, split_both_protocols};
use berth_api::names;

use super::{PortRange, ReserveError, Slot, Tenant, loopback, protocols_of, slots_of};

/// Ranges, and who has what.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    ranges: BTreeMap<String, PortRange>,
    next: BTreeMap<String, usize>,
    /// More than one tenant only where two were found there already at start-up.
    taken: BTreeMap<Slot, BTreeSet<Tenant>>,
}

impl Ledger {
    /// An empty ledger. `start` is how far into each range the first number lies.
    pub fn new(ranges: BTreeMap<String, PortRange>, start: usize) -> Self {
        let next = ranges.keys().map(|name| (name.clone(), start)).collect();
        Self { ranges, next, taken: BTreeMap::new() }
    }

    /// Reserves all ports of a server, or none. `is_refused` names slots that the host said are not free.
    ///
    /// The answer is the list of ports as the spec is to show it: split, with host ports, and container ports where
    /// these follow the host's. A port whose range is not configured gets no host port, as in `agones.dev/v1`.
    ///
    /// # Errors
    /// Why there are none.
    pub fn reserve(
        &mut self,
        tenant: &Tenant,
        ports: &[PortSpec],
        is_refused: impl Fn(Slot) -> bool,
    ) -> Result<Vec<PortSpec>, ReserveError> {
        let chosen = self.choose(tenant, ports, &is_refused)?;
        self.enter(tenant, slots_of(&chosen));
        Ok(split_both_protocols(&chosen))
    }

    fn choose(
        &mut self,
        tenant: &Tenant,
        ports: &[PortSpec],
        is_refused: &impl Fn(Slot) -> bool,
    ) -> Result<Vec<PortSpec>, ReserveError> {
        let mut mine = BTreeSet::new();
        // What the author chose comes first, or a number that we choose could take it away.
        for slot in ports
            .iter()
            .filter(|port| port.policy() == PortPolicy::Static)
            .flat_map(|port| slots_of(std::slice::from_ref(port)))
        {
            if let Some(other) = self.taken.get(&slot).and_then(|who| who.iter().find(|one| *one != tenant)) {
                return Err(ReserveError::Taken { slot, tenant: other.clone() });
            }
            if is_refused(slot) {
                return Err(ReserveError::InUse { slot });
            }
            if !mine.insert(slot) {
                return Err(ReserveError::Twice { slot });
            }
        }
        ports
            .iter()
            .map(|port| match port.policy() {
                PortPolicy::Static | PortPolicy::None => Ok(port.clone()),
                PortPolicy::Dynamic | PortPolicy::Passthrough => {
                    let Some(number) = self.pick(port.range(), &mine, is_refused)? else {
                        return Ok(PortSpec { host_port: None, ..port.clone() });
                    };
                    mine.extend(both(number));
                    let passes = port.policy() == PortPolicy::Passthrough;
                    Ok(PortSpec {
                        host_port: Some(number),
                        container_port: if passes { Some(number) } else { port.container_port },
                        ..port.clone()
                    })
                }
            })
            .collect()
    }

    /// A number of the range that nobody has, or none where there is no such range.
    fn pick(
        &mut self,
        name: &str,
        mine: &BTreeSet<Slot>,
        is_refused: &impl Fn(Slot) -> bool,
    ) -> Result<Option<u16>, ReserveError> {
        let Some(range) = self.ranges.get(name).copied() else {
            return Ok(None);
        };
        let start = self.next.get(name).copied().unwrap_or_default();
        let is_free =
            |slot: Slot| !self.taken.contains_key(&slot) && !mine.contains(&slot) && !is_refused(slot);
        let found =
            range.round_from(start).enumerate().find(|(_, port)| both(*port).into_iter().all(is_free));
        let Some((steps, port)) = found else {
            return Err(ReserveError::Exhausted { name: name.to_owned(), range });
        };
        self.next.insert(name.to_owned(), (start + steps + 1) % range.len());
        Ok(Some(port))
    }

    /// Enters what a tenant has, whoever else has it.
    pub fn enter(&mut self, tenant: &Tenant, slots: impl IntoIterator<Item = Slot>) {
        for slot in slots {
            self.taken.entry(slot).or_default().insert(tenant.clone());
        }
    }

    /// Takes back all that a tenant has.
    pub fn release(&mut self, tenant: &Tenant) -> Vec<Slot> {
        let mut released = Vec::new();
        self.taken.retain(|slot, tenants| {
            if tenants.remove(tenant) {
                released.push(*slot);
            }
            !tenants.is_empty()
        });
        released
    }

    /// What a tenant has.
    pub fn of(&self, tenant: &Tenant) -> Vec<Slot> {
        self.taken.iter().filter(|(_, tenants)| tenants.contains(tenant)).map(|(slot, _)| *slot).collect()
    }

    /// Numbers in all, and numbers that nobody has for any protocol, by range.
    pub fn counts(&self) -> BTreeMap<String, PortCount> {
        let numbers: BTreeSet<u16> = self.taken.keys().map(|slot| slot.port).collect();
        self.ranges
            .iter()
            .filter(|(name, _)| *name != loopback::RANGE)
            .map(|(name, range)| {
                let used = numbers.iter().filter(|port| range.contains(**port)).count();
                let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
                (name.clone(), PortCount { total: count(range.len()), free: count(range.len() - used) })
            })
            .collect()
    }
}

fn both(port: u16) -> [Slot; 2] {
    [Slot { port, protocol: PortProtocol::Tcp }, Slot { port, protocol: PortProtocol::Udp }]
}

/// The ports of a spec as they were before a node filled them in: for a server that goes to another node.
///
/// Two halves of one port are joined again: they are known by their names and by the number that they share, which no
/// two dynamic ports of a server do otherwise.
pub fn without_host_ports(ports: &[PortSpec]) -> Vec<PortSpec> {
    let stem = |port: &PortSpec, suffix: &str| -> Option<String> {
        Some(port.name.as_deref()?.strip_suffix(suffix)?.to_owned())
    };
    let is_ours = |port: &PortSpec| matches!(port.policy(), PortPolicy::Dynamic | PortPolicy::Passthrough);
    let halves = |tcp: &PortSpec, udp: &PortSpec| {
        is_ours(tcp)
            && tcp.protocol() == PortProtocol::Tcp
            && udp.protocol() == PortProtocol::Udp
            && tcp.host_port.is_some()
            && tcp.host_port == udp.host_port
            && tcp.policy() == udp.policy()
            && stem(tcp, "-tcp").is_some()
            && stem(tcp, "-tcp") == stem(udp, "-udp")
    };
    ports
        .iter()
        .filter(|port| !ports.iter().any(|other| halves(other, port)))
        .map(|port| {
            if !is_ours(port) {
                return port.clone();
            }
            let joined = ports.iter().any(|other| halves(port, other));
            let passes = port.policy() == PortPolicy::Passthrough;
            PortSpec {
                name: if joined {
                    stem(port, "-tcp").filter(|name| !name.is_empty())
                } else {
                    port.name.clone()
                },
                protocol: if joined { Some(PortProtocol::TcpUdp) } else { port.protocol },
                host_port: None,
                container_port: if passes { None } else { port.container_port },
                ..port.clone()
            }
        })
        .collect()
}

/// The slots that a pod which is no game server takes on the host.
pub fn slots_of_pod(spec: &k8s_openapi::api::core::v1::PodSpec) -> Vec<Slot> {
    let on_host = spec.host_network == Some(true);
    let init = spec.init_containers.iter().flatten();
    // Where it listens for a game that shares the host's loopback.
    let sdk = spec.containers.iter().flat_map(|container| container.env.iter().flatten());
    let sdk = sdk.filter(|one| {
        on_host && [names::SDK_GRPC_PORT_ENV, names::SDK_HTTP_PORT_ENV].contains(&one.name.as_str())
    });
    let sdk = sdk.filter_map(|one| {
        let port = one.value.as_ref()?.parse().ok()?;
        Some(Slot { port, protocol: PortProtocol::Tcp })
    });
    spec.containers
        .iter()
        .chain(init)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.or(on_host.then_some(port.container_port))?;
            let protocol = match port.protocol.as_deref().unwrap_or("TCP") {
                "UDP" => PortProtocol::Udp,
                _ => PortProtocol::Tcp,
            };
            Some((u16::try_from(number).ok().filter(|number| *number > 0)?, protocol))
        })
        .flat_map(|(port, protocol)| {
            protocols_of(protocol).iter().map(move |one| Slot { port, protocol: *one })
        })
        .chain(sdk)
        .collect()
}

#[cfg(test)]
mod tests;
