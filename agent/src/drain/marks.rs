//! What a Node's annotations say of its drain and of its standing with FleetIQ. Pure.
//!
//! They are the durable record: a restarted agent goes on from them. A copy is on disk ([`super::backup`]), for a Node
//! object that is deleted and made again.

use std::collections::BTreeMap;
use std::fmt;

use berth_api::game_node::Protection;
use berth_api::names;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Course;
use super::notice::Notice;
use crate::fleetiq::Standing;

/// Version of the notices' format.
const FORMAT_VERSION: u32 = 1;

/// How far the node's life with FleetIQ, or its drain, has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// FleetIQ knows the instance, and may take it away.
    Registered,
    /// FleetIQ keeps the instance.
    Active,
    /// The node is being emptied.
    Draining,
    /// Nothing is left to protect.
    Drained,
    /// FleetIQ has the instance back.
    Deregistered,
    /// The instance is certain to end, and is being emptied.
    Terminating,
}

impl Phase {
    const ALL: [Self; 6] = [
        Self::Registered,
        Self::Active,
        Self::Draining,
        Self::Drained,
        Self::Deregistered,
        Self::Terminating,
    ];

    /// The word in the annotation.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Registered => "Registered",
            Self::Active => "Active",
            Self::Draining => "Draining",
            Self::Drained => "Drained",
            Self::Deregistered => "Deregistered",
            Self::Terminating => "Terminating",
        }
    }

    /// Whether the node has been closed by a drain.
    #[must_use]
    pub const fn is_of_drain(self) -> bool {
        match self {
            Self::Draining | Self::Drained | Self::Deregistered | Self::Terminating => true,
            Self::Registered | Self::Active => false,
        }
    }

    /// The phase of a node on this course, in this standing.
    #[must_use]
    pub fn of(course: &Course, protection: Protection) -> Option<Self> {
        match course {
            Course::Draining { .. } if course.is_terminating() => Some(Self::Terminating),
            Course::Draining { .. } => Some(Self::Draining),
            Course::Drained { .. } if protection == Protection::Released => Some(Self::Deregistered),
            Course::Drained { .. } => Some(Self::Drained),
            // Whoever finds this mark goes on to rest: what was given back for it is registered again.
            Course::Spare { is_empty: true, .. } => match protection {
                Protection::NotConfigured => None,
                Protection::Protected | Protection::Missing => Some(Self::Active),
                Protection::Unregistered | Protection::Registered | Protection::Released => {
                    Some(Self::Registered)
                }
            },
            Course::Open | Course::Closed { .. } | Course::Spare { is_empty: false, .. } => {
                match protection {
                    Protection::NotConfigured | Protection::Unregistered => None,
                    Protection::Registered => Some(Self::Registered),
                    // What FleetIQ has lost is registered again; what the node is for has not changed.
                    Protection::Protected | Protection::Missing => Some(Self::Active),
                    Protection::Released => Some(Self::Deregistered),
                }
            }
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// The marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Marks {
    /// How far it has come.
    pub phase: Option<Phase>,
    /// Since when.
    pub phase_since: Option<Timestamp>,
    /// The instance that they are about.
    pub instance: Option<String>,
    /// Its game server group.
    pub group: Option<String>,
    /// Why the node drains.
    pub reason: Option<String>,
    /// When it will be gone.
    pub deadline: Option<Timestamp>,
    /// The kernel's boot in which the notices were heard.
    pub boot_id: Option<String>,
    /// The notices that must outlive the agent.
    pub notices: Vec<Notice>,
}

/// What stands in the annotation of the notices.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Noted {
    version: u32,
    boot_id: String,
    notices: Vec<Notice>,
}

