//! Whether a user may allocate: asked of the API server, and remembered for a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_runtime::clock::{Clock, Instant};
use berth_runtime::kube_client::{CallError, within};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};

use super::front_proxy::User;

/// How long an answer is believed: as other servers behind the API server have it.
const MEMORY: Duration = Duration::from_secs(10);
/// How long a question may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Answers that are remembered; more are not worth the room.
const REMEMBERED: usize = 4096;

/// Asks whether users may allocate.
#[derive(Clone)]
pub struct Authorizer {
    client: Client,
    /// Guards what is remembered; held for a look-up.
    known: Arc<Mutex<HashMap<(User, String), (Verdict, Instant)>>>,
    clock: Clock,
}

/// What the API server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// With the reason, where it has one.
    Denied(String),
}

impl Authorizer {
    /// One that asks through this client.
    pub fn new(client: Client) -> Self {
        Self { client, known: Arc::default(), clock: Clock::system() }
    }

    /// Whether this user may allocate in this namespace.
    pub(super) async fn may_allocate(&self, user: &User, namespace: &str) -> Result<Verdict, CallError> {
        let now = self.clock.instant();
        let key = (user.clone(), namespace.to_owned());
        if let Some(verdict) = self.recall(&key, now) {
            return Ok(verdict);
        }
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let answer = within(LIMIT, reviews.create(&PostParams::default(), &review(user, namespace))).await?;
        let status = answer.status.unwrap_or_default();
        let verdict = match status.allowed {
            true => Verdict::Allowed,
            false => Verdict::Denied(status.reason.unwrap_or_default()),
        };
        self.remember(key, verdict.clone(), now);
        Ok(verdict)
    }

    fn recall(&self, key: &(User, String), now: Instant) -> Option<Verdict> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(_, until)| now < *until).map(|(verdict, _)| verdict.clone())
    }

    fn remember(&self, key: (User, String), verdict: Verdict, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < REMEMBERED {
            known.insert(key, (verdict, now + MEMORY));
        }
    }
}

fn review(user: &User, namespace: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.iter().cloned().collect()),
            resource_attributes: Some(ResourceAttributes {
                group: Some("allocation.agones.dev".to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("gameserverallocations".to_owned()),
                verb: Some("create".to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
