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

use super::{Host, HostError, NetnsId, SandboxRequest, SdkSockets};

/// A host whose ports are free and whose sandboxes come when told. Its listeners are real, on free ports of loopback.
#[derive(Debug)]
pub struct FakeHost {
    boot_id: String,
    /// Guards what the test has set; held for a few instructions only.
    used: Mutex<BTreeSet<(u16, PortProtocol)>>,
    sandboxes: watch::Sender<BTreeMap<String, FakeSandbox>>,
    /// Guards the requests seen so far.
    requests: Mutex<Vec<SandboxRequest>>,
}

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

    /// What was asked for, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<SandboxRequest> {
        lock(&self.requests).clone()
    }

    async fn wait_for_sandbox(&self, request: SandboxRequest) -> Result<SdkSockets, HostError> {
        let mut sandboxes = self.sandboxes.subscribe();
        let wanted = |all: &BTreeMap<String, FakeSandbox>| {
            let sandbox = all.get(&request.pod_uid);
            sandbox.is_some_and(|sandbox| Some(sandbox.id) != request.other_than)
        };
        let all = sandboxes.wait_for(wanted).await.map_err(|_| HostError::WatcherGone)?;
        let FakeSandbox { id, addresses } =
            all.get(&request.pod_uid).cloned().ok_or(HostError::WatcherGone)?;
        let listener = |transport| {
            let address = (std::net::Ipv4Addr::LOCALHOST, 0);
            let failed =
                |source: io::Error| HostError::Listen { address: address.into(), sandbox: id, source };
            let socket = TcpListener::bind(address).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            let key = ListenerKey { transport, ipv6: false, generation: request.generation };
            Ok((key, OwnedFd::from(socket)))
        };
        let listeners = vec![listener(Transport::Grpc)?, listener(Transport::Rest)?];
        Ok(SdkSockets { listeners, addresses, sandbox: id })
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
