//! Every write of the brain: under the leader lease, within a limit, counted.
//!
//! Each has a name, an [`Effect`]. Changes are merge patches that hold the resource version they were decided on, so that a write never overwrites what
//! its decision did not see.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use berth_api::names::BRAIN_MANAGER;
use berth_runtime::kill_point::around;
use berth_runtime::kube_client::{CallError, Class, within};
use berth_runtime::leader::Authority;
use berth_runtime::metrics::Metrics;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Client, Resource};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::effects::Effect;
use crate::stores::Key;

/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A write that did not happen, or of which we do not know whether it did.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Another brain may be acting; nothing was sent.
    #[error("could not {verb} {kind} {name}: this brain does not lead")]
    NotLeading {
        /// What was to be done.
        verb: &'static str,
        /// To what kind of object.
        kind: String,
        /// To which.
        name: Key,
    },
    /// We stopped leading during the call, which was given up.
    #[error("could not {verb} {kind} {name}: this brain stopped leading meanwhile")]
    StoppedLeading {
        /// What was to be done.
        verb: &'static str,
        /// To what kind of object.
        kind: String,
        /// To which.
        name: Key,
    },
    /// The call failed.
    #[error("could not {verb} {kind} {name}")]
    Call {
        /// What was to be done.
        verb: &'static str,
        /// To what kind of object.
        kind: String,
        /// To which.
        name: Key,
        /// What the call says.
        source: CallError,
    },
}

impl WriteError {
    /// A short fixed word for metrics.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::NotLeading { .. } => "not_leading",
            Self::StoppedLeading { .. } => "stopped_leading",
            Self::Call { source, .. } => source.class().category(),
        }
    }

    /// What the API server's answer means; `None` when there was none, and none is to come.
    pub(crate) fn class(&self) -> Option<Class> {
        match self {
            Self::NotLeading { .. } | Self::StoppedLeading { .. } => None,
            Self::Call { source, .. } => Some(source.class()),
        }
    }

    /// Whether the server may have done it, or may yet do it.
    pub(crate) fn may_have_happened(&self) -> bool {
        matches!(self, Self::StoppedLeading { .. }) || self.class() == Some(Class::Transient)
    }
}

/// Counts writes.
#[derive(Clone, Debug)]
pub(crate) struct WriteMetrics {
    writes: Family<WriteLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: String,
    verb: &'static str,
    result: &'static str,
}

impl WriteMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut api = metrics.subsystem("brain_api");
        let help = "Writes to the API server, by kind, verb and result";
        Self { writes: api.register("writes", help, Family::default()) }
    }
}

/// Writes to the API server while this brain leads.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
    authority: Authority,
    metrics: WriteMetrics,
}

impl Writer {
    pub(crate) fn new(client: Client, authority: Authority, metrics: WriteMetrics) -> Self {
        Self { client, authority, metrics }
    }

    /// The objects of one kind in a namespace, for reads; no cache stands in between.
    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Reads one object as it is now.
    pub(crate) async fn get<K>(&self, key: &Key) -> Result<Option<K>, WriteError>
    where
        K: Object,
        K::DynamicType: Default,
    {
        let read = within(LIMIT, self.api::<K>(&key.namespace).get_opt(&key.name)).await;
        read.map_err(|source| WriteError::Call { verb: "read", kind: kind::<K>(), name: key.clone(), source })
    }

    /// Creates an object that has its name.
    pub(crate) async fn create<K>(&self, effect: Effect, key: &Key, object: &K) -> Result<K, WriteError>
    where
        K: Object,
        K::DynamicType: Default,
    {
        let parameters = PostParams { field_manager: Some(BRAIN_MANAGER.to_owned()), dry_run: false };
        let api = self.api::<K>(&key.namespace);
        self.write::<K, _>((effect, "create"), key, api.create(&parameters, object)).await
    }

    /// Merges a change into an object.
    pub(crate) async fn patch<K>(&self, effect: Effect, key: &Key, change: &Value) -> Result<K, WriteError>
    where
        K: Object,
        K::DynamicType: Default,
    {
        let api = self.api::<K>(&key.namespace);
        let change = Patch::Merge(change);
        self.write::<K, _>((effect, "change"), key, api.patch(&key.name, &manager(), &change)).await
    }

