//! Which protocol a request speaks, and what it wants.

use super::Incoming;

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Cbor,
    Json,
    Query,
}

impl Protocol {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cbor => "cbor",
            Self::Json => "json",
            Self::Query => "query",
        }
    }

    /// The service that speaks it here, as signatures name it.
    pub(crate) fn service(self) -> &'static str {
        match self {
            Self::Cbor | Self::Json => "gamelift",
            Self::Query => "autoscaling",
        }
    }
}

/// The protocol and the operation, or what was missing.
pub(super) fn route(request: &Incoming) -> Result<(Protocol, String), String> {
    if request.method != "POST" {
        return Err(format!("{} is not POST", request.method));
    }
    if request.header("smithy-protocol") == Some("rpc-v2-cbor") {
        // An endpoint may have a path of its own in front.
        return match request.path.rsplit_once("/service/GameLift/operation/") {
            Some((_, operation)) if !operation.is_empty() && !operation.contains('/') => {
                Ok((Protocol::Cbor, operation.to_owned()))
            }
            Some(_) | None => Err(format!("{} is not /service/GameLift/operation/<Operation>", request.path)),
        };
    }
    if let Some(target) = request.header("x-amz-target") {
        return match target.strip_prefix("GameLift.") {
            Some(operation) => Ok((Protocol::Json, operation.to_owned())),
            None => Err(format!("x-amz-target is {target}, not GameLift.<Operation>")),
        };
    }
    let is_form = request
        .header("content-type")
        .is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    let action = super::query::read(&request.body).into_iter().find(|(name, _)| name == "Action");
    match action {
        Some((_, action)) if is_form => Ok((Protocol::Query, action)),
        Some(_) | None => {
            Err("there is no smithy-protocol header, no x-amz-target header, and no form with an \
                               Action"
                .to_owned())
        }
    }
}
