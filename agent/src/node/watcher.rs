//! The task that watches our own Node object.

use std::sync::Arc;

use berth_runtime::CancellationToken;
use berth_runtime::error::chain;
use berth_runtime::kube_client::watch;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use tokio::sync::watch as channel;
use tracing::warn;

use super::NodeFacts;

/// Why the watch ended.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The Node was deleted and made again. Our lease and every hand-over name the old one, so we start over.
    #[error("the Node object was made again with UID {uid}; starting over")]
    MadeAgain {
        /// The new UID.
        uid: String,
    },
    /// The watch ended, which it never does.
    #[error("the watch of the Node ended")]
    Ended,
}

/// Watches until asked to stop. What the Node was when it is gone is kept: the machine is still there.
///
/// # Errors
/// The Node was made again under its name.
pub async fn run(
    client: Client,
    name: String,
    facts: channel::Sender<Arc<NodeFacts>>,
    stop: CancellationToken,
) -> Result<(), NodeError> {
    let config = Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watch(Api::<Node>::all(client), config));
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            event = events.next() => event.ok_or(NodeError::Ended)?,
        };
        match event {
            Ok(Event::Apply(node) | Event::InitApply(node)) => {
                let new = NodeFacts::read(&node);
                if new.uid != facts.borrow().uid {
                    return Err(NodeError::MadeAgain { uid: new.uid });
                }
                facts.send_if_modified(|known| {
                    // A version alone wakes nobody: kubelet writes often.
                    let changed = **known != NodeFacts { version: known.version, ..new.clone() };
                    *known = Arc::new(new);
                    changed
                });
            }
            Ok(Event::Delete(_)) => warn!(node = name, "the Node object was deleted"),
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => warn!(node = name, error = %chain(&error), "could not watch the node"),
        }
    }
}