    /// Merges a change into an object of no namespace.
    pub(crate) async fn patch_cluster<K>(
        &self,
        effect: Effect,
        name: &str,
        change: &Value,
    ) -> Result<K, WriteError>
    where
        K: Resource<Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let api = Api::<K>::all(self.client.clone());
        let (key, change) = (Key::new("", name), Patch::Merge(change));
        self.write::<K, _>((effect, "change"), &key, api.patch(name, &manager(), &change)).await
    }

    /// Merges a change into an object's status.
    pub(crate) async fn patch_status<K>(
        &self,
        effect: Effect,
        key: &Key,
        change: &Value,
    ) -> Result<K, WriteError>
    where
        K: Object,
        K::DynamicType: Default,
    {
        let api = self.api::<K>(&key.namespace);
        let change = Patch::Merge(change);
        self.write::<K, _>((effect, "report on"), key, api.patch_status(&key.name, &manager(), &change)).await
    }

    /// Deletes an object by its UID. One that is gone is as good as deleted.
    pub(crate) async fn delete<K>(&self, effect: Effect, key: &Key, uid: &str) -> Result<(), WriteError>
    where
        K: Object,
        K::DynamicType: Default,
    {
        self.delete_within::<K>(effect, key, uid, None).await
    }

    /// Removes an object by its UID without a grace: nobody is there to end what it stands for.
    pub(crate) async fn remove<K>(&self, effect: Effect, key: &Key, uid: &str) -> Result<(), WriteError>
    where
        K: Object,
        K::DynamicType: Default,
    {
        self.delete_within::<K>(effect, key, uid, Some(0)).await
    }

    async fn delete_within<K>(
        &self,
        effect: Effect,
        key: &Key,
        uid: &str,
        grace: Option<u32>,
    ) -> Result<(), WriteError>
    where
        K: Object,
        K::DynamicType: Default,
    {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Background),
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        let api = self.api::<K>(&key.namespace);
        match self.write::<K, _>((effect, "delete"), key, api.delete(&key.name, &parameters)).await {
            Ok(_) => Ok(()),
            // A conflict means that another object has the name now.
            Err(error) if matches!(error.class(), Some(Class::NotFound | Class::Conflict)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write<K, T>(
        &self,
        (effect, verb): (Effect, &'static str),
        key: &Key,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, WriteError>
    where
        K: Resource,
        K::DynamicType: Default,
    {
        let (kind, name) = (kind::<K>(), key.clone());
        let mut authority = self.authority.clone();
        let result = if authority.remaining().is_none() {
            Err(WriteError::NotLeading { verb, kind: kind.clone(), name })
        } else {
            tokio::select! {
                biased;
                // The answer first: what has happened is worth knowing.
                answer = around(effect, within(LIMIT, call)) => {
                    answer.map_err(|source| WriteError::Call { verb, kind: kind.clone(), name, source })
                }
                () = authority.lost() => Err(WriteError::StoppedLeading { verb, kind: kind.clone(), name }),
            }
        };
        let word = result.as_ref().map_or_else(WriteError::category, |_| "ok");
        self.metrics.writes.get_or_create(&WriteLabels { kind, verb, result: word }).inc();
        result
    }
}

/// What the brain reads and writes.
pub(crate) trait Object:
    Resource<Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

fn kind<K: Resource>() -> String
where
    K::DynamicType: Default,
{
    K::kind(&K::DynamicType::default()).into_owned()
}

fn manager() -> PatchParams {
    PatchParams { field_manager: Some(BRAIN_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The merge patch that makes `wanted` of `seen`; `None` where there is nothing to do.
pub(crate) fn difference(seen: &Value, wanted: &Value) -> Option<Value> {
    match (seen, wanted) {
        (Value::Object(seen), Value::Object(wanted)) => {
            let mut change = Map::new();
            for (name, value) in wanted {
                let before = seen.get(name).unwrap_or(&Value::Null);
                if let Some(inner) = difference(before, value) {
                    change.insert(name.clone(), inner);
                }
            }
            for name in seen.keys().filter(|name| !wanted.contains_key(*name)) {
                change.insert(name.clone(), Value::Null);
            }
            (!change.is_empty()).then_some(Value::Object(change))
        }
        (seen, wanted) if seen == wanted => None,
        (_, wanted) => Some(wanted.clone()),
    }
}

/// A merge patch that only holds for the version it was decided on.
pub(crate) fn under_version(mut change: Value, resource_version: &str) -> Value {
    if !change["metadata"].is_object() {
        change["metadata"] = Value::Object(Map::new());
    }
    change["metadata"]["resourceVersion"] = Value::String(resource_version.to_owned());
    change
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_names_what_changes_and_nothing_else() {
        let seen = json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1, 2], "g": null});
        let wanted = json!({"a": 1, "b": {"c": 1}, "e": [2], "f": {"h": 1}, "g": null});
        assert_eq!(difference(&seen, &wanted), Some(json!({"b": {"d": null}, "e": [2], "f": {"h": 1}})));
        assert_eq!(difference(&seen, &seen), None);
    }

    #[test]
    fn a_patch_carries_the_version_beside_other_metadata() {
        let change = under_version(json!({"metadata": {"labels": {"a": "b"}}}), "7");
        assert_eq!(change, json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}}));
        assert_eq!(under_version(json!({}), "7"), json!({"metadata": {"resourceVersion": "7"}}));
    }
}
