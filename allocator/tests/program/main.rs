//! `berth-allocator` as a program, on a real API server. The game servers are objects that nobody runs.

mod accounts;
mod api;
mod certificates;
mod certs;
mod clients;
mod cluster;
mod clusters;
mod connections;
mod drains;
mod faults;
mod installation;
mod page;
mod races;
mod seats;
mod service;
