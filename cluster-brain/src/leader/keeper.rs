//! The task that takes, renews and gives back the leader lease, and publishes until when we may act.

use std::sync::Arc;
use std::time::Duration;

use berth_api::names::{BRAIN_LEASE, BRAIN_MANAGER, SYSTEM_NAMESPACE};
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::error::chain;
use berth_runtime::kill_point::around;
use berth_runtime::kube_client::{CallError, Class, within};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::claim::{Seen, Step, Terms, decide, release};
use super::{Authority, Lead, LeaderMetrics};
use crate::effects::Effect;

/// Why the lease could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeeperError {
    #[error("could not read lease {SYSTEM_NAMESPACE}/{BRAIN_LEASE}")]
    Read(#[source] CallError),
    #[error(
        "could not create lease {SYSTEM_NAMESPACE}/{BRAIN_LEASE}; is namespace {SYSTEM_NAMESPACE} there?"
    )]
    Create(#[source] CallError),
    #[error("could not write lease {SYSTEM_NAMESPACE}/{BRAIN_LEASE}")]
    Write(#[source] CallError),
}

/// Keeps the leader lease.
#[derive(Debug)]
pub(crate) struct Keeper {
    leases: Api<Lease>,
    terms: Terms,
    clock: Clock,
    seen: Option<Seen>,
    lead: watch::Sender<Option<Lead>>,
    changed: Arc<Notify>,
    metrics: LeaderMetrics,
    backoff: Backoff,
}

impl Keeper {
    /// A keeper that holds nothing yet. `changed` tells it that the lease may have changed.
    pub(crate) fn new(
        client: kube::Client,
        identity: String,
        duration: Duration,
        changed: Arc<Notify>,
        metrics: LeaderMetrics,
    ) -> (Self, Authority) {
        let (lead, authority) = watch::channel(None);
        let keeper = Self {
            leases: Api::namespaced(client, SYSTEM_NAMESPACE),
            terms: Terms { identity, duration },
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
    pub(crate) async fn run(mut self, release: CancellationToken) -> Result<(), KeeperError> {
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
            PostParams { field_manager: Some(BRAIN_MANAGER.to_owned()), ..PostParams::default() };
        let effect = if leads { Effect::RenewLead } else { Effect::TakeLead };
        let written = match decide(self.seen.as_ref(), &self.terms, self.clock.now(), sent) {
            Step::Wait(until) => {
                self.stop_acting("another holds the lease");
                return Ok(until);
            }
            Step::Create(mut lease) => {
                lease.metadata.name = Some(BRAIN_LEASE.to_owned());
                around(effect, within(limit, self.leases.create(&parameters, &lease)))
                    .await
                    .map_err(KeeperError::Create)
            }
            Step::Write(lease) => {
                let written = within(limit, self.leases.replace(BRAIN_LEASE, &parameters, &lease));
                around(effect, written).await.map_err(KeeperError::Write)
            }
        };
        match written {
            Ok(lease) => {
                let term = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
                self.seen = Some(Seen { lease, since: sent });
                self.hold(Lead { until: self.terms.acts_until(sent), term });
                Ok(sent + self.terms.renewal())
            }
            Err(KeeperError::Create(error) | KeeperError::Write(error))
                if matches!(error.class(), Class::Conflict | Class::AlreadyExists) =>
            {
                // Another was faster, or an earlier write of ours arrived after all.
                self.read().await?;
                Ok(sent + self.terms.renewal() / 4)
            }
            Err(error) => Err(error),
        }
    }

    async fn read(&mut self) -> Result<(), KeeperError> {
        let read = within(self.terms.duration / 2, self.leases.get_opt(BRAIN_LEASE)).await;
        let read = read.map_err(KeeperError::Read)?;
        let now = self.clock.instant();
        self.seen = read.map(|lease| Seen::note(self.seen.take(), lease, now));
        Ok(())
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
        let given = self.leases.replace(BRAIN_LEASE, &parameters, &lease);
        match around(Effect::GiveLeadBack, within(self.terms.duration / 2, given)).await {
            Ok(_) => info!(identity = self.terms.identity, "leader lease given back"),
            Err(error) => warn!(error = %chain(&error), "the leader lease was not given back; it will lapse"),
        }
    }
}
