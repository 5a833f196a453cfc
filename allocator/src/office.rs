//! Where both entrances bring a request: read, taken, answered.

use berth_api::allocation::{AllocationState, AllocationStatus, Fault, GameServerAllocation};

use crate::clusters::{ClusterError, Clusters};
use crate::take::{TakeError, Taker};

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub enum OfficeError {
    /// Something is wrong with it.
    #[error("the request is invalid: {}", told(.0))]
    Invalid(Vec<Fault>),
    /// It could not be served.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// No cluster served it.
    #[error(transparent)]
    Clusters(#[from] ClusterError),
}

fn told(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Serves requests.
#[derive(Clone)]
pub struct Office {
    taker: Taker,
    clusters: Clusters,
}

impl Office {
    /// An office that takes servers here, and asks other clusters for requests that want that.
    pub fn new(taker: Taker, clusters: Clusters) -> Self {
        Self { taker, clusters }
    }

    /// Serves one request; the answer repeats it, completed, with a status.
    ///
    /// # Errors
    /// All that is wrong with the request, or that no server could be taken although there may be one.
    pub async fn serve(&self, mut asked: GameServerAllocation) -> Result<GameServerAllocation, OfficeError> {
        let request = asked.read().map_err(OfficeError::Invalid)?;
        let status = match &request.policies {
            Some(rule) => self.clusters.allocate(&asked, &request, rule).await?,
            None => self.taker.allocate(request).await?.unwrap_or_else(|| AllocationStatus {
                state: Some(AllocationState::UnAllocated),
                ..AllocationStatus::default()
            }),
        };
        if status.state == Some(AllocationState::Allocated) {
            asked.metadata.name = Some(status.game_server_name.clone());
        }
        asked.status = status;
        Ok(asked)
    }
}
