//! The ports of a game server, as written and as reported.

use serde::{Deserialize, Serialize};

/// One port of a spec, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortSpec {
    /// Name in the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the range that a host port is taken from; absent means `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// Who chooses the host port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_policy: Option<PortPolicy>,
    /// The container that listens; absent means the game's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Port in the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_port: Option<u16>,
    /// Port on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<u16>,
    /// What is spoken on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<PortProtocol>,
}

impl PortSpec {
    /// The policy in force.
    pub fn policy(&self) -> PortPolicy {
        self.port_policy.unwrap_or_default()
    }

    /// The protocol in force.
    pub fn protocol(&self) -> PortProtocol {
        self.protocol.unwrap_or_default()
    }

    /// The range in force.
    pub fn range(&self) -> &str {
        self.range.as_deref().unwrap_or("default")
    }
}

/// Who chooses the host port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PortPolicy {
    /// The node's agent, from a range.
    #[default]
    Dynamic,
    /// The author.
    Static,
    /// The node's agent; the container listens on the same number.
    Passthrough,
    /// Nobody: the port is not on the host.
    None,
}

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PortProtocol {
    /// Datagrams.
    #[default]
    #[serde(rename = "UDP")]
    Udp,
    /// Streams.
    #[serde(rename = "TCP")]
    Tcp,
    /// Both, on one number.
    #[serde(rename = "TCPUDP")]
    TcpUdp,
}

impl PortProtocol {
    /// The word used in specs and on pods.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::TcpUdp => "TCPUDP",
        }
    }
}

/// One port of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPort {
    /// Name, where the spec gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number that players use.
    pub port: u16,
}

/// Splits each port that speaks both protocols: its TCP half keeps the place, the UDP half goes to the end of the list.
/// Ports with the policy None are left alone, as in `agones.dev/v1`.
pub fn split_both_protocols(ports: &[PortSpec]) -> Vec<PortSpec> {
    let half = |port: &PortSpec, suffix: &str, protocol| PortSpec {
        name: Some(format!("{}-{suffix}", port.name.as_deref().unwrap_or_default())),
        protocol: Some(protocol),
        ..port.clone()
    };
    let is_both =
        |port: &&PortSpec| port.protocol() == PortProtocol::TcpUdp && port.policy() != PortPolicy::None;
    let in_place = ports
        .iter()
        .map(|port| if is_both(&port) { half(port, "tcp", PortProtocol::Tcp) } else { port.clone() });
    let at_the_end = ports.iter().filter(is_both).map(|port| half(port, "udp", PortProtocol::Udp));
    in_place.chain(at_the_end).collect()
}

#[cfg(test)]
mod tests {
    use super::{PortPolicy, PortProtocol, PortSpec, split_both_protocols};

    fn port(name: &str, protocol: PortProtocol) -> PortSpec {
        PortSpec { name: Some(name.to_owned()), protocol: Some(protocol), ..PortSpec::default() }
    }

    #[test]
    fn the_udp_half_goes_to_the_end() {
        let split = split_both_protocols(&[
            port("a", PortProtocol::TcpUdp),
            port("b", PortProtocol::Udp),
            port("c", PortProtocol::TcpUdp),
        ]);
        let names: Vec<_> =
            split.iter().map(|port| (port.name.as_deref().unwrap_or(""), port.protocol())).collect();
        assert_eq!(
            names,
            [
                ("a-tcp", PortProtocol::Tcp),
                ("b", PortProtocol::Udp),
                ("c-tcp", PortProtocol::Tcp),
                ("a-udp", PortProtocol::Udp),
                ("c-udp", PortProtocol::Udp)
            ]
        );
    }

    #[test]
    fn a_port_that_is_not_on_the_host_is_never_split() {
        let mut none = port("a", PortProtocol::TcpUdp);
        none.port_policy = Some(PortPolicy::None);
        assert_eq!(split_both_protocols(std::slice::from_ref(&none)), [none]);
    }
}
