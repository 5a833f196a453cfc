//! What the cluster says of its room: cluster-autoscaler's status, the game nodes, and whether a game server waits.
//!
//! Each is one small read, and each may be missing: no autoscaler, other resources, no permission.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_api::conditions::{ConditionKind, trouble};
use berth_api::game_node::{GameNode, GameNodeStatus, NodePhase};
use berth_api::game_server::GameServer;
use berth_runtime::error::chain;
use berth_runtime::kube_client::{CallError, Class, within};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use tracing::{debug, warn};

use crate::limits::{ClusterFacts, NodeRoom, node_groups};

/// How long one read may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Where cluster-autoscaler writes its status, and under which key.
const AUTOSCALER: (&str, &str, &str) = ("kube-system", "cluster-autoscaler-status", "status");
/// Waiting servers that are read: enough to know that some wait.
const MOST_WAITING: u32 = 100;
/// Nodes that one answer holds.
const PAGE: u32 = 500;
/// The word of the condition where no node has room.
const NO_ROOM: &str = "NoRoom";

/// Reads of the cluster.
pub(crate) struct Cluster {
    client: kube::Client,
    /// What could not be seen the last time, so that it is said once.
    hidden: BTreeSet<&'static str>,
}

impl Cluster {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client, hidden: BTreeSet::new() }
    }

    /// What can be seen; what cannot is left out. The nodes matter where somebody waits, or a group is scaled by how many
    /// of its instances are in use, and only there.
    pub(crate) async fn facts(&mut self, is_scaled_by_utilization: bool) -> ClusterFacts {
        let waiting = self.waiting().await;
        let waiting = self.seen("waiting game servers", waiting).unwrap_or(0);
        let nodes =
            if waiting == 0 && !is_scaled_by_utilization { Ok(Vec::new()) } else { self.nodes().await };
        let seen = self.seen("game nodes", nodes).unwrap_or_default();
        let keeping_idle = seen.iter().filter(|said| !said.releases_idle);
        let keeping_idle = keeping_idle.filter_map(|said| said.group.clone()).collect();
        let nodes = seen.into_iter().filter(|said| said.phase == NodePhase::Active).map(room).collect();
        let status = self.autoscaler().await;
        let status = self.seen("the status of cluster-autoscaler", status).flatten();
        let node_groups = status.map_or_else(Vec::new, |status| {
            node_groups(&status).unwrap_or_else(|error| {
                debug!(%error, "the status of cluster-autoscaler cannot be read: is it older than 1.30?");
                Vec::new()
            })
        });
        ClusterFacts { node_groups, waiting, nodes, keeping_idle }
    }

    async fn autoscaler(&self) -> Result<Option<String>, CallError> {
        let (namespace, name, key) = AUTOSCALER;
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let map = within(LIMIT, maps.get_opt(name)).await?;
        Ok(map.and_then(|map| map.data?.remove(key)))
    }

    /// Servers without a node are few, and the API server picks them out.
    async fn waiting(&self) -> Result<u64, CallError> {
        let servers = Api::<GameServer>::all(self.client.clone());
        let placeless = ListParams::default().fields("status.nodeName=").limit(MOST_WAITING);
        let servers = within(LIMIT, servers.list(&placeless)).await?;
        let waits = |server: &&GameServer| {
            let conditions =
                server.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            trouble(conditions, ConditionKind::Placed).is_some_and(|told| told.reason == NO_ROOM)
        };
        Ok(servers.items.iter().filter(waits).count() as u64)
    }

    async fn nodes(&self) -> Result<Vec<GameNodeStatus>, CallError> {
        let nodes = Api::<GameNode>::all(self.client.clone());
        let mut found = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let some = within(LIMIT, nodes.list(&page)).await?;
            found.extend(some.items.into_iter().filter_map(|node| node.status));
            match some.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// What is not there is no fault: there may be no such resource in this cluster.
    fn seen<T>(&mut self, what: &'static str, read: Result<T, CallError>) -> Option<T> {
        match read {
            Ok(value) => {
                self.hidden.remove(what);
                Some(value)
            }
            Err(error) => {
                if error.class() != Class::NotFound && self.hidden.insert(what) {
                    warn!(what, error = %chain(&error), "cannot be seen");
                }
                None
            }
        }
    }
}

fn room(said: GameNodeStatus) -> NodeRoom {
    let ports = said.ports.into_iter().map(|(range, count)| (range, count.free)).collect();
    NodeRoom { pods: said.free.pods, ports }
}
