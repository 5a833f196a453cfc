//! A host that answers what a test tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use berth_api::game_server::PortProtocol;
use berth_api::link::{ListenerKey, Transport};
use berth_runtime::CancellationToken;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::{Exit, FoundContainer, Host, HostError, NetnsId, SandboxRequest, SdkSockets};

/// A host whose ports are free and whose sandboxes come when told. Its listeners are real, on free ports of loopback.
#[derive(Debug)]
pub struct FakeHost {
    boot_id: String,
    /// Guards what the test has set; held for a few instructions only.
    used: Mutex<BTreeSet<(u16, PortProtocol)>>,
    sandboxes: watch::Sender<BTreeMap<String, FakeSandbox>>,
    /// Guards the requests seen so far.
    requests: Mutex<Vec<SandboxRequest>>,
    /// Guards where each listener really is, since loopback of this machine plays that of all sandboxes, and of the host.
    listening: Mutex<BTreeMap<Spot, u16>>,
    exits: watch::Sender<BTreeMap<(String, String), Exit>>,
    /// Guards the pods whose processes are not on this kernel.
    hidden: Mutex<BTreeSet<String>>,
}

/// Whose loopback, which one, and the port.
type Spot = (Option<String>, NetnsId, u16);

#[derive(Debug, Clone)]
struct FakeSandbox {
    id: NetnsId,
    addresses: Vec<IpAddr>,
}

impl FakeHost {
    /// A host on its first boot.
    #[must_use]
    pub fn new(boot_id: &str) -> Self {
        Self {
            boot_id: boot_id.to_owned(),
            used: Mutex::default(),
            sandboxes: watch::Sender::new(BTreeMap::new()),
            requests: Mutex::default(),
            listening: Mutex::default(),
            exits: watch::Sender::new(BTreeMap::new()),
            hidden: Mutex::default(),
        }
    }

    /// Somebody else takes a port.
    pub fn take_port(&self, port: u16, protocol: PortProtocol) {
        lock(&self.used).insert((port, protocol));
    }

    /// Somebody else lets go of a port.
    pub fn free_port(&self, port: u16, protocol: PortProtocol) {
        lock(&self.used).remove(&(port, protocol));
    }

    /// A pod's sandbox appears, or is made again under another number.
    pub fn sandbox_appears(&self, pod_uid: &str, inode: u64, addresses: Vec<IpAddr>) {
        let sandbox = FakeSandbox { id: NetnsId { device: 4, inode }, addresses };
        self.sandboxes.send_modify(|all| drop(all.insert(pod_uid.to_owned(), sandbox)));
    }

    /// A pod's sandbox ends.
    pub fn sandbox_ends(&self, pod_uid: &str) {
        self.sandboxes.send_modify(|all| drop(all.remove(pod_uid)));
    }

    /// The first process of a container ends.
    pub fn container_exits(&self, pod_uid: &str, container: &str, exit: Exit) {
        let which = (pod_uid.to_owned(), container.to_owned());
        self.exits.send_modify(|all| {
            all.insert(which, exit);
        });
    }

    /// The processes of a pod are on a kernel of their own.
    pub fn hide_processes(&self, pod_uid: &str) {
        lock(&self.hidden).insert(pod_uid.to_owned());
    }

    /// What was asked for, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<SandboxRequest> {
        lock(&self.requests).clone()
    }

    async fn wait_for_sandbox(&self, request: SandboxRequest) -> Result<SdkSockets, HostError> {
        if request.on_host {
            return self.listen(None, NetnsId { device: 4, inode: 1 }, Vec::new(), &request);
        }
        let mut sandboxes = self.sandboxes.subscribe();
        let wanted = |all: &BTreeMap<String, FakeSandbox>| {
            let sandbox = all.get(&request.pod_uid);
            sandbox.is_some_and(|sandbox| Some(sandbox.id) != request.other_than)
        };
        let all = sandboxes.wait_for(wanted).await.map_err(|_| HostError::WatcherGone)?;
        let FakeSandbox { id, addresses } =
            all.get(&request.pod_uid).cloned().ok_or(HostError::WatcherGone)?;
        self.listen(Some(request.pod_uid.clone()), id, addresses, &request)
    }

    fn listen(
        &self,
        pod: Option<String>,
        sandbox: NetnsId,
        addresses: Vec<IpAddr>,
        request: &SandboxRequest,
    ) -> Result<SdkSockets, HostError> {
        let mut listening = lock(&self.listening);
        let mut listeners = Vec::new();
        for (transport, port) in [(Transport::Grpc, request.grpc_port), (Transport::Rest, request.http_port)]
        {
            let spot = (pod.clone(), sandbox, port);
            let address = (std::net::Ipv4Addr::LOCALHOST, port).into();
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::AddrInUse => HostError::AddressInUse { address, sandbox },
                _ => HostError::Listen { address, sandbox, source },
            };
            // The first to listen there gets any free port of this machine; who comes later, the same one.
            let real = listening.get(&spot).copied().unwrap_or_default();
            let socket = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, real)).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            listening.insert(spot, socket.local_addr().map_err(failed)?.port());
            let key = ListenerKey { transport, ipv6: false, generation: request.generation };
            listeners.push((key, OwnedFd::from(socket)));
        }
        Ok(SdkSockets { listeners, addresses, sandbox })
    }
}

impl Host for FakeHost {
    fn boot_id(&self) -> Result<String, HostError> {
        Ok(self.boot_id.clone())
    }

    fn is_port_free(&self, port: u16, protocol: PortProtocol) -> Result<bool, HostError> {
        let used = lock(&self.used);
        let is_used = |protocol| used.contains(&(port, protocol));
        let overlaps = match protocol {
            PortProtocol::TcpUdp => is_used(PortProtocol::Tcp) || is_used(PortProtocol::Udp),
            PortProtocol::Tcp | PortProtocol::Udp => is_used(protocol),
        };
        Ok(!overlaps && !is_used(PortProtocol::TcpUdp))
    }

    fn current_sandbox(&self, pod_uid: &str) -> Result<Option<NetnsId>, HostError> {
        Ok(self.sandboxes.borrow().get(pod_uid).map(|sandbox| sandbox.id))
    }

    fn find_container(
        &self,
        pod_uid: &str,
        container: &str,
    ) -> BoxFuture<'static, Result<Option<FoundContainer>, HostError>> {
        let sandbox = self.sandboxes.borrow().get(pod_uid).map(|sandbox| sandbox.id);
        let network = sandbox.filter(|_| !lock(&self.hidden).contains(pod_uid));
        let mut exits = self.exits.subscribe();
        let which = (pod_uid.to_owned(), container.to_owned());
        Box::pin(async move {
            let Some(network) = network else { return Ok(None) };
            let exit = async move {
                let ended = exits.wait_for(|all| all.contains_key(&which)).await;
                ended.ok().and_then(|all| all.get(&which).copied()).unwrap_or(Exit::Somehow)
            };
            Ok(Some(FoundContainer { network, exit: Box::pin(exit) }))
        })
    }

    fn open_sdk<'a>(
        &'a self,
        request: SandboxRequest,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SdkSockets, HostError>> {
        Box::pin(async move {
            lock(&self.requests).push(request.clone());
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(HostError::Cancelled),
                result = self.wait_for_sandbox(request) => result,
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
