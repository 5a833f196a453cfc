//! Our own Node object: what pods may use, who may come, how players reach it.

use std::net::IpAddr;

use berth_api::game_node::Room;
use berth_api::game_server::{GameServer, NodeAddress};
use berth_api::names;
use k8s_openapi::api::core::v1::{Node, PodSpec, Taint, Toleration};

use crate::drain::marks::Marks;

pub mod room;
pub mod watcher;

/// What we need of the Node object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Its UID.
    pub uid: String,
    /// Its version, where that is a number.
    pub version: u64,
    /// Its addresses, in their order.
    pub addresses: Vec<NodeAddress>,
    /// The address that its operator gives to players, instead of those.
    pub given_address: Option<String>,
    /// Closed for new pods.
    pub is_cordoned: bool,
    /// It was an agent of ours that closed it.
    pub is_cordoned_by_agent: bool,
    /// An operator asks by an annotation that it be emptied.
    pub asks_for_drain: bool,
    /// What it says of its drain and its standing with FleetIQ.
    pub marks: Marks,
    /// Taints that keep pods away.
    pub taints: Vec<Taint>,
    /// What pods may use.
    pub allocatable: Room,
}

/// Kinds of addresses that players can use, the preferred ones first. A host name is none of them.
const KINDS: [&str; 4] = ["ExternalDNS", "ExternalIP", "InternalDNS", "InternalIP"];

/// How far down a kind stands in the order of preference.
pub fn rank(kind: &str) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len())
}

fn is_of(address: &str, family: &str) -> bool {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => family == "IPv4",
        Ok(IpAddr::V6(_)) => family == "IPv6",
        Err(_) => false,
    }
}

/// An address that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its kind; empty where the node's list does not hold it.
    pub kind: String,
    /// The address.
    pub address: String,
    /// Somebody asked for it rather than that it was the best.
    pub is_asked_for: bool,
}

impl NodeFacts {
    /// Reads the object.
    pub fn read(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let annotations = node.metadata.annotations.as_ref();
        let says = |name: &str, value: &str| {
            annotations.and_then(|all| all.get(name)).is_some_and(|said| said == value)
        };
        Self {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            version: version(node),
            addresses: status
                .addresses
                .unwrap_or_default()
                .into_iter()
                .map(|one| NodeAddress { kind: one.type_, address: one.address })
                .collect(),
            given_address: annotations
                .and_then(|annotations| annotations.get(names::ADDRESS_ANNOTATION))
                .map(|given| given.trim().to_owned())
                .filter(|given| !given.is_empty()),
            is_cordoned: spec.unschedulable == Some(true),
            is_cordoned_by_agent: says(names::NODE_CORDONED_BY_ANNOTATION, names::CORDONED_BY_AGENT),
            asks_for_drain: says(names::NODE_DRAIN_ANNOTATION, names::DRAIN_REQUESTED),
            marks: Marks::read(annotations),
            taints: spec.taints.unwrap_or_default().into_iter().filter(keeps_away).collect(),
            allocatable: room::allocatable(&status.allocatable.unwrap_or_default()),
        }
    }

    /// The address that players use to reach a server: what its author asks for, or what the node's operator has
    /// given, or the first of the kinds that `agones.dev/v1` prefers, in its order.
    pub fn address_for(&self, server: &GameServer) -> Option<Address> {
        if let Some(asked) = server.annotation(names::ADDRESS_KIND_ANNOTATION) {
            return self.asked_for(asked);
        }
        if let Some(given) = &self.given_address {
            return Some(Address { kind: String::new(), address: given.clone(), is_asked_for: true });
        }
        KINDS.iter().find_map(|kind| self.first(|one| one.kind == *kind, false))
    }

    /// `KIND`, `KIND/FAMILY` or `FAMILY`. A word that is neither matches nothing, and the server waits and says so.
    fn asked_for(&self, asked: &str) -> Option<Address> {
        let (kind, family) = match asked.split_once('/') {
            Some((kind, family)) => (Some(kind), Some(family)),
            None if asked == "IPv4" || asked == "IPv6" => (None, Some(asked)),
            None => (Some(asked), None),
        };
        let kinds: Vec<&str> = KINDS.into_iter().filter(|one| kind.is_none_or(|kind| kind == *one)).collect();
        kinds.into_iter().find_map(|kind| {
            self.first(
                |one| one.kind == kind && family.is_none_or(|family| is_of(&one.address, family)),
                true,
            )
        })
    }

