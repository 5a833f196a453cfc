//! The task that takes, renews and gives back the leader lease, and publishes until when we may act.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::claim::{Seen, Step, Terms, decide, release};
use super::{Authority, Lead, LeaderMetrics, Seat};
use crate::backoff::Backoff;
use crate::clock::{Clock, Instant};
use crate::error::chain;
use crate::kill_point::{Effect, around};
use crate::kube_client::{CallError, Class, within};

/// Why the lease could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Reading.
    #[error("could not read lease {lease}")]
    Read {
        /// Its namespace and name.
        lease: String,
        /// What the API server says.
        source: CallError,
    },
    /// Creating.
    #[error("could not create lease {lease}; is its namespace there?")]
    Create {
        /// Its namespace and name.
        lease: String,
        /// What the API server says.
        source: CallError,
    },
    /// Writing.
    #[error("could not write lease {lease}")]
    Write {
        /// Its namespace and name.
        lease: String,
        /// What the API server says.
        source: CallError,
    },
}

/// Keeps the leader lease.
#[derive(Debug)]
pub struct Keeper<E> {
    leases: Api<Lease>,
    seat: Seat<E>,
    terms: Terms,
    clock: Clock,
    seen: Option<Seen>,
    lead: watch::Sender<Option<Lead>>,
    changed: Arc<Notify>,
    metrics: LeaderMetrics,
    backoff: Backoff,
}

impl<E: Effect> Keeper<E> {
    /// A keeper that holds nothing yet. `changed` tells it that the lease may have changed.
    #[must_use]
    pub fn new(
        client: kube::Client,
        seat: Seat<E>,
        changed: Arc<Notify>,
        metrics: LeaderMetrics,
    ) -> (Self, Authority) {
        let (lead, authority) = watch::channel(None);
        let duration = seat.duration;
        let keeper = Self {
            leases: Api::namespaced(client, seat.namespace),
            terms: Terms { identity: seat.identity.clone(), duration },
            seat,
            clock: Clock::system(),
            seen: None,
            lead,
            changed,
            metrics,
            backoff: Backoff::new(duration / 16, duration / 4),
        };
        (keeper, Authority(authority))
    }

    /// Keeps the lease until `release`, then gives it back.
    ///
    /// # Errors
    /// None: what fails is tried again.
    pub async fn run(mut self, release: CancellationToken) -> Result<(), KeeperError> {
        loop {
            let next = match self.turn().await {
                Ok(next) => {
                    self.backoff.reset();
                    next
                }
                Err(error) => {
                    self.metrics.renewal_failures.inc();
                    warn!(error = %chain(&error), "the leader lease was not kept");
                    // What was seen may be stale, except how long it has been seen so.
                    Instant::now() + self.backoff.next()
                }
            };
            self.publish_lapse();
            let leads = self.lead.borrow().is_some();
            let changed = Arc::clone(&self.changed);
            tokio::select! {
                biased;
                () = release.cancelled() => break,
                // Our own renewals are seen as changes too.
                () = changed.notified(), if !leads => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
        self.give_back().await;
        Ok(())
    }

    async fn turn(&mut self) -> Result<Instant, KeeperError> {
        let leads = self.lead.borrow().is_some();
        if !leads {
            self.read().await?;
        }
        let sent = self.clock.instant();
        let limit = self.terms.duration / 2;
        let parameters =
            PostParams { field_manager: Some(self.seat.manager.to_owned()), ..PostParams::default() };
        let effect = if leads { self.seat.renew } else { self.seat.take };
        let written = match decide(self.seen.as_ref(), &self.terms, self.clock.now(), sent) {
            Step::Wait(until) => {
                self.stop_acting("another holds the lease");
                return Ok(until);
            }
            Step::Create(mut lease) => {
                lease.metadata.name = Some(self.seat.lease.to_owned());
                around(effect, within(limit, self.leases.create(&parameters, &lease)))
                    .await
                    .map_err(|source| KeeperError::Create { lease: self.lease(), source })
            }
            Step::Write(lease) => {
                let written = within(limit, self.leases.replace(self.seat.lease, &parameters, &lease));
                around(effect, written)
                    .await
                    .map_err(|source| KeeperError::Write { lease: self.lease(), source })
            }
        };
        match written {
            Ok(lease) => {
                let term = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
                self.seen = Some(Seen { lease, since: sent });
                self.hold(Lead { until: self.terms.acts_until(sent), term });
                Ok(sent + self.terms.renewal())
            }
            Err(KeeperError::Create { source, .. } | KeeperError::Write { source, .. })
                if matches!(source.class(), Class::Conflict | Class::AlreadyExists) =>
            {
                // Another was faster, or an earlier write of ours arrived after all.
                self.read().await?;
                Ok(sent + self.terms.renewal() / 4)
            }
            Err(error) => Err(error),
        }
    }

    async fn read(&mut self) -> Result<(), KeeperError> {
        let read = within(self.terms.duration / 2, self.leases.get_opt(self.seat.lease)).await;
        let read = read.map_err(|source| KeeperError::Read { lease: self.lease(), source })?;
        let now = self.clock.instant();
        self.seen = read.map(|lease| Seen::note(self.seen.take(), lease, now));
        Ok(())
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.seat.namespace, self.seat.lease)
    }

    fn hold(&self, lead: Lead) {
        let before = self.lead.send_replace(Some(lead));
        self.metrics.last_renewal.set(self.clock.now().as_second());
        if before.is_none() {
            info!(identity = self.terms.identity, term = lead.term, "leading");
            self.metrics.terms.inc();
            self.metrics.leading.set(1);
        }
    }

    /// Says that we do not lead any more, once the time is over.
    fn publish_lapse(&self) {
        let lapsed = self.lead.borrow().is_some_and(|lead| lead.until <= self.clock.instant());
        if lapsed {
            self.stop_acting("the lease was not renewed in time");
        }
    }

    fn stop_acting(&self, reason: &'static str) {
        if self.lead.send_replace(None).is_some() {
            self.metrics.leading.set(0);
            warn!(identity = self.terms.identity, reason, "not leading any more");
        }
    }

    async fn give_back(&mut self) {
        self.lead.send_replace(None);
        self.metrics.leading.set(0);
        let Some(lease) = self.seen.as_ref().and_then(|seen| release(seen, &self.terms)) else { return };
        let parameters = PostParams::default();
        let given = self.leases.replace(self.seat.lease, &parameters, &lease);
        match around(self.seat.give_back, within(self.terms.duration / 2, given)).await {
            Ok(_) => info!(identity = self.terms.identity, "leader lease given back"),
            Err(error) => warn!(error = %chain(&error), "the leader lease was not given back; it will lapse"),
        }
    }
}
