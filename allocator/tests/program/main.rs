//! `berth-allocator` as a program, on a real API server. The game servers are objects that nobody runs.

mod api;
mod certificates;
mod certs;
mod cluster;
mod clusters;
mod races;
mod service;
