//! The cluster brain: makes GameServers of Fleets and sets, and hands each to the lease of a node.
//!
//! One brain acts at a time, while it holds its own Lease. What it knows it knows from watches; what it decides is pure;
//! what it writes it writes once, under the version it saw. It never touches a pod: everything that concerns a running
//! game server is decided on its node.

mod announce;
mod app;
mod autoscaling;
mod config;
mod effects;
mod eviction;
mod fencing;
mod fleet;
mod foreign;
mod game_server_set;
mod idle;
mod namespaces;
mod placement;
mod queue;
mod resources;
mod sdk_update;
mod session;
mod stores;
#[cfg(test)]
mod testing;
mod writes;

pub use app::run;
pub use config::Settings;
pub use effects::Effect;