impl Marks {
    /// Reads annotations. What cannot be read is as good as absent, and is written anew.
    #[must_use]
    pub fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let get = |name: &str| annotations.and_then(|all| all.get(name)).cloned();
        let time = |name: &str| get(name).and_then(|text| text.parse().ok());
        let noted = get(names::NODE_NOTICES_ANNOTATION)
            .and_then(|text| serde_json::from_str::<Noted>(&text).ok())
            .filter(|noted| noted.version == FORMAT_VERSION);
        let (boot_id, notices) = noted.map(|noted| (noted.boot_id, noted.notices)).unzip();
        let phase = get(names::NODE_PHASE_ANNOTATION);
        Self {
            phase: phase.and_then(|word| Phase::ALL.into_iter().find(|phase| phase.word() == word)),
            phase_since: time(names::NODE_PHASE_SINCE_ANNOTATION),
            instance: get(names::NODE_INSTANCE_ANNOTATION),
            group: get(names::NODE_GROUP_ANNOTATION),
            reason: get(names::NODE_DRAIN_REASON_ANNOTATION),
            deadline: time(names::NODE_DEADLINE_ANNOTATION),
            boot_id,
            notices: notices.unwrap_or_default(),
        }
    }

    /// What they are to say now. The time of a phase that goes on is kept from before.
    #[must_use]
    pub fn due(
        course: &Course,
        standing: &Standing,
        notices: Vec<Notice>,
        before: &Self,
        at: At<'_>,
    ) -> Self {
        let phase = Phase::of(course, standing.protection);
        let since = before.phase_since.filter(|_| before.phase == phase).unwrap_or(at.now);
        let draining = course.notice().filter(|_| phase.is_some_and(Phase::is_of_drain));
        Self {
            phase,
            phase_since: phase.is_some().then_some(since),
            // Which instance and group these are is not forgotten while they are looked for again.
            instance: standing.instance.clone().or_else(|| before.instance.clone()),
            group: standing.group.clone().or_else(|| before.group.clone()),
            reason: draining.map(|notice| notice.reason.clone()),
            deadline: draining.and_then(|notice| notice.deadline),
            boot_id: (!notices.is_empty()).then(|| at.boot_id.to_owned()),
            notices,
        }
    }

    /// As annotations; none where one is to be taken off.
    #[must_use]
    pub fn annotations(&self) -> [(&'static str, Option<String>); 7] {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let noted = self.boot_id.clone().filter(|_| !self.notices.is_empty()).and_then(|boot_id| {
            let noted = Noted { version: FORMAT_VERSION, boot_id, notices: self.notices.clone() };
            serde_json::to_string(&noted).ok()
        });
        [
            (names::NODE_PHASE_ANNOTATION, self.phase.map(|phase| phase.word().to_owned())),
            (names::NODE_PHASE_SINCE_ANNOTATION, time(self.phase_since)),
            (names::NODE_INSTANCE_ANNOTATION, self.instance.clone()),
            (names::NODE_GROUP_ANNOTATION, self.group.clone()),
            (names::NODE_DRAIN_REASON_ANNOTATION, self.reason.clone()),
            (names::NODE_DEADLINE_ANNOTATION, time(self.deadline)),
            (names::NODE_NOTICES_ANNOTATION, noted),
        ]
    }

    /// The notices that still hold. Under another instance none does, and after another start of the machine only what an
    /// operator has ordered.
    #[must_use]
    pub fn holding(&self, instance: Option<&str>, boot_id: &str) -> Vec<Notice> {
        if !self.is_about(instance) {
            return Vec::new();
        }
        let is_this_boot = self.boot_id.as_deref() == Some(boot_id);
        let holds = |notice: &&Notice| is_this_boot || notice.source.is_order();
        self.notices.iter().filter(holds).cloned().collect()
    }

    /// Whether they may be about this instance: where either is unknown, they may.
    #[must_use]
    pub fn is_about(&self, instance: Option<&str>) -> bool {
        match (&self.instance, instance) {
            (Some(marked), Some(instance)) => marked == instance,
            (None, _) | (_, None) => true,
        }
    }
}

