//! The words that every part of Berth shares: resources, states, names, the SDK protocol, the link of a node's two
//! processes, and the pure rules that more than one program needs. No I/O, no clock.

pub mod allocation;
pub mod allocation_policy;
pub mod conditions;
pub mod crds;
pub mod events;
pub mod fleet;
pub mod fleet_autoscaler;
pub mod game_node;
pub mod game_server;
pub mod game_server_set;
pub mod label;
pub mod lifecycle;
pub mod link;
pub mod names;
pub mod node_lease;
pub mod notice;
pub mod quantity;
pub mod sdk;
pub mod template;
