//! Sets: as many servers of one template as wanted, never one too many, and a session never ended.

mod build;
mod conditions;
mod count;
mod decide;
mod metrics;
mod order;
mod reconciler;
mod strain;

pub(crate) use count::sum;
pub(crate) use metrics::SetMetrics;
pub(crate) use order::sort as sort_for_removal;
pub(crate) use reconciler::SetReconciler;
pub(crate) use strain::Strain;
