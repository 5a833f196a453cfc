//! Where a server goes: chosen among the nodes whose agents are live, and written together with the server.
//!
//! What is promised to a node is counted from the moment of the decision: room, pods and host ports, as the node's agent
//! last said less what was handed over since. What no node can take waits, with each node's reason, and goes out as soon
//! as something fits; meanwhile a placeholder pod asks for room in its name. What only the scheduler understands is
//! always decided by such a pod. What nobody has placed yet, and development servers, belong to this part alone.

mod birth;
mod constraints;
mod decide;
mod fence;
mod gone;
mod memory;
mod metrics;
mod needs;
mod nodes;
mod place;
mod placeholder;
mod reconciler;
mod room;
mod rooms;
mod selection;

pub(crate) use birth::{
    Birth, VERSION, eviction_in_force, first_status, hand_over_annotations, with_container,
};
pub(crate) use memory::Memory;
pub(crate) use metrics::PlacementMetrics;
pub(crate) use needs::Needs;
pub(crate) use nodes::{Closed, NodeView, views};
pub(crate) use place::{Request, place};
pub(crate) use placeholder::Placeholders;
pub(crate) use reconciler::PlacementReconciler;