/// When, and in which start of the machine.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The kernel's boot.
    pub boot_id: &'a str,
    /// The time.
    pub now: Timestamp,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_api::game_node::Protection;
    use jiff::Timestamp;

    use super::{At, Marks, Phase};
    use crate::drain::Course;
    use crate::drain::notice::{Notice, Severity, Source};
    use crate::fleetiq::Standing;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn notice(source: Source, severity: Severity) -> Notice {
        Notice { source, severity, reason: "because".into(), deadline: Some(at(900)) }
    }

    fn annotated(marks: &Marks) -> BTreeMap<String, String> {
        let set = marks.annotations().into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        set.collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let notices = vec![
            notice(Source::Socket, Severity::Ordered),
            notice(Source::Scheduled("event-1".into()), Severity::Scheduled),
        ];
        let standing = Standing {
            protection: Protection::Protected,
            instance: Some("i-1".into()),
            group: Some("pvp".into()),
            ..Standing::default()
        };
        let course = Course::Draining { notice: notices[0].clone() };
        let now = At { boot_id: "b", now: at(5) };
        let marks = Marks::due(&course, &standing, notices, &Marks::default(), now);
        assert_eq!((marks.phase, marks.deadline), (Some(Phase::Draining), Some(at(900))));
        assert_eq!(Marks::read(Some(&annotated(&marks))), marks);
        let later = Marks::due(&course, &standing, marks.notices.clone(), &marks, At { now: at(9), ..now });
        assert_eq!(later, marks, "a phase that goes on keeps its time");
    }

    #[test]
    fn without_fleetiq_and_without_a_drain_a_node_has_no_marks() {
        let closed = Course::Closed { notice: notice(Source::Cordon, Severity::Cordoned), let_go_at: at(30) };
        for course in [Course::Open, closed] {
            let now = At { boot_id: "b", now: at(5) };
            let marks = Marks::due(&course, &Standing::default(), Vec::new(), &Marks::default(), now);
            assert_eq!(annotated(&marks), BTreeMap::new(), "{course:?}");
        }
        assert_eq!(Marks::read(None), Marks::default());
    }

    #[test]
    fn marks_that_nobody_can_read_are_as_good_as_none() {
        let marks = Marks::read(Some(&BTreeMap::from([
            ("gamelift.status/phase".to_owned(), "Dancing".to_owned()),
            ("gamelift.status/deadline".to_owned(), "soon".to_owned()),
            ("berth.dev/notices".to_owned(), "{".to_owned()),
        ])));
        assert_eq!(marks, Marks::default());
    }

    #[test]
    fn notices_hold_for_their_instance_and_orders_for_any_boot() {
        let marks = Marks {
            instance: Some("i-1".into()),
            boot_id: Some("b".into()),
            notices: vec![notice(Source::Spot, Severity::Spot), notice(Source::Socket, Severity::Ordered)],
            ..Marks::default()
        };
        let table =
            [(Some("i-1"), "b", 2), (None, "b", 2), (Some("i-2"), "b", 0), (Some("i-1"), "another boot", 1)];
        for (instance, boot_id, expected) in table {
            assert_eq!(marks.holding(instance, boot_id).len(), expected, "{instance:?} {boot_id}");
        }
    }

    #[test]
    fn the_phase_follows_course_and_standing() {
        let spare = |is_empty| Course::Spare { notice: notice(Source::Surplus, Severity::Surplus), is_empty };
        let drained = || Course::Drained { notice: notice(Source::FleetIq, Severity::Draining) };
        let table = [
            (Course::Open, Protection::Unregistered, None),
            (Course::Open, Protection::Registered, Some(Phase::Registered)),
            (Course::Open, Protection::Protected, Some(Phase::Active)),
            (Course::Open, Protection::Missing, Some(Phase::Active)),
            (
                Course::Draining { notice: notice(Source::FleetIq, Severity::Draining) },
                Protection::Protected,
                Some(Phase::Draining),
            ),
            (
                Course::Draining { notice: notice(Source::Spot, Severity::Spot) },
                Protection::Protected,
                Some(Phase::Terminating),
            ),
            (drained(), Protection::Protected, Some(Phase::Drained)),
            (drained(), Protection::Released, Some(Phase::Deregistered)),
            (spare(false), Protection::Protected, Some(Phase::Active)),
            (spare(true), Protection::Protected, Some(Phase::Active)),
            // Whoever comes next finds out whether it is registered already.
            (spare(true), Protection::Released, Some(Phase::Registered)),
            (spare(true), Protection::Unregistered, Some(Phase::Registered)),
            (spare(true), Protection::Registered, Some(Phase::Registered)),
        ];
        for (course, protection, expected) in table {
            assert_eq!(Phase::of(&course, protection), expected, "{course:?} {protection:?}");
        }
    }
}
