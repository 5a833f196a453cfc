//! Nodes that nobody needs: the brain says so, and takes it back when somebody does.
//!
//! An agent that keeps an instance for FleetIQ asks, once nobody has played on its node for a while. The answer is the only
//! thing that is written: the time that the question named, in the GameNode's spec, and its absence when the node is needed
//! again. What the answer rests on is looked at anew with each question, and nothing is remembered that a new leader would
//! have to know. Without a brain nothing is let go.

mod decide;
mod keeper;
mod metrics;

pub(crate) use keeper::IdleKeeper;
pub(crate) use metrics::IdleMetrics;
