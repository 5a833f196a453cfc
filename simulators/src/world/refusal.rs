//! What the service says no with.

use serde::{Deserialize, Serialize};

/// Why a call was refused, in the service's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RefusalKind {
    #[serde(rename = "AccessDeniedException")]
    AccessDenied,
    #[serde(rename = "ConflictException")]
    Conflict,
    #[serde(rename = "ExpiredTokenException")]
    ExpiredToken,
    #[serde(rename = "InternalServiceException")]
    InternalService,
    #[serde(rename = "InvalidRequestException")]
    InvalidRequest,
    #[serde(rename = "InvalidSignatureException")]
    InvalidSignature,
    #[serde(rename = "LimitExceededException")]
    LimitExceeded,
    #[serde(rename = "NotFoundException")]
    NotFound,
    #[serde(rename = "OutOfCapacityException")]
    OutOfCapacity,
    #[serde(rename = "SerializationException")]
    Serialization,
    #[serde(rename = "UnauthorizedException")]
    Unauthorized,
    #[serde(rename = "UnknownOperationException")]
    UnknownOperation,
    #[serde(rename = "UnrecognizedClientException")]
    UnrecognizedClient,
}

impl RefusalKind {
    /// The name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AccessDenied => "AccessDeniedException",
            Self::Conflict => "ConflictException",
            Self::ExpiredToken => "ExpiredTokenException",
            Self::InternalService => "InternalServiceException",
            Self::InvalidRequest => "InvalidRequestException",
            Self::InvalidSignature => "InvalidSignatureException",
            Self::LimitExceeded => "LimitExceededException",
            Self::NotFound => "NotFoundException",
            Self::OutOfCapacity => "OutOfCapacityException",
            Self::Serialization => "SerializationException",
            Self::Unauthorized => "UnauthorizedException",
            Self::UnknownOperation => "UnknownOperationException",
            Self::UnrecognizedClient => "UnrecognizedClientException",
        }
    }

    /// The HTTP status that goes with it.
    pub(crate) fn status(self) -> u16 {
        if self == Self::InternalService { 500 } else { 400 }
    }
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", kind.name())]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::InvalidRequest, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Conflict, message)
    }

    pub(crate) fn not_found(what: &str, name: impl std::fmt::Display) -> Self {
        Self::new(RefusalKind::NotFound, format!("{what} {name} was not found"))
    }
}
