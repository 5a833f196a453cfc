//! The desk where requests are answered, always in the same order: faults, reading, signature, quota, what is asked for,
//! what becomes of it, and faults again. A call that is throttled or refused changes nothing.

use std::time::Duration;

use jiff::Timestamp;
use tracing::info;

use super::calls::{self, Answer};
use super::route::{Protocol, route};
use super::signature::{Caller, named_key};
use super::style::{ErrorNames, WireStyle};
use super::value::{Members, Value};
use super::{Conduct, Incoming, Outgoing, Reply, cbor, json, query, scaling};
use crate::faults::{Effect, Facts, ResetAt, Side, Strike, unauthorized};
use crate::journal::Entry;
use crate::services::Services;
use crate::world::{Refusal, RefusalKind};

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Message(Value),
    Nothing,
    Failure(Failure),
}

/// An error as it goes on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    name: String,
    status: u16,
    message: String,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { name: refusal.kind.name().to_owned(), status: refusal.kind.status(), message: refusal.message }
    }
}

impl Outcome {
    /// For the journal, in a word.
    fn decision(&self) -> String {
        match self {
            Self::Message(_) | Self::Nothing => "ok".to_owned(),
            Self::Failure(failure) => failure.name.clone(),
        }
    }
}

/// A request that is understood as far as faults, quotas and the journal need it.
struct Asked {
    protocol: Protocol,
    operation: String,
    message: Result<Value, String>,
    group: Option<String>,
    subjects: Vec<String>,
}

/// Answers a request. `wall` is the time of day, which signatures are made with.
pub(crate) fn answer(services: &mut Services, request: &Incoming, wall: Timestamp) -> Outgoing {
    let now = services.bring_up();
    let asked = match route(request) {
        Ok((protocol, operation)) => Asked::read(protocol, operation, &request.body),
        Err(missing) => {
            return Outgoing::now(Conduct::Reply(Reply::text(404, format!("nothing here: {missing}\n"))));
        }
    };
    let access_key = named_key(&request.headers);
    let facts = Facts {
        listener: "aws",
        operation: &asked.operation,
        protocol: asked.protocol.as_str(),
        group: asked.group.as_deref(),
        subjects: asked.subjects.iter().map(String::as_str).collect(),
        access_key: access_key.as_deref(),
    };
    let strike = services.faults.strike(&facts, now, &mut services.dice);
    let request_id = services.request_id();
    let style = services.style.clone();
    let writer = Writer {
        style: &style,
        protocol: asked.protocol,
        operation: &asked.operation,
        request_id: &request_id,
        wall,
    };
    let mut wait = Duration::ZERO;
    for effect in &strike.effects {
        if let Effect::Delay { delay } = effect {
            wait += delay.draw(&mut services.dice).duration();
        }
    }
    let (decision, conduct) = match strike.effects.iter().find_map(|effect| writer.instead(effect)) {
        Some(conduct) => ("fault".to_owned(), conduct),
        None => {
            let outcome = carry_out(services, request, &asked, &strike, wall);
            (outcome.decision(), writer.conduct(outcome, &strike))
        }
    };
    let number = services.journal.next_number();
    info!(
        number,
        protocol = asked.protocol.as_str(),
        operation = asked.operation,
        subject = asked.subjects.first().map_or("", String::as_str),
        decision,
        faults = strike.rules.join(","),
        "answered"
    );
    services.journal.add(Entry {
        number,
        time: now,
        protocol: asked.protocol.as_str(),
        operation: asked.operation,
        access_key,
        group: asked.group,
        subjects: asked.subjects,
        invocation: request.header("amz-sdk-invocation-id").map(str::to_owned),
        attempt: request.header("amz-sdk-request").map(str::to_owned),
        decision,
        faults: strike.rules,
    });
    Outgoing { wait, conduct }
}

impl Asked {
    fn read(protocol: Protocol, operation: String, body: &[u8]) -> Self {
        let message = match protocol {
            Protocol::Cbor => cbor::read(body).map_err(|error| error.to_string()),
            Protocol::Json => json::read(body).map_err(|error| error.to_string()),
            Protocol::Query => Ok(Value::Map(
                query::read(body).into_iter().map(|(name, value)| (name, value.into())).collect(),
            )),
        };
        let text = |name: &str| message.as_ref().ok()?.get(name)?.as_text().map(str::to_owned);
        let group = text("GameServerGroupName").or_else(|| text("AutoScalingGroupName"));
        let mut subjects =
            ["GameServerId", "InstanceId"].iter().filter_map(|name| text(name)).collect::<Vec<_>>();
        if let Ok(Value::Map(members)) = &message {
            let listed = members.iter().filter(|(name, _)| name.starts_with("InstanceIds"));
            for (_, value) in listed {
                match value {
                    Value::List(items) => {
                        subjects.extend(items.iter().filter_map(Value::as_text).map(str::to_owned));
                    }
                    Value::Text(id) => subjects.push(id.clone()),
                    _ => {}
                }
            }
        }
        subjects.dedup();
        Self { protocol, operation, message, group, subjects }
    }
}

