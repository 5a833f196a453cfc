//! The few questions we ask a kernel: which boot is this, is a port free, where is a pod's sandbox.
//!
//! [`Host`] is the one trait made for testing, because a kernel has no wire that a simulator could speak. [`LinuxHost`]
//! answers from procfs, the cgroup file system and network namespaces; `fake::FakeHost` (feature `testing`) answers what
//! a test tells it. Nothing here decides anything about game servers.
//!
//! A sandbox is found before its first container runs: between the pod's network namespace and the first process of a
//! pod lie at least 100 ms on containerd, a sandbox here is seen within a few.

mod cgroup_path;
mod container;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod hierarchy;
mod linux;
mod metrics;
mod netns;
mod pending;
mod port;
mod processes;
mod requirements;
mod watcher;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use berth_api::game_server::PortProtocol;
use berth_api::link::ListenerKey;
use berth_runtime::CancellationToken;
use futures::future::BoxFuture;

pub use self::linux::{LinuxHost, LinuxSettings};
pub use self::metrics::HostMetrics;
pub use self::requirements::requirements;

/// What we ask the machine we run on.
pub trait Host: Send + Sync + 'static {
    /// The kernel's boot, or what a setting says instead of it.
    ///
    /// # Errors
    /// The kernel does not say.
    fn boot_id(&self) -> Result<String, HostError>;

    /// Whether nobody uses this port on any address of the host, tried by binding it. It is closed again at once, so
    /// the answer may be old when it arrives.
    ///
    /// # Errors
    /// The host refuses to try for a reason other than the port being in use.
    fn is_port_free(&self, port: u16, protocol: PortProtocol) -> Result<bool, HostError>;

    /// The network namespace of the pod's sandbox as it is now; none while there is none. Namespaces compare well only
    /// while something keeps the older one alive, such as a listener in it: a kernel gives numbers out again.
    ///
    /// # Errors
    /// The host cannot be asked.
    fn current_sandbox(&self, pod_uid: &str) -> Result<Option<NetnsId>, HostError>;

    /// Looks for the first process of a container, whose id is as the runtime writes it. None where no process on this
    /// kernel belongs to the container.
    fn find_container(
        &self,
        pod_uid: &str,
        container: &str,
    ) -> BoxFuture<'static, Result<Option<FoundContainer>, HostError>>;

    /// Waits for the pod's sandbox, however long that takes, and listens inside it on loopback. Ends with
    /// [`HostError::Cancelled`] when `cancel` says so; dropping the future is the same.
    ///
    /// # Errors
    /// See [`HostError`]; `AddressInUse` means that somebody listens there already, which after a restart of the agent
    /// is `berth-sdk` with the listeners of its predecessor.
    fn open_sdk<'a>(
        &'a self,
        request: SandboxRequest,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SdkSockets, HostError>>;
}

/// A container of a pod, found on this kernel.
pub struct FoundContainer {
    /// The network namespace of its first process.
    pub network: NetnsId,
    /// Ends when that process does.
    pub exit: BoxFuture<'static, Exit>,
}

impl fmt::Debug for FoundContainer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FoundContainer").field("network", &self.network).finish_non_exhaustive()
    }
}

/// How the first process of a container ended, as far as can be told at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It ended; how is not known.
    Somehow,
    /// With this code, which is not 0.
    Code(u8),
    /// By this signal.
    Signal(u8),
    /// Killed by the kernel for lack of memory.
    OutOfMemory,
}

/// Which sandbox to listen in, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRequest {
    /// UID of the pod, as the API server writes it.
    pub pod_uid: String,
    /// Port for gRPC.
    pub grpc_port: u16,
    /// Port for REST.
    pub http_port: u16,
    /// Goes into the keys of the listeners: grows with the sandboxes of a server.
    pub generation: u32,
    /// A sandbox that is known and not wanted any more: wait for another one.
    pub other_than: Option<NetnsId>,
    /// The pod has no sandbox of its own and shares the host's loopback: listen there, at once.
    pub on_host: bool,
}

/// The listeners of one sandbox. All of them listen already.
#[derive(Debug)]
pub struct SdkSockets {
    /// One for each transport and loopback address; `::1` is missing where the sandbox has no IPv6.
    pub listeners: Vec<(ListenerKey, OwnedFd)>,
    /// Addresses of the sandbox other than loopback and link-local, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// Where they are.
    pub sandbox: NetnsId,
}

