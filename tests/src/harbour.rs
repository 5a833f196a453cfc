//! Many nodes with Berth: simulated kubelets, real everything else. One namespace, with games by a script.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use berth_api::fleet::Fleet;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::install::{Berth, BerthOptions, enable_namespace};
use berth_dev::{AuditLog, Cluster, ClusterOptions, Line, NodeKind, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::STEP;

/// Where its objects live.
pub const NAMESPACE: &str = "default";

/// A cluster with Berth on simulated nodes.
pub struct Harbour {
    /// The cluster.
    pub cluster: Cluster,
    /// Berth in it.
    pub berth: Berth,
    /// The API as an administrator.
    pub client: kube::Client,
}

impl Harbour {
    /// Builds one of so many nodes, with these flags for every agent.
    ///
    /// # Errors
    /// Some part does not come up.
    pub async fn build(nodes: usize, agent_flags: &[&str]) -> anyhow::Result<Self> {
        let cluster = start(nodes).await?;
        Self::install(cluster, agent_flags, None).await
    }

    /// The same, whose programs reach the API server by a line.
    ///
    /// # Errors
    /// As [`Harbour::build`].
    pub async fn build_by_line(nodes: usize, agent_flags: &[&str]) -> anyhow::Result<(Self, Line)> {
        let cluster = start(nodes).await?;
        let line = Line::to(cluster.control_plane().server())?;
        Ok((Self::install(cluster, agent_flags, Some(line.address())).await?, line))
    }

    async fn install(
        cluster: Cluster,
        agent_flags: &[&str],
        api_server: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let agent_flags = agent_flags.iter().map(|flag| (*flag).to_owned()).collect();
        let options = BerthOptions { agent_flags, api_server, ..BerthOptions::default() };
        let berth = Berth::install(&cluster, &options).await?;
        let client = cluster.client();
        enable_namespace(&client, NAMESPACE).await?;
        Ok(Self { cluster, berth, client })
    }

    /// Its log of writes, from the beginning.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn audit(&self) -> anyhow::Result<AuditLog> {
        let path: &Path = self.cluster.control_plane().audit_log().context("a cluster with a log")?;
        Ok(AuditLog::open(path)?)
    }

    /// Its GameServers.
    pub fn servers(&self) -> Api<GameServer> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Its Fleets.
    pub fn fleets(&self) -> Api<Fleet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Its pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Every GameServer, at one resource version.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn all_servers(&self) -> kube::Result<Vec<GameServer>> {
        Ok(self.servers().list(&ListParams::default()).await?.items)
    }

    /// Creates a Fleet of games by this script.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create_fleet(&self, name: &str, replicas: i32, script: &[&str]) -> anyhow::Result<()> {
        let fleet = json!({
            "metadata": { "name": name },
            "spec": { "replicas": replicas, "scheduling": "Distributed", "template": { "spec": game(script) } },
        });
        self.fleets().create(&PostParams::default(), &serde_json::from_value(fleet)?).await?;
        Ok(())
    }

    /// Creates a GameServer of its own.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create_server(&self, name: &str, script: &[&str]) -> anyhow::Result<()> {
        let server = json!({ "metadata": { "name": name }, "spec": game(script) });
        self.servers().create(&PostParams::default(), &serde_json::from_value(server)?).await?;
        Ok(())
    }

    /// Scales a Fleet.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn scale(&self, name: &str, replicas: i32) -> kube::Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.fleets().patch(name, &PatchParams::default(), &patch).await.map(drop)
    }

    /// Waits until there are exactly so many GameServers, all of them Ready.
    ///
    /// # Errors
    /// They are not in time: what is instead.
    pub async fn until_ready(&self, count: usize) -> anyhow::Result<Vec<GameServer>> {
        let found = eventually(STEP, format!("{count} Ready servers"), async || {
            let servers = self.all_servers().await.map_err(|error| error.to_string())?;
            let others: Vec<_> =
                servers.iter().filter(|server| server.state() != Some(State::Ready)).collect();
            match others.first() {
                None if servers.len() == count => Ok(servers),
                other => Err(format!(
                    "{} servers, {} not Ready, such as {:?}",
                    servers.len(),
                    others.len(),
                    other.map(|one| (&one.metadata.name, &one.metadata.annotations, &one.status))
                )),
            }
        });
        Ok(found.await?)
    }
}

async fn start(nodes: usize) -> anyhow::Result<Cluster> {
    let options =
        ClusterOptions { nodes, kind: NodeKind::Simulated, audit: true, ..ClusterOptions::default() };
    Ok(Cluster::start(options).await?)
}

/// The spec of a server whose game plays this script on a port of its node.
#[must_use]
pub fn game(script: &[&str]) -> Value {
    json!({
        "ports": [{ "name": "default", "containerPort": 7654 }],
        "health": { "initialDelaySeconds": 30, "periodSeconds": 5, "failureThreshold": 6 },
        "template": { "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "game",
                "image": "none",
                "args": script,
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
            }],
        } },
    })
}
