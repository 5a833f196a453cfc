//! Namespaces in which Berth may not write games: told where a user looks, with the remedy.
//!
//! A denial alone does not say why: a policy, a quota or the end of a namespace deny too. So the API server is asked what
//! we may do.

use std::time::Duration;

use berth_api::conditions::Trouble;
use berth_runtime::error::chain;
use berth_runtime::kube_client::{Class, within};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use tracing::debug;

use crate::writes::WriteError;

/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Whether games are let into a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Open,
    Shut(Trouble),
    /// A turn failed for another reason: what was said stays.
    Unknown,
}

/// Tells whether a denial comes from a namespace that was not enabled.
#[derive(Clone)]
pub(crate) struct Gate {
    client: Client,
}

impl Gate {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// What a turn that ended so says about the namespace.
    pub(crate) async fn entry<T>(&self, turn: &Result<T, WriteError>, namespace: &str) -> Entry {
        match turn {
            Ok(_) => Entry::Open,
            Err(error) => self.explain(error, namespace).await.map_or(Entry::Unknown, Entry::Shut),
        }
    }

    /// The trouble behind an error, where it is that games were not let into the namespace.
    pub(crate) async fn explain(&self, error: &WriteError, namespace: &str) -> Option<Trouble> {
        if error.class() != Some(Class::Forbidden) || self.may_write(namespace).await {
            return None;
        }
        Some(not_enabled(namespace))
    }

    async fn may_write(&self, namespace: &str) -> bool {
        let question = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some("agones.dev".to_owned()),
                    resource: Some("gameservers".to_owned()),
                    verb: Some("create".to_owned()),
                    namespace: Some(namespace.to_owned()),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews = Api::<SelfSubjectAccessReview>::all(self.client.clone());
        match within(LIMIT, reviews.create(&PostParams::default(), &question)).await {
            Ok(answer) => answer.status.is_some_and(|status| status.allowed),
            Err(error) => {
                // Nothing is known, so nothing is said.
                debug!(namespace, error = %chain(&error), "could not ask for our rights");
                true
            }
        }
    }
}

fn not_enabled(namespace: &str) -> Trouble {
    let message = format!(
        "games are not let into namespace {namespace}; run: kubectl apply --namespace {namespace} \
         -k manifests/game-namespace"
    );
    Trouble { reason: "NotBound", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_a_command_to_copy() {
        let message = not_enabled("arena").message;
        assert!(
            message.ends_with("run: kubectl apply --namespace arena -k manifests/game-namespace"),
            "{message}"
        );
    }
}
