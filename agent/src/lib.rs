//! The agent of one node: ports, pods, health and the local socket.
//!
//! `main.rs` parses and calls [`app::run`]; everything else is here, so that tests can put the parts together with a
//! host of their own. It promises never to look at another node, and leaves what games say to `berth-sdk`.

pub mod app;
pub mod config;
pub mod drain;
pub mod effects;
pub mod events;
pub mod fleetiq;
pub mod folders;
pub mod front;
pub mod game_server;
pub mod hook;
pub mod host;
pub mod identity;
pub mod lease;
pub mod metadata;
pub mod node;
pub mod node_status;
pub mod pods;
pub mod ports;
pub mod socket;
pub mod token;
