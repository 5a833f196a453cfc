//! Ensures that a namespace has its budget: asked before the first server is written, and whenever a budget changes.

use std::sync::Arc;

use berth_api::names;
use berth_runtime::kube_client::Class;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tracing::info;

use super::EvictionMetrics;
use super::decide::{Step, decide};
use crate::effects::Effect;
use crate::stores::{Key, Stores};
use crate::writes::{WriteError, Writer};

/// Ensures budgets.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) stores: Arc<Stores>,
    pub(crate) writer: Writer,
    pub(crate) metrics: EvictionMetrics,
}

impl Guard {
    /// Ensures the budget of a namespace; nothing is written where it is as it must be.
    pub(crate) async fn ensure(&self, namespace: &str) -> Result<(), WriteError> {
        let key = Key::new(namespace, names::DISRUPTION_BUDGET);
        let found = self.stores.read(|world| world.budgets.get(&key).cloned());
        match decide(found.as_deref(), namespace) {
            Step::Leave => {}
            Step::Create(budget) => match self.writer.create(Effect::CreateBudget, &key, &*budget).await {
                Ok(created) => {
                    self.metrics.created.inc();
                    info!(namespace, "disruption budget created");
                    self.note(created, true);
                }
                // Another set was faster, or the watch is behind.
                Err(error) if error.class() == Some(Class::AlreadyExists) => {}
                Err(error) => return Err(error),
            },
            Step::Repair(change) => {
                let changed =
                    self.writer.patch::<PodDisruptionBudget>(Effect::RepairBudget, &key, &change).await?;
                self.metrics.repaired.inc();
                info!(namespace, "disruption budget put right");
                self.note(changed, false);
            }
        }
        Ok(())
    }

    fn note(&self, mut budget: PodDisruptionBudget, is_new: bool) {
        budget.metadata.managed_fields = None;
        self.stores.change(|world, _| {
            let change = if is_new { world.budgets.created(budget) } else { world.budgets.changed(budget) };
            world.note_budget(change);
        });
    }
}
