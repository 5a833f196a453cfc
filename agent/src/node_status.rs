//! The GameNode of this node: its picture for the brain, for operators and for the local socket.
//!
//! Where a phase comes from is decided here; what is in the picture comes from those who own it, over channels.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::game_node::{GameNodeStatus, NodePhase, PortCount, Protection, Room};
use berth_api::lifecycle::State;
use berth_api::link::ServerUid;
use berth_api::node_lease::{Epoch, FORMAT_VERSION};
use berth_runtime::metrics::Subsystem;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use crate::drain::Course;
use crate::fleetiq::{Offers, Standing};
use crate::game_server::{Board, Line};
use crate::identity::Identity;
use crate::node::NodeFacts;
use crate::node::room::{minus, plus};

pub mod publisher;

/// Where the picture comes from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Our Node object.
    pub node: watch::Receiver<Arc<NodeFacts>>,
    /// Host ports.
    pub ports: watch::Receiver<BTreeMap<String, PortCount>>,
    /// What the node is for.
    pub course: watch::Receiver<Course>,
    /// Since when nobody has played, where the brain is asked whether the node is needed.
    pub question: watch::Receiver<Option<Timestamp>>,
    /// Whether it is ever asked.
    pub releases_idle: bool,
    /// The standing with FleetIQ.
    pub standing: watch::Receiver<Standing>,
    /// What pods that are no game servers take.
    pub others: watch::Receiver<Room>,
    /// What game pods take.
    pub games: watch::Receiver<Room>,
    /// Whether everything that was there at start-up has been adopted.
    pub adopted: watch::Receiver<bool>,
    /// The servers.
    pub board: Board,
    /// Kept for the node's own daemons.
    pub reserve: Room,
}

/// What a picture is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Who we are.
    pub identity: &'a Identity,
    /// Our Node object.
    pub node: &'a NodeFacts,
    /// What the node is for.
    pub course: &'a Course,
    /// Since when nobody has played, where the brain is asked whether the node is needed.
    pub question: Option<Timestamp>,
    /// Whether it is ever asked.
    pub releases_idle: bool,
    /// The standing with FleetIQ.
    pub standing: &'a Standing,
    /// Epoch of the lease, where it is held.
    pub epoch: Option<Epoch>,
    /// Whether everything that was there at start-up has been adopted.
    pub adopted: bool,
    /// Host ports.
    pub ports: &'a BTreeMap<String, PortCount>,
    /// What pods that are no game servers take, and what is kept for daemons.
    pub others: Room,
    /// What game pods take.
    pub games: Room,
    /// The servers.
    pub servers: &'a BTreeMap<ServerUid, Line>,
}

/// The picture. What has not changed keeps its time from the picture before.
pub fn picture(seen: Seen<'_>, before: &GameNodeStatus, now: Timestamp) -> GameNodeStatus {
    let (phase, reason) = phase(&seen);
    let same_phase = before.phase == phase && before.phase_since.is_some();
    let mut servers_by_state: BTreeMap<State, i64> = BTreeMap::new();
    for line in seen.servers.values() {
        *servers_by_state.entry(line.state).or_default() += 1;
    }
    let taken = plus(seen.others, seen.games);
    GameNodeStatus {
        phase,
        phase_since: if same_phase { before.phase_since.clone() } else { Some(now.to_string()) },
        phase_reason: reason,
        protection: seen.standing.protection,
        group: seen.standing.group.clone(),
        releases_idle: seen.releases_idle && seen.standing.protection != Protection::NotConfigured,
        idle_since: seen.question.map(|since| since.to_string()),
        deadline: seen
            .course
            .notice()
            .and_then(|notice| notice.deadline)
            .map(|deadline| deadline.to_string()),
        node_uid: seen.identity.node_uid.clone(),
        boot_id: seen.identity.boot_id.clone(),
        epoch: seen.epoch.map_or(before.epoch, |epoch| epoch.0),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        format_versions: (1..=FORMAT_VERSION).collect(),
        addresses: seen.node.addresses.clone(),
        allocatable: seen.node.allocatable,
        others: seen.others,
        free: minus(seen.node.allocatable, taken),
        ports: seen.ports.clone(),
        ports_free: seen.ports.values().map(|count| count.free).sum(),
        servers: i64::try_from(seen.servers.len()).unwrap_or(i64::MAX),
        allocated: servers_by_state.get(&State::Allocated).copied().unwrap_or_default(),
        servers_by_state,
    }
}

