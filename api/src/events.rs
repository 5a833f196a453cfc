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
    /// Berth may not write in the namespace.
    NamespaceNotEnabled,
    /// More than one PodDisruptionBudget matches a pod, and so none of its evictions can be decided.
    SeveralDisruptionBudgets,
    /// New servers fail before they are Ready, so that the next ones wait.
    ServersFail,
    /// The agent of a server's node has fallen silent, and the server is replaced.
    NodeSilent,
    /// So many agents have fallen silent together that nothing is taken back.
    NodesSilentTogether,
    /// A GameServer waits for something that does not come.
    NotProgressing,
    /// A counter could not be changed as an allocation asked.
    CounterActionError,
    /// A list could not be changed as an allocation asked.
    ListActionError,
    /// A counter was changed as its game asked.
    UpdateCounter,
    /// A list was changed as its game asked.
    UpdateList,
    /// Players came or left, as the game says.
    PlayerCount,
    /// The room for players was changed as the game asked.
    PlayerCapacity,
    /// An autoscaler's Fleet is not there.
    FailedGetFleet,
    /// An autoscaler's policy has no answer.
    FleetAutoscaler,
    /// An autoscaler has given its Fleet another number.
    AutoScalingFleet,
    /// An autoscaler could not give its Fleet another number.
    AutoScalingFleetError,
    /// A limit of an autoscaler's policy made it decide another number.
    ScalingLimited,
    /// Somebody else has closed a node, and servers without a session will leave it.
    NodeClosed,
    /// Nobody needs a node, and it is let go.
    NodeIdle,
    /// A node is being emptied.
    NodeDraining,
    /// A node is certain to end soon.
    NodeTerminating,
    /// No game server is left on a node that was emptied.
    NodeDrained,
    /// A node takes servers again.
    NodeReopened,
    /// A node has waited for its sessions for long.
    DrainIsLong,
    /// A taint is not put on a node, since it would evict a session.
    TaintWithheld,
    /// A server without a session was removed from a node that is being emptied.
    Withdrawn,
    /// A session was ended because its node ends.
    SessionEnded,
    /// FleetIQ keeps a node's instance.
    Registered,
    /// An instance that FleetIQ had lost is registered again.
    Reregistered,
    /// An instance was given back to FleetIQ.
    Deregistered,
    /// FleetIQ has lost an instance.
    ProtectionLost,
    /// Auto Scaling does not protect an instance that is in use.
    ProtectionMissing,
    /// An instance cannot be registered, or shows no sign of life.
    RegistrationFails,
    /// Servers are offered on a node that FleetIQ does not keep.
    Unprotected,
    /// Nobody publishes the status of an instance.
    StatusStale,
    /// The status of an instance cannot be listened to.
    RedisRefuses,
    /// It is not clear which instance a node is, or of which group.
    IdentityUnclear,
    /// The metadata of an instance do not answer.
    MetadataSilent,
    /// Auto Scaling ends an instance, and waits for its lifecycle hook.
    HookWaits,
    /// A lifecycle hook was told that its instance may end.
    HookCompleted,
    /// A lifecycle hook cannot be answered, or holds nothing.
    HookFails,
    /// Another policy of an autoscaler's chain decides.
    ChainPolicy,
    /// No policy of an autoscaler's chain has an answer.
    ChainPolicyFailed,
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
            Self::NamespaceNotEnabled => "NamespaceNotEnabled",
            Self::SeveralDisruptionBudgets => "SeveralDisruptionBudgets",
            Self::ServersFail => "ServersFail",
            Self::NodeSilent => "NodeSilent",
            Self::NodesSilentTogether => "NodesSilentTogether",
            Self::NotProgressing => "NotProgressing",
            Self::CounterActionError => "CounterActionError",
            Self::ListActionError => "ListActionError",
            Self::UpdateCounter => "UpdateCounter",
            Self::UpdateList => "UpdateList",
            Self::PlayerCount => "PlayerCount",
            Self::PlayerCapacity => "PlayerCapacity",
            Self::FailedGetFleet => "FailedGetFleet",
            Self::FleetAutoscaler => "FleetAutoscaler",
            Self::AutoScalingFleet => "AutoScalingFleet",
            Self::AutoScalingFleetError => "AutoScalingFleetError",
            Self::ScalingLimited => "ScalingLimited",
            Self::NodeClosed => "NodeClosed",
            Self::NodeIdle => "NodeIdle",
            Self::NodeDraining => "Draining",
            Self::NodeTerminating => "Terminating",
            Self::NodeDrained => "Drained",
            Self::NodeReopened => "NodeReopened",
            Self::DrainIsLong => "DrainIsLong",
            Self::TaintWithheld => "TaintWithheld",
            Self::Withdrawn => "Withdrawn",
            Self::SessionEnded => "SessionEnded",
            Self::Registered => "Registered",
            Self::Reregistered => "Reregistered",
            Self::Deregistered => "Deregistered",
            Self::ProtectionLost => "ProtectionLost",
            Self::ProtectionMissing => "ProtectionMissing",
            Self::RegistrationFails => "RegistrationFails",
            Self::Unprotected => "Unprotected",
            Self::StatusStale => "StatusStale",
            Self::RedisRefuses => "RedisRefuses",
            Self::IdentityUnclear => "IdentityUnclear",
            Self::MetadataSilent => "MetadataSilent",
            Self::HookWaits => "HookWaits",
            Self::HookCompleted => "HookCompleted",
            Self::HookFails => "HookFails",
            Self::ChainPolicy | Self::ChainPolicyFailed => "ChainPolicy",
        }
    }

    /// Whether the Event is a Warning.
    pub const fn is_warning(self) -> bool {
        match self {
            Self::State(state) => matches!(state, State::Unhealthy | State::Error),
            Self::HandedBack
            | Self::NoRoom
            | Self::ChangeDropped
            | Self::CounterActionError
            | Self::ListActionError
            | Self::NotProgressing
            | Self::NamespaceNotEnabled
            | Self::SeveralDisruptionBudgets
            | Self::ServersFail
            | Self::NodeSilent
            | Self::NodesSilentTogether
            | Self::FailedGetFleet
            | Self::FleetAutoscaler
            | Self::AutoScalingFleetError
            | Self::ScalingLimited
            | Self::NodeTerminating
            | Self::DrainIsLong
            | Self::TaintWithheld
            | Self::SessionEnded
            | Self::ProtectionLost
            | Self::ProtectionMissing
            | Self::RegistrationFails
            | Self::Unprotected
            | Self::StatusStale
            | Self::RedisRefuses
            | Self::IdentityUnclear
            | Self::MetadataSilent
            | Self::HookFails
            | Self::ChainPolicyFailed => true,
            Self::SuccessfulCreate
            | Self::SuccessfulDelete
            | Self::CreatingGameServerSet
            | Self::ScalingGameServerSet
            | Self::UpdatingGameServerSet
            | Self::DeletingGameServerSet
            | Self::UpdateCounter
            | Self::UpdateList
            | Self::PlayerCount
            | Self::PlayerCapacity
            | Self::AutoScalingFleet
            | Self::NodeClosed
            | Self::NodeIdle
            | Self::NodeDraining
            | Self::NodeDrained
            | Self::NodeReopened
            | Self::Withdrawn
            | Self::Registered
            | Self::Reregistered
            | Self::Deregistered
            | Self::HookWaits
            | Self::HookCompleted
            | Self::ChainPolicy => false,
        }
    }
}
