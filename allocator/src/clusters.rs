//! Allocating from several clusters: GameServerAllocationPolicies say which are asked, and in which order.
//!
//! The first cluster that has a server ends the search. A cluster that fails is passed over, and left alone for a while
//! where it does not answer at all, so that a dead one costs its timeout once and not each request.

use std::sync::Arc;
use std::time::Duration;

use berth_api::allocation::{AllocationState, AllocationStatus, GameServerAllocation, Request};
use berth_runtime::clock::Clock;
use kube::core::Selector as LabelRule;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

mod courier;
mod letter;
mod metrics;
mod order;
mod shelf;

pub use courier::{Courier, CourierError};
pub use metrics::ClusterMetrics;
pub use shelf::PolicyShelf;

use self::courier::Reply;
use self::letter::Unspeakable;
use self::order::Order;
use crate::take::{TakeError, Taker};

/// Why no cluster gave a server although there may be one.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is nothing to go by.
    #[error(
        "no GameServerAllocationPolicy of namespace {namespace} with a weight above 0 is selected by the request"
    )]
    NoPolicy {
        /// The request's namespace.
        namespace: String,
    },
    /// This cluster.
    #[error(transparent)]
    Here(#[from] TakeError),
    /// The request.
    #[error(transparent)]
    Unspeakable(#[from] Unspeakable),
    /// Another cluster.
    #[error(transparent)]
    There(#[from] CourierError),
}

/// Asks one cluster after the other.
#[derive(Clone)]
pub struct Clusters {
    taker: Taker,
    shelf: Arc<PolicyShelf>,
    courier: Arc<Courier>,
    /// How long a request may take in all.
    limit: Duration,
    clock: Clock,
}

impl Clusters {
    /// Clusters by the policies of this shelf. `limit` is how long one request may take in all.
    pub fn new(taker: Taker, shelf: Arc<PolicyShelf>, courier: Courier, limit: Duration) -> Self {
        Self { taker, shelf, courier: Arc::new(courier), limit, clock: Clock::system() }
    }

    /// Allocates a server of some cluster. `asked` is the request as it was written, and completed.
    ///
    /// # Errors
    /// The last cluster that was asked has failed.
    pub async fn allocate(
        &self,
        asked: &GameServerAllocation,
        request: &Request,
        rule: &LabelRule,
    ) -> Result<AllocationStatus, ClusterError> {
        let namespace = &request.namespace;
        let deadline = self.clock.instant() + self.limit;
        let mut order = Order::new(self.shelf.pick(namespace, rule));
        let mut random = StdRng::seed_from_u64(rand::random());
        let mut last = Err(ClusterError::NoPolicy { namespace: namespace.clone() });
        while let Some(connection) = order.next(&mut random) {
            if self.clock.instant() >= deadline {
                break;
            }
            last = if connection.allocation_endpoints.is_empty() {
                let here = Request { namespace: connection.namespace, policies: None, ..request.clone() };
                self.taker.allocate(here).await.map(of_taken).map_err(ClusterError::from)
            } else {
                match letter::write(asked, &connection.namespace) {
                    Ok(letter) => {
                        let reply = self.courier.ask(namespace, &connection, &letter, deadline).await;
                        reply.map(of_reply).map_err(ClusterError::from)
                    }
                    Err(unspeakable) => Err(unspeakable.into()),
                }
            };
            if last.as_ref().is_ok_and(|status| status.state == Some(AllocationState::Allocated)) {
                break;
            }
        }
        last
    }
}

fn without_server(state: AllocationState) -> AllocationStatus {
    AllocationStatus { state: Some(state), ..AllocationStatus::default() }
}

fn of_taken(taken: Option<AllocationStatus>) -> AllocationStatus {
    taken.unwrap_or_else(|| without_server(AllocationState::UnAllocated))
}

fn of_reply(reply: Reply) -> AllocationStatus {
    match reply {
        Reply::Allocated(status) => *status,
        Reply::Nothing => without_server(AllocationState::UnAllocated),
        Reply::Contention => without_server(AllocationState::Contention),
    }
}
