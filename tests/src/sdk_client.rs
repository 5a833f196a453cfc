//! SDK clients of other languages in the network namespace of a real pod, each with one Health stream and one Watch that
//! it never opens again.
//!
//! A pod on a real node, the process beside it: there is no image of Node.js to be had without a registry.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context;
use berth_dev::{Cluster, Daemon, Launch, Node, eventually, go, source_folder};
use k8s_openapi::api::core::v1::Pod;
use prost::Message as _;
use serde::Deserialize;

use crate::game::ask;
use crate::world::{STEP, Stage};

/// Port of the client's command socket.
const COMMANDS: u16 = 7777;

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// The official SDK for Node.js, unmodified, from npm.
    NodeJs,
    /// grpc-go with the SDK's own .proto: the official module is on top of both.
    Go,
}

/// A running client.
pub struct SdkClient {
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

impl SdkClient {
    /// Installs or builds what a client needs, which may take its time where it was never done.
    ///
    /// # Errors
    /// It cannot be had.
    pub async fn prepare(cluster: &'static Cluster, language: Language) -> anyhow::Result<Vec<String>> {
        tokio::task::spawn_blocking(move || command_line(cluster, language)).await?
    }

    /// Starts the client in a pod's network namespace.
    ///
    /// # Errors
    /// What it needs cannot be installed, or the pod's namespace is not found.
    pub async fn start(stage: &Stage, pod: &Pod, language: Language) -> anyhow::Result<Self> {
        let cluster = stage.cluster;
        let words = Self::prepare(cluster, language).await?;
        let (node, address) = place_of(cluster, pod)?;
        // Namespaces that CNI made are files here; the one with the pod's address is the pod's.
        let search = format!(
            "for one in /run/netns/* /var/run/netns/*; do nsenter --net=$one ip -o addr | grep -qF ' {address}/' \
             && echo $one && exit 0; done; exit 1"
        );
        let namespace = node.execute("sh", &["-c", &search]).await.context("the pod's network namespace")?;
        let name = format!("{language:?}-client-{}", pod.metadata.name.as_deref().unwrap_or_default());
        let launch = Launch::new(name, "/usr/bin/nsenter")
            .argument(format!("--net={}", namespace.trim()))
            .arguments(words);
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

    /// Waits until it has seen something.
    ///
    /// # Errors
    /// It does not in time.
    pub async fn until(&self, what: &str, look: impl Fn(&Seen) -> bool) -> anyhow::Result<Seen> {
        let found = eventually(STEP, format!("{}: {what}", self.process.name()), async || {
            let seen = self.seen().await.map_err(|error| format!("{error:#}"))?;
            if look(&seen) { Ok(seen) } else { Err(format!("{seen:?}")) }
        });
        Ok(found.await?)
    }

    /// Waits until pings have gone out from now on, on the stream that it opened first.
    ///
    /// # Errors
    /// They do not.
    pub async fn goes_on(&self) -> anyhow::Result<()> {
        let before = self.seen().await?.pings;
        self.until("pings", |seen| seen.pings > before + 3).await.map(drop)
    }

    /// Checks that neither stream ever broke.
    ///
    /// # Errors
    /// One did.
    pub async fn was_never_cut_off(&self) -> anyhow::Result<()> {
        let seen = self.seen().await?;
        let is_whole = seen.health_errors.is_empty() && seen.watch_errors.is_empty();
        anyhow::ensure!(is_whole, "{}: {seen:?}", self.process.name());
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// It cannot be killed.
    pub async fn end(self) -> anyhow::Result<()> {
        Ok(self.process.kill().await?)
    }
}

/// The node that a pod is on, and the pod's address.
fn place_of<'a>(cluster: &'a Cluster, pod: &Pod) -> anyhow::Result<(&'a Node, IpAddr)> {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("a pod on a node")?;
    let node = cluster.nodes().iter().find(|node| node.name() == name).context("one of our nodes")?;
    let address =
        pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("a pod with an address")?;
    Ok((node, address.parse()?))
}

/// What to run, installed or built when it is not there yet. Blocks.
fn command_line(cluster: &Cluster, language: Language) -> anyhow::Result<Vec<String>> {
    let words = match language {
        Language::NodeJs => vec!["node".into(), packages()?.join("client.js")],
        Language::Go => vec![go::program(&source_folder().join("tests/clients/go"))?, descriptors(cluster)?],
    };
    Ok(words.into_iter().map(|word| word.display().to_string()).collect())
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

/// The SDK's own .proto as descriptors, in a file of the cluster's.
fn descriptors(cluster: &Cluster) -> anyhow::Result<PathBuf> {
    let compiled = protox::compile(["sdk.proto"], [source_folder().join("api/proto")])?;
    let path = cluster.instance().subfolder("clients")?.join("sdk.descriptors");
    fs::write(&path, compiled.encode_to_vec())?;
    Ok(path)
}
