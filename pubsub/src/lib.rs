//! Tells every node what FleetIQ thinks of its instance, and names the limit that stops a scale-up.
//!
//! One process for any number of game server groups. The poller asks AWS and shows a [`picture`]; the publisher
//! tells Redis what [`diff`] finds new in it; the surveyor looks which [`limits`] bite. Several processes share one
//! Lease, and whoever holds it does all of this. Nothing is remembered across processes: who takes over asks anew.

mod announce;
mod app;
mod aws;
mod cluster;
mod config;
pub mod diff;
mod effects;
pub mod groups;
mod groups_source;
mod lead;
pub mod limits;
mod metrics;
pub mod pace;
pub mod picture;
mod poller;
mod publisher;
mod surveyor;

pub use app::{Pubsub, run};
pub use config::{ConfigMapName, Events, GroupsFrom, LeaderElection, Settings};
pub use effects::Effect;
