//! The states of a game server, the moves between them, and what each state means to the rest of the system.
//!
//! ```text
//!            brain          agent            game: Ready()
//! (create) ────────▶ Creating ────▶ Scheduled ────────────▶ Ready ◀──────────┐
//!                       │               │                   │  ▲             │ Ready(), timer
//!                       │ no pod can    │ pod failed,       │  │ Ready()     │
//!                       │ be made       │ pings missed      ▼  │             ▼
//!                       └──▶ Error      └──▶ Unhealthy ◀── Allocated ◀──▶ Reserved
//!                              │                │              │             │
//!                              └────────────────┴───▶ Shutdown ◀─────────────┘   then the object is deleted
//! ```
//!
//! `PortAllocation`, `Starting` and `RequestReady` are never written by Berth and obeyed where another writer used them.
//! The rules are those of `agones.dev/v1`; a user may write any state by hand, so [`State::may_become`] tells what our
//! own programs may write, not what they may meet.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// State of a game server, as in `status.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Written by others only: the server waits for host ports.
    PortAllocation,
    /// The server has no pod yet.
    Creating,
    /// Written by others only: the pod exists, its address is not known.
    Starting,
    /// The pod is on a node, ports and address are known, the game has not called Ready.
    Scheduled,
    /// Written by others only: the game has called Ready.
    RequestReady,
    /// The game waits for players and may be allocated.
    Ready,
    /// Players are, or are about to be, on it.
    Allocated,
    /// Set aside by the game, for a while or for good.
    Reserved,
    /// The game has failed and will be replaced.
    Unhealthy,
    /// No pod could be made from what the user wrote.
    Error,
    /// The server is to be deleted.
    Shutdown,
}

impl State {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 11] = [
        Self::PortAllocation,
        Self::Creating,
        Self::Starting,
        Self::Scheduled,
        Self::RequestReady,
        Self::Ready,
        Self::Allocated,
        Self::Reserved,
        Self::Unhealthy,
        Self::Error,
        Self::Shutdown,
    ];

    /// The word used in `status.state`, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PortAllocation => "PortAllocation",
            Self::Creating => "Creating",
            Self::Starting => "Starting",
            Self::Scheduled => "Scheduled",
            Self::RequestReady => "RequestReady",
            Self::Ready => "Ready",
            Self::Allocated => "Allocated",
            Self::Reserved => "Reserved",
            Self::Unhealthy => "Unhealthy",
            Self::Error => "Error",
            Self::Shutdown => "Shutdown",
        }
    }

    /// The game has not been Ready yet.
    pub const fn is_before_ready(self) -> bool {
        match self {
            Self::PortAllocation | Self::Creating | Self::Starting | Self::Scheduled | Self::RequestReady => {
                true
            }
            Self::Ready
            | Self::Allocated
            | Self::Reserved
            | Self::Unhealthy
            | Self::Error
            | Self::Shutdown => false,
        }
    }

    /// Nothing but deletion follows.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Unhealthy | Self::Error | Self::Shutdown)
    }

    /// A session that neither scaling nor draining may end.
    pub const fn is_protected(self) -> bool {
        matches!(self, Self::Allocated | Self::Reserved)
    }

    /// A pod belongs to a server in this state; its absence is a failure.
    pub const fn expects_pod(self) -> bool {
        match self {
            Self::Scheduled | Self::RequestReady | Self::Ready | Self::Allocated | Self::Reserved => true,
            Self::PortAllocation | Self::Creating | Self::Starting => false,
            Self::Unhealthy | Self::Error | Self::Shutdown => false,
        }
    }

    /// How long a server may stay before it is given up; `None` where only the game, a player or a user decides.
    pub const fn time_allowed(self) -> Option<Duration> {
        match self {
            Self::PortAllocation | Self::Creating | Self::Starting => Some(Duration::from_secs(5 * 60)),
            Self::RequestReady => Some(Duration::from_secs(60)),
            Self::Scheduled | Self::Ready | Self::Allocated | Self::Reserved => None,
            Self::Unhealthy | Self::Error | Self::Shutdown => None,
        }
    }

    /// Whether one of our programs may write `next` over this state.
    pub const fn may_become(self, next: Self) -> bool {
        match next {
            Self::PortAllocation | Self::Starting | Self::RequestReady | Self::Creating => false,
            Self::Scheduled => matches!(self, Self::PortAllocation | Self::Creating | Self::Starting),
            Self::Ready => {
                matches!(self, Self::Scheduled | Self::RequestReady | Self::Allocated | Self::Reserved)
            }
            Self::Allocated | Self::Reserved => {
                matches!(
                    self,
                    Self::Scheduled | Self::RequestReady | Self::Ready | Self::Allocated | Self::Reserved
                )
            }
            Self::Unhealthy => !self.is_terminal(),
            Self::Error => matches!(self, Self::PortAllocation | Self::Creating | Self::Starting),
            Self::Shutdown => !matches!(self, Self::Shutdown),
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    #[test]
    fn the_word_is_what_serde_writes() {
        for state in State::ALL {
            assert_eq!(serde_json::json!(state), serde_json::json!(state.as_str()));
        }
    }

    #[test]
    fn every_legal_move_is_listed_and_nothing_else() {
        use State::{
            Allocated, Creating, Error, PortAllocation, Ready, RequestReady, Reserved, Scheduled, Shutdown,
        };
        use State::{Starting, Unhealthy};
        let table: [(State, &[State]); 11] = [
            (PortAllocation, &[Scheduled, Unhealthy, Error, Shutdown]),
            (Creating, &[Scheduled, Unhealthy, Error, Shutdown]),
            (Starting, &[Scheduled, Unhealthy, Error, Shutdown]),
            (Scheduled, &[Ready, Allocated, Reserved, Unhealthy, Shutdown]),
            (RequestReady, &[Ready, Allocated, Reserved, Unhealthy, Shutdown]),
            (Ready, &[Allocated, Reserved, Unhealthy, Shutdown]),
            (Allocated, &[Ready, Allocated, Reserved, Unhealthy, Shutdown]),
            (Reserved, &[Ready, Allocated, Reserved, Unhealthy, Shutdown]),
            (Unhealthy, &[Shutdown]),
            (Error, &[Shutdown]),
            (Shutdown, &[]),
        ];
        for (from, allowed) in table {
            for to in State::ALL {
                assert_eq!(from.may_become(to), allowed.contains(&to), "{from} to {to}");
            }
        }
    }

    #[test]
    fn the_groups_do_not_overlap_where_they_must_not() {
        for state in State::ALL {
            assert!(!(state.is_before_ready() && state.is_terminal()), "{state}");
            assert!(!(state.is_protected() && state.is_before_ready()), "{state}");
            assert!(!(state.expects_pod() && state.is_terminal()), "{state}");
        }
    }
}
