//! What the agent does to the world outside of it: a name for each, so that its death at any of them can be tested.
//!
//! Steps of a server that change nothing outside have none, nor have Events: nothing rests on them.

use berth_api::link::ToSdk;

use crate::fleetiq::call::Call;
use crate::hook::call::Operation;

berth_runtime::effects! {
    /// Something that the agent does.
    pub enum Effect of "agent" {
        /// Take the node lease.
        TakeLease = "take_lease",
        /// Renew it.
        RenewLease = "renew_lease",
        /// Create the node's GameNode.
        CreateGameNode = "create_game_node",
        /// Write its status.
        PublishGameNode = "publish_game_node",
        /// Give a server back to the brain.
        HandBack = "hand_back",
        /// Try ports on the host and take them.
        ReservePorts = "reserve_ports",
        /// Create the pod.
        CreatePod = "create_pod",
        /// Write why kubelet would not run it.
        NoteRefusal = "note_refusal",
        /// Write Scheduled.
        Schedule = "schedule",
        /// Write what the game asks for.
        Grant = "grant",
        /// Write Ready, which the game did not ask for.
        MakeReady = "make_ready",
        /// Write a state that ends the server.
        End = "end",
        /// Delete the server.
        DeleteServer = "delete_server",
        /// Delete its pod.
        DeletePod = "delete_pod",
        /// Delete a server without a session, since its node is being emptied.
        Withdraw = "withdraw",
        /// Tell a game that its node is being emptied, or that it is not any more.
        TellDrain = "tell_drain",
        /// Have a pod tolerate the taint of a node that is being emptied.
        Tolerate = "tolerate",
        /// Delete the pod of a session that its node does not outlive.
        EndSession = "end_session",
        /// Remove its finalizer.
        Finish = "finish",
        /// Write its addresses.
        Readdress = "readdress",
        /// Write why it does not go on.
        Tell = "tell",
        /// Write the place of a server whose status somebody has wiped.
        Restore = "restore",
        /// Delete the pod of a server that is gone.
        LetGo = "let_go",
        /// Listen in the sandbox of a pod.
        OpenSdk = "open_sdk",
        /// Keep a copy of the node's marks.
        KeepMarks = "keep_marks",
        /// Write the Node's marks.
        MarkNode = "mark_node",
        /// Close the Node.
        CordonNode = "cordon_node",
        /// Open it again.
        UncordonNode = "uncordon_node",
        /// Put a taint on it.
        TaintNode = "taint_node",
        /// Take one off.
        UntaintNode = "untaint_node",
        /// Make the instance known to FleetIQ.
        RegisterInstance = "register_instance",
        /// Take it, so that it is kept.
        ClaimInstance = "claim_instance",
        /// Say that it is in use, and alive.
        UpdateInstance = "update_instance",
        /// Say that it is alive, and may be taken away.
        KeepInstanceAlive = "keep_instance_alive",
        /// Ask how its registration stands.
        DescribeInstance = "describe_instance",
        /// Ask what FleetIQ thinks of it.
        AskForStatus = "ask_for_status",
        /// Give it back.
        DeregisterInstance = "deregister_instance",
        /// Ask of which Auto Scaling group the instance is.
        FindScalingGroup = "find_scaling_group",
        /// Ask how long the lifecycle hook waits.
        DescribeHook = "describe_hook",
        /// Have Auto Scaling wait on.
        BeatHook = "beat_hook",
        /// Have it go on.
        CompleteHook = "complete_hook",
        /// Listen for `berth-sdk`.
        Listen = "listen",
        /// Say Hello to `berth-sdk`.
        Hello = "hello",
        /// Tell it of a server.
        Server = "server",
        /// Give it listeners.
        Listeners = "listeners",
        /// Tell it that a game has started.
        Started = "started",
        /// Acknowledge changes.
        Acknowledge = "acknowledge",
        /// Have it forget a server.
        Forget = "forget",
    }
}

impl Effect {
    /// What is done when a node is emptied, and when that is taken back. A test of its own brings the agent past these.
    pub const OF_DRAIN: [Self; 10] = [
        Self::Withdraw,
        Self::TellDrain,
        Self::Tolerate,
        Self::EndSession,
        Self::KeepMarks,
        Self::MarkNode,
        Self::CordonNode,
        Self::UncordonNode,
        Self::TaintNode,
        Self::UntaintNode,
    ];

    /// The calls to FleetIQ, which are made where it is in use. A test of its own brings the agent past these.
    pub const OF_FLEETIQ: [Self; 7] = [
        Self::RegisterInstance,
        Self::ClaimInstance,
        Self::UpdateInstance,
        Self::KeepInstanceAlive,
        Self::DescribeInstance,
        Self::AskForStatus,
        Self::DeregisterInstance,
    ];

    /// The calls to Auto Scaling, which are made where a lifecycle hook is named. A test of its own brings the agent past
    /// these.
    pub const OF_HOOK: [Self; 4] =
        [Self::FindScalingGroup, Self::DescribeHook, Self::BeatHook, Self::CompleteHook];
}

impl From<Operation> for Effect {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::FindGroup => Self::FindScalingGroup,
            Operation::DescribeHook => Self::DescribeHook,
            Operation::Beat => Self::BeatHook,
            Operation::Complete => Self::CompleteHook,
        }
    }
}

impl From<Call> for Effect {
    fn from(call: Call) -> Self {
        match call {
            Call::Register => Self::RegisterInstance,
            Call::Claim => Self::ClaimInstance,
            Call::Update => Self::UpdateInstance,
            Call::Live => Self::KeepInstanceAlive,
            Call::Describe => Self::DescribeInstance,
            Call::AskStatus => Self::AskForStatus,
            Call::Deregister => Self::DeregisterInstance,
        }
    }
}

impl From<&ToSdk> for Effect {
    fn from(frame: &ToSdk) -> Self {
        match frame {
            ToSdk::Hello { .. } => Self::Hello,
            ToSdk::Server { .. } => Self::Server,
            ToSdk::Listeners { .. } => Self::Listeners,
            ToSdk::Started { .. } => Self::Started,
            ToSdk::Acknowledge { .. } => Self::Acknowledge,
            ToSdk::Forget { .. } => Self::Forget,
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_runtime::kill_point::Effect as _;

    use super::Effect;

    /// Nobody is evicted, and no right is one to everything.
    #[test]
    fn defects_26_and_32_an_agent_evicts_nobody_and_has_no_right_to_everything() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/");
        for file in ["rbac.yaml", "game-namespace/bindings.yaml", "fleetiq/rbac.yaml"] {
            let text = std::fs::read_to_string(format!("{folder}{file}")).expect(file);
            for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
                assert!(!line.contains('*') && !line.contains("eviction"), "{file}: {line}");
            }
        }
        for effect in Effect::ALL {
            assert!(!effect.word().contains("evict"), "{effect:?}");
        }
    }
}
