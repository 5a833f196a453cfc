//! Fleets: one active set for the template as it is, and old sets that go as their sessions and the strategy allow.

mod build;
mod conditions;
mod decide;
mod metrics;
mod reconciler;
mod steps;

pub(crate) use metrics::FleetMetrics;
pub(crate) use reconciler::FleetReconciler;
