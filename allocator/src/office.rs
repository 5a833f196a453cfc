//! Where both entrances bring a request: read, taken, answered.

use berth_api::allocation::{AllocationState, AllocationStatus, Fault, FaultKind, GameServerAllocation};

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
}

/// Served here alone it would be another request than the one that was made.
fn other_clusters() -> Fault {
    Fault {
        field: "spec.multiClusterSetting.enabled".to_owned(),
        kind: FaultKind::Invalid {
            value: "true".to_owned(),
            detail: "this allocator asks no other clusters; leave it out, and ask each cluster's own"
                .to_owned(),
        },
    }
}

fn told(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Serves requests.
#[derive(Clone)]
pub struct Office {
    taker: Taker,
}

impl Office {
    /// An office with this taker.
    pub fn new(taker: Taker) -> Self {
        Self { taker }
    }

    /// Serves one request; the answer repeats it, completed, with a status.
    ///
    /// # Errors
    /// All that is wrong with the request, or that no server could be taken although there may be one.
    pub async fn serve(&self, mut asked: GameServerAllocation) -> Result<GameServerAllocation, OfficeError> {
        let request = asked.read().map_err(OfficeError::Invalid)?;
        if request.policies.is_some() {
            return Err(OfficeError::Invalid(vec![other_clusters()]));
        }
        let taken = self.taker.allocate(request).await?;
        asked.status = match taken {
            Some(status) => {
                asked.metadata.name = Some(status.game_server_name.clone());
                status
            }
            None => {
                AllocationStatus { state: Some(AllocationState::UnAllocated), ..AllocationStatus::default() }
            }
        };
        Ok(asked)
    }
}
