//! What came of a call. Pure.
//!
//! AWS models few of its errors, and a throttle is not among them: codes are compared, since that is all there is.

use aws_sdk_gamelift::error::{ProvideErrorMetadata, SdkError};
use berth_runtime::error::chain;

use super::Operation;
use crate::pace::Ending;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// Well.
    Done,
    /// The account's quota is used up.
    Throttled,
    /// There is no such thing.
    Missing,
    /// We may not, or are not known.
    Denied,
    /// What was asked makes no sense to AWS.
    Invalid,
    /// A fault of AWS.
    Fault,
    /// No answer in time.
    Silent,
    /// No connection, no credentials, or an answer that cannot be read.
    Unreachable,
}

impl Outcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Throttled => "throttled",
            Self::Missing => "missing",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Fault => "fault",
            Self::Silent => "silent",
            Self::Unreachable => "unreachable",
        }
    }

    /// What it means for a poll.
    pub(crate) const fn ending(self) -> Ending {
        match self {
            Self::Done => Ending::Complete,
            Self::Throttled => Ending::Throttled,
            Self::Missing => Ending::Missing,
            Self::Denied => Ending::Denied,
            Self::Invalid | Self::Fault | Self::Silent | Self::Unreachable => Ending::Failed,
        }
    }

    fn of_code(code: &str) -> Self {
        match code {
            "Throttling"
            | "ThrottlingException"
            | "ThrottledException"
            | "RequestLimitExceeded"
            | "TooManyRequestsException"
            | "RequestThrottled"
            | "RequestThrottledException" => Self::Throttled,
            "NotFoundException" => Self::Missing,
            "AccessDenied"
            | "AccessDeniedException"
            | "UnauthorizedException"
            | "UnauthorizedOperation"
            | "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "OptInRequired" => Self::Denied,
            "InvalidRequestException"
            | "ValidationError"
            | "ValidationException"
            | "InvalidAction"
            | "InvalidNextToken" => Self::Invalid,
            _ => Self::Fault,
        }
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {words}", .operation.as_str())]
pub(crate) struct CallFailed {
    pub(crate) operation: Operation,
    pub(crate) outcome: Outcome,
    words: String,
}

impl CallFailed {
    /// What an error of the SDK says.
    pub(super) fn new<E, R>(operation: Operation, error: &SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
        let outcome = match (error, code) {
            (_, Some(code)) => Outcome::of_code(code),
            (SdkError::TimeoutError(_), None) => Outcome::Silent,
            (SdkError::ServiceError(_), None) => Outcome::Fault,
            (_, None) => Outcome::Unreachable,
        };
        let message = error.as_service_error().and_then(ProvideErrorMetadata::message);
        let words = match (code, message) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => chain(error),
        };
        Self { operation, outcome, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        for (code, outcome, ending) in [
            ("ThrottlingException", Outcome::Throttled, Ending::Throttled),
            ("Throttling", Outcome::Throttled, Ending::Throttled),
            ("NotFoundException", Outcome::Missing, Ending::Missing),
            ("AccessDeniedException", Outcome::Denied, Ending::Denied),
            ("ExpiredTokenException", Outcome::Denied, Ending::Denied),
            ("InvalidRequestException", Outcome::Invalid, Ending::Failed),
            ("InternalServiceException", Outcome::Fault, Ending::Failed),
            ("SomethingNew", Outcome::Fault, Ending::Failed),
        ] {
            assert_eq!(Outcome::of_code(code), outcome, "{code}");
            assert_eq!(outcome.ending(), ending, "{code}");
        }
    }
}