    fn first(&self, is_wanted: impl Fn(&NodeAddress) -> bool, is_asked_for: bool) -> Option<Address> {
        let is_usable =
            |one: &NodeAddress| !one.kind.ends_with("IP") || one.address.parse::<IpAddr>().is_ok();
        let found = self.addresses.iter().find(|one| is_wanted(one) && is_usable(one))?;
        Some(Address { kind: found.kind.clone(), address: found.address.clone(), is_asked_for })
    }

    /// Whether it has a taint of ours, by its key and whatever its effect.
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| taint.key == key)
    }

    /// Why the node does not take a new pod of this template.
    pub fn refuses(&self, template: Option<&PodSpec>) -> Option<String> {
        if self.is_cordoned {
            return Some("the node is cordoned".to_owned());
        }
        let tolerations = template.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let untolerated = self
            .taints
            .iter()
            .filter(|taint| !is_ours(taint))
            .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))?;
        Some(format!(
            "the node has a taint that is not tolerated: {}:{}",
            untolerated.key, untolerated.effect
        ))
    }
}

/// The version of an object, where that is a number, as everywhere.
pub(crate) fn version(node: &Node) -> u64 {
    node.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn keeps_away(taint: &Taint) -> bool {
    taint.effect == "NoSchedule" || taint.effect == "NoExecute"
}

/// Taints that every game pod tolerates. The unreachable and not-ready ones come and go with kubelet's health.
fn is_ours(taint: &Taint) -> bool {
    let is_known = [names::NOT_READY_TAINT, names::UNREACHABLE_TAINT].contains(&taint.key.as_str());
    is_known && taint.effect == "NoExecute"
}

/// Whether a toleration is one of this taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = toleration.key.as_deref().unwrap_or_default();
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => key.is_empty() || key == taint.key,
        "Equal" => {
            key == taint.key
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use berth_api::game_server::{GameServer, GameServerSpec, NodeAddress};
    use k8s_openapi::api::core::v1::{PodSpec, Taint, Toleration};

    use super::NodeFacts;

    #[test]
    fn the_address_is_chosen_in_the_specified_order() {
        let table: [(&[(&str, &str)], Option<&str>); 5] = [
            (
                &[
                    ("InternalIP", "10.0.0.1"),
                    ("ExternalIP", "bad"),
                    ("ExternalIP", "1.2.3.4"),
                    ("Hostname", "h"),
                ],
                Some("1.2.3.4"),
            ),
            (&[("InternalIP", "10.0.0.1"), ("InternalDNS", "a.b")], Some("a.b")),
            (&[("ExternalIP", "1.2.3.4"), ("ExternalDNS", "x.y")], Some("x.y")),
            (&[("InternalIP", "fd00::1")], Some("fd00::1")),
            (&[("Hostname", "h")], None),
        ];
        for (addresses, expected) in table {
            let addresses = addresses
                .iter()
                .map(|(kind, address)| NodeAddress { kind: (*kind).into(), address: (*address).into() })
                .collect();
            let facts = NodeFacts { addresses, ..NodeFacts::default() };
            let server = GameServer::new("gs", GameServerSpec::default());
            let chosen = facts.address_for(&server).map(|chosen| chosen.address);
            assert_eq!(chosen.as_deref(), expected, "{:?}", facts.addresses);
        }
    }

    #[test]
    fn a_node_refuses_what_does_not_tolerate_it() {
        let taint = |key: &str, effect: &str| Taint {
            key: key.into(),
            effect: effect.into(),
            value: Some("v".into()),
            ..Taint::default()
        };
        let tolerating = |key: &str, operator: &str, value: Option<&str>| PodSpec {
            tolerations: Some(vec![Toleration {
                key: Some(key.into()),
                operator: Some(operator.into()),
                value: value.map(str::to_owned),
                ..Toleration::default()
            }]),
            ..PodSpec::default()
        };
        let facts = NodeFacts { taints: vec![taint("gpu", "NoSchedule")], ..NodeFacts::default() };
        assert!(facts.refuses(None).is_some_and(|why| why.contains("gpu:NoSchedule")));
        assert!(facts.refuses(Some(&tolerating("gpu", "Equal", None))).is_some());
        assert_eq!(facts.refuses(Some(&tolerating("gpu", "Equal", Some("v")))), None);
        assert_eq!(facts.refuses(Some(&tolerating("gpu", "Exists", None))), None);
        assert_eq!(facts.refuses(Some(&tolerating("", "Exists", None))), None);
        let silent = NodeFacts {
            taints: vec![taint("node.kubernetes.io/unreachable", "NoExecute")],
            ..NodeFacts::default()
        };
        assert_eq!(silent.refuses(None), None);
        let closed = NodeFacts { is_cordoned: true, ..NodeFacts::default() };
        assert_eq!(closed.refuses(None).as_deref(), Some("the node is cordoned"));
    }
}