/// Carries a call out, once, or twice where a fault wants it.
fn carry_out(
    services: &mut Services,
    request: &Incoming,
    asked: &Asked,
    strike: &Strike,
    wall: Timestamp,
) -> Outcome {
    let mut outcome = perform(services, request, asked, wall);
    if strike.effects.contains(&Effect::Duplicate) && !matches!(outcome, Outcome::Failure(_)) {
        outcome = perform(services, request, asked, wall);
    }
    if strike.effects.contains(&Effect::Lose { side: Side::Describe }) {
        show_active(&mut outcome);
    }
    outcome
}

fn perform(services: &mut Services, request: &Incoming, asked: &Asked, wall: Timestamp) -> Outcome {
    let now = services.world.now();
    let message = match &asked.message {
        Ok(message) => message,
        Err(error) => {
            return Outcome::Failure(Refusal::new(RefusalKind::Serialization, error.as_str()).into());
        }
    };
    let Caller { access_key } = match services.gatekeeper.admit(request, asked.protocol.service(), wall) {
        Ok(caller) => caller,
        Err(refusal) => return Outcome::Failure(refusal.into()),
    };
    let by = access_key.unwrap_or_else(|| "nobody".to_owned());
    if asked.protocol == Protocol::Query {
        let form = query::read(&request.body);
        return match scaling::perform(&mut services.world, &asked.operation, &form, &by) {
            Ok(result) => Outcome::Message(result),
            Err(error) => {
                Outcome::Failure(Failure { name: error.code.to_owned(), status: 400, message: error.message })
            }
        };
    }
    let caller = asked.subjects.first().unwrap_or(&by);
    if calls::OPERATIONS.contains(&asked.operation.as_str())
        && !services.throttle.admits(&asked.operation, caller, now)
    {
        let parameters = services.world.parameters();
        return Outcome::Failure(Failure {
            name: parameters.throttle_name.clone(),
            status: parameters.throttle_status,
            message: "Rate exceeded".to_owned(),
        });
    }
    let answer =
        calls::read(&asked.operation, message).and_then(|call| call.perform(&mut services.world, &by));
    match answer {
        Ok(Answer::Message(message)) => Outcome::Message(message),
        Ok(Answer::Nothing) => Outcome::Nothing,
        Err(refusal) => Outcome::Failure(refusal.into()),
    }
}

/// Hides from a list of instances that any of them will go.
fn show_active(outcome: &mut Outcome) {
    let Outcome::Message(Value::Map(members)) = outcome else { return };
    for (name, value) in members {
        let Value::List(instances) = value else { continue };
        if name != "GameServerInstances" {
            continue;
        }
        for instance in instances {
            let Value::Map(members) = instance else { continue };
            for (name, status) in members {
                if name == "InstanceStatus" {
                    *status = "ACTIVE".into();
                }
            }
        }
    }
}

/// Writes answers in one protocol.
struct Writer<'a> {
    style: &'a WireStyle,
    protocol: Protocol,
    operation: &'a str,
    request_id: &'a str,
    wall: Timestamp,
}

