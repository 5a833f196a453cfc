//! A cluster with Berth to measure on.

use std::time::Duration;

use anyhow::Context as _;
use berth_api::fleet::Fleet;
use berth_api::game_server::GameServer;
use berth_dev::install::{Berth, BerthOptions, enable_namespace};
use berth_dev::{AuditLog, Cluster, ClusterOptions, NodeKind, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

/// Where everything happens.
const NAMESPACE: &str = "default";
/// The Fleet that is measured.
pub(crate) const FLEET: &str = "measured";
/// How long anything may take; far above what it does.
pub(crate) const LIMIT: Duration = Duration::from_secs(900);

/// The cluster.
pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) berth: Berth,
    pub(crate) client: kube::Client,
}

impl Place {
    pub(crate) async fn build(nodes: usize, kind: NodeKind) -> anyhow::Result<Self> {
        let options = ClusterOptions { nodes, kind, audit: true, ..ClusterOptions::default() };
        let cluster = Cluster::start(options).await?;
        let berth = Berth::install(&cluster, &BerthOptions::default()).await?;
        let client = cluster.client();
        enable_namespace(&client, NAMESPACE).await?;
        Ok(Self { cluster, berth, client })
    }

    pub(crate) fn audit(&self) -> anyhow::Result<AuditLog> {
        let path = self.cluster.control_plane().audit_log().context("a cluster with a log")?;
        let mut log = AuditLog::open(path)?;
        log.news()?;
        Ok(log)
    }

    pub(crate) fn servers(&self) -> Api<GameServer> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn fleets(&self) -> Api<Fleet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates the Fleet and waits until all its servers are Ready.
    pub(crate) async fn fleet(&self, count: usize, container: &Value) -> anyhow::Result<()> {
        let fleet = json!({
            "metadata": { "name": FLEET },
            "spec": { "replicas": count, "scheduling": "Distributed", "template": { "spec": {
                "ports": [{ "name": "default", "containerPort": 7654 }],
                "health": { "initialDelaySeconds": 60, "periodSeconds": 10, "failureThreshold": 6 },
                "template": { "spec": { "terminationGracePeriodSeconds": 1, "containers": [container] } },
            } } },
        });
        self.fleets().create(&PostParams::default(), &serde_json::from_value(fleet)?).await?;
        let wanted = i32::try_from(count)?;
        let ready = eventually(LIMIT, format!("{count} Ready servers"), async || {
            let fleet = self.fleets().get(FLEET).await.map_err(|error| error.to_string())?;
            let status = fleet.status.unwrap_or_default();
            if status.ready_replicas == wanted { Ok(()) } else { Err(format!("{status:?}")) }
        });
        Ok(ready.await?)
    }

    /// Deletes the Fleet and every pod, and waits until nothing is left.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let all = (DeleteParams::default(), ListParams::default());
        self.fleets().delete_collection(&all.0, &all.1).await?;
        let bare = ListParams::default().labels("bench=bare");
        self.pods().delete_collection(&all.0, &bare).await?;
        let empty = eventually(LIMIT, "an empty namespace", async || {
            let servers = self.servers().list_metadata(&all.1).await.map_err(|error| error.to_string())?;
            let pods = self.pods().list_metadata(&all.1).await.map_err(|error| error.to_string())?;
            let left = (servers.items.len(), pods.items.len());
            if left == (0, 0) { Ok(()) } else { Err(format!("{} servers, {} pods", left.0, left.1)) }
        });
        Ok(empty.await?)
    }
}
