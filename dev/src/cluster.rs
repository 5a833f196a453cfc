//! A whole cluster: a control plane, and nodes with a real kubelet and a real containerd each, or with a
//! [simulated](crate::simulated) kubelet where a test needs many.
//!
//! A node is a set of namespaces (network, mounts, processes, host name) that one process holds. What happens on it
//! touches nothing of the machine, and all of it is gone when that process is. Nodes and machine meet on a bridge.

mod configuration;
mod network;
mod node;

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node as KubernetesNode;
use kube::api::Api;

use network::Network;
pub use network::NodeIndex;
pub use node::Node;

use crate::access::AccessError;
use crate::binaries::{Binaries, BinariesError};
use crate::certificates::CertificateError;
use crate::cgroups::CgroupError;
use crate::command::{self, CommandError};
use crate::control_plane::{ControlPlane, ControlPlaneError, ControlPlaneOptions};
use crate::eventually::{Overdue, eventually};
use crate::images::{Image, ImageError};
use crate::instance::{Daemon, DaemonError, Instance, InstanceError, Launch};
use crate::machine::{self, MachineError};
use crate::node_spaces::SpacesError;
use crate::places;

/// The program of a simulated node, built together with us.
const SIMULATED_KUBELET: &str = "berth-dev-kubelet";
/// Three seconds on an idle machine.
const NODE_LIMIT: Duration = Duration::from_secs(120);

