//! Allocation: one game server for one session, at once, and never a conflict for the caller.
//!
//! Two entrances ([`serve`]) take requests: the aggregated API `allocation.agones.dev/v1` behind the API server, and the
//! allocator service over gRPC and REST with mTLS. Both read them into the same words, and ask the one who takes
//! servers ([`take`]). What can be taken is in the [`book`]; which one is taken is [`choose`]'s pure decision.

pub mod actions;
pub mod announce;
mod app;
pub mod book;
pub mod certs;
pub mod choose;
pub mod clusters;
mod config;
pub mod office;
pub mod serve;
pub mod take;
#[cfg(test)]
mod testing;
mod watches;

pub use app::run;
pub use config::{Command, CommandLine, Settings};
