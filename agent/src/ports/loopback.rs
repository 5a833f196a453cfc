//! Ports of the SDK on the node's own loopback, for pods that share it. Pure.
//!
//! They are reserved as two more ports of the server: those it names, or two of a range of their own, so that no two pods
//! speak over one listener. The socket is no identity there: whoever is on the node's network can open it.

use berth_api::game_server::{GameServerSpec, PortPolicy, PortProtocol, PortSpec};

/// Name of the range; no range of game ports can have it.
pub const RANGE: &str = "berth.dev/sdk";
/// Names of the two ports: gRPC, then REST.
const NAMES: [&str; 2] = ["berth.dev/grpc", "berth.dev/rest"];

/// The two ports that are asked for. What says where the SDK listens in every pod names no port of this one.
pub fn wanted(spec: &GameServerSpec) -> [PortSpec; 2] {
    let (grpc, rest) = spec.sdk_ports();
    let (usual_grpc, usual_rest) = GameServerSpec::default().sdk_ports();
    let port = |name: &str, given: u16, usual: u16| {
        let is_named = given != usual;
        PortSpec {
            name: Some(name.to_owned()),
            range: Some(RANGE.to_owned()),
            port_policy: Some(if is_named { PortPolicy::Static } else { PortPolicy::Dynamic }),
            protocol: Some(PortProtocol::Tcp),
            host_port: is_named.then_some(given),
            ..PortSpec::default()
        }
    };
    [port(NAMES[0], grpc, usual_grpc), port(NAMES[1], rest, usual_rest)]
}

/// Takes the two ports out of what was reserved.
pub fn split(reserved: Vec<PortSpec>) -> (Vec<PortSpec>, Option<(u16, u16)>) {
    let number = |name: &str| {
        reserved.iter().find(|port| port.name.as_deref() == Some(name)).and_then(|port| port.host_port)
    };
    let found = number(NAMES[0]).zip(number(NAMES[1]));
    let is_ours = |port: &PortSpec| port.name.as_deref().is_some_and(|name| NAMES.contains(&name));
    (reserved.into_iter().filter(|port| !is_ours(port)).collect(), found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_api::game_server::{GameServerSpec, SdkServerSpec};
    use berth_api::link::ServerUid;

    use super::{RANGE, split, wanted};
    use crate::ports::ledger::Ledger;
    use crate::ports::{PortRange, Tenant};

    fn spec(grpc_port: Option<u16>, http_port: Option<u16>) -> GameServerSpec {
        let sdk_server = SdkServerSpec { grpc_port, http_port, ..SdkServerSpec::default() };
        GameServerSpec { sdk_server: Some(sdk_server), ..GameServerSpec::default() }
    }

    #[test]
    fn each_server_on_the_host_has_ports_of_its_own_or_those_it_names() {
        let range = PortRange::new(9500, 9503).expect("a range");
        let mut ledger = Ledger::new(BTreeMap::from([(RANGE.to_owned(), range)]), 0);
        let mut reserve = |name: &str, spec: &GameServerSpec| {
            let tenant = Tenant::Server(ServerUid(name.to_owned()));
            let reserved = ledger.reserve(&tenant, &wanted(spec), |_| false);
            reserved.map(split).map_err(|error| error.to_string())
        };
        let usual = spec(Some(9357), Some(9358));
        assert_eq!(reserve("a", &usual), Ok((Vec::new(), Some((9500, 9501)))));
        assert_eq!(reserve("b", &spec(Some(4000), None)), Ok((Vec::new(), Some((4000, 9502)))));
        assert_eq!(
            reserve("c", &spec(Some(4000), Some(4001))),
            Err("static port 4000/TCP is taken by game server b".to_owned())
        );
        assert_eq!(
            reserve("d", &usual),
            Err("no free port in range berth.dev/sdk (9500-9503)".to_owned()),
            "one is left, and two are needed"
        );
        assert!(ledger.counts().is_empty(), "it is no range of game ports");
    }
}
