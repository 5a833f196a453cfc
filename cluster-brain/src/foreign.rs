//! Whether another controller of the same resources is at work, asked once at the start: two of them would undo each
//! other's work, and end each other's games.
//!
//! It shows by its leader lease. A lease that is renewed while we look belongs to somebody who acts; one that is not
//! renewed for its whole duration was left behind. Clocks are not compared. A controller that runs without a leader
//! lease cannot be told from none.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_runtime::clock::Instant;
use berth_runtime::kube_client::{CallError, within};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tracing::{info, warn};

/// Name of the leader lease of the controller of `agones.dev` resources that people run today.
const LOCK: &str = "agones-controller-lock";
/// How often to look.
const LOOK: Duration = Duration::from_millis(500);
/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(15);
/// How long a lease lasts that does not say so.
const DURATION: Duration = Duration::from_secs(15);
/// The longest that is waited for a lease, whatever it says.
const LONGEST: Duration = Duration::from_secs(60);

/// Why this brain must not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForeignError {
    #[error("could not look for leader leases of other controllers")]
    Ask(#[source] CallError),
    #[error(
        "another controller of these resources is at work: {holder} renews lease {namespace}/{LOCK}; \
         stop it first (scale its Deployments to 0), then start again"
    )]
    AtWork {
        /// Where it runs.
        namespace: String,
        /// Who it is.
        holder: String,
    },
}

/// Waits until it is sure that no other controller is at work.
///
/// # Errors
/// When one is, or nobody can tell.
pub(crate) async fn require_none(client: &Client) -> Result<(), ForeignError> {
    let first = held(client).await?;
    if first.is_empty() {
        return Ok(());
    }
    let wait = first.values().map(|lease| lease.duration).max().unwrap_or(DURATION);
    info!(leases = ?first.keys(), wait = ?wait, "looking whether another controller is at work");
    let end = Instant::now() + wait;
    while Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        if let Some((namespace, holder)) = renewed(&first, &held(client).await?) {
            return Err(ForeignError::AtWork { namespace, holder });
        }
    }
    warn!(leases = ?first.keys(), "another controller has left its leader lease behind");
    Ok(())
}

/// A lease that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    holder: String,
    renewal: String,
    duration: Duration,
}

async fn held(client: &Client) -> Result<BTreeMap<String, Held>, ForeignError> {
    let named = ListParams::default().fields(&format!("metadata.name={LOCK}"));
    let leases = Api::<Lease>::all(client.clone());
    let leases = within(LIMIT, leases.list(&named)).await.map_err(ForeignError::Ask)?;
    Ok(leases.items.iter().filter_map(|lease| Some((lease.namespace()?, read(lease)?))).collect())
}

fn read(lease: &Lease) -> Option<Held> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    let renewed = spec.renew_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Some(Held {
        renewal: format!("{holder} {renewed} {}", spec.lease_transitions.unwrap_or(0)),
        holder,
        duration: seconds.map_or(DURATION, Duration::from_secs).min(LONGEST),
    })
}

/// The namespace and the holder of a lease that was renewed or taken in between. One that was given back is nobody's.
fn renewed(first: &BTreeMap<String, Held>, now: &BTreeMap<String, Held>) -> Option<(String, String)> {
    now.iter().find_map(|(namespace, lease)| {
        let is_same = first.get(namespace).is_some_and(|first| first.renewal == lease.renewal);
        (!is_same).then(|| (namespace.clone(), lease.holder.clone()))
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn lease(holder: &str, renewed: i64) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Timestamp::from_second(renewed).ok().map(MicroTime),
            lease_duration_seconds: Some(3600),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    fn in_system(lease: &Lease) -> BTreeMap<String, Held> {
        read(lease).into_iter().map(|lease| ("system".to_owned(), lease)).collect()
    }

    #[test]
    fn only_a_lease_that_changes_is_somebody_at_work() {
        let first = in_system(&lease("one", 1));
        let of = |other: &Lease| renewed(&first, &in_system(other)).map(|(_, holder)| holder);
        assert_eq!(of(&lease("one", 1)), None, "left behind");
        assert_eq!(of(&lease("one", 2)).as_deref(), Some("one"), "renewed");
        assert_eq!(of(&lease("two", 1)).as_deref(), Some("two"), "taken over");
        assert_eq!(of(&lease("", 2)), None, "given back");
        assert_eq!(first["system"].duration, LONGEST, "nobody waits for an hour");
    }
}