/// A network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsId {
    /// Device of the namespace file system.
    pub device: u64,
    /// Inode in it.
    pub inode: u64,
}

impl NetnsId {
    /// The namespace that a descriptor stands for.
    fn of(namespace: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(namespace)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

impl fmt::Display for NetnsId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "net:[{}]", self.inode)
    }
}

/// What went wrong with the host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The boot id could not be read.
    #[error("could not read the boot id from {path}")]
    BootId {
        /// Where it stands.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A port could not be tried.
    #[error("could not try {protocol} port {port}")]
    Probe {
        /// The port.
        port: u16,
        /// The protocol.
        protocol: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A capability is missing.
    #[error("the agent lacks {capability}; run it as root, or add that capability")]
    Capability {
        /// Its name.
        capability: &'static str,
    },
    /// The cgroup file system is not where it should be.
    #[error(
        "no cgroup hierarchy with pods below {mount}; mount the host's /sys/fs/cgroup there, or name the right folder"
    )]
    CgroupMount {
        /// Where it should be.
        mount: PathBuf,
    },
    /// The root below which kubelet makes its cgroups does not exist.
    #[error("the cgroup root {root} does not exist in {mount}; set it to kubelet's cgroupRoot")]
    CgroupRoot {
        /// The root, as set.
        root: String,
        /// The hierarchy looked at.
        mount: PathBuf,
    },
    /// The kernel or the container around us hides network namespaces.
    #[error(
        "could not open {path}; run the agent in the host's process namespace, on a kernel with network namespaces"
    )]
    NoNamespaces {
        /// What was opened.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Cgroups cannot be watched.
    #[error("could not watch cgroups; raise fs.inotify.max_user_instances and max_user_watches")]
    Watch {
        /// Why.
        source: io::Error,
    },
    /// The thread that watches for sandboxes could not be started, or is gone.
    #[error("the thread that watches for sandboxes is not there")]
    WatcherGone,
    /// More pods are waited for than any node runs.
    #[error("{limit} pods are being waited for already")]
    TooManyWaiting {
        /// How many may be.
        limit: usize,
    },
    /// The pod UID is not one.
    #[error("{0:?} is not the UID of a pod")]
    PodUid(String),
    /// The pod's processes are in a process namespace that we cannot see.
    #[error("the processes of pod {pod_uid} are out of sight; run the agent in the host's process namespace")]
    ProcessesHidden {
        /// The pod.
        pod_uid: String,
    },
    /// A cgroup or process could not be looked at.
    #[error("could not read {path}")]
    Read {
        /// What was read.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error("could not enter the network namespace {sandbox}")]
    Enter {
        /// Which.
        sandbox: NetnsId,
        /// Why.
        source: io::Error,
    },
    /// Somebody listens there already.
    #[error("{address} is in use in the sandbox {sandbox}")]
    AddressInUse {
        /// Where.
        address: std::net::SocketAddr,
        /// In which.
        sandbox: NetnsId,
    },
    /// Listening in the namespace failed.
    #[error("could not listen on {address} in the sandbox {sandbox}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// In which.
        sandbox: NetnsId,
        /// Why.
        source: io::Error,
    },
    /// The addresses of the namespace could not be read.
    #[error("could not read the addresses of the sandbox {sandbox}")]
    Addresses {
        /// In which.
        sandbox: NetnsId,
        /// Why.
        source: io::Error,
    },
    /// The caller has lost interest.
    #[error("waiting for the sandbox was cancelled")]
    Cancelled,
}

impl HostError {
    /// A fixed word for metrics and Events.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            Self::BootId { .. } => "boot_id",
            Self::Probe { .. } => "probe",
            Self::Capability { .. } => "capability",
            Self::CgroupMount { .. } | Self::CgroupRoot { .. } => "cgroup",
            Self::NoNamespaces { .. } => "namespaces",
            Self::Watch { .. } | Self::WatcherGone => "watch",
            Self::TooManyWaiting { .. } => "too_many",
            Self::PodUid(_) => "pod_uid",
            Self::ProcessesHidden { .. } => "processes_hidden",
            Self::Read { .. } => "read",
            Self::Enter { .. } => "enter",
            Self::AddressInUse { .. } => "address_in_use",
            Self::Listen { .. } => "listen",
            Self::Addresses { .. } => "addresses",
            Self::Cancelled => "cancelled",
        }
    }
}
