//! Fencing: what becomes of servers whose node's agent has fallen silent.
//!
//! An agent stops acting before its lease ends, so after the end and a margin nobody acts for the node, whatever runs
//! there. Silence is measured on our own monotonic clock, and only while our own watch of the leases is known to live:
//! the renewals of the leader lease come through the same watch. When so many fall silent together that the fault is
//! more likely ours or the network's, nothing is taken back.

mod judge;
mod keeper;
mod metrics;
mod site;

pub(crate) use judge::{Sight, Standing};
pub(crate) use keeper::FenceKeeper;
pub(crate) use metrics::FencingMetrics;
pub(crate) use site::{Death, Site};
