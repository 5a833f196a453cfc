//! What an answer of the API server means for the one who asked.

use kube::core::Status;
use kube::runtime::watcher;

/// The kinds of failure a caller treats differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The object, or its kind, is not there.
    NotFound,
    /// An object of that name is there already.
    AlreadyExists,
    /// Somebody wrote in between: read again.
    Conflict,
    /// The request will never be accepted as it is.
    Invalid,
    /// We may not do that; somebody must change rights or policy.
    Forbidden,
    /// The namespace's resource quota is used up.
    QuotaExceeded,
    /// Too many requests: slow down.
    Throttled,
    /// The resource version is too old: list again.
    Gone,
    /// Anything that may be better next time.
    Transient,
}

impl Class {
    /// A short fixed word for metrics and Events.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::QuotaExceeded => "quota_exceeded",
            Self::Throttled => "throttled",
            Self::Gone => "gone",
            Self::Transient => "transient",
        }
    }
}

/// The class of a client error. What never reached the server, or came back garbled, is transient.
#[must_use]
pub fn classify(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => classify_status(status),
        kube::Error::BuildRequest(_) => Class::Invalid,
        _ => Class::Transient,
    }
}

/// The class of an error that a watch yields.
#[must_use]
pub fn classify_watch(error: &watcher::Error) -> Class {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => classify(error),
        watcher::Error::WatchError(status) => classify_status(status),
        watcher::Error::NoResourceVersion => Class::Transient,
    }
}

fn classify_status(status: &Status) -> Class {
    match (status.code, status.reason.as_str()) {
        (_, "AlreadyExists") => Class::AlreadyExists,
        (_, "Expired" | "Gone") | (410, _) => Class::Gone,
        // The quota admission plugin says so in words only.
        (403, _) if status.message.contains("exceeded quota") => Class::QuotaExceeded,
        (401 | 403, _) => Class::Forbidden,
        (404, _) => Class::NotFound,
        (409, _) => Class::Conflict,
        (429, _) => Class::Throttled,
        (400 | 405 | 406 | 413 | 415 | 422, _) => Class::Invalid,
        _ => Class::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    #[test]
    fn answers_have_classes() {
        let quota = "pods \"a\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=5";
        let cases = [
            ("a missing object", answer(404, "NotFound", ""), Class::NotFound),
            ("a name that is taken", answer(409, "AlreadyExists", ""), Class::AlreadyExists),
            ("a stale version", answer(409, "Conflict", ""), Class::Conflict),
            ("a bad field", answer(422, "Invalid", ""), Class::Invalid),
            ("a bad request", answer(400, "BadRequest", ""), Class::Invalid),
            ("an object too large", answer(413, "RequestEntityTooLarge", ""), Class::Invalid),
            ("a missing right", answer(403, "Forbidden", "no"), Class::Forbidden),
            ("a token that ended", answer(401, "Unauthorized", ""), Class::Forbidden),
            ("a full quota", answer(403, "Forbidden", quota), Class::QuotaExceeded),
            ("priority and fairness", answer(429, "TooManyRequests", ""), Class::Throttled),
            ("a compacted version", answer(410, "Expired", ""), Class::Gone),
            ("a broken server", answer(500, "InternalError", ""), Class::Transient),
            ("a server that starts", answer(503, "ServiceUnavailable", ""), Class::Transient),
            ("a broken stream", kube::Error::LinesCodecMaxLineLengthExceeded, Class::Transient),
        ];
        for (name, error, class) in cases {
            assert_eq!(classify(&error), class, "{name}");
        }
    }

    #[test]
    fn a_watch_error_has_the_class_of_its_cause() {
        let expired = Status::failure("too old", "Expired").with_code(410).boxed();
        assert_eq!(classify_watch(&watcher::Error::WatchError(expired)), Class::Gone);
        let denied = watcher::Error::InitialListFailed(answer(403, "Forbidden", ""));
        assert_eq!(classify_watch(&denied), Class::Forbidden);
    }
}
