//! What a server's status shows of addresses: the one that players use, those of its node, those of its pod. Pure.
//!
//! A node may get another address while servers run on it; that is shown, once. An address that a node has lost and has
//! nothing better for stays shown: a cloud's list of addresses is empty for a while at times, and players who have the
//! address keep it.

use berth_api::game_server::{GameServer, NodeAddress};

use crate::node::{NodeFacts, rank};

/// Kind of the pod's own addresses.
const POD: &str = "PodIP";

/// What is to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// The address that players use.
    pub(super) address: String,
    /// Those of the node, then those of the pod.
    pub(super) all: Vec<NodeAddress>,
}

impl Shown {
    /// What the server is to show, where its node and its pod are as they are now.
    pub(super) fn new(server: &GameServer, node: &NodeFacts, pod: &[String]) -> Self {
        let known = server.status.clone().unwrap_or_default();
        let listed = known.addresses.unwrap_or_default();
        let (of_pod, of_node): (Vec<_>, Vec<_>) = listed.into_iter().partition(|one| one.kind == POD);
        let held = of_node.iter().find(|one| one.address == known.address);
        let chosen = node.address_for(server).filter(|chosen| {
            // Among what the node has, one of a worse kind takes the place of none.
            held.is_none_or(|held| chosen.is_asked_for || rank(&chosen.kind) <= rank(&held.kind))
        });
        let mut all = if node.addresses.is_empty() { of_node.clone() } else { node.addresses.clone() };
        let address = match (chosen, held) {
            (Some(chosen), _) => chosen.address,
            (None, Some(held)) => {
                if !all.contains(held) {
                    all.insert(0, held.clone());
                }
                held.address.clone()
            }
            (None, None) => known.address,
        };
        if pod.is_empty() {
            all.extend(of_pod);
        } else {
            let entry = |address: &String| NodeAddress { kind: POD.to_owned(), address: address.clone() };
            all.extend(pod.iter().map(entry));
        }
        Self { address, all }
    }

    /// Whether the server does not show it yet. What it shows beyond is no reason to write, and addresses of a pod that
    /// are not shown yet come with the next state.
    pub(super) fn is_news_to(&self, server: &GameServer) -> bool {
        let Some(known) = &server.status else { return true };
        let listed = known.addresses.as_deref().unwrap_or_default();
        let shows_pod = listed.iter().any(|one| one.kind == POD);
        let lacks = |one: &NodeAddress| (one.kind != POD || shows_pod) && !listed.contains(one);
        self.address != known.address || self.all.iter().any(lacks)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_api::game_server::{GameServer, GameServerSpec, GameServerStatus, NodeAddress};
    use berth_api::names;

    use super::Shown;
    use crate::node::NodeFacts;

    fn list(addresses: &[(&str, &str)]) -> Vec<NodeAddress> {
        let one = |(kind, address): &(&str, &str)| NodeAddress {
            kind: (*kind).to_owned(),
            address: (*address).to_owned(),
        };
        addresses.iter().map(one).collect()
    }

    fn server(address: &str, addresses: &[(&str, &str)]) -> GameServer {
        let mut server = GameServer::new("gs", GameServerSpec::default());
        server.status = Some(GameServerStatus {
            address: address.to_owned(),
            addresses: Some(list(addresses)),
            ..GameServerStatus::default()
        });
        server
    }

    #[test]
    fn a_change_of_the_node_is_shown_and_a_loss_is_not() {
        const INSIDE: (&str, &str) = ("InternalIP", "10.0.0.1");
        const OUTSIDE: (&str, &str) = ("ExternalIP", "1.2.3.4");
        const POD: (&str, &str) = ("PodIP", "10.1.0.5");
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str], Option<&'a str>);
        let table: [Row<'_>; 9] = [
            ("nothing new", &[INSIDE, OUTSIDE], &["10.1.0.5"], None),
            ("another outside", &[INSIDE, ("ExternalIP", "5.6.7.8")], &["10.1.0.5"], Some("5.6.7.8")),
            ("a better kind", &[INSIDE, OUTSIDE, ("ExternalDNS", "x.y")], &["10.1.0.5"], Some("x.y")),
            ("the outside is gone", &[INSIDE], &["10.1.0.5"], None),
            ("all is gone", &[], &["10.1.0.5"], None),
            ("the pod's is not known for a moment", &[INSIDE, OUTSIDE], &[], None),
            ("another pod address", &[INSIDE, OUTSIDE], &["10.1.0.9"], Some("1.2.3.4")),
            (
                "one more inside",
                &[INSIDE, OUTSIDE, ("InternalIP", "fd00::1")],
                &["10.1.0.5"],
                Some("1.2.3.4"),
            ),
            (
                "the outside is gone and one more inside",
                &[INSIDE, ("InternalIP", "fd00::1")],
                &["10.1.0.5"],
                Some("1.2.3.4"),
            ),
        ];
        for (name, addresses, pod, expected) in table {
            let server = server("1.2.3.4", &[INSIDE, OUTSIDE, POD]);
            let node = NodeFacts { addresses: list(addresses), ..NodeFacts::default() };
            let pod: Vec<String> = pod.iter().map(|one| (*one).to_owned()).collect();
            let shown = Shown::new(&server, &node, &pod);
            assert_eq!(shown.is_news_to(&server), expected.is_some(), "{name}: {shown:?}");
            if let Some(expected) = expected {
                assert_eq!(shown.address, expected, "{name}");
            }
            let mut written = server.clone();
            written.status = Some(GameServerStatus {
                address: shown.address.clone(),
                addresses: Some(shown.all.clone()),
                ..GameServerStatus::default()
            });
            let again = Shown::new(&written, &node, &pod);
            assert!(!again.is_news_to(&written), "{name}: written once, it is no news: {again:?}");
        }
    }

    #[test]
    fn a_pods_address_alone_is_no_reason_to_write() {
        let server = server("10.0.0.1", &[("InternalIP", "10.0.0.1")]);
        let node = NodeFacts { addresses: list(&[("InternalIP", "10.0.0.1")]), ..NodeFacts::default() };
        let shown = Shown::new(&server, &node, &["10.1.0.5".to_owned()]);
        assert!(!shown.is_news_to(&server));
        assert_eq!(shown.all, list(&[("InternalIP", "10.0.0.1"), ("PodIP", "10.1.0.5")]));
    }

    #[test]
    fn what_is_asked_for_takes_the_place_of_anything() {
        let addresses = [("ExternalIP", "1.2.3.4"), ("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")];
        let node = NodeFacts { addresses: list(&addresses), ..NodeFacts::default() };
        for (kind, expected) in [
            ("InternalIP", "10.0.0.1"),
            ("InternalIP/IPv6", "fd00::1"),
            ("IPv6", "fd00::1"),
            ("Hostname", "1.2.3.4"),
        ] {
            let mut server = server("1.2.3.4", &addresses);
            let asked = BTreeMap::from([(names::ADDRESS_KIND_ANNOTATION.to_owned(), kind.to_owned())]);
            server.metadata.annotations = Some(asked);
            assert_eq!(Shown::new(&server, &node, &[]).address, expected, "{kind}");
        }
        let given = NodeFacts { given_address: Some("play.example".into()), ..node };
        let server = server("1.2.3.4", &addresses);
        assert_eq!(Shown::new(&server, &given, &[]).address, "play.example");
    }
}