/// A cluster, or a part of it, that could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The machine cannot have nodes.
    #[error("this machine cannot run real nodes")]
    Machine(#[from] MachineError),
    /// More than a subnet holds.
    #[error("a cluster has 1 to {most} nodes, not {asked}", most = NodeIndex::MOST)]
    TooMany {
        /// How many were asked for.
        asked: usize,
    },
    /// Its programs.
    #[error("the programs of Kubernetes are not there")]
    Binaries(#[from] BinariesError),
    /// Its folder, ports or records.
    #[error("could not make a place for the cluster")]
    Instance(#[from] InstanceError),
    /// Its control plane.
    #[error("the control plane did not start")]
    ControlPlane(#[from] ControlPlaneError),
    /// Its certificates.
    #[error("could not make a node's certificates")]
    Certificates(#[from] CertificateError),
    /// Ways into it.
    #[error("could not make a way into the cluster")]
    Access(#[from] AccessError),
    /// A daemon.
    #[error("a daemon failed")]
    Daemon(#[from] DaemonError),
    /// A tool of the machine.
    #[error("could not set up the network")]
    Command(#[from] CommandError),
    /// A control group.
    #[error("could not set up control groups")]
    Cgroup(#[from] CgroupError),
    /// A node's namespaces.
    #[error("could not enter a node")]
    Spaces(#[from] SpacesError),
    /// An image.
    #[error("could not make an image")]
    Image(#[from] ImageError),
    /// A file of a node.
    #[error("could not write {path}")]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A part of a node does not come up.
    #[error("{name} did not come up; the end of its log:\n{last_words}")]
    NotUp {
        /// Which.
        name: String,
        /// What it wrote.
        last_words: String,
        /// What we saw.
        source: Overdue,
    },
}

/// What runs pods on a cluster's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// kubelet, containerd and kube-proxy.
    Real,
    /// A [simulated](crate::simulated) kubelet alone. Pods have sandboxes, and no images, volumes or network.
    Simulated,
}

/// What a cluster is to have.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// How many nodes.
    pub nodes: usize,
    /// What runs pods on them.
    pub kind: NodeKind,
    /// Whether every write is logged, one JSON object a line.
    pub audit: bool,
    /// Flags for kube-apiserver beside ours.
    pub api_server_flags: Vec<String>,
    /// Flags for every kubelet beside ours: labels, reserved resources.
    pub kubelet_flags: Vec<String>,
}

impl Default for ClusterOptions {
    /// Two real nodes.
    fn default() -> Self {
        Self {
            nodes: 2,
            kind: NodeKind::Real,
            audit: false,
            api_server_flags: Vec::new(),
            kubelet_flags: Vec::new(),
        }
    }
}

/// A running cluster.
pub struct Cluster {
    control_plane: ControlPlane,
    network: Network,
    parts: node::Parts,
    nodes: Vec<Node>,
}

impl Cluster {
    /// Starts one that belongs to this process: it is gone when it is dropped, or when this process has died.
    ///
    /// # Errors
    /// When the machine cannot, or when some part does not come up.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        Self::start_in(&Instance::create("nodes")?, options).await
    }

    /// Starts what does not run yet of an instance's cluster, and waits until all nodes are Ready.
    ///
    /// # Errors
    /// When the machine cannot, or when some part does not come up.
    pub async fn start_in(instance: &Arc<Instance>, options: ClusterOptions) -> Result<Self, ClusterError> {
        if !places::is_root() {
            return Err(MachineError::NotRoot.into());
        }
        machine::require_kernel()?;
        let asked = options.nodes;
        let indices: Option<Vec<NodeIndex>> = (1..=asked).map(NodeIndex::new).collect();
        let indices = indices.filter(|indices| !indices.is_empty()).ok_or(ClusterError::TooMany { asked })?;

        let network = Network::of_instance(instance.number());
        make_bridge(instance, network)?;
        let control_plane = ControlPlane::start_in(
            instance,
            ControlPlaneOptions {
                controllers: true,
                scheduler: true,
                address: network.machine(),
                audit: options.audit,
                api_server_flags: options.api_server_flags,
            },
        )
        .await?;
        let engine = match options.kind {
            NodeKind::Real => {
                let made = blocking(|| {
                    let binaries = Binaries::ensure(&mut |line| tracing::info!("{line}"))?;
                    let pause = Image::pause(&binaries)?;
                    Ok::<_, ClusterError>(node::EngineParts::Real { binaries, pause })
                });
                made.await?
            }
            NodeKind::Simulated => {
                node::EngineParts::Simulated { program: places::program_folder().join(SIMULATED_KUBELET) }
            }
        };
        let parts = node::Parts { engine, kubelet_flags: options.kubelet_flags };
        let nodes = indices.iter().map(|index| Node::boot(&control_plane, network, *index, &parts));
        let nodes = try_join_all(nodes).await?;
        let cluster = Self { control_plane, network, parts, nodes };
        cluster.connect_pods().await?;
        for node in &cluster.nodes {
            cluster.wait_until_ready(node).await?;
        }
        Ok(cluster)
    }

    /// The instance it runs in.
    #[must_use]
    pub fn instance(&self) -> &Arc<Instance> {
        self.control_plane.instance()
    }

    /// Its control plane.
    #[must_use]
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// A client that may do everything.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.control_plane.client()
    }

    /// A kubeconfig that may do everything.
    #[must_use]
    pub fn kubeconfig_path(&self) -> &Path {
        self.control_plane.kubeconfig_path()
    }

    /// This machine's address on the cluster's network: what nodes and pods reach it by.
    #[must_use]
    pub fn machine_address(&self) -> Ipv4Addr {
        self.network.machine()
    }

    /// All nodes, in order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node, counted from 0.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn node(&self, position: usize) -> &Node {
        &self.nodes[position]
    }

    /// Starts a program on the machine itself, as a part of this cluster.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, launch: Launch) -> Result<Daemon, DaemonError> {
        Daemon::start(self.instance(), launch)
    }

    /// Makes an image available on every node.
    ///
    /// # Errors
    /// When a node does not take it.
    pub async fn import(&self, image: &Image) -> Result<(), ClusterError> {
        try_join_all(self.nodes.iter().map(|node| node.import(image))).await.map(drop)
    }

    /// Boots a node again after [`Node::cut_power`], and waits until it is Ready. What was spawned on it by hand is
    /// not started again.
    ///
    /// # Errors
    /// When some part of it does not come up.
    ///
    /// # Panics
    /// When there are not so many nodes.
    pub async fn power_on(&mut self, position: usize) -> Result<(), ClusterError> {
        let index = self.nodes[position].index();
        self.nodes[position] = Node::boot(&self.control_plane, self.network, index, &self.parts).await?;
        self.connect_pods().await?;
        self.wait_until_ready(&self.nodes[position]).await
    }

    /// Waits until the cluster says that this node is Ready.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn wait_until_ready(&self, node: &Node) -> Result<(), ClusterError> {
        let nodes = Api::<KubernetesNode>::all(self.client());
        let ready = eventually(NODE_LIMIT, format!("{} to be Ready", node.name()), async || {
            let found = nodes.get(node.name()).await.map_err(|error| error.to_string())?;
            readiness(&found)
        });
        let last_words = || node.kubelet().last_words();
        ready.await.map_err(|source| {
            let name = format!("the kubelet of {}", node.name());
            ClusterError::NotUp { name, last_words: last_words(), source }
        })
    }

    /// Routes from every node to the pods of all others, and from the machine to all pods. Those of simulated nodes have
    /// no network.
    async fn connect_pods(&self) -> Result<(), ClusterError> {
        if matches!(self.parts.engine, node::EngineParts::Simulated { .. }) {
            return Ok(());
        }
        let network = self.network;
        let ways: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("{} via {}", network.pods(node.index()), network.node(node.index())))
            .collect();
        for (position, way) in ways.iter().enumerate() {
            command::run("ip", ["route", "replace"].into_iter().chain(way.split(' ')))?;
            for (_, node) in self.nodes.iter().enumerate().filter(|(other, _)| *other != position) {
                node.execute(
                    "ip",
                    &[&["route", "replace"][..], &way.split(' ').collect::<Vec<_>>()].concat(),
                )
                .await?;
            }
        }
        Ok(())
    }
}

fn readiness(node: &KubernetesNode) -> Result<(), String> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    match ready {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(ready.message.clone().unwrap_or_default()),
        None => Err("no condition Ready".to_owned()),
    }
}

/// The bridge and the machine's address on it. Leaves what is there.
fn make_bridge(instance: &Instance, network: Network) -> Result<(), ClusterError> {
    let bridge = network.bridge();
    if !link_exists(&bridge) {
        instance.will_make_link(&bridge)?;
        command::run("ip", ["link", "add", &bridge, "type", "bridge"])?;
    }
    let address = format!("{}/24", network.machine());
    command::run("ip", ["address", "replace", &address, "dev", &bridge])?;
    command::run("ip", ["link", "set", &bridge, "up"])?;
    Ok(())
}

fn link_exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

/// Runs what blocks where it holds up nobody.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
