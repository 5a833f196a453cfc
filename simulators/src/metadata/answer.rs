//! One request for metadata: the door, the token, the tree.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rand::Rng as _;
use rand::distr::Alphanumeric;

use super::tree::{View, look_up};
use super::{LONGEST_TTL, Switches};
use crate::faults::{Effect, Facts, ResetAt, Side, Strike};
use crate::services::Services;
use crate::wire::{Conduct, Incoming, Outgoing, Reply};
use crate::world::{InstanceId, Stage};

const TTL_HEADER: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";
/// As long as real ones.
const TOKEN_LENGTH: usize = 56;

/// Answers a request that came from `peer`. `wall` is the time of day.
pub(crate) fn answer(services: &mut Services, request: &Incoming, peer: IpAddr, wall: Timestamp) -> Outgoing {
    let now = services.bring_up();
    let Some((id, path)) = find(services, request, peer) else {
        return Outgoing::now(Conduct::Reply(page(404, "Not Found")));
    };
    let facts = Facts {
        listener: "imds",
        operation: "Metadata",
        protocol: "metadata",
        group: services.world.instance(id.as_str()).map(|instance| instance.group.as_str()),
        subjects: vec![id.as_str(), path],
        access_key: None,
    };
    let strike = services.faults.strike(&facts, now, &mut services.dice);
    let door = services.metadata.door(&id);
    let switches = door.switches.clone();
    let is_overrun = door.is_overrun(now);
    let mut wait = Duration::ZERO;
    let faulty = strike.effects.iter().filter_map(|effect| match effect {
        Effect::Delay { delay } => Some(*delay),
        _ => None,
    });
    for delay in faulty.chain(switches.delay) {
        wait += delay.draw(&mut services.dice).duration();
    }
    let conduct = if switches.refuses {
        Conduct::Reset(ResetAt::Before)
    } else if let Some(conduct) = instead(&strike) {
        conduct
    } else if switches.is_disabled {
        Conduct::Reply(page(403, "Forbidden"))
    } else if is_overrun || services.dice.random_bool(switches.busy_probability.clamp(0.0, 1.0)) {
        Conduct::Reply(page(503, "Service Unavailable"))
    } else {
        match request.method.as_str() {
            "PUT" if path == "api/token" => give_token(services, &id, request),
            "GET" => {
                let hides_notices = strike.effects.contains(&Effect::Lose { side: Side::Metadata });
                let reading =
                    Reading { id: &id, path, token: request.header(TOKEN_HEADER), hides_notices, wall };
                Conduct::Reply(read(services, &reading))
            }
            _ => Conduct::Reply(page(405, "Method Not Allowed")),
        }
    };
    Outgoing { wait, conduct }
}

/// The instance whose metadata are asked for, and the path below `latest/`.
fn find<'a>(services: &Services, request: &'a Incoming, peer: IpAddr) -> Option<(InstanceId, &'a str)> {
    let path = request.path.trim_start_matches('/');
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let (instance, rest) = match services.world.instance(first) {
        Some(instance) => (instance, rest),
        None => {
            let of_peer = services.world.instances().find(|instance| IpAddr::V4(instance.address) == peer);
            (of_peer?, path)
        }
    };
    let below = rest.strip_prefix("latest").map(|rest| rest.trim_start_matches('/'))?;
    Some((instance.id.clone(), below))
}

fn instead(strike: &Strike) -> Option<Conduct> {
    strike.effects.iter().find_map(|effect| match effect {
        Effect::Hang => Some(Conduct::Hang),
        Effect::Reset { at } => Some(Conduct::Reset(*at)),
        Effect::Blackout => Some(Conduct::Reset(ResetAt::Before)),
        Effect::Error { status, message, .. } => Some(Conduct::Reply(page(*status, message))),
        Effect::Raw { status, content_type, body } => {
            let headers = vec![("content-type", content_type.clone())];
            Some(Conduct::Reply(Reply { status: *status, headers, body: body.bytes() }))
        }
        Effect::WrongProtocol
        | Effect::Delay { .. }
        | Effect::Truncate { .. }
        | Effect::ApplyThenFail { .. }
        | Effect::Duplicate
        | Effect::Lose { .. }
        | Effect::Unauthorized => None,
    })
}

