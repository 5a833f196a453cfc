//! The local socket: what the person on call asks first.
//!
//! HTTP and JSON over `/run/berth/agent.sock`, open to root and the socket's group only.

use tokio::sync::{mpsc, oneshot};

pub mod client;
pub mod command;
pub mod server;
pub mod views;

/// The order to give the instance back to FleetIQ, to whoever speaks with it. The answer is a sentence, of what was done
/// or why it was not.
pub type Deregistration = oneshot::Sender<Result<String, String>>;

/// Where such orders go; none where FleetIQ is not configured.
pub type Deregistrations = Option<mpsc::Sender<Deregistration>>;
