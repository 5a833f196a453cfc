//! Where both entrances bring a request: read, taken, answered.

use berth_api::allocation::{AllocationState, AllocationStatus, Fault, GameServerAllocation};

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
