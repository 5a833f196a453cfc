//! The node lease: the right to act for a node.
//!
//! [`keeper::Keeper`] takes the lease and renews it; everybody else holds an [`Authority`] and asks it right before each
//! write. A claim ends by this machine's monotonic clock, a margin before others may think that it has: a write that
//! begins while the claim is held, and that is over within the margin, is never seen by a successor.

use std::time::Duration;

use berth_api::node_lease::{Epoch, Holder};
use berth_runtime::clock::Instant;
use berth_runtime::metrics::Subsystem;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

pub mod claim;
pub mod keeper;
pub mod lock;

/// The right to act, as it was last renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who holds it: we.
    pub holder: Holder,
    /// Number of the present holder.
    pub epoch: Epoch,
    /// Since when it has been held without a gap.
    pub since: Instant,
    /// How often it has lapsed in this process. After a lapse, what was seen before is looked at again.
    pub lapses: u32,
    /// When we stop acting.
    pub acts_until: Instant,
}

impl Claim {
    /// Whether we may act now.
    pub fn still_held(&self, now: Instant) -> bool {
        now < self.acts_until
    }

    /// How much longer we may act.
    pub fn remaining(&self, now: Instant) -> Duration {
        self.acts_until.saturating_duration_since(now)
    }
}

/// Nobody may act now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node lease is not held")]
pub struct NotHeld;

/// The present claim, for those who act. Clones see the same one.
#[derive(Clone, Debug)]
pub struct Authority {
    claims: watch::Receiver<Option<Claim>>,
}

impl Authority {
    /// Reads claims from a channel.
    pub fn new(claims: watch::Receiver<Option<Claim>>) -> Self {
        Self { claims }
    }

    /// The claim, if it is held at this moment.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, now: Instant) -> Result<Claim, NotHeld> {
        self.claims.borrow().clone().filter(|claim| claim.still_held(now)).ok_or(NotHeld)
    }

    /// The claim as last published, held or not.
    pub fn last(&self) -> Option<Claim> {
        self.claims.borrow().clone()
    }

    /// Waits until the claim is held, again or still. Never ends once the keeper is gone.
    pub async fn held(&mut self) -> Claim {
        loop {
            if let Ok(claim) = self.check(Instant::now()) {
                return claim;
            }
            self.changed().await;
        }
    }

    /// Waits until another claim is published. Never ends once the keeper is gone.
    pub async fn changed(&mut self) {
        if self.claims.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Numbers about the lease.
#[derive(Clone, Debug, Default)]
pub struct LeaseMetrics {
    /// Renewals that succeeded.
    pub renewals: Counter,
    /// Attempts that failed.
    pub failures: Counter,
    /// Times the claim ran out.
    pub lapses: Counter,
    /// Whether it is held: 1 or 0.
    pub held: Gauge,
    /// The epoch.
    pub epoch: Gauge,
    /// Unix time of the last renewal.
    pub last_success: Gauge,
}

impl LeaseMetrics {
    /// Registers them.
    pub fn register(subsystem: &mut Subsystem<'_>) -> Self {
        let new = Self::default();
        Self {
            renewals: subsystem.register("renewals", "Renewals of the node lease", new.renewals),
            failures: subsystem.register(
                "failures",
                "Attempts to take or renew the lease that failed",
                new.failures,
            ),
            lapses: subsystem.register("lapses", "Times the lease ran out before it was renewed", new.lapses),
            held: subsystem.register("held", "Whether this agent holds the node lease", new.held),
            epoch: subsystem.register("epoch", "Number of the present holder of the node lease", new.epoch),
            last_success: subsystem.register(
                "last_success_timestamp_seconds",
                "When the lease was last renewed, in Unix time",
                new.last_success,
            ),
        }
    }
}
