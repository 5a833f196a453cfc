//! What is said over the local socket, and how it looks as a table. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use berth_api::game_node::{GameNodeStatus, PortCount, Room};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::drain::{DrainAnswer, DrainRequest, DrainView, FleetIqView, PlanView, Session, Told};
pub use self::hook::HookView;
use crate::drain::Course;
use crate::fleetiq::Standing;
use crate::game_server::{Amount, Line};
use crate::hook::Holding;

mod drain;
mod hook;

/// Version of what is said.
pub const FORMAT_VERSION: u32 = 1;

/// Answer to `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Version of this format.
    pub version: u32,
    /// Version of the agent.
    pub agent_version: String,
    /// Name of the node.
    pub node: String,
    /// UID of the Node object.
    pub node_uid: String,
    /// Kernel boot.
    pub boot_id: String,
    /// Phase of the node.
    pub phase: String,
    /// RFC 3339 time since when.
    pub phase_since: Option<String>,
    /// Why.
    pub phase_reason: Option<String>,
    /// The node lease.
    pub lease: LeaseView,
    /// What the node is for, and why it is not open.
    #[serde(default)]
    pub drain: DrainView,
    /// The standing with FleetIQ.
    #[serde(default)]
    pub fleetiq: FleetIqView,
    /// The lifecycle hook, where one is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle_hook: Option<HookView>,
    /// Host ports by range.
    pub ports: BTreeMap<String, PortCount>,
    /// What pods may use in all.
    pub allocatable: Room,
    /// What is left.
    pub free: Room,
    /// The game servers.
    pub servers: Vec<Line>,
}

/// The node lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// Whether this agent holds it.
    pub held: bool,
    /// Its epoch.
    pub epoch: i32,
    /// For how much longer, in milliseconds.
    pub remaining_milliseconds: u64,
}

/// What the answer is put together from beside the picture.
#[derive(Clone, Debug)]
pub struct Heard<'a> {
    /// The node lease.
    pub lease: LeaseView,
    /// What the node is for.
    pub course: &'a Course,
    /// The standing with FleetIQ.
    pub standing: &'a Standing,
    /// How a lifecycle hook stands.
    pub holding: &'a Holding,
}

impl Status {
    /// Puts the answer together from the node's picture and its servers.
    pub fn new(node: &str, picture: &GameNodeStatus, heard: Heard<'_>, servers: Vec<Line>) -> Self {
        let picture = picture.clone();
        let Heard { lease, course, standing, holding } = heard;
        Self {
            version: FORMAT_VERSION,
            agent_version: picture.agent_version,
            node: node.to_owned(),
            node_uid: picture.node_uid,
            boot_id: picture.boot_id,
            phase: format!("{:?}", picture.phase),
            phase_since: picture.phase_since,
            phase_reason: picture.phase_reason,
            lease,
            drain: DrainView::new(course),
            fleetiq: FleetIqView::new(standing),
            lifecycle_hook: HookView::new(holding),
            ports: picture.ports,
            allocatable: picture.allocatable,
            free: picture.free,
            servers,
        }
    }

    /// As a table for a person.
    pub fn table(&self, now: Timestamp) -> String {
        let mut text = String::new();
        let reason = self.phase_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let lease = if self.lease.held {
            format!(
                "held, epoch {}, {:.1} s left",
                self.lease.epoch,
                std::time::Duration::from_millis(self.lease.remaining_milliseconds).as_secs_f32()
            )
        } else {
            "not held".to_owned()
        };
        let ranges: Vec<String> = self
            .ports
            .iter()
            .map(|(name, count)| format!("{name} {} of {} free", count.free, count.total))
            .collect();
        let hook = self.lifecycle_hook.as_ref().map(|hook| ("Hook", hook.line(now)));
        let first = [
            ("Node", self.node.clone()),
            ("Phase", format!("{}{reason}, for {}", self.phase, age(self.phase_since.as_deref(), now))),
            ("Lease", lease),
            ("FleetIQ", self.fleetiq.line(now)),
        ];
        let rest = [
            ("Drain", self.drain.line(now)),
            ("Ports", ranges.join("; ")),
            (
                "Room",
                format!(
                    "{} of {} mCPU, {} of {} MiB, {} of {} pods free",
                    self.free.milli_cpu,
                    self.allocatable.milli_cpu,
                    self.free.memory_bytes >> 20,
                    self.allocatable.memory_bytes >> 20,
                    self.free.pods,
                    self.allocatable.pods
                ),
            ),
            ("Agent", self.agent_version.clone()),
        ];
        for (name, value) in first.into_iter().chain(hook).chain(rest) {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{:<9}{value}", format!("{name}:"));
        }
        let _ = writeln!(text, "Servers: {}", self.servers.len());
        if !self.servers.is_empty() {
            text.push('\n');
            text.push_str(&columns(&self.rows(now)));
        }
        text
    }

