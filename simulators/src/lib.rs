//! GameLift FleetIQ, Auto Scaling and instance metadata, imitated on the real wire.
//!
//! An unmodified AWS client with an endpoint override talks to it as if it were AWS. What AWS does not say is a
//! parameter, so that a program can be shown to work for every answer. [`Simulator::start`] runs it in this process,
//! [`run`] as a program of its own.

mod admin;
mod app;
mod authority;
mod clock;
mod faults;
mod journal;
mod listen;
mod metadata;
mod scenario;
mod services;
mod settings;
#[cfg(test)]
mod testing;
mod throttle;
mod wire;
mod world;

pub use app::{Simulator, run};
pub use clock::Pace;
pub use settings::{Settings, Signatures};
