//! The task that takes the node lease and renews it. It alone writes the lease, and publishes every claim.

use std::time::Duration;

use berth_api::names;
use berth_api::node_lease::{Epoch, Holder};
use berth_runtime::CancellationToken;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::error::chain;
use berth_runtime::kill_point::around;
use berth_runtime::kube_client::{CallError, Class, within};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::claim::{Kin, Sight, Step, decide};
use super::{Authority, Claim, LeaseMetrics};
use crate::config::LeaseTiming;
use crate::effects::Effect;
use crate::identity::Identity;

/// How soon after a failed attempt the next one is made.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// The first epoch of a lease.
const FIRST: Epoch = Epoch(1);

/// Why the keeper ended.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Somebody else took the lease from us. What we know may be stale, so the process starts over.
    #[error("the node lease was taken by {holder}")]
    Taken {
        /// By whom.
        holder: String,
    },
}

/// The lease as last read or written, and when.
#[derive(Clone, Debug)]
struct Known {
    lease: Lease,
    sight: Sight,
}

/// Takes and renews the lease of one node.
#[derive(Debug)]
pub struct Keeper {
    leases: Api<Lease>,
    identity: Identity,
    me: Holder,
    timing: LeaseTiming,
    clock: Clock,
    claims: watch::Sender<Option<Claim>>,
    metrics: LeaseMetrics,
    known: Option<Known>,
    has_held: bool,
    lapses: u32,
}

impl Keeper {
    /// A keeper, and where its claims can be read. The caller holds the node's lock, see [`super::lock`].
    pub fn new(
        client: Client,
        identity: &Identity,
        timing: LeaseTiming,
        metrics: LeaseMetrics,
    ) -> (Self, Authority) {
        let (claims, receiver) = watch::channel(None);
        let keeper = Self {
            leases: Api::namespaced(client, names::SYSTEM_NAMESPACE),
            identity: identity.clone(),
            me: identity.holder(),
            timing,
            clock: Clock::system(),
            claims,
            metrics,
            known: None,
            has_held: false,
            lapses: 0,
        };
        (keeper, Authority::new(receiver))
    }

