//! The instance's standing with GameLift FleetIQ.
//!
//! The registrar alone decides it; everybody else reads a [`Standing`].

use berth_api::game_node::Protection;
use jiff::Timestamp;

pub mod asker;
pub mod call;
pub mod client;
pub mod identity;
pub mod listener;
pub mod machine;
pub mod metrics;
pub mod registrar;
pub mod retry;
pub mod settings;
pub mod start;
pub mod status;
pub mod watcher;

pub use metrics::FleetMetrics;

/// How the instance stands with FleetIQ, as last known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether, and how, FleetIQ keeps it.
    pub protection: Protection,
    /// The game server group, where one is known.
    pub group: Option<String>,
    /// The instance, where it is known.
    pub instance: Option<String>,
    /// When FleetIQ last took a sign of life.
    pub last_beat: Option<Timestamp>,
    /// Whether servers may be offered.
    pub offers: Offers,
    /// What is wrong, as a sentence without a full stop.
    pub problem: Option<String>,
}

/// Whether servers of the node may be offered as far as FleetIQ goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Offers {
    /// They may.
    #[default]
    Allowed,
    /// They may not: sessions would not be protected.
    Withheld {
        /// Why, as a sentence without a full stop.
        why: String,
    },
}