fn phase(seen: &Seen<'_>) -> (NodePhase, Option<String>) {
    let for_reason = |phase, reason: &str| (phase, Some(reason.to_owned()));
    if seen.epoch.is_none() {
        return for_reason(NodePhase::Starting, "the agent does not hold the node lease");
    }
    if !seen.adopted {
        return for_reason(NodePhase::Starting, "the agent is looking at what is here");
    }
    match seen.course {
        Course::Spare { notice, .. } => return for_reason(NodePhase::Idle, &notice.reason),
        Course::Draining { notice } => return for_reason(NodePhase::Draining, &notice.reason),
        Course::Drained { notice } => return for_reason(NodePhase::Drained, &notice.reason),
        Course::Closed { notice, .. } => return for_reason(NodePhase::Cordoned, &notice.reason),
        Course::Open => {}
    }
    if let Offers::Withheld { why } = &seen.standing.offers {
        return for_reason(NodePhase::Starting, why);
    }
    if seen.node.is_cordoned {
        return for_reason(NodePhase::Cordoned, "the Node is marked unschedulable");
    }
    (NodePhase::Active, None)
}

/// Numbers about the GameNode.
#[derive(Clone, Debug, Default)]
pub struct StatusMetrics {
    /// Writes.
    pub writes: Counter,
    /// Writes that failed.
    pub failures: Counter,
    /// Unix time of the last write.
    pub last_success: Gauge,
}

impl StatusMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        let new = Self::default();
        Self {
            writes: subsystem.register("writes", "Writes of the GameNode's status", new.writes),
            failures: subsystem.register(
                "failures",
                "Writes of the GameNode's status that failed",
                new.failures,
            ),
            last_success: subsystem.register(
                "last_success_timestamp_seconds",
                "When the GameNode's status was last written, in Unix time",
                new.last_success,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_api::game_node::{GameNodeStatus, NodePhase, Room};
    use berth_api::node_lease::Epoch;
    use jiff::Timestamp;

    use super::{Seen, picture};
    use crate::drain::Course;
    use crate::fleetiq::Standing;
    use crate::identity::Identity;
    use crate::node::NodeFacts;

    #[test]
    fn the_phase_follows_lease_adoption_and_cordon() {
        let identity =
            Identity { node: "n".into(), node_uid: "u".into(), boot_id: "b".into(), process_id: "p".into() };
        let table = [
            (None, true, false, NodePhase::Starting),
            (Some(Epoch(3)), false, false, NodePhase::Starting),
            (Some(Epoch(3)), true, false, NodePhase::Active),
            (Some(Epoch(3)), true, true, NodePhase::Cordoned),
        ];
        let room = |milli_cpu, pods| Room { milli_cpu, memory_bytes: 0, pods };
        for (epoch, adopted, is_cordoned, expected) in table {
            let node = NodeFacts { is_cordoned, allocatable: room(4000, 10), ..NodeFacts::default() };
            let seen = Seen {
                identity: &identity,
                node: &node,
                course: &Course::Open,
                question: None,
                releases_idle: true,
                standing: &Standing::default(),
                epoch,
                adopted,
                ports: &BTreeMap::new(),
                others: room(500, 2),
                games: room(1000, 3),
                servers: &BTreeMap::new(),
            };
            let first = picture(seen, &GameNodeStatus::default(), Timestamp::UNIX_EPOCH);
            assert_eq!(first.phase, expected);
            assert_eq!(first.free, room(2500, 5));
            let later = picture(seen, &first, Timestamp::MAX);
            assert_eq!(later, first, "a picture without news is the same picture");
        }
    }
}
