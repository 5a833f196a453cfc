//! Reserving for real: the ledger proposes, the host confirms.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_api::game_server::PortSpec;

use super::{Ports, ReserveError, Slot, Tenant, slots_of};
use crate::host::{Host, HostError};

/// Why no ports could be reserved.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There are none.
    #[error("could not reserve host ports")]
    Reserve(#[from] ReserveError),
    /// The host could not be asked.
    #[error("could not ask the host about port {slot}")]
    Host {
        /// The port.
        slot: Slot,
        /// What the host says.
        source: HostError,
    },
    /// The question to the host was not answered because its thread died.
    #[error("the question about a port was not answered")]
    Unanswered,
}

impl Ports {
    /// Reserves all ports of a server, or none, each one tried on the host. What the tenant had before is given back.
    ///
    /// A port found in use on the host is skipped for this reservation only: its process may end at any time.
    ///
    /// # Errors
    /// Why there are none; nothing is reserved then.
    pub async fn reserve<H: Host>(
        &self,
        tenant: &Tenant,
        ports: &[PortSpec],
        host: &Arc<H>,
    ) -> Result<Vec<PortSpec>, ProbeError> {
        let mut refused = BTreeSet::new();
        loop {
            let reserved = {
                let mut ledger = self.lock();
                ledger.release(tenant);
                ledger.reserve(tenant, ports, |slot| refused.contains(&slot))
            };
            let reserved = reserved.inspect_err(|_| {
                self.metrics.refused.inc();
                self.publish();
            })?;
            let slots = slots_of(&reserved);
            match in_use(host, slots).await {
                Ok(found) if found.is_empty() => {
                    self.publish();
                    return Ok(reserved);
                }
                Ok(found) => {
                    self.metrics.foreign.inc_by(u64::try_from(found.len()).unwrap_or(u64::MAX));
                    refused.extend(found);
                }
                Err(error) => {
                    self.release(tenant);
                    return Err(error);
                }
            }
        }
    }
}

/// Which of these the host says are in use.
async fn in_use<H: Host>(host: &Arc<H>, slots: Vec<Slot>) -> Result<Vec<Slot>, ProbeError> {
    let host = Arc::clone(host);
    let asked = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        for slot in slots {
            let free = host
                .is_port_free(slot.port, slot.protocol)
                .map_err(|source| ProbeError::Host { slot, source })?;
            if !free {
                found.push(slot);
            }
        }
        Ok(found)
    });
    asked.await.unwrap_or(Err(ProbeError::Unanswered))
}
