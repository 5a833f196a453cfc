//! Who this agent is: its node's name and UID, the kernel's boot, and a name of its own process.

use std::time::Duration;

use berth_api::game_node::GameNode;
use berth_api::game_server::GameServer;
use berth_api::node_lease::Holder;
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::kube_client::{CallError, Class, within};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tracing::{info, warn};

/// How long one question at start-up may take.
const LIMIT: Duration = Duration::from_secs(10);
/// First and longest wait between two questions.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Who this agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the node.
    pub node: String,
    /// UID of the Node object.
    pub node_uid: String,
    /// The kernel's boot.
    pub boot_id: String,
    /// Chosen anew by each process.
    pub process_id: String,
}

impl Identity {
    /// The identity of this process on a node.
    pub fn new(node: &Node, boot_id: String) -> Self {
        Self {
            node: node.name_any(),
            node_uid: node.uid().unwrap_or_default(),
            boot_id,
            process_id: format!("{:016x}", rand::random::<u64>()),
        }
    }

    /// As the holder of the node lease.
    pub fn holder(&self) -> Holder {
        Holder { node: self.node.clone(), boot_id: self.boot_id.clone(), process_id: self.process_id.clone() }
    }
}

/// Why the agent cannot start here.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A resource is missing.
    #[error("the API server does not know {kind}; apply Berth's CRDs (manifests/crds), then start again")]
    NoResource {
        /// Its name.
        kind: &'static str,
    },
    /// The CRD is another system's, or an old one.
    #[error(
        "the CRD gameservers.agones.dev has no selectable field .status.nodeName; apply Berth's CRDs over it \
         (manifests/crds), then start again"
    )]
    NotSelectable {
        /// What the server says.
        source: CallError,
    },
    /// Asked to stop before the node was there.
    #[error("asked to stop before the node {node} was there")]
    Stopped {
        /// Its name.
        node: String,
    },
}

/// Waits until the Node object is there.
///
/// # Errors
/// Asked to stop before.
pub async fn wait_for_node(
    client: &Client,
    name: &str,
    stop: &CancellationToken,
) -> Result<Node, IdentityError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut backoff = Backoff::new(WAITS.0, WAITS.1);
    loop {
        match within(LIMIT, nodes.get_opt(name)).await {
            Ok(Some(node)) => return Ok(node),
            Ok(None) if backoff.attempts() == 0 => info!(node = name, "waiting for the Node object"),
            Ok(None) => {}
            Err(error) => {
                warn!(node = name, error = %berth_runtime::error::chain(&error), "could not read the node");
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(IdentityError::Stopped { node: name.to_owned() }),
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
}

/// Refuses an API server that lacks our resources, in a sentence. What may be better next time is waited for.
///
/// # Errors
/// What is missing, or asked to stop.
pub async fn require_resources(
    client: &Client,
    node: &str,
    stop: &CancellationToken,
) -> Result<(), IdentityError> {
    let mut backoff = Backoff::new(WAITS.0, WAITS.1);
    loop {
        let selected = ListParams::default().fields(&format!("status.nodeName={node}")).limit(1);
        let servers: Api<GameServer> = Api::all(client.clone());
        // Metadata only: an object that cannot be decoded must not keep the agent from starting.
        let server_answer = within(LIMIT, servers.list_metadata(&selected)).await;
        let nodes: Api<GameNode> = Api::all(client.clone());
        let node_answer = within(LIMIT, nodes.get_metadata_opt(node)).await;
        let listed = within(LIMIT, nodes.list_metadata(&ListParams::default().limit(1))).await;
        let failure = match (server_answer, node_answer, listed) {
            (Ok(_), Ok(_), Ok(_)) => return Ok(()),
            (Err(error), _, _) => match error.class() {
                Class::NotFound => return Err(IdentityError::NoResource { kind: "gameservers.agones.dev" }),
                Class::Invalid => return Err(IdentityError::NotSelectable { source: error }),
                _ => error,
            },
            (_, _, Err(error)) if error.class() == Class::NotFound => {
                return Err(IdentityError::NoResource { kind: "gamenodes.berth.dev" });
            }
            (_, Err(error), _) | (_, _, Err(error)) => error,
        };
        warn!(error = %berth_runtime::error::chain(&failure), "could not ask for our resources");
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(IdentityError::Stopped { node: node.to_owned() }),
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
}
