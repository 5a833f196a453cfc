//! The calls that are made to FleetIQ, and what their answers mean. Pure.

use std::fmt;

use berth_api::notice::InstanceStatus;

/// A call, about the instance of this agent alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// Makes the instance known.
    Register,
    /// Takes it, so that it is kept. Lasts a minute.
    Claim,
    /// Says that it is in use, and alive.
    Update,
    /// Says that it is alive, and nothing else.
    Live,
    /// Asks whose the registration is, and how it stands.
    Describe,
    /// Asks what FleetIQ thinks of the instance.
    AskStatus,
    /// Gives it back.
    Deregister,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Register,
        Self::Claim,
        Self::Update,
        Self::Live,
        Self::Describe,
        Self::AskStatus,
        Self::Deregister,
    ];

    /// Its name in AWS's API, which is also that of the permission.
    #[must_use]
    pub const fn operation(self) -> &'static str {
        match self {
            Self::Register => "RegisterGameServer",
            Self::Claim => "ClaimGameServer",
            Self::Update | Self::Live => "UpdateGameServer",
            Self::Describe => "DescribeGameServer",
            Self::AskStatus => "DescribeGameServerInstances",
            Self::Deregister => "DeregisterGameServer",
        }
    }
}

/// Why a call brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// There is no such server, or no such group.
    NotFound,
    /// It is there, or taken, already.
    Conflict,
    /// It cannot be taken now.
    OutOfCapacity,
    /// The group is full.
    LimitExceeded,
    /// Wrong group, or not an instance of it.
    InvalidRequest,
    /// Credentials or permissions.
    Denied,
    /// This machine's clock is wrong.
    ClockSkew,
    /// Too many calls of the account.
    Throttled,
    /// AWS has trouble.
    Server,
    /// No answer in time: it may have been done.
    Timeout,
    /// No connection, or no credentials.
    Unreachable,
    /// Something that nobody expects.
    Other,
}

