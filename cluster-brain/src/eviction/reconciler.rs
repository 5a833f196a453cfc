//! The task that keeps the budgets of namespaces that have servers, whatever becomes of them.

use std::convert::Infallible;

use berth_runtime::CancellationToken;
use berth_runtime::error::chain;
use berth_runtime::kube_client::Class;
use tracing::{debug, warn};

use super::Guard;
use crate::queue::Outcome;

/// Namespaces worked on at the same time.
const PARALLEL: usize = 4;

/// Keeps budgets.
pub(crate) struct BudgetReconciler {
    pub(crate) guard: Guard,
}

impl BudgetReconciler {
    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let this = &self;
        self.guard.stores.queues.namespaces.work(PARALLEL, &stop, |namespace| this.turn(namespace)).await;
        Ok(())
    }

    async fn turn(&self, namespace: String) -> Outcome {
        if !self.guard.stores.read(|world| world.has_servers(&namespace)) {
            return Outcome::Done;
        }
        match self.guard.ensure(&namespace).await {
            Ok(()) => Outcome::Done,
            Err(error) if error.class() == Some(Class::Conflict) => {
                debug!(namespace, error = %chain(&error), "looking again");
                Outcome::Failed
            }
            Err(error) => {
                self.guard.metrics.failed_turns.inc();
                warn!(namespace, error = %chain(&error), "the disruption budget was not ensured");
                Outcome::Failed
            }
        }
    }
}
