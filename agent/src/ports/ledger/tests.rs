//! Tables and properties of the ledger.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::game_server::{PortPolicy, PortProtocol, PortSpec};
use berth_api::link::ServerUid;
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{Ledger, without_host_ports};
use crate::ports::{PortRange, ReserveError, Slot, Tenant, slots_of};

fn tenant(number: u8) -> Tenant {
    Tenant::Server(ServerUid(format!("uid-{number}")))
}

fn ledger(ranges: &[(&str, u16, u16)]) -> Ledger {
    let ranges = ranges
        .iter()
        .map(|(name, min, max)| ((*name).to_owned(), PortRange::new(*min, *max).expect("a range")))
        .collect();
    Ledger::new(ranges, 0)
}

fn port(name: &str, policy: PortPolicy, protocol: PortProtocol) -> PortSpec {
    PortSpec {
        name: Some(name.to_owned()),
        port_policy: Some(policy),
        protocol: Some(protocol),
        container_port: (policy != PortPolicy::Passthrough).then_some(5),
        ..PortSpec::default()
    }
}

fn fixed(number: u16, protocol: PortProtocol) -> PortSpec {
    PortSpec { host_port: Some(number), ..port("s", PortPolicy::Static, protocol) }
}

#[test]
fn ranges_policies_and_both_protocols_come_out_in_the_specified_order() {
    let mut ledger = ledger(&[("default", 10, 20), ("game", 30, 30)]);
    let mut a = port("a", PortPolicy::Passthrough, PortProtocol::TcpUdp);
    a.range = Some("game".to_owned());
    let mut b = port("b", PortPolicy::Dynamic, PortProtocol::Udp);
    b.range = Some("nope".to_owned());
    let mut c = fixed(7, PortProtocol::TcpUdp);
    c.name = Some("c".to_owned());
    let reserved = ledger.reserve(&tenant(1), &[a, b, c], |_| false).expect("reserves");
    let seen: Vec<_> = reserved
        .iter()
        .map(|port| {
            (port.name.as_deref().unwrap_or(""), port.host_port, port.container_port, port.protocol())
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("a-tcp", Some(30), Some(30), PortProtocol::Tcp),
            ("b", None, Some(5), PortProtocol::Udp),
            ("c-tcp", Some(7), Some(5), PortProtocol::Tcp),
            ("a-udp", Some(30), Some(30), PortProtocol::Udp),
            ("c-udp", Some(7), Some(5), PortProtocol::Udp),
        ]
    );
}

#[test]
fn a_static_port_is_taken_for_its_protocol_only() {
    let mut ledger = ledger(&[("default", 10, 11)]);
    ledger.reserve(&tenant(1), &[fixed(10, PortProtocol::Udp)], |_| false).expect("reserves");
    ledger.reserve(&tenant(2), &[fixed(10, PortProtocol::Tcp)], |_| false).expect("the other protocol");
    let error = ledger.reserve(&tenant(3), &[fixed(10, PortProtocol::TcpUdp)], |_| false).expect_err("taken");
    assert!(matches!(error, ReserveError::Taken { .. }), "{error}");
    let dynamic = port("d", PortPolicy::Dynamic, PortProtocol::Udp);
    let given =
        ledger.reserve(&tenant(4), std::slice::from_ref(&dynamic), |_| false).expect("the other number");
    assert_eq!(given[0].host_port, Some(11));
    let error = ledger.reserve(&tenant(5), &[dynamic], |_| false).expect_err("exhausted");
    assert_eq!(error.to_string(), "no free port in range default (10-11)");
}

#[test]
fn a_static_port_named_twice_or_bound_on_the_host_is_refused() {
    let mut ledger = ledger(&[("default", 10, 11)]);
    let twice = [fixed(5, PortProtocol::Udp), fixed(5, PortProtocol::TcpUdp)];
    let error = ledger.reserve(&tenant(1), &twice, |_| false).expect_err("twice");
    assert_eq!(error.to_string(), "static port 5/UDP is named twice");
    let error = ledger.reserve(&tenant(1), &[fixed(5, PortProtocol::Udp)], |_| true).expect_err("in use");
    assert_eq!(error.to_string(), "static port 5/UDP is in use on the host");
    assert!(ledger.of(&tenant(1)).is_empty());
}

