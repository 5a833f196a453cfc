//! `berth-sdk` as a program: a test plays the agent on a real socket and games on real connections.

mod agent;
mod amounts;
mod disks;
mod games;
mod journal;
mod link;
mod local;
mod rest;
mod rough;
mod unit;
