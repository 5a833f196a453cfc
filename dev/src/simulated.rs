//! A node without a kubelet and a container runtime: one small process that does to the API server what a kubelet does,
//! and to the machine what an agent on the node looks for.
//!
//! What it promises:
//! - the pods of its node, and only those, through one watch; refused in kubelet's ways and words, or run;
//! - for each pod that runs, a process in a network namespace of its own, in a control group named as kubelet names it,
//!   and for each of its containers another, which ends when and as the container's game does;
//! - pod status in the few writes that kubelet makes, and deletion with its grace and its last word;
//! - a game in each container whose arguments ask for one (`simulated/script.rs` lists them), which speaks to the SDK in
//!   its own sandbox.
//!
//! No image is pulled and no volume mounted, pods do not reach one another, and a pod's games end with this process.
//! Nothing in here knows of game servers but the script, which knows the paths of their SDK.

mod admission;
mod book;
mod diary;
mod game;
mod kubelet;
mod life;
mod loopback;
mod node;
mod quantity;
mod sandbox;
mod script;
mod status;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use sandbox::SandboxError;

/// What a simulated node is, as its kubelet is told.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "berth-dev-kubelet", version)]
pub struct Settings {
    /// How to reach the API server
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Name of the node
    #[arg(long)]
    pub node_name: String,
    /// Address of the node
    #[arg(long)]
    pub node_address: Ipv4Addr,
    /// Address of the network that pods get addresses from; the last byte counts them
    #[arg(long)]
    pub pod_network: Ipv4Addr,
    /// Control group of the node below each hierarchy, as kubelet's cgroupRoot
    #[arg(long)]
    pub cgroup_root: PathBuf,
    /// Resource of the node as NAME=QUANTITY; may be given several times
    #[arg(long = "capacity", value_parser = pair, default_values = ["cpu=16", "memory=64Gi", "pods=110"])]
    pub capacity: Vec<(String, String)>,
    /// Label of the node as NAME=VALUE; may be given several times
    #[arg(long = "label", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Milliseconds between a pod's sandbox and its first container, as with a real container runtime
    #[arg(long, default_value_t = 100)]
    pub container_delay: u64,
    /// File with one reason a line: each refuses one pod, and is taken out of the file
    #[arg(long, default_value = "/run/kubelet-refuses")]
    pub refusals: PathBuf,
    /// File that gets one JSON object a line: what was done for each pod, and what each game was answered
    #[arg(long, default_value = "/var/log/pods.jsonl")]
    pub diary: PathBuf,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    split
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "must have the form NAME=VALUE".to_owned())
}

impl Settings {
    fn capacity(&self) -> BTreeMap<String, String> {
        self.capacity.iter().cloned().collect()
    }
}

/// Why a simulated kubelet cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    /// The way to the API server.
    #[error("could not read {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// The client.
    #[error("could not make a client")]
    Client(#[source] kube::Error),
    /// The capacity.
    #[error("--capacity {name} is {value:?}; it must be a quantity such as 500m or 1Gi")]
    Capacity {
        /// Which resource.
        name: String,
        /// As given.
        value: String,
    },
    /// The machine.
    #[error("could not clear what an earlier run has left")]
    Leftovers(#[source] SandboxError),
    /// The watch ended, which it does not.
    #[error("the watch of pods ended")]
    WatchEnded,
}

/// Runs the node until this process is killed.
///
/// # Errors
/// When it cannot start. What happens later is retried.
pub async fn run(settings: Settings) -> Result<std::convert::Infallible, SimulatedError> {
    kubelet::run(settings).await
}
