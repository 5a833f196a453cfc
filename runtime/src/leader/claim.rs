//! The rules of the leader lease: when to take it, when to renew it, when to wait. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::clock::Instant;

/// The lease as it was last read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) lease: Lease,
    /// When we first saw it as it is.
    pub(super) since: Instant,
}

impl Seen {
    /// Notes what was read now; an unchanged lease keeps the time at which we first saw it so.
    pub(super) fn note(before: Option<Self>, lease: Lease, now: Instant) -> Self {
        match before {
            Some(before) if before.lease.metadata.resource_version == lease.metadata.resource_version => {
                before
            }
            _ => Self { lease, since: now },
        }
    }

    fn holder(&self) -> Option<&str> {
        self.lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    fn duration(&self) -> Duration {
        let seconds = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}

/// How this process holds a lease.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// Our identity.
    pub(super) identity: String,
    /// How long we lead without renewal.
    pub(super) duration: Duration,
}

impl Terms {
    /// How often to renew.
    pub(super) fn renewal(&self) -> Duration {
        self.duration / 4
    }

    /// Until when a renewal sent at `sent` lets us act: others wait for the whole duration.
    pub(super) fn acts_until(&self, sent: Instant) -> Instant {
        sent + self.duration - self.duration / 5
    }
}

/// What to do about the lease.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// There is none: create it with this content.
    Create(Lease),
    /// Write it with this content, under the version it was read at.
    Write(Lease),
    /// Somebody else has it; look again then at the latest.
    Wait(Instant),
}

/// What to do about the lease, given how it was last seen.
pub(super) fn decide(seen: Option<&Seen>, terms: &Terms, wall: Timestamp, now: Instant) -> Step {
    let Some(seen) = seen else {
        return Step::Create(held(Lease::default(), terms, wall, 0, wall));
    };
    let spec = seen.lease.spec.clone().unwrap_or_default();
    let transitions = spec.lease_transitions.unwrap_or(0);
    match seen.holder() {
        Some(holder) if holder == terms.identity => {
            let acquired = spec.acquire_time.map_or(wall, |time| time.0);
            Step::Write(held(seen.lease.clone(), terms, wall, transitions, acquired))
        }
        Some(_) if now < seen.since + seen.duration() => Step::Wait(seen.since + seen.duration()),
        Some(_) | None => {
            Step::Write(held(seen.lease.clone(), terms, wall, transitions.saturating_add(1), wall))
        }
    }
}

/// The lease given back, where it is ours.
pub(super) fn release(seen: &Seen, terms: &Terms) -> Option<Lease> {
    (seen.holder() == Some(terms.identity.as_str())).then(|| {
        let mut lease = seen.lease.clone();
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
        }
        lease
    })
}

fn held(lease: Lease, terms: &Terms, wall: Timestamp, transitions: i32, acquired: Timestamp) -> Lease {
    // Whole seconds is all the field holds; others must never wait shorter than we act.
    let seconds = terms.duration.as_secs() + u64::from(terms.duration.subsec_nanos() > 0);
    let spec = LeaseSpec {
        holder_identity: Some(terms.identity.clone()),
        lease_duration_seconds: i32::try_from(seconds).ok(),
        acquire_time: Some(MicroTime(acquired)),
        renew_time: Some(MicroTime(wall)),
        lease_transitions: Some(transitions),
        ..lease.spec.unwrap_or_default()
    };
    Lease { spec: Some(spec), ..lease }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(identity: &str) -> Terms {
        Terms { identity: identity.to_owned(), duration: Duration::from_secs(2) }
    }

    fn seen(holder: &str, since: Instant) -> Seen {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(2),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        };
        Seen { lease: Lease { spec: Some(spec), ..Lease::default() }, since }
    }

    fn written(step: Step) -> (String, i32) {
        let (Step::Write(lease) | Step::Create(lease)) = step else { panic!("nothing is written: {step:?}") };
        let spec = lease.spec.expect("a spec");
        (spec.holder_identity.expect("a holder"), spec.lease_transitions.expect("transitions"))
    }

    #[test]
    fn a_free_lease_is_taken_and_a_live_one_is_not() {
        let now = Instant::now();
        let wall = Timestamp::UNIX_EPOCH;
        let step = |seen: Option<&Seen>, now| decide(seen, &terms("me"), wall, now);
        assert_eq!(written(step(None, now)), ("me".to_owned(), 0), "none there");
        assert_eq!(written(step(Some(&seen("", now)), now)), ("me".to_owned(), 5), "given back");
        assert_eq!(written(step(Some(&seen("me", now)), now)), ("me".to_owned(), 4), "our own");
        let other = seen("other", now);
        let end = now + Duration::from_secs(2);
        assert_eq!(step(Some(&other), now), Step::Wait(end));
        assert_eq!(step(Some(&other), end - Duration::from_millis(1)), Step::Wait(end));
        assert_eq!(written(step(Some(&other), end)), ("me".to_owned(), 5), "lapsed");
    }

    #[test]
    fn a_renewal_by_another_starts_the_wait_over() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut renewed = seen("other", now).lease;
        renewed.metadata.resource_version = Some("2".to_owned());
        let same = Seen::note(Some(seen("other", now)), seen("other", now).lease, later);
        assert_eq!(same.since, now);
        assert_eq!(Seen::note(Some(seen("other", now)), renewed, later).since, later);
    }

    #[test]
    fn we_stop_acting_before_others_may_take_over() {
        let now = Instant::now();
        for millis in [1000, 1500, 2000, 10_000] {
            let terms = Terms { identity: "me".to_owned(), duration: Duration::from_millis(millis) };
            let lease = held(Lease::default(), &terms, Timestamp::UNIX_EPOCH, 0, Timestamp::UNIX_EPOCH);
            let others = Seen { lease, since: now };
            assert!(terms.acts_until(now) < now + others.duration(), "{millis}");
            assert!(terms.renewal() * 2 < terms.acts_until(now) - now, "{millis}");
        }
    }

    #[test]
    fn only_our_own_lease_is_given_back() {
        let now = Instant::now();
        assert!(release(&seen("other", now), &terms("me")).is_none());
        let lease = release(&seen("me", now), &terms("me")).expect("given back");
        assert_eq!(lease.spec.and_then(|spec| spec.holder_identity).as_deref(), Some(""));
    }
}
