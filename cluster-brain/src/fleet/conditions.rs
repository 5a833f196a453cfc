//! What is not as it should be with a Fleet: what its sets say, and whether games are let into its namespace. Pure.

use std::sync::Arc;

use berth_api::conditions::{Condition, ConditionKind, Trouble, told, trouble};
use berth_api::fleet::Fleet;
use berth_api::game_server_set::GameServerSet;
use jiff::Timestamp;

use crate::namespaces::Entry;

/// What a Fleet takes over from its sets, with the reason of each.
const OF_SETS: [(ConditionKind, &str); 3] = [
    (ConditionKind::Placed, "NoRoom"),
    (ConditionKind::Progressing, "ServersFail"),
    (ConditionKind::OneDisruptionBudget, "SeveralBudgets"),
];

/// The conditions of a Fleet, and what is to be told of its namespace for the first time.
pub(super) fn conditions(
    fleet: &Fleet,
    sets: &[Arc<GameServerSet>],
    entry: &Entry,
    now: Timestamp,
) -> (Option<Vec<Condition>>, Option<String>) {
    let before = fleet.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    // An old set that wants no servers has nothing to say.
    let of_sets = |kind| {
        let wanting = sets.iter().filter(|set| set.spec.replicas > 0);
        wanting
            .filter_map(|set| trouble(set.status.as_ref()?.conditions.as_deref()?, kind))
            .map(|said| said.message.clone())
            .next()
    };
    let was_shut = trouble(&before, ConditionKind::NamespaceEnabled).is_some();
    let mut conditions = (!before.is_empty()).then_some(before);
    for (kind, reason) in OF_SETS {
        let found = of_sets(kind).map(|message| Trouble { reason, message });
        conditions = told(conditions.as_deref(), kind, found.as_ref(), now);
    }
    let shut = match entry {
        Entry::Shut(trouble) => Some(trouble.clone()),
        Entry::Open => {
            of_sets(ConditionKind::NamespaceEnabled).map(|message| Trouble { reason: "NotBound", message })
        }
        Entry::Unknown => return (conditions, None),
    };
    conditions = told(conditions.as_deref(), ConditionKind::NamespaceEnabled, shut.as_ref(), now);
    (conditions, shut.filter(|_| !was_shut).map(|trouble| trouble.message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(replicas: i32, kind: &str, message: &str) -> Arc<GameServerSet> {
        let condition = json!({
            "type": kind, "status": "False", "reason": "x", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let set = json!({
            "metadata": {"name": "s"},
            "spec": {"replicas": replicas, "template": {"spec": {"template": {}}}},
            "status": {"conditions": [condition]},
        });
        Arc::new(serde_json::from_value(set).expect("a set"))
    }

    #[test]
    fn a_fleet_says_what_its_sets_say() {
        let fleet = Fleet::default();
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(conditions(&fleet, &[], &Entry::Open, now), (None, None));
        let sets = [set(0, "Placed", "old"), set(3, "Placed", "3 wait"), set(1, "Progressing", "they fail")];
        let (said, news) = conditions(&fleet, &sets, &Entry::Open, now);
        let said: Vec<_> = said.into_iter().flatten().map(|one| (one.type_, one.message)).collect();
        let expected = [("Placed", "3 wait"), ("Progressing", "they fail")];
        assert_eq!(said, expected.map(|(kind, message)| (kind.to_owned(), message.to_owned())));
        assert_eq!(news, None, "its sets have told it");
    }

    #[test]
    fn a_namespace_that_is_shut_is_told_once_and_opens() {
        let now = Timestamp::UNIX_EPOCH;
        let mut fleet = Fleet::default();
        let shut = Entry::Shut(Trouble { reason: "NotBound", message: "not let in".to_owned() });
        let (said, news) = conditions(&fleet, &[], &shut, now);
        assert_eq!(news.as_deref(), Some("not let in"));
        fleet.status.get_or_insert_default().conditions = said.clone();
        assert_eq!(conditions(&fleet, &[], &shut, now), (said.clone(), None));
        assert_eq!(conditions(&fleet, &[], &Entry::Unknown, now), (said, None));
        let (open, _) = conditions(&fleet, &[], &Entry::Open, now);
        assert_eq!(open.expect("conditions")[0].status, "True");
    }
}