    fn rows(&self, now: Timestamp) -> Vec<[String; 8]> {
        let head =
            ["NAMESPACE", "NAME", "STATE", "SINCE", "PORTS", "SDK", "PLAYERS", "REASON"].map(str::to_owned);
        let rows = self.servers.iter().map(|line| {
            let ports: Vec<String> = line.ports.iter().map(|port| port.port.to_string()).collect();
            let deleting = if line.deleting { " (deleting)" } else { "" };
            [
                line.namespace.clone(),
                line.name.clone(),
                format!("{}{deleting}", line.state),
                age(Some(&line.since), now),
                if ports.is_empty() { "-".to_owned() } else { ports.join(",") },
                line.sdk.clone(),
                amounts(line),
                line.reason.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        });
        std::iter::once(head).chain(rows).collect()
    }
}

/// Players, then what else the game counts.
fn amounts(line: &Line) -> String {
    let of = |amount: &Amount| format!("{}/{}", amount.count, amount.capacity);
    let players = line.players.iter().map(of);
    let others = line.amounts.iter().map(|(name, amount)| format!("{name} {}", of(amount)));
    let all: Vec<String> = players.chain(others).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

fn columns(rows: &[[String; 8]]) -> String {
    let mut widths = [0; 8];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// How long ago, as kubectl says it.
fn age(since: Option<&str>, now: Timestamp) -> String {
    match since.and_then(|since| since.parse::<Timestamp>().ok()) {
        Some(since) => length(now.duration_since(since).as_secs()),
        None => "-".to_owned(),
    }
}

fn length(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use berth_api::game_node::{GameNodeStatus, NodePhase, PortCount, Protection};
    use berth_api::game_server::StatusPort;
    use berth_api::lifecycle::State;
    use jiff::Timestamp;

    use super::{Heard, LeaseView, Status};
    use crate::drain::Course;
    use crate::drain::notice::{Notice, Severity, Source};
    use crate::fleetiq::Standing;
    use crate::game_server::{Amount, Line};
    use crate::hook::Holding;

    #[test]
    fn the_table_says_what_the_person_on_call_asks() {
        let picture = GameNodeStatus {
            phase: NodePhase::Active,
            phase_since: Some("1970-01-01T00:00:00Z".into()),
            agent_version: "0.1.0".into(),
            ports: [("default".to_owned(), PortCount { total: 1001, free: 1000 })].into(),
            ..GameNodeStatus::default()
        };
        let line = Line {
            namespace: "games".into(),
            name: "lobby".into(),
            uid: "u".into(),
            state: State::Unhealthy,
            since: "1970-01-01T00:01:00Z".into(),
            deleting: false,
            address: "10.0.0.1".into(),
            ports: vec![StatusPort { name: None, port: 7000 }],
            pod: Some("p".into()),
            sdk: "open".into(),
            reason: Some("PingsMissed: 3 health pings in a row were missed".into()),
            players: Some(Amount { count: 3, capacity: 16 }),
            amounts: [("rooms".to_owned(), Amount { count: 1, capacity: 4 })].into(),
            history: Vec::new(),
        };
        let lease = LeaseView { held: true, epoch: 4, remaining_milliseconds: 7500 };
        let at = |second| Timestamp::from_second(second).expect("a time");
        let course = Course::Draining {
            notice: Notice {
                source: Source::Spot,
                severity: Severity::Spot,
                reason: "EC2 interrupts the instance".into(),
                deadline: Some(at(190)),
            },
        };
        let standing = Standing {
            protection: Protection::Protected,
            group: Some("pvp".into()),
            instance: Some("i-1".into()),
            last_beat: Some(at(70)),
            ..Standing::default()
        };
        let holding = Holding { hook: "drain".parse().ok(), ..Holding::default() };
        let heard = Heard { lease, course: &course, standing: &standing, holding: &holding };
        let status = Status::new("node-1", &picture, heard, vec![line]);
        let now = Timestamp::from_second(100).expect("a time");
        assert_eq!(
            status.table(now),
            "Node:    node-1\n\
             Phase:   Active, for 100s\n\
             Lease:   held, epoch 4, 7.5 s left\n\
             FleetIQ: Protected, i-1 in pvp, last beat 30s ago\n\
             Hook:    idle, drain\n\
             Drain:   draining (EC2 interrupts the instance), gone in 90s at 1970-01-01T00:03:10Z\n\
             Ports:   default 1000 of 1001 free\n\
             Room:    0 of 0 mCPU, 0 of 0 MiB, 0 of 0 pods free\n\
             Agent:   0.1.0\n\
             Servers: 1\n\
             \n\
             NAMESPACE  NAME   STATE      SINCE  PORTS  SDK   PLAYERS          REASON\n\
             games      lobby  Unhealthy  40s    7000   open  3/16, rooms 1/4  PingsMissed: 3 health pings in a row were missed\n"
        );
    }
}
