//! What this program changes in the cluster: its lease. Nothing rests on what it tells Redis, which it tells again.

berth_runtime::effects! {
    /// A write of the publisher.
    pub enum Effect of "pubsub" {
        /// Take the lease.
        TakeLead = "take_lead",
        /// Renew it.
        RenewLead = "renew_lead",
        /// Give it back.
        GiveLeadBack = "give_lead_back",
    }
}