    /// Runs until asked to stop. The lease is kept then: a successor on this node takes it over by the lock, and a
    /// node whose agent is only being replaced must not look dead meanwhile.
    ///
    /// # Errors
    /// Somebody else took the lease.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), KeeperError> {
        loop {
            let next = self.turn().await?;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// One look and one step; answers when to look again.
    async fn turn(&mut self) -> Result<Instant, KeeperError> {
        self.note_lapse();
        let started = self.clock.instant();
        // Between our own renewals the lease is not read: a write under its version finds out who else wrote.
        if (self.known.is_none() || self.claims.borrow().is_none())
            && let Err(error) = self.look().await
        {
            return Ok(self.failed("could not read the node lease", &error));
        }
        let kin = Kin { me: &self.me, predecessor_is_dead: !self.has_held, margin: self.timing.margin };
        let step = decide(self.known.as_ref().map(|known| &known.sight), kin, started);
        debug!(?step, "node lease");
        let (epoch, written) = match step {
            Step::WaitUntil(then) => {
                if self.has_held {
                    let holder = self.known.as_ref().and_then(|known| known.sight.holder.clone());
                    return Err(KeeperError::Taken { holder: holder.unwrap_or_default() });
                }
                return Ok(then.min(started + self.timing.renewal));
            }
            Step::Create => {
                let epoch = self.claims.borrow().as_ref().map_or(FIRST, |claim| claim.epoch);
                let lease = self.lease(epoch, None);
                let params = PostParams::default();
                let write = within(self.limit(), self.leases.create(&params, &lease));
                (epoch, around(Effect::TakeLease, write).await)
            }
            Step::Renew(epoch) | Step::Take(epoch) => {
                let is_ours = matches!(step, Step::Renew(_));
                let effect = if is_ours { Effect::RenewLease } else { Effect::TakeLease };
                let lease = self.lease(epoch, self.known.as_ref().map(|known| &known.lease));
                let params = PostParams::default();
                let write = self.leases.replace(&self.identity.node, &params, &lease);
                (epoch, around(effect, within(self.limit(), write)).await)
            }
        };
        match written {
            Ok(lease) => {
                self.note(Some(lease), started);
                self.publish(epoch, started);
                Ok(started + self.timing.renewal)
            }
            Err(error) => {
                let again = self.failed("could not write the node lease", &error);
                match error.class() {
                    // Somebody wrote in between, or it is gone: look before the next step, at once.
                    Class::Conflict | Class::AlreadyExists | Class::NotFound => {
                        if let Err(error) = self.look().await {
                            return Ok(self.failed("could not read the node lease", &error));
                        }
                        self.require_ours()?;
                        Ok(if error.class() == Class::NotFound { again } else { self.clock.instant() })
                    }
                    _ => Ok(again),
                }
            }
        }
    }

    /// A renewal may take longer than what it permits: the claim counts from before it was sent.
    fn limit(&self) -> Duration {
        self.timing.renewal
    }

    async fn look(&mut self) -> Result<(), CallError> {
        let lease = within(self.limit(), self.leases.get_opt(&self.identity.node)).await?;
        self.note(lease, self.clock.instant());
        Ok(())
    }

    /// Once held, the lease may only be ours.
    fn require_ours(&self) -> Result<(), KeeperError> {
        let holder = self.known.as_ref().and_then(|known| known.sight.holder.clone()).unwrap_or_default();
        if self.has_held && !holder.is_empty() && holder != self.me.to_string() {
            return Err(KeeperError::Taken { holder });
        }
        Ok(())
    }

    fn note(&mut self, lease: Option<Lease>, now: Instant) {
        let Some(lease) = lease else {
            self.known = None;
            return;
        };
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        if let Some(known) = &self.known
            && version(&known.lease) == version(&lease)
        {
            return;
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let sight = Sight {
            holder: spec.holder_identity,
            epoch: Epoch(spec.lease_transitions.unwrap_or_default()),
            duration: seconds.map_or(self.timing.duration, Duration::from_secs),
            unchanged_since: now,
        };
        self.known = Some(Known { lease, sight });
    }

    fn lease(&self, epoch: Epoch, over: Option<&Lease>) -> Lease {
        let now = MicroTime(self.clock.now());
        let old = over.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let is_ours = old.holder_identity.as_deref() == Some(self.me.to_string().as_str());
        let mut metadata = over.map_or_else(
            || ObjectMeta { name: Some(self.identity.node.clone()), ..ObjectMeta::default() },
            |lease| lease.metadata.clone(),
        );
        metadata.managed_fields = None;
        // A Node made again under the same name has another UID; the lease must go with the present one.
        metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.identity.node.clone(),
            uid: self.identity.node_uid.clone(),
            ..OwnerReference::default()
        }]);
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                acquire_time: if is_ours { old.acquire_time } else { Some(now.clone()) },
                holder_identity: Some(self.me.to_string()),
                lease_duration_seconds: i32::try_from(self.timing.duration.as_secs()).ok(),
                lease_transitions: Some(epoch.0),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        }
    }

    fn publish(&mut self, epoch: Epoch, started: Instant) {
        let acts_until = started + self.timing.duration - self.timing.margin;
        self.metrics.renewals.inc();
        self.metrics.held.set(1);
        self.metrics.epoch.set(i64::from(epoch.0));
        self.metrics.last_success.set(self.clock.now().as_second());
        let old = self.claims.borrow().clone();
        if old.is_none() {
            info!(node = %self.identity.node, epoch = %epoch, holder = %self.me, "node lease held");
        }
        self.has_held = true;
        self.claims.send_replace(Some(Claim {
            holder: self.me.clone(),
            epoch,
            since: old.map_or(started, |claim| claim.since),
            lapses: self.lapses,
            acts_until,
        }));
    }

    fn note_lapse(&mut self) {
        let now = self.clock.instant();
        let lapsed = self.claims.borrow().as_ref().is_some_and(|claim| !claim.still_held(now));
        if lapsed {
            warn!(node = %self.identity.node, "node lease lapsed: nothing is written until it is renewed");
            self.lapses = self.lapses.saturating_add(1);
            self.metrics.lapses.inc();
            self.metrics.held.set(0);
            self.claims.send_replace(None);
        }
    }

    fn failed(&self, what: &'static str, error: &CallError) -> Instant {
        self.metrics.failures.inc();
        warn!(node = %self.identity.node, error = %chain(error), "{what}");
        self.clock.instant() + TRY_AGAIN
    }
}
