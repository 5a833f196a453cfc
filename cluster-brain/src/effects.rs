//! What the brain changes in the cluster: a name for each write, so that its death at any of them can be tested.
//!
//! Events have none: nothing rests on them.

berth_runtime::effects! {
    /// A write of the brain.
    pub enum Effect of "brain" {
        /// Take the leader lease.
        TakeLead = "take_lead",
        /// Renew it.
        RenewLead = "renew_lead",
        /// Give it back.
        GiveLeadBack = "give_lead_back",
        /// Create a set for a Fleet.
        CreateSet = "create_set",
        /// Scale a set of a Fleet, or carry over what the Fleet says.
        ChangeSet = "change_set",
        /// Delete a set that a Fleet needs no more.
        DeleteSet = "delete_set",
        /// Write the status of a Fleet.
        ReportFleet = "report_fleet",
        /// Give a Fleet the number that its autoscaler wants.
        ScaleFleet = "scale_fleet",
        /// Write the status of an autoscaler.
        ReportAutoscaler = "report_autoscaler",
        /// Create a server, handed to its node.
        CreateServer = "create_server",
        /// Mark a server that its set does not need.
        EndServer = "end_server",
        /// Mark an Allocated server that is one too many.
        MarkOverflow = "mark_overflow",
        /// Write the status of a set.
        ReportSet = "report_set",
        /// Create the disruption budget of a namespace.
        CreateBudget = "create_budget",
        /// Put it right.
        RepairBudget = "repair_budget",
        /// Take on a server that somebody created directly.
        Adopt = "adopt",
        /// Hand a server to a node.
        HandOver = "hand_over",
        /// Say why a server is on no node.
        TellNoRoom = "tell_no_room",
        /// Create the placeholder of a server that waits.
        AskForRoom = "ask_for_room",
        /// Remove it: its server has a node, or is gone, or it is of no use where it is.
        GiveRoomBack = "give_room_back",
        /// Make a development server Ready.
        Develop = "develop",
        /// Give up a server that nodes have handed back.
        GiveUp = "give_up",
        /// End a server that never started on a silent node.
        TakeBack = "take_back",
        /// Remove a pod that nobody else will.
        RemovePod = "remove_pod",
        /// Mark a server of a silent node as lost.
        Lose = "lose",
        /// End a lost server whose agent is back.
        LetSurplusGo = "let_surplus_go",
        /// Count a lost server again, since a session is on it.
        Keep = "keep",
        /// Write that a server ended with its node.
        Fail = "fail",
        /// Delete a server that nobody else will.
        DeleteServer = "delete_server",
        /// Tell a node that it is not needed.
        CallSurplus = "call_surplus",
        /// Tell it that it is.
        FetchBack = "fetch_back",
        /// Delete a pod of `berth-sdk` that is of an older revision, on a node without servers.
        ReplaceSdk = "replace_sdk",
        /// Remove the finalizers of a server.
        LetGo = "let_go",
    }
}

impl Effect {
    /// What is told to nodes that are instances of a FleetIQ group. A test of its own brings the brain past these.
    pub const OF_IDLE: [Self; 2] = [Self::CallSurplus, Self::FetchBack];
}
