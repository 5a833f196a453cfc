//! What the instance's metadata say of its end: a Spot interruption, a recommendation to rebalance, Auto Scaling's target
//! state, scheduled events.
//!
//! They are an early warning and nothing more: an instance whose metadata cannot be reached serves all the same.

use std::time::Duration;

pub mod client;
pub mod metrics;
pub mod poller;
pub mod reading;
pub mod settings;

pub use metrics::MetadataMetrics;

/// How long an instance has that Auto Scaling ends, where nobody says and no hook holds it.
pub const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Why such an instance ends.
pub const ENDED_BY_AUTO_SCALING: &str = "Auto Scaling ends the instance";

/// What is done on a recommendation to rebalance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnRebalance {
    /// It is told, and nothing else: FleetIQ judges the instance already.
    #[default]
    Ignore,
    /// The node takes nothing new, for half an hour unless something else comes.
    Cordon,
    /// The node is emptied, and not given back.
    Drain,
}

/// How the answers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What is done on a recommendation to rebalance.
    pub on_rebalance: OnRebalance,
    /// How long before a scheduled event the node is emptied.
    pub scheduled_lead: Duration,
    /// A lifecycle hook may hold an instance that Auto Scaling ends: whoever answers it says for how long.
    pub has_hook: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            on_rebalance: OnRebalance::Ignore,
            scheduled_lead: Duration::from_secs(2 * 60 * 60),
            has_hook: false,
        }
    }
}

/// The state that Auto Scaling moves the instance to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// Nobody has asked yet.
    #[default]
    Unasked,
    /// Nobody knows: no Auto Scaling, a very new instance, or no metadata.
    Unknown,
    /// It waits in a warm pool.
    Warmed,
    /// Auto Scaling ends it.
    Ending,
    /// Anything else.
    Other,
}