fn give_token(services: &mut Services, id: &InstanceId, request: &Incoming) -> Conduct {
    let now = services.world.now();
    if request.headers.contains_key("x-forwarded-for") {
        return Conduct::Reply(page(403, "Forbidden"));
    }
    let asked = request.header(TTL_HEADER).and_then(|ttl| ttl.parse::<u64>().ok());
    let Some(ttl) = asked.filter(|ttl| (1..=LONGEST_TTL).contains(ttl)) else {
        return Conduct::Reply(page(400, "Bad Request"));
    };
    let letters = (&mut services.dice).sample_iter(Alphanumeric).take(TOKEN_LENGTH);
    let token = letters.map(char::from).collect::<String>();
    let door = services.metadata.door(id);
    let lives = door.switches.token_ttl_seconds.map_or(ttl, |shorter| shorter.min(ttl));
    door.tokens.retain(|_, expires| *expires > now);
    door.tokens.insert(token.clone(), now + Duration::from_secs(lives));
    if door.switches.hop_limit_one {
        return Conduct::Hang;
    }
    let mut reply = Reply::text(200, token);
    reply.headers.push((TTL_HEADER, ttl.to_string()));
    Conduct::Reply(reply)
}

/// What is read, and by whom.
struct Reading<'a> {
    id: &'a InstanceId,
    path: &'a str,
    token: Option<&'a str>,
    /// A fault wants no notice to be seen.
    hides_notices: bool,
    wall: Timestamp,
}

fn read(services: &mut Services, reading: &Reading<'_>) -> Reply {
    let Reading { id, path, token, hides_notices, wall } = *reading;
    let now = services.world.now();
    let door = services.metadata.door(id);
    let left = match token {
        Some(token) => match door.tokens.get(token).filter(|expires| **expires > now) {
            Some(expires) => Some(expires.duration_since(now)),
            None => return page(401, "Unauthorized"),
        },
        None if door.switches.is_optional => {
            door.reads_without_token += 1;
            None
        }
        None => return page(401, "Unauthorized"),
    };
    let hides_notices = hides_notices || door.hides_notices(now);
    let switches = door.switches.clone();
    let mut reply = match services.world.instance(id.as_str()) {
        Some(instance) => {
            let hidden = services.world.parameters().lifecycle_hidden_ms.duration();
            let view = View {
                instance,
                switches: &switches,
                place: services.world.place(),
                wall,
                hides_notices,
                hides_lifecycle: instance.stage == Stage::Pending || now < instance.launched + hidden,
            };
            look_up(&view, path).map_or_else(|| page(404, "Not Found"), |content| spoilt(content, &switches))
        }
        None => page(404, "Not Found"),
    };
    if let Some(left) = left {
        reply.headers.push((TTL_HEADER, left.max(SignedDuration::ZERO).as_secs().to_string()));
    }
    reply
}

/// The content, with what is wrong with it.
fn spoilt(content: String, switches: &Switches) -> Reply {
    let is_json = content.starts_with(['{', '[']);
    match (switches.is_empty, switches.is_malformed && is_json) {
        (true, _) => Reply::text(200, ""),
        (false, true) => Reply::text(200, &content[..content.len() / 2]),
        (false, false) => Reply::text(200, content),
    }
}

/// What is no answer comes as a page; nobody should read it as JSON.
fn page(status: u16, title: &str) -> Reply {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>{status} - {title}</title></head>\
         <body><h1>{status} - {title}</h1></body></html>\n"
    );
    Reply { status, headers: vec![("content-type", "text/html".to_owned())], body: body.into_bytes() }
}
