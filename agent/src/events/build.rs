//! The Events themselves. Pure.

use berth_api::conditions::Trouble;
use berth_api::events::EventReason;
use berth_api::game_server::{Counter, GameServer, List, PlayersStatus};
use berth_api::lifecycle::State;
use berth_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::drain::Course;
use crate::identity::Identity;

/// Longest message the API server takes.
const LONGEST_MESSAGE: usize = 1024;

/// Where and when an Event is written.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// The time.
    pub now: Timestamp,
    /// Chosen anew for each Event.
    pub number: u64,
}

/// The server is on this node, with address and ports.
pub fn scheduled(server: &GameServer, stamp: Stamp<'_>) -> Event {
    let status = server.status.clone().unwrap_or_default();
    let ports: Vec<String> =
        status.ports.unwrap_or_default().iter().map(|port| port.port.to_string()).collect();
    let ports = if ports.is_empty() { "no ports".to_owned() } else { format!("ports {}", ports.join(", ")) };
    let message = format!("placed on {} with address {} and {ports}", stamp.node, status.address);
    event(server, EventReason::State(State::Scheduled), message, stamp)
}

/// The server went to a state that its game asked for.
pub fn granted(server: &GameServer, state: State, stamp: Stamp<'_>) -> Event {
    let until = server.status.as_ref().and_then(|status| status.reserved_until.clone());
    let message = match (state, until) {
        (State::Reserved, Some(until)) => format!("the game asked for {state} until {until}"),
        _ => format!("the game asked for {state}"),
    };
    event(server, EventReason::State(state), message, stamp)
}

/// The server went to a state by itself.
pub fn moved(server: &GameServer, state: State, why: &str, stamp: Stamp<'_>) -> Event {
    event(server, EventReason::State(state), why.to_owned(), stamp)
}

/// This node has handed the server back.
pub fn handed_back(server: &GameServer, why: &str, stamp: Stamp<'_>) -> Event {
    event(server, EventReason::HandedBack, format!("{} cannot take it: {why}", stamp.node), stamp)
}

/// Something that the game asked for was dropped.
pub fn change_dropped(server: &GameServer, why: &str, stamp: Stamp<'_>) -> Event {
    event(server, EventReason::ChangeDropped, why.to_owned(), stamp)
}

/// The server waits for something that does not come.
pub fn not_progressing(server: &GameServer, trouble: &Trouble, stamp: Stamp<'_>) -> Event {
    event(server, EventReason::NotProgressing, format!("{}: {}", trouble.reason, trouble.message), stamp)
}

/// A counter was changed as the game asked.
pub fn counter_updated(server: &GameServer, name: &str, counter: &Counter, stamp: Stamp<'_>) -> Event {
    let (count, capacity) = (counter.count.unwrap_or_default(), counter.capacity.unwrap_or_default());
    event(server, EventReason::UpdateCounter, format!("counter {name} is at {count} of {capacity}"), stamp)
}

/// A list was changed as the game asked.
pub fn list_updated(server: &GameServer, name: &str, list: &List, stamp: Stamp<'_>) -> Event {
    let (entries, capacity) =
        (list.values.as_deref().unwrap_or_default().len(), list.capacity.unwrap_or_default());
    event(server, EventReason::UpdateList, format!("list {name} has {entries} of {capacity} values"), stamp)
}

/// Players came or left, as the game says.
pub fn players_counted(server: &GameServer, players: &PlayersStatus, stamp: Stamp<'_>) -> Event {
    let message = format!("{} of {} players are connected", players.count, players.capacity);
    event(server, EventReason::PlayerCount, message, stamp)
}

/// The room for players was changed as the game asked.
pub fn player_capacity(server: &GameServer, players: &PlayersStatus, stamp: Stamp<'_>) -> Event {
    event(
        server,
        EventReason::PlayerCapacity,
        format!("there is room for {} players", players.capacity),
        stamp,
    )
}

/// The node of a session is being emptied.
pub fn drain_told(server: &GameServer, why: &str, deadline: Option<&str>, stamp: Stamp<'_>) -> Event {
    let until = deadline.map(|deadline| format!(", and gone at {deadline}")).unwrap_or_default();
    event(server, EventReason::NodeDraining, format!("the node is being emptied{until}: {why}"), stamp)
}

/// The server had no session, and its node is being emptied.
pub fn withdrawn(server: &GameServer, why: &str, stamp: Stamp<'_>) -> Event {
    event(server, EventReason::Withdrawn, why.to_owned(), stamp)
}

/// The session ends because its node does.
pub fn session_ended(server: &GameServer, why: &str, grace: u32, stamp: Stamp<'_>) -> Event {
    event(server, EventReason::SessionEnded, format!("{why}; the game has {grace} seconds to end"), stamp)
}

