//! Our own Node object: what pods may use, who may come, how players reach it.

use berth_api::game_node::Room;
use berth_api::game_server::NodeAddress;
use berth_api::names;
use k8s_openapi::api::core::v1::{Node, PodSpec, Taint, Toleration};

pub mod room;
pub mod watcher;

/// What we need of the Node object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Its UID.
    pub uid: String,
    /// Its addresses, in their order.
    pub addresses: Vec<NodeAddress>,
    /// Closed for new pods.
    pub is_cordoned: bool,
    /// Taints that keep pods away.
    pub taints: Vec<Taint>,
    /// What pods may use.
    pub allocatable: Room,
}

impl NodeFacts {
    /// Reads the object.
    pub fn read(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        Self {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            addresses: status
                .addresses
                .unwrap_or_default()
                .into_iter()
                .map(|one| NodeAddress { kind: one.type_, address: one.address })
                .collect(),
            is_cordoned: spec.unschedulable == Some(true),
            taints: spec.taints.unwrap_or_default().into_iter().filter(keeps_away).collect(),
            allocatable: room::allocatable(&status.allocatable.unwrap_or_default()),
        }
    }

    /// The address that players use: the first of the kinds that the reference prefers, in its order.
    pub fn address(&self) -> Option<&str> {
        let first = |kind: &str, must_be_ip: bool| {
            self.addresses
                .iter()
                .find(|one| {
                    one.kind == kind && (!must_be_ip || one.address.parse::<std::net::IpAddr>().is_ok())
                })
                .map(|one| one.address.as_str())
        };
        first("ExternalDNS", false)
            .or_else(|| first("ExternalIP", true))
            .or_else(|| first("InternalDNS", false))
            .or_else(|| first("InternalIP", true))
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

fn keeps_away(taint: &Taint) -> bool {
    taint.effect == "NoSchedule" || taint.effect == "NoExecute"
}

/// Taints that every game pod tolerates. The unreachable and not-ready ones come and go with kubelet's health.
fn is_ours(taint: &Taint) -> bool {
    let is_known = [names::NOT_READY_TAINT, names::UNREACHABLE_TAINT].contains(&taint.key.as_str());
    is_known && taint.effect == "NoExecute"
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
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
    use berth_api::game_server::NodeAddress;
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
            assert_eq!(facts.address(), expected, "{:?}", facts.addresses);
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
