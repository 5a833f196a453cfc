//! `berth-sdk`: the SDK endpoints of all game servers of one node, in one process without privileges.
//!
//! ```text
//!   game ──gRPC/REST──▶ serve ──▶ seat (session, outbox, pings) ──▶ link ──▶ berth-agent ──▶ API server
//!   game ◀────watch──── serve ◀── seat ◀─────── views ───────────── link ◀── berth-agent
//! ```
//!
//! It promises that a call is answered without waiting for the agent, that an answered change is on disk and told to the
//! agent until the agent has confirmed it, also by the next process, and that connections outlive the agent. It decides nothing about a game server beyond
//! that, holds no credentials and never speaks to the API server.

#![forbid(unsafe_code)]

pub mod app;
pub mod config;
pub mod effects;
mod journal;
mod link;
mod local;
mod metrics;
mod seat;
mod serve;
mod server;
