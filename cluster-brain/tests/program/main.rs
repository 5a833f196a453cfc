//! `berth-brain` as a program, on a real API server. The tests play the agents: they hold leases, describe nodes, and move
//! servers through their states as an agent would.

mod agent;
mod autoscaling;
mod cluster;
mod eviction;
mod fencing;
mod fleets;
mod idle;
mod leadership;
mod namespaces;
mod oracle;
mod placement;
mod rollout;
mod room;
mod scale;
mod sdk_update;
mod truth;