/// The node has another course.
pub fn node_course(identity: &Identity, course: &Course, stamp: Stamp<'_>) -> Event {
    let why = course.notice().map(|notice| notice.reason.clone()).unwrap_or_default();
    let until = course.notice().and_then(|notice| notice.deadline);
    let until = until.map(|deadline| format!(", and gone at {deadline}")).unwrap_or_default();
    let (reason, message) = match course {
        Course::Open => (EventReason::NodeReopened, "the node takes game servers again".to_owned()),
        Course::Closed { let_go_at, .. } => {
            let message =
                format!("{why}; game servers without a session leave at {let_go_at}, sessions stay");
            (EventReason::NodeClosed, message)
        }
        Course::Spare { .. } => (
            EventReason::NodeIdle,
            format!("{why}; they leave, and the instance may be taken away until somebody needs it"),
        ),
        Course::Draining { .. } if course.is_terminating() => {
            (EventReason::NodeTerminating, format!("the node is being emptied{until}: {why}"))
        }
        Course::Draining { .. } => {
            (EventReason::NodeDraining, format!("the node is being emptied{until}: {why}"))
        }
        Course::Drained { .. } => (EventReason::NodeDrained, format!("no game server is left: {why}")),
    };
    node_event(identity, reason, message, stamp)
}

/// A taint is not put on the node, for the sake of a session.
pub fn taint_withheld(identity: &Identity, message: String, stamp: Stamp<'_>) -> Event {
    node_event(identity, EventReason::TaintWithheld, message, stamp)
}

/// The node waits for its sessions, and has done so for long.
pub fn drain_is_long(identity: &Identity, pods: usize, stamp: Stamp<'_>) -> Event {
    let message = format!("the drain waits for {pods} game servers for more than two hours");
    node_event(identity, EventReason::DrainIsLong, message, stamp)
}

/// The node stands otherwise with FleetIQ, or something of its instance is not as it should be.
pub fn node_standing(identity: &Identity, reason: EventReason, message: &str, stamp: Stamp<'_>) -> Event {
    node_event(identity, reason, message.to_owned(), stamp)
}

/// Events of what has no namespace go where kubelet's do.
fn node_event(identity: &Identity, reason: EventReason, message: String, stamp: Stamp<'_>) -> Event {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(identity.node.clone()),
        uid: Some(identity.node_uid.clone()),
        ..ObjectReference::default()
    };
    event_about(about, "default", reason, message, stamp)
}

fn event(server: &GameServer, reason: EventReason, message: String, stamp: Stamp<'_>) -> Event {
    let metadata = &server.metadata;
    let about = ObjectReference {
        api_version: Some("agones.dev/v1".to_owned()),
        kind: Some("GameServer".to_owned()),
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        resource_version: metadata.resource_version.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    };
    let namespace = metadata.namespace.clone().unwrap_or_default();
    event_about(about, &namespace, reason, message, stamp)
}

fn event_about(
    about: ObjectReference,
    namespace: &str,
    reason: EventReason,
    mut message: String,
    stamp: Stamp<'_>,
) -> Event {
    if message.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
    }
    let name = about.name.clone().unwrap_or_default();
    let time = Time(stamp.now);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:016x}", stamp.number)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: about,
        reason: Some(reason.as_str().to_owned()),
        message: Some(message),
        type_: Some(if reason.is_warning() { "Warning" } else { "Normal" }.to_owned()),
        count: Some(1),
        first_timestamp: Some(time.clone()),
        last_timestamp: Some(time),
        source: Some(EventSource {
            component: Some(names::AGENT_MANAGER.to_owned()),
            host: Some(stamp.node.to_owned()),
        }),
        reporting_component: Some(names::AGENT_MANAGER.to_owned()),
        reporting_instance: Some(stamp.node.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use berth_api::game_server::{GameServer, GameServerSpec};
    use berth_api::lifecycle::State;
    use jiff::Timestamp;

    use super::{Stamp, handed_back, moved};

    #[test]
    fn an_event_names_its_server_and_is_no_longer_than_allowed() {
        let mut server = GameServer::new("gs", GameServerSpec::default());
        server.metadata.namespace = Some("games".into());
        let stamp = Stamp { node: "node-1", now: Timestamp::UNIX_EPOCH, number: 7 };
        let event = moved(&server, State::Unhealthy, &"ä".repeat(1000), stamp);
        assert_eq!(event.metadata.name.as_deref(), Some("gs.0000000000000007"));
        assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("Unhealthy")));
        assert_eq!(event.message.map(|message| message.len()), Some(1024));
        let event = handed_back(&server, "no free port", stamp);
        assert_eq!(event.message.as_deref(), Some("node-1 cannot take it: no free port"));
    }
}