impl Writer<'_> {
    /// What a fault does in place of an answer, if that is what it does.
    fn instead(&self, effect: &Effect) -> Option<Conduct> {
        Some(match effect {
            Effect::Error { name, status, message } => {
                let failure = Failure { name: name.clone(), status: *status, message: message.clone() };
                Conduct::Reply(self.reply(Outcome::Failure(failure)))
            }
            Effect::Unauthorized => return self.instead(&unauthorized()),
            Effect::Raw { status, content_type, body } => {
                let headers = match content_type.as_str() {
                    "" => self.headers(),
                    kind => vec![("content-type", kind.to_owned())],
                };
                Conduct::Reply(Reply { status: *status, headers, body: body.bytes() })
            }
            Effect::Hang => Conduct::Hang,
            Effect::Reset { at } => Conduct::Reset(*at),
            Effect::Blackout => Conduct::Reset(ResetAt::Before),
            Effect::WrongProtocol
            | Effect::Delay { .. }
            | Effect::Truncate { .. }
            | Effect::ApplyThenFail { .. }
            | Effect::Duplicate
            | Effect::Lose { .. } => return None,
        })
    }

    /// What is done with the connection once the call has come to this.
    fn conduct(&self, outcome: Outcome, strike: &Strike) -> Conduct {
        let is_wrong = strike.effects.contains(&Effect::WrongProtocol);
        let reply = if is_wrong { self.in_the_wrong_protocol(outcome) } else { self.reply(outcome) };
        let after = strike.effects.iter().find_map(|effect| match effect {
            Effect::ApplyThenFail { with } => self.instead(with),
            Effect::Truncate { after } => Some(Conduct::Cut(reply.clone(), *after)),
            _ => None,
        });
        after.unwrap_or(Conduct::Reply(reply))
    }

    fn in_the_wrong_protocol(&self, outcome: Outcome) -> Reply {
        let protocol = match self.protocol {
            Protocol::Cbor | Protocol::Query => Protocol::Json,
            Protocol::Json => Protocol::Cbor,
        };
        Writer { protocol, ..*self }.reply(outcome)
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = match self.protocol {
            Protocol::Cbor => vec![
                ("content-type", "application/cbor".to_owned()),
                ("smithy-protocol", "rpc-v2-cbor".to_owned()),
            ],
            Protocol::Json => vec![("content-type", "application/x-amz-json-1.1".to_owned())],
            Protocol::Query => vec![("content-type", "text/xml".to_owned())],
        };
        headers.push(("x-amzn-requestid", self.request_id.to_owned()));
        if let Some(offset) = self.style.date_offset_ms {
            let date = self.wall.saturating_add(jiff::SignedDuration::from_millis(offset));
            let date = date.unwrap_or(self.wall).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            headers.push(("date", date));
        }
        headers
    }

    fn reply(&self, outcome: Outcome) -> Reply {
        let mut headers = self.headers();
        let (status, body) = match outcome {
            Outcome::Message(value) => (200, self.message(&value)),
            Outcome::Nothing if self.protocol == Protocol::Cbor && self.style.empty_map_for_nothing => {
                (200, self.message(&Members::new().into()))
            }
            Outcome::Nothing => {
                headers.retain(|(name, _)| self.protocol != Protocol::Cbor || *name != "content-type");
                (200, Vec::new())
            }
            Outcome::Failure(failure) => {
                if self.protocol == Protocol::Json && self.style.error_header {
                    headers.push(("x-amzn-errortype", failure.name.clone()));
                }
                self.failure(&failure)
            }
        };
        Reply { status, headers, body }
    }

    fn message(&self, value: &Value) -> Vec<u8> {
        match self.protocol {
            Protocol::Json => json::write(value),
            Protocol::Cbor => cbor::write(value, self.cbor_style()),
            Protocol::Query => query::write_result(self.operation, value, self.request_id),
        }
    }

    fn cbor_style(&self) -> cbor::Style {
        cbor::Style {
            is_indefinite: self.style.cbor_indefinite,
            has_integer_times: self.style.cbor_integer_times,
        }
    }

    fn failure(&self, failure: &Failure) -> (u16, Vec<u8>) {
        let is_modelled = !failure.name.starts_with("Throttling");
        if self.protocol == Protocol::Query {
            let (code, status) = query_code(failure);
            return (status, query::write_error(code, &failure.message, status < 500, self.request_id));
        }
        let has_namespace = match self.style.error_names {
            ErrorNames::ByProtocol => self.protocol == Protocol::Cbor && is_modelled,
            ErrorNames::Bare => false,
            ErrorNames::Namespaced => true,
        };
        let name = match (has_namespace, is_modelled) {
            (false, _) => failure.name.clone(),
            (true, true) => format!("com.amazonaws.gamelift#{}", failure.name),
            (true, false) => format!("com.amazon.coral.availability#{}", failure.name),
        };
        let member = if is_modelled { "Message" } else { "message" };
        let body = Members::new().with("__type", name).with(member, failure.message.as_str()).into();
        (failure.status, self.message(&body))
    }
}

/// The Query protocol has names of its own for being turned away at the door.
fn query_code(failure: &Failure) -> (&str, u16) {
    match failure.name.as_str() {
        "InvalidSignatureException" => ("SignatureDoesNotMatch", 403),
        "UnrecognizedClientException" => ("InvalidClientTokenId", 403),
        "ExpiredTokenException" => ("ExpiredToken", 403),
        "UnauthorizedException" => ("MissingAuthenticationToken", 403),
        "AccessDeniedException" => ("AccessDenied", 403),
        other => (other, failure.status),
    }
}
