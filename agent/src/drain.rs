//! How a node is emptied without cutting a session.
//!
//! Who has something to say about the node's end raises a [`notice::Notice`]. They merge into one [`Course`], which the
//! drainer alone writes and everybody else reads: the GameNode's phase, every server's worker, and FleetIQ's registrar.

use jiff::Timestamp;

pub mod backup;
pub mod drainer;
pub mod exposure;
pub mod idle;
pub mod marks;
pub mod memory;
pub mod metrics;
pub mod node;
pub mod notice;
pub mod orders;
pub mod plan;
pub mod sources;

use notice::Notice;

/// What the node is for at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Course {
    /// Servers come and stay.
    #[default]
    Open,
    /// Nothing new comes. Sessions stay, and so does the registration; it walks back when the notice does.
    Closed {
        /// Why.
        notice: Notice,
        /// From when on servers without a session are let go.
        let_go_at: Timestamp,
    },
    /// Nobody needs its servers: they go at once, and the instance may be taken away until somebody does. It walks back
    /// when the notice does, and when a session is on the node after all.
    Spare {
        /// Why.
        notice: Notice,
        /// Nothing is left on it.
        is_empty: bool,
    },
    /// The node is being emptied: servers without a session go at once, sessions until they end.
    Draining {
        /// Why, with the earliest deadline that is known.
        notice: Notice,
    },
    /// No game server's pod is left.
    Drained {
        /// Why.
        notice: Notice,
    },
}

impl Course {
    /// Why the node is not open.
    #[must_use]
    pub fn notice(&self) -> Option<&Notice> {
        match self {
            Self::Open => None,
            Self::Closed { notice, .. }
            | Self::Spare { notice, .. }
            | Self::Draining { notice }
            | Self::Drained { notice } => Some(notice),
        }
    }

    /// A short fixed word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed { .. } => "closed",
            Self::Spare { .. } => "spare",
            Self::Draining { .. } => "draining",
            Self::Drained { .. } => "drained",
        }
    }

    /// Whether FleetIQ may have the instance back.
    #[must_use]
    pub fn releases(&self) -> bool {
        matches!(self, Self::Drained { notice } if notice.severity.releases())
    }

    /// Whether nobody needs the node.
    #[must_use]
    pub fn is_spare(&self) -> bool {
        matches!(self, Self::Spare { .. })
    }

    /// Whether nobody needs the node, and nothing is left on it: the instance may be taken away, and may come back.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self, Self::Spare { is_empty: true, .. })
    }

    /// Whether the instance is certain to end, so that nothing is begun on it any more.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.notice().is_some_and(|notice| notice.severity >= notice::Severity::AutoScaling)
    }
}
