//! What the gateway tells where a call was not done.

use http::StatusCode;
use tonic::Code;

use super::code;
use super::json::JsonError;
use crate::server::Refusal;

/// An error as it is told.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) message: String,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { code: code(&refusal), message: refusal.to_string() }
    }
}

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Self {
        Self { code: Code::InvalidArgument, message: error.to_string() }
    }
}

/// The HTTP status that goes with a code.
pub(super) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // A status of the gateway's own, for a client that has gone away.
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_status() {
        let expected =
            [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401_u16];
        for (number, status) in expected.into_iter().enumerate() {
            let code = Code::from_i32(i32::try_from(number).unwrap());
            assert_eq!(http_status(code).as_u16(), status, "{code:?}");
        }
    }
}
