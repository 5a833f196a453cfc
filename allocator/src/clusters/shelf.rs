//! The policies, as a watch shows them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use berth_api::allocation_policy::{GameServerAllocationPolicy, GameServerAllocationPolicySpec};
use kube::ResourceExt as _;
use kube::core::{Selector as LabelRule, SelectorExt as _};

/// Namespace and name.
type Key = (String, String);

/// Every policy of the cluster: there are few.
#[derive(Debug, Default)]
pub struct PolicyShelf {
    /// Held for one look or one change.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    policies: BTreeMap<Key, GameServerAllocationPolicy>,
    /// Those of a list that is not complete yet.
    listed: BTreeMap<Key, GameServerAllocationPolicy>,
}

impl PolicyShelf {
    /// The policies of a namespace that the rule picks, by name.
    pub(super) fn pick(&self, namespace: &str, rule: &LabelRule) -> Vec<GameServerAllocationPolicySpec> {
        let state = self.lock();
        let from = (namespace.to_owned(), String::new());
        state
            .policies
            .range(from..)
            .take_while(|((of, _), _)| of == namespace)
            .filter(|(_, policy)| rule.matches(policy.labels()))
            .map(|(_, policy)| policy.spec.clone())
            .collect()
    }

    /// A new list begins.
    pub fn begin_list(&self) {
        self.lock().listed.clear();
    }

    /// The list shows this one.
    pub fn list(&self, policy: GameServerAllocationPolicy) {
        self.lock().listed.insert(key(&policy), policy);
    }

    /// The list is complete.
    pub fn end_list(&self) {
        let mut state = self.lock();
        state.policies = std::mem::take(&mut state.listed);
    }

    /// One is so now.
    pub fn put(&self, policy: GameServerAllocationPolicy) {
        self.lock().policies.insert(key(&policy), policy);
    }

    /// One is gone, or can no longer be read.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.lock().policies.remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(policy: &GameServerAllocationPolicy) -> Key {
    (policy.namespace().unwrap_or_default(), policy.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(namespace: &str, name: &str, region: &str) -> GameServerAllocationPolicy {
        let mut policy = GameServerAllocationPolicy::new(name, GameServerAllocationPolicySpec::default());
        policy.spec.connection_info.cluster_name = name.to_owned();
        policy.metadata.namespace = Some(namespace.to_owned());
        policy.labels_mut().insert("region".to_owned(), region.to_owned());
        policy
    }

    fn picked(shelf: &PolicyShelf, namespace: &str, rule: &LabelRule) -> Vec<String> {
        shelf.pick(namespace, rule).into_iter().map(|spec| spec.connection_info.cluster_name).collect()
    }

    #[test]
    fn policies_are_picked_by_namespace_and_label() {
        let shelf = PolicyShelf::default();
        for (namespace, name, region) in
            [("a", "two", "eu"), ("a", "one", "eu"), ("a", "three", "us"), ("b", "four", "eu")]
        {
            shelf.put(policy(namespace, name, region));
        }
        let all = LabelRule::default();
        assert_eq!(picked(&shelf, "a", &all), ["one", "three", "two"]);
        let europe: LabelRule = [("region".to_owned(), "eu".to_owned())].into_iter().collect();
        assert_eq!(picked(&shelf, "a", &europe), ["one", "two"]);
        shelf.forget("a", "one");
        assert_eq!(picked(&shelf, "a", &europe), ["two"]);
        shelf.begin_list();
        shelf.list(policy("a", "five", "eu"));
        assert_eq!(picked(&shelf, "a", &europe), ["two"], "what was known counts until the list is complete");
        shelf.end_list();
        assert_eq!(picked(&shelf, "a", &all), ["five"]);
    }
}
