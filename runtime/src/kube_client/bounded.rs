//! A call to the API server that must be over within a limit of the caller's.

use std::future::Future;
use std::time::Duration;

use super::class::{Class, classify};

/// Why a bounded call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It was not over in time. Whether the server did it is unknown.
    #[error("no answer from the API server within {limit:?}")]
    TooSlow {
        /// How long it had.
        limit: Duration,
    },
    /// The server refused it, or it could not be reached.
    #[error("the API server did not do it")]
    Refused {
        /// What the client says.
        #[from]
        source: kube::Error,
    },
}

impl CallError {
    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::TooSlow { .. } => Class::Transient,
            Self::Refused { source } => classify(source),
        }
    }
}

/// Runs one call, for at most `limit`.
///
/// # Errors
/// What the call says, or that it was too slow.
pub async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::TooSlow { limit }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_too_long_is_transient() {
        let limit = Duration::from_secs(2);
        let error = within(limit, std::future::pending::<Result<(), kube::Error>>()).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer from the API server within 2s");
        assert_eq!(error.class(), Class::Transient);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_time_is_passed_on() {
        let answer = within(Duration::from_secs(2), async { Ok(7) }).await.unwrap();
        assert_eq!(answer, 7);
        let refused = within(Duration::from_secs(2), async {
            Err::<(), _>(kube::Error::LinesCodecMaxLineLengthExceeded)
        });
        assert_eq!(refused.await.unwrap_err().class(), Class::Transient);
    }
}
