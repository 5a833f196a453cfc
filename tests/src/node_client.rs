//! The official Node SDK, unmodified, in the network namespace of a real pod.
//!
//! A pod on a real node, the process beside it: there is no image of Node.js to be had without a registry.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context;
use berth_dev::{Daemon, Launch, source_folder};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use crate::game::ask;
use crate::world::{Stage, World};

/// Port of the client's command socket.
const COMMANDS: u16 = 7777;

/// A running client.
pub struct NodeClient {
    process: Daemon,
    commands: SocketAddr,
}

/// What the client tells of its two streams.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// Pings sent on the one Health stream.
    pub pings: u64,
    /// What the Health stream broke with.
    pub health_errors: Vec<String>,
    /// What the Watch broke with.
    pub watch_errors: Vec<String>,
    /// Messages of the Watch.
    pub updates: u64,
    /// State in the last one.
    pub state: String,
    /// Label `story` in the last one.
    pub label: String,
}

impl NodeClient {
    /// Starts the client in a pod's network namespace.
    ///
    /// # Errors
    /// The packages cannot be installed, or the pod's namespace is not found.
    pub async fn start(stage: &Stage, pod: &Pod) -> anyhow::Result<Self> {
        let folder = tokio::task::spawn_blocking(packages).await??;
        let world = stage.world;
        let (node, address) = place_of(world, pod)?;
        let node = &world.cluster.nodes()[node];
        // Namespaces that CNI made are files here; the one with the pod's address is the pod's.
        let search = format!(
            "for one in /run/netns/* /var/run/netns/*; do nsenter --net=$one ip -o addr | grep -qF ' {address}/' \
             && echo $one && exit 0; done; exit 1"
        );
        let namespace = node.execute("sh", &["-c", &search]).await.context("the pod's network namespace")?;
        let name = format!("node-client-{}", pod.metadata.name.as_deref().unwrap_or_default());
        let launch = Launch::new(name, "/usr/bin/nsenter").arguments([
            format!("--net={}", namespace.trim()),
            "node".to_owned(),
            folder.join("client.js").display().to_string(),
        ]);
        let process = node.spawn(launch)?;
        Ok(Self { process, commands: SocketAddr::new(address, COMMANDS) })
    }

    /// What it has seen.
    ///
    /// # Errors
    /// It does not answer, or not with that.
    pub async fn seen(&self) -> anyhow::Result<Seen> {
        self.command("seen").await
    }

    /// Lets it call something and gives back what it has seen after that.
    ///
    /// # Errors
    /// It does not answer, or the call failed.
    pub async fn command(&self, command: &str) -> anyhow::Result<Seen> {
        let answer = ask(self.commands, command).await.with_context(|| self.process.last_words())?;
        serde_json::from_str(&answer).with_context(|| format!("{command} was answered with {answer}"))
    }

    /// Ends it.
    ///
    /// # Errors
    /// It cannot be killed.
    pub async fn end(self) -> anyhow::Result<()> {
        Ok(self.process.kill().await?)
    }
}

fn place_of(world: &World, pod: &Pod) -> anyhow::Result<(usize, IpAddr)> {
    let node_name =
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("a pod on a node")?;
    let node =
        world.cluster.nodes().iter().position(|node| node.name() == node_name).context("one of our nodes")?;
    let address =
        pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("a pod with an address")?;
    Ok((node, address.parse()?))
}

/// Installs the packages beside their lock file, once.
fn packages() -> anyhow::Result<PathBuf> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    let folder = source_folder().join("tests/clients/node");
    if INSTALLED.get().is_none() {
        let output = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"])
            .current_dir(&folder)
            .output()
            .context("npm is needed for the official Node client")?;
        anyhow::ensure!(output.status.success(), "npm ci: {}", String::from_utf8_lossy(&output.stderr));
        let _ = INSTALLED.set(());
    }
    Ok(folder)
}
