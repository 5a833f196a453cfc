//! Whether a port of the host is free, tried by taking it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use berth_api::game_server::PortProtocol;
use socket2::{Domain, Protocol, Socket, Type};

use super::HostError;
use super::netns::is_without_ipv6;

/// Binds the port on every address of both families, and lets go of it. Without `SO_REUSEADDR`: a socket that is bound,
/// listens or lingers makes a port that is not free.
///
/// # Errors
/// The host refuses for another reason.
pub(super) fn is_free(port: u16, protocol: PortProtocol) -> Result<bool, HostError> {
    let kinds: &[(Type, Protocol)] = match protocol {
        PortProtocol::Udp => &[(Type::DGRAM, Protocol::UDP)],
        PortProtocol::Tcp => &[(Type::STREAM, Protocol::TCP)],
        PortProtocol::TcpUdp => &[(Type::DGRAM, Protocol::UDP), (Type::STREAM, Protocol::TCP)],
    };
    for (kind, number) in kinds {
        for address in [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)] {
            let tried = bind(SocketAddr::new(address, port), *kind, *number);
            match tried {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(false),
                Err(error) if address.is_ipv6() && has_no_ipv6(&error) => {}
                Err(source) => {
                    return Err(HostError::Probe { port, protocol: protocol.as_str(), source });
                }
            }
        }
    }
    Ok(true)
}

fn bind(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), kind.cloexec(), Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())
}

fn has_no_ipv6(error: &io::Error) -> bool {
    is_without_ipv6(error) || error.kind() == io::ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_port_in_use_is_not_free_and_a_closed_one_is() {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
        let port = udp.local_addr().expect("an address").port();
        assert!(!is_free(port, PortProtocol::Udp).expect("tried"));
        assert!(!is_free(port, PortProtocol::TcpUdp).expect("tried"));
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a TCP socket");
        let port = tcp.local_addr().expect("an address").port();
        assert!(!is_free(port, PortProtocol::Tcp).expect("tried"));
    }

    #[test]
    fn a_listener_on_ipv6_alone_is_seen() {
        let Ok(six) = UdpSocket::bind("[::1]:0") else { return };
        let port = six.local_addr().expect("an address").port();
        assert!(!is_free(port, PortProtocol::Udp).expect("tried"));
    }

    #[test]
    fn trying_leaves_nothing_behind() {
        // Somebody else may take a port between two looks; that all of several are taken is a leak.
        let ports: Vec<u16> = (0..8)
            .map(|_| {
                let socket = UdpSocket::bind("0.0.0.0:0").expect("a UDP socket");
                socket.local_addr().expect("an address").port()
            })
            .collect();
        let free_twice = |port: &&u16| (0..2).all(|_| is_free(**port, PortProtocol::Udp).expect("tried"));
        assert!(ports.iter().find(free_twice).is_some(), "none of {ports:?} was free twice");
    }
}