impl Failure {
    /// A short fixed word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::OutOfCapacity => "out_of_capacity",
            Self::LimitExceeded => "limit_exceeded",
            Self::InvalidRequest => "invalid_request",
            Self::Denied => "denied",
            Self::ClockSkew => "clock_skew",
            Self::Throttled => "throttled",
            Self::Server => "server",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Other => "other",
        }
    }

    /// What an operator may do about it, where there is something.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NotFound => "there is no such game server group in this region",
            Self::LimitExceeded => "the group has as many game servers as its quota allows",
            Self::InvalidRequest => "the group's name is wrong, or this instance is not one of the group's",
            Self::Denied => "the agent's role lacks the permission, or its credentials are wrong",
            Self::ClockSkew => "this machine's clock is wrong",
            Self::Throttled => "the account makes too many calls",
            Self::Unreachable => "AWS cannot be reached, or there are no credentials",
            Self::Conflict | Self::OutOfCapacity | Self::Server | Self::Timeout | Self::Other => {
                "it is tried again"
            }
        }
    }

    /// The failure behind an error's code. AWS models some codes only; the others arrive all the same.
    #[must_use]
    pub fn of_code(code: &str, http_status: Option<u16>) -> Self {
        match code {
            "NotFoundException" => Self::NotFound,
            "ConflictException" => Self::Conflict,
            "OutOfCapacityException" => Self::OutOfCapacity,
            "LimitExceededException" => Self::LimitExceeded,
            "InvalidRequestException" | "ValidationException" | "ValidationError" => Self::InvalidRequest,
            "UnauthorizedException"
            | "AccessDeniedException"
            | "AccessDenied"
            | "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "IncompleteSignatureException"
            | "IncompleteSignature"
            | "NotAuthorized"
            | "MissingAuthenticationTokenException"
            | "ExpiredTokenException"
            | "ExpiredToken"
            | "OptInRequired" => Self::Denied,
            "RequestExpired" | "RequestInTheFuture" | "RequestTimeTooSkewed" => Self::ClockSkew,
            "ThrottlingException"
            | "Throttling"
            | "ThrottledException"
            | "TooManyRequestsException"
            | "RequestThrottled"
            | "RequestThrottledException"
            | "RequestLimitExceeded"
            | "SlowDown" => Self::Throttled,
            "InternalServiceException" | "InternalFailure" | "InternalServerError" | "ServiceUnavailable" => {
                Self::Server
            }
            _ => Self::of_status(http_status),
        }
    }

    /// The failure behind an answer that names none.
    #[must_use]
    pub fn of_status(http_status: Option<u16>) -> Self {
        match http_status {
            Some(429) => Self::Throttled,
            Some(401 | 403) => Self::Denied,
            Some(500..) => Self::Server,
            Some(_) | None => Self::Other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// Whether a registered server is in use, as FleetIQ sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Utilization {
    /// Free to be taken away.
    Available,
    /// In use.
    Utilized,
}

/// A registration as it was described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// It is of this instance.
    pub is_ours: bool,
    /// How it stands.
    pub utilization: Utilization,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Call::Register`].
    Register(Result<(), Failure>),
    /// Of [`Call::Claim`].
    Claim(Result<(), Failure>),
    /// Of [`Call::Update`].
    Update(Result<Utilization, Failure>),
    /// Of [`Call::Live`].
    Live(Result<Utilization, Failure>),
    /// Of [`Call::Describe`].
    Describe(Result<Registration, Failure>),
    /// Of [`Call::AskStatus`]; none where the group does not have the instance, or says nothing of it.
    AskStatus(Result<Option<InstanceStatus>, Failure>),
    /// Of [`Call::Deregister`].
    Deregister(Result<(), Failure>),
}

impl Answer {
    /// The call, and why it brought nothing, if it did not.
    #[must_use]
    pub fn outcome(&self) -> (Call, Option<Failure>) {
        match *self {
            Self::Register(answer) => (Call::Register, answer.err()),
            Self::Claim(answer) => (Call::Claim, answer.err()),
            Self::Update(answer) => (Call::Update, answer.err()),
            Self::Live(answer) => (Call::Live, answer.err()),
            Self::Describe(answer) => (Call::Describe, answer.err()),
            Self::AskStatus(answer) => (Call::AskStatus, answer.err()),
            Self::Deregister(answer) => (Call::Deregister, answer.err()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;

    #[test]
    fn codes_are_told_apart_also_those_that_aws_does_not_model() {
        let table = [
            ("NotFoundException", Some(400), Failure::NotFound),
            ("ConflictException", Some(400), Failure::Conflict),
            ("OutOfCapacityException", Some(400), Failure::OutOfCapacity),
            ("LimitExceededException", Some(400), Failure::LimitExceeded),
            ("InvalidRequestException", Some(400), Failure::InvalidRequest),
            ("UnauthorizedException", Some(400), Failure::Denied),
            ("AccessDeniedException", Some(400), Failure::Denied),
            ("AccessDenied", Some(403), Failure::Denied),
            ("ValidationError", Some(400), Failure::InvalidRequest),
            ("Throttling", Some(400), Failure::Throttled),
            ("ExpiredTokenException", Some(400), Failure::Denied),
            ("RequestExpired", Some(400), Failure::ClockSkew),
            ("ThrottlingException", Some(400), Failure::Throttled),
            ("TooManyRequestsException", Some(429), Failure::Throttled),
            ("InternalServiceException", Some(500), Failure::Server),
            ("SomethingNew", Some(400), Failure::Other),
            ("SomethingNew", Some(503), Failure::Server),
            ("SomethingNew", None, Failure::Other),
        ];
        for (code, status, expected) in table {
            assert_eq!(Failure::of_code(code, status), expected, "{code} {status:?}");
        }
        assert_eq!(Failure::of_status(Some(429)), Failure::Throttled);
        assert_eq!(Failure::of_status(Some(200)), Failure::Other, "an answer in another protocol");
    }
}
