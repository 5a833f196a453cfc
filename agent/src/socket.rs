//! The local socket: what the person on call asks first.
//!
//! HTTP and JSON over `/run/berth/agent.sock`, open to root and the socket's group only.

pub mod client;
pub mod server;
pub mod views;
