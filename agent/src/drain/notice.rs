//! One kind of notice for everything that says that the node will go. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Who says so. Each source has one notice at most.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// FleetIQ's status of the instance, over Redis or asked for.
    FleetIq,
    /// The instance's metadata: a Spot interruption.
    Spot,
    /// The instance's metadata: a recommendation to rebalance.
    Rebalance,
    /// The instance's metadata: Auto Scaling's target state of its lifecycle.
    Lifecycle,
    /// The instance's metadata: a scheduled event, by its id.
    Scheduled(String),
    /// Somebody else has closed the Node for new pods.
    Cordon,
    /// An autoscaler's taint of a node that it deletes, by its key.
    Autoscaler(String),
    /// The brain, in the GameNode's spec: the servers here are needed nowhere, or have room elsewhere.
    Surplus,
    /// An operator, over the local socket.
    Socket,
    /// An operator, in the GameNode's spec.
    GameNode,
    /// An operator, in an annotation of the Node.
    Annotation,
}

impl Source {
    /// Whether what it says is never taken back: a later denial is counted and not believed.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::FleetIq | Self::Spot | Self::Lifecycle)
    }

    /// Whether its notice must outlive the agent: whoever comes next could not find it out at once.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        match self {
            Self::FleetIq
            | Self::Spot
            | Self::Lifecycle
            | Self::Scheduled(_)
            | Self::Surplus
            | Self::Socket
            | Self::GameNode => true,
            Self::Rebalance | Self::Cordon | Self::Autoscaler(_) | Self::Annotation => false,
        }
    }

    /// Whether an operator says so.
    #[must_use]
    pub const fn is_order(&self) -> bool {
        matches!(self, Self::Socket | Self::GameNode | Self::Annotation)
    }

    /// A short fixed word for metrics and Events.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::FleetIq => "fleetiq",
            Self::Spot => "spot",
            Self::Rebalance => "rebalance",
            Self::Lifecycle => "lifecycle",
            Self::Scheduled(_) => "scheduled",
            Self::Cordon => "cordon",
            Self::Autoscaler(_) => "autoscaler",
            Self::Surplus => "surplus",
            Self::Socket => "socket",
            Self::GameNode => "game_node",
            Self::Annotation => "annotation",
        }
    }
}

/// How grave it is; the gravest decides what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The instance may be rebalanced: told, nothing else, unless a setting asks for more.
    Advice,
    /// Nobody needs the node for now.
    Surplus,
    /// Closed by somebody else.
    Cordoned,
    /// An event of EC2's is near.
    Scheduled,
    /// An autoscaler will delete the node. It drains, and is not given back.
    Claimed,
    /// An operator wants it empty.
    Ordered,
    /// FleetIQ no longer wants players on it.
    Draining,
    /// Auto Scaling ends it.
    AutoScaling,
    /// EC2 interrupts it.
    Spot,
}

impl Severity {
    /// Whether the node is emptied for it.
    #[must_use]
    pub fn drains(self) -> bool {
        self >= Self::Scheduled
    }

    /// Whether FleetIQ may have the instance back once it is empty.
    #[must_use]
    pub fn releases(self) -> bool {
        self.drains() && self != Self::Claimed
    }
}

/// What a source says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Who.
    pub source: Source,
    /// How grave.
    pub severity: Severity,
    /// Why, as a sentence without a full stop.
    pub reason: String,
    /// When the node will be gone, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// News from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It says this, instead of what it said before.
    Raised(Notice),
    /// It says nothing any more.
    Cleared(Source),
}

/// What came of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Something is new.
    News,
    /// It was known.
    Known,
    /// A source took back what is never taken back.
    Denied,
}

/// All that is said at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    by_source: BTreeMap<Source, Notice>,
}

impl Notices {
    /// Takes a signal in. A sticky source only gets graver, and a deadline only comes nearer.
    pub fn hear(&mut self, signal: Signal) -> Heard {
        match signal {
            Signal::Cleared(source) if !self.by_source.contains_key(&source) => Heard::Known,
            Signal::Cleared(source) if source.is_sticky() => Heard::Denied,
            Signal::Cleared(source) => {
                self.by_source.remove(&source);
                Heard::News
            }
            Signal::Raised(mut notice) => {
                if let Some(known) = self.by_source.get(&notice.source) {
                    if notice.source.is_sticky() {
                        if notice.severity < known.severity {
                            return Heard::Denied;
                        }
                        notice.deadline = earliest(known.deadline, notice.deadline);
                    }
                    if *known == notice {
                        return Heard::Known;
                    }
                }
                self.by_source.insert(notice.source.clone(), notice);
                Heard::News
            }
        }
    }

    /// Forgets what a source has said, sticky or not: it was said of another machine.
    pub fn forget(&mut self, source: &Source) {
        self.by_source.remove(source);
    }

