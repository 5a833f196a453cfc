//! Eviction: the PodDisruptionBudget that keeps games whose authors allow no eviction, in each namespace before its first
//! server.
//!
//! The API refuses to evict a pod that two budgets match, whatever they say; so a second one is told on set and Fleet.

mod decide;
mod guard;
mod metrics;
mod reconciler;
mod selector;

pub(crate) use decide::{pod_labels, several};
pub(crate) use guard::Guard;
pub(crate) use metrics::EvictionMetrics;
pub(crate) use reconciler::BudgetReconciler;
