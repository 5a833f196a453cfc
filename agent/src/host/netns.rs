//! Network namespaces: which one is this, and listening inside another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use berth_api::link::{ListenerKey, Transport};
use nix::net::if_::InterfaceFlags;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::SockaddrStorage;
use rustix::fs::{Mode, OFlags};
use socket2::{Domain, Protocol, Socket, Type};

use super::processes::Sandbox;
use super::{HostError, NetnsId, SandboxRequest, SdkSockets};

/// Connections that may wait to be accepted, as many as a kernel usually allows.
const BACKLOG: i32 = 1024;
/// How long loopback may take to get its address, where a runtime makes the namespace before it is set up.
const LOOPBACK_LIMIT: Duration = Duration::from_secs(2);
/// How often that is tried.
const LOOPBACK_PACE: Duration = Duration::from_millis(1);

/// The namespaces that count as the host's: our own, and that of process 1 where it is another (an agent that was
/// started in a network namespace, as on a machine that plays several nodes). What guards process 1 even from us also
/// keeps runtimes out of its namespace.
///
/// # Errors
/// Our own cannot be opened.
pub(super) fn of_host() -> Result<Vec<NetnsId>, HostError> {
    let look = |path: &str| open(path).and_then(NetnsId::of);
    let path = "/proc/self/ns/net";
    let own = look(path).map_err(|source| HostError::NoNamespaces { path: path.into(), source })?;
    let first = look("/proc/1/ns/net").ok().filter(|first| *first != own);
    Ok([Some(own), first].into_iter().flatten().collect())
}

fn open(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path.as_ref(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Enters the sandbox, listens there, and reads its addresses. The calling thread stays inside: it must be one that
/// ends after this.
///
/// # Errors
/// The sandbox cannot be entered, or its loopback not listened on.
pub(super) fn listen_inside(sandbox: &Sandbox, request: &SandboxRequest) -> Result<SdkSockets, HostError> {
    enter(sandbox).map_err(|source| HostError::Enter { sandbox: sandbox.id, source })?;
    let listeners = listen_on_loopback(sandbox.id, request)?;
    // After the listening: reading addresses may wait for whoever configures interfaces.
    let addresses = addresses().map_err(|source| HostError::Addresses { sandbox: sandbox.id, source })?;
    Ok(SdkSockets { listeners, addresses, sandbox: sandbox.id })
}

/// Listens on the loopback of our own namespace, for a pod that shares it. Its addresses are the node's.
///
/// # Errors
/// It cannot be listened on.
pub(super) fn listen_here(own: NetnsId, request: &SandboxRequest) -> Result<SdkSockets, HostError> {
    Ok(SdkSockets { listeners: listen_on_loopback(own, request)?, addresses: Vec::new(), sandbox: own })
}

fn listen_on_loopback(
    sandbox: NetnsId,
    request: &SandboxRequest,
) -> Result<Vec<(ListenerKey, OwnedFd)>, HostError> {
    let mut listeners = Vec::with_capacity(4);
    // All of IPv4 first: its address may be there before that of IPv6.
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        for (transport, port) in [(Transport::Grpc, request.grpc_port), (Transport::Rest, request.http_port)]
        {
            let key = ListenerKey { transport, ipv6: address.is_ipv6(), generation: request.generation };
            if let Some(socket) = listen(SocketAddr::new(address, port), sandbox)? {
                listeners.push((key, OwnedFd::from(socket)));
            }
        }
    }
    Ok(listeners)
}

fn enter(sandbox: &Sandbox) -> io::Result<()> {
    setns(&sandbox.namespace, CloneFlags::CLONE_NEWNET)?;
    let entered = NetnsId::of(open("/proc/thread-self/ns/net")?)?;
    if entered == sandbox.id {
        Ok(())
    } else {
        Err(io::Error::other(format!("found ourselves in {entered}")))
    }
}

/// Listens; none where the namespace does not have IPv6.
fn listen(address: SocketAddr, sandbox: NetnsId) -> Result<Option<Socket>, HostError> {
    let since = Instant::now();
    loop {
        let error = match try_to_listen(address) {
            Ok(socket) => return Ok(Some(socket)),
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::AddrInUse => return Err(HostError::AddressInUse { address, sandbox }),
            io::ErrorKind::AddrNotAvailable
                if since.elapsed() < LOOPBACK_LIMIT && (address.is_ipv4() || loopback_has_ipv6()) =>
            {
                std::thread::park_timeout(LOOPBACK_PACE);
            }
            io::ErrorKind::AddrNotAvailable if address.is_ipv6() => return Ok(None),
            _ if address.is_ipv6() && is_without_ipv6(&error) => return Ok(None),
            _ => return Err(HostError::Listen { address, sandbox, source: error }),
        }
    }
}

fn try_to_listen(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections of a game to a predecessor may linger; a socket that listens still refuses us.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Whether `::1` is there, or is to come once loopback is up. The kernel answers for the namespace of whoever asks.
fn loopback_has_ipv6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6").is_ok_and(|text| text.trim() == "0")
}

/// Whether a socket could not be made because the kernel has no IPv6.
pub(super) fn is_without_ipv6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32)
}

/// The addresses that others may reach.
fn addresses() -> io::Result<Vec<IpAddr>> {
    let found = nix::ifaddrs::getifaddrs()?
        .filter(|one| one.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|one| one.address.as_ref().and_then(ip))
        .filter(|address| match address {
            IpAddr::V4(four) => !four.is_loopback() && !four.is_link_local(),
            IpAddr::V6(six) => !six.is_loopback() && !six.is_unicast_link_local(),
        })
        .collect();
    Ok(found)
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let four = address.as_sockaddr_in().map(|four| IpAddr::from(four.ip()));
    four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::from(six.ip())))
}