#[test]
fn a_number_just_given_back_rests() {
    let mut ledger = ledger(&[("default", 10, 12)]);
    let one = [port("d", PortPolicy::Dynamic, PortProtocol::Udp)];
    let mut given = Vec::new();
    for _ in 0..4 {
        let reserved = ledger.reserve(&tenant(1), &one, |_| false).expect("reserves");
        given.push(reserved[0].host_port.expect("a port"));
        ledger.release(&tenant(1));
    }
    assert_eq!(given, [10, 11, 12, 10]);
}

fn any_port() -> impl Strategy<Value = PortSpec> {
    let protocol = prop_oneof![
        prop::strategy::Just(PortProtocol::Udp),
        prop::strategy::Just(PortProtocol::Tcp),
        prop::strategy::Just(PortProtocol::TcpUdp)
    ];
    let policy = prop_oneof![
        4 => prop::strategy::Just(PortPolicy::Dynamic),
        2 => prop::strategy::Just(PortPolicy::Passthrough),
        1 => prop::strategy::Just(PortPolicy::Static),
        1 => prop::strategy::Just(PortPolicy::None)
    ];
    (policy, protocol, 8_u16..24, any::<bool>()).prop_map(|(policy, protocol, number, other)| PortSpec {
        range: other.then(|| "game".to_owned()),
        host_port: (policy == PortPolicy::Static).then_some(number),
        ..port("p", policy, protocol)
    })
}

#[derive(Clone, Debug)]
enum Deed {
    Reserve(u8, Vec<PortSpec>),
    Release(u8),
}

fn any_deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => (0_u8..6, prop::collection::vec(any_port(), 0..4)).prop_map(|(who, ports)| Deed::Reserve(who, ports)),
        2 => (0_u8..6).prop_map(Deed::Release)
    ]
}

proptest! {
    /// No slot has two tenants, a server's slots are distinct, all or nothing is reserved, and each slot is released
    /// exactly once.
    #[test]
    fn a_port_has_one_tenant_and_is_released_once(
        deeds in prop::collection::vec(any_deed(), 1..40),
        refused in prop::collection::btree_set(8_u16..24, 0..4),
    ) {
        let mut ledger = ledger(&[("default", 10, 17), ("game", 18, 21)]);
        let mut model: BTreeMap<Slot, u8> = BTreeMap::new();
        for deed in deeds {
            match deed {
                Deed::Reserve(who, _) if model.values().any(|tenant| *tenant == who) => {}
                Deed::Reserve(who, ports) => {
                    let before = ledger.of(&tenant(who));
                    match ledger.reserve(&tenant(who), &ports, |slot| refused.contains(&slot.port)) {
                        Ok(given) => {
                            let slots = slots_of(&given);
                            let distinct: BTreeSet<_> = slots.iter().copied().collect();
                            prop_assert_eq!(distinct.len(), slots.len(), "distinct within a server");
                            for slot in slots {
                                prop_assert!(!refused.contains(&slot.port), "{} is refused", slot);
                                prop_assert_eq!(model.insert(slot, who), None, "{} twice", slot);
                            }
                        }
                        Err(_) => prop_assert_eq!(ledger.of(&tenant(who)), before, "nothing on failure"),
                    }
                }
                Deed::Release(who) => {
                    let released: BTreeSet<_> = ledger.release(&tenant(who)).into_iter().collect();
                    let expected: BTreeSet<_> =
                        model.iter().filter(|(_, one)| **one == who).map(|(slot, _)| *slot).collect();
                    prop_assert_eq!(&released, &expected);
                    model.retain(|_, one| *one != who);
                    prop_assert!(ledger.release(&tenant(who)).is_empty(), "released once");
                }
            }
            for (range, count) in ledger.counts() {
                prop_assert!((0..=count.total).contains(&count.free), "{} {:?}", range, count);
            }
        }
    }

    /// What a node fills in can be taken out again, so that a server can go to another node.
    #[test]
    fn a_list_without_its_host_ports_is_what_its_author_wrote(ports in prop::collection::vec(any_port(), 0..4)) {
        let named: Vec<PortSpec> = ports
            .into_iter()
            .enumerate()
            .filter(|(_, port)| port.policy() != PortPolicy::Static)
            .map(|(number, port)| PortSpec { name: Some(format!("p{number}")), ..port })
            .collect();
        let mut ledger = ledger(&[("default", 10, 17), ("game", 18, 29)]);
        let given = ledger.reserve(&tenant(1), &named, |_| false).expect("there is room");
        prop_assert_eq!(without_host_ports(&given), named);
    }
}