    /// The gravest, with the earliest deadline of all that empty the node.
    #[must_use]
    pub fn gravest(&self) -> Option<Notice> {
        let mut gravest = self.by_source.values().max_by_key(|notice| notice.severity)?.clone();
        for notice in self.by_source.values().filter(|notice| notice.severity.drains()) {
            gravest.deadline = earliest(gravest.deadline, notice.deadline);
        }
        Some(gravest)
    }

    /// What this source says.
    #[must_use]
    pub fn of(&self, source: &Source) -> Option<&Notice> {
        self.by_source.get(source)
    }

    /// Those that must outlive the agent.
    #[must_use]
    pub fn kept(&self) -> Vec<Notice> {
        self.iter().filter(|notice| notice.source.is_kept()).cloned().collect()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Notice> {
        self.by_source.values()
    }
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Heard, Notice, Notices, Severity, Signal, Source};

    fn raised(source: Source, severity: Severity, deadline: Option<i64>) -> Signal {
        let deadline = deadline.map(|second| Timestamp::from_second(second).unwrap());
        Signal::Raised(Notice { source, severity, reason: "because".into(), deadline })
    }

    fn gravest(notices: &Notices) -> Option<(Severity, Option<i64>)> {
        notices.gravest().map(|notice| (notice.severity, notice.deadline.map(Timestamp::as_second)))
    }

    #[test]
    fn the_gravest_decides_and_the_earliest_deadline_counts() {
        let mut notices = Notices::default();
        assert_eq!(gravest(&notices), None);
        let signals = [
            (raised(Source::Cordon, Severity::Cordoned, None), Severity::Cordoned, None),
            (raised(Source::Socket, Severity::Ordered, Some(900)), Severity::Ordered, Some(900)),
            (raised(Source::FleetIq, Severity::Draining, None), Severity::Draining, Some(900)),
            (raised(Source::Spot, Severity::Spot, Some(1000)), Severity::Spot, Some(900)),
            (raised(Source::Spot, Severity::Spot, Some(500)), Severity::Spot, Some(500)),
            (Signal::Cleared(Source::Socket), Severity::Spot, Some(500)),
        ];
        for (signal, severity, deadline) in signals {
            assert_eq!(notices.hear(signal.clone()), Heard::News, "{signal:?}");
            assert_eq!(gravest(&notices), Some((severity, deadline)), "{signal:?}");
        }
    }

    #[test]
    fn what_is_sticky_is_not_taken_back_and_its_deadline_does_not_move_away() {
        for source in [Source::FleetIq, Source::Spot, Source::Lifecycle] {
            let mut notices = Notices::default();
            assert_eq!(notices.hear(Signal::Cleared(source.clone())), Heard::Known);
            notices.hear(raised(source.clone(), Severity::AutoScaling, Some(100)));
            assert_eq!(notices.hear(Signal::Cleared(source.clone())), Heard::Denied);
            assert_eq!(notices.hear(raised(source.clone(), Severity::Advice, None)), Heard::Denied);
            assert_eq!(notices.hear(raised(source, Severity::AutoScaling, Some(200))), Heard::Known);
            assert_eq!(gravest(&notices), Some((Severity::AutoScaling, Some(100))));
        }
    }

    #[test]
    fn everything_else_walks_back() {
        let table = [
            (Source::Cordon, Severity::Cordoned),
            (Source::Surplus, Severity::Surplus),
            (Source::Rebalance, Severity::Advice),
            (Source::Scheduled("e".into()), Severity::Scheduled),
            (Source::Autoscaler("k".into()), Severity::Claimed),
            (Source::Socket, Severity::Ordered),
            (Source::GameNode, Severity::Ordered),
            (Source::Annotation, Severity::Ordered),
        ];
        for (source, severity) in table {
            let mut notices = Notices::default();
            notices.hear(raised(source.clone(), severity, Some(100)));
            notices.hear(raised(source.clone(), severity, Some(200)));
            assert_eq!(gravest(&notices).unwrap().0, severity);
            assert_eq!(notices.hear(Signal::Cleared(source)), Heard::News);
            assert_eq!(notices, Notices::default());
        }
    }

    #[test]
    fn only_what_empties_the_node_may_give_the_instance_back() {
        let table = [
            (Severity::Advice, false, false),
            (Severity::Surplus, false, false),
            (Severity::Cordoned, false, false),
            (Severity::Scheduled, true, true),
            (Severity::Claimed, true, false),
            (Severity::Ordered, true, true),
            (Severity::Draining, true, true),
            (Severity::AutoScaling, true, true),
            (Severity::Spot, true, true),
        ];
        for (severity, drains, releases) in table {
            assert_eq!((severity.drains(), severity.releases()), (drains, releases), "{severity:?}");
        }
    }
}
