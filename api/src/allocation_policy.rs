//! GameServerAllocationPolicy (`multicluster.agones.dev/v1`): one cluster that allocations may come from, and how much
//! of them.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// A cluster's share.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "multicluster.agones.dev",
    version = "v1",
    kind = "GameServerAllocationPolicy",
    plural = "gameserverallocationpolicies",
    shortname = "gsap",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", default)]
pub struct GameServerAllocationPolicySpec {
    /// Lower ones are asked first.
    pub priority: i32,
    /// Share among the clusters of one priority; at 0 it has none.
    pub weight: i64,
    /// Which cluster, and how it is reached.
    pub connection_info: ConnectionInfo,
}

/// Which cluster, and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionInfo {
    /// The cluster: policies with one name are about the same.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_name: String,
    /// Its allocator services, `HOST` or `HOST:PORT`, in the order in which they are tried. None: this very cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocation_endpoints: Vec<String>,
    /// A Secret in the policy's namespace with our certificate there: `tls.crt`, `tls.key` and, where `serverCa` does not
    /// say it, `ca.crt`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_name: String,
    /// The namespace of the servers, in that cluster.
    pub namespace: String,
    /// The authorities that vouch for its allocator services, PEM in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_ca: String,
}
