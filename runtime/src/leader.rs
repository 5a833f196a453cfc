//! Who acts: the holder of one Lease, by its own monotonic clock and with a margin.
//!
//! [`Authority`] is asked at the moment of every write. A lease is free when it has no holder, or when it has not changed
//! for its whole duration while we watched it; clocks of two machines are never compared. Whoever stops gives it back.

mod claim;
mod keeper;
mod metrics;

use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Instant;

pub use keeper::{Keeper, KeeperError};
pub use metrics::LeaderMetrics;

/// The lease that is kept, by whom, and what its writes are called.
#[derive(Clone, Debug)]
pub struct Seat<E> {
    /// Namespace of the lease.
    pub namespace: &'static str,
    /// Its name.
    pub lease: &'static str,
    /// The writer of its fields.
    pub manager: &'static str,
    /// Who we are to those who want it too: no other process has the same.
    pub identity: String,
    /// How long we lead without renewal.
    pub duration: Duration,
    /// Its first write by us.
    pub take: E,
    /// A renewal.
    pub renew: E,
    /// The last write.
    pub give_back: E,
}

/// How this process leads.
#[derive(Clone, Copy, Debug)]
struct Lead {
    /// Until when it may act.
    until: Instant,
    /// Number of the term: it goes up whenever another process takes over.
    term: i32,
}

/// What the rest of the program asks before it writes.
#[derive(Clone, Debug)]
pub struct Authority(watch::Receiver<Option<Lead>>);

impl Authority {
    /// How much longer we may act; `None` when we may not.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let left = self.0.borrow().as_ref()?.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Number of our term: the same again after a gap means that nobody else has led in between.
    #[must_use]
    pub fn term(&self) -> Option<i32> {
        self.0.borrow().as_ref().map(|lead| lead.term)
    }

    /// Waits until we lead.
    pub async fn gained(&mut self) {
        while self.remaining().is_none() {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until we do not lead any more.
    pub async fn lost(&mut self) {
        while let Some(left) = self.remaining() {
            // A renewal moves the end, and then we look again.
            let _ = tokio::time::timeout(left, self.0.changed()).await;
        }
    }
}
