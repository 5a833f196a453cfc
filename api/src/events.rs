//! Reasons of the Events that Berth writes. Where `agones.dev/v1` has a reason of its own, that one is used.

use crate::lifecycle::State;

/// Reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventReason {
    /// A GameServer went to a state; the reason is the state's name.
    State(State),
    /// A set has created servers (one Event for a batch).
    SuccessfulCreate,
    /// A set has marked servers for deletion (one Event for a batch).
    SuccessfulDelete,
    /// A Fleet has made a set.
    CreatingGameServerSet,
    /// A Fleet has changed the number of servers of a set.
    ScalingGameServerSet,
    /// A Fleet has changed another field of a set.
    UpdatingGameServerSet,
    /// A Fleet has removed a set.
    DeletingGameServerSet,
    /// A node has handed a GameServer back.
    HandedBack,
    /// No node fits.
    NoRoom,
    /// A change asked for by the game was dropped.
    ChangeDropped,
}

impl EventReason {
    /// The word in the Event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::State(state) => state.as_str(),
            Self::SuccessfulCreate => "SuccessfulCreate",
            Self::SuccessfulDelete => "SuccessfulDelete",
            Self::CreatingGameServerSet => "CreatingGameServerSet",
            Self::ScalingGameServerSet => "ScalingGameServerSet",
            Self::UpdatingGameServerSet => "UpdatingGameServerSet",
            Self::DeletingGameServerSet => "DeletingGameServerSet",
            Self::HandedBack => "HandedBack",
            Self::NoRoom => "NoRoom",
            Self::ChangeDropped => "ChangeDropped",
        }
    }

    /// Whether the Event is a Warning.
    pub const fn is_warning(self) -> bool {
        match self {
            Self::State(state) => matches!(state, State::Unhealthy | State::Error),
            Self::HandedBack | Self::NoRoom | Self::ChangeDropped => true,
            Self::SuccessfulCreate
            | Self::SuccessfulDelete
            | Self::CreatingGameServerSet
            | Self::ScalingGameServerSet
            | Self::UpdatingGameServerSet
            | Self::DeletingGameServerSet => false,
        }
    }
}
