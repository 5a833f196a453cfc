//! What is not as it should be with a set. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::conditions::{Condition, ConditionKind, Trouble, told, trouble};
use berth_api::game_server_set::GameServerSet;
use jiff::Timestamp;

use crate::namespaces::Entry;
use crate::stores::Server;

/// What is known of a set beside its servers.
#[derive(Clone, Debug)]
pub(super) struct Circumstances {
    pub(super) entry: Entry,
    /// New servers fail.
    pub(super) strain: Option<Trouble>,
    /// Budgets that match its pods, where they are several.
    pub(super) budgets: Option<String>,
}

/// The conditions of a set, and those that were not told before.
pub(super) fn conditions(
    set: &GameServerSet,
    servers: &[Arc<Server>],
    circumstances: Circumstances,
    now: Timestamp,
) -> (Option<Vec<Condition>>, Vec<(ConditionKind, String)>) {
    let before = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let budgets = circumstances.budgets.map(|named| Trouble {
        reason: "SeveralBudgets",
        message: format!(
            "several disruption budgets match a pod, so no eviction of it can be decided; leave one of: {named}"
        ),
    });
    let mut troubles = vec![
        (ConditionKind::Placed, waiting(servers)),
        (ConditionKind::Progressing, circumstances.strain),
        (ConditionKind::OneDisruptionBudget, budgets),
    ];
    match circumstances.entry {
        Entry::Open => troubles.push((ConditionKind::NamespaceEnabled, None)),
        Entry::Shut(trouble) => troubles.push((ConditionKind::NamespaceEnabled, Some(trouble))),
        Entry::Unknown => {}
    }
    let is_new = |kind, found: &Option<Trouble>| found.is_some() && trouble(&before, kind).is_none();
    let news = troubles
        .iter()
        .filter(|(kind, found)| is_new(*kind, found))
        .filter_map(|(kind, found)| Some((*kind, found.as_ref()?.message.clone())))
        .collect();
    let mut conditions = (!before.is_empty()).then_some(before);
    for (kind, found) in &troubles {
        conditions = told(conditions.as_deref(), *kind, found.as_ref(), now);
    }
    (conditions, news)
}

/// Why servers wait for a node: what most of them say.
fn waiting(servers: &[Arc<Server>]) -> Option<Trouble> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for server in servers.iter().filter(|server| server.is_waiting()) {
        if let Some(said) = server.trouble(ConditionKind::Placed) {
            *reasons.entry(&said.message).or_default() += 1;
        }
    }
    let count: usize = reasons.values().sum();
    let (most, _) = reasons.into_iter().max_by_key(|(_, count)| *count)?;
    let plural = if count == 1 { "GameServer waits" } else { "GameServers wait" };
    Some(Trouble { reason: "NoRoom", message: format!("{count} {plural}: {most}") })
}

#[cfg(test)]
mod tests {
    use berth_api::lifecycle::State;

    use super::*;
    use crate::testing::server;

    fn quiet() -> Circumstances {
        Circumstances { entry: Entry::Open, strain: None, budgets: None }
    }

    fn waits(name: &str, message: &str) -> Arc<Server> {
        let trouble = Trouble { reason: "NoRoom", message: message.to_owned() };
        let conditions = told(None, ConditionKind::Placed, Some(&trouble), Timestamp::UNIX_EPOCH);
        Arc::new(Server { conditions: conditions.unwrap_or_default(), ..server(name).build() })
    }

    #[test]
    fn a_set_that_is_well_has_none() {
        let servers = [Arc::new(server("a").state(State::Ready).build())];
        let said = conditions(&GameServerSet::default(), &servers, quiet(), Timestamp::UNIX_EPOCH);
        assert_eq!(said, (None, Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_news_once_and_then_over() {
        let servers = [
            waits("a", "no node fits: 2 nodes draining"),
            waits("b", "no node fits: x"),
            waits("c", "no node fits: x"),
        ];
        let mut set = GameServerSet::default();
        let shut = Trouble { reason: "NotBound", message: "not let in".to_owned() };
        let troubled =
            Circumstances { entry: Entry::Shut(shut), strain: None, budgets: Some("one, two".to_owned()) };
        let (said, news) = conditions(&set, &servers, troubled.clone(), Timestamp::UNIX_EPOCH);
        let kinds: Vec<_> = news.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            kinds,
            [ConditionKind::Placed, ConditionKind::OneDisruptionBudget, ConditionKind::NamespaceEnabled]
        );
        assert_eq!(news[0].1, "3 GameServers wait: no node fits: x");
        set.status.get_or_insert_default().conditions = said;
        let (again, news) = conditions(&set, &servers, troubled, Timestamp::MAX);
        assert_eq!(
            (again.as_deref(), news),
            (set.status.as_ref().and_then(|status| status.conditions.as_deref()), vec![])
        );
        let unknown = Circumstances { entry: Entry::Unknown, ..quiet() };
        let (kept, _) = conditions(&set, &[], unknown, Timestamp::MAX);
        let kept = kept.expect("conditions");
        assert!(trouble(&kept, ConditionKind::NamespaceEnabled).is_some(), "nothing is known, so it stays");
        let (over, _) = conditions(&set, &[], quiet(), Timestamp::MAX);
        assert!(over.expect("conditions").iter().all(|one| one.status == "True"));
    }
}
