//! Whose word counts: the policy, or the entries of a chain in their order, with the answer of each that needs nobody to
//! be asked. Pure.

use std::sync::Arc;

use berth_api::fleet::{CounterSum, Fleet};
use berth_api::fleet_autoscaler::{AmountPolicy, Policy, PolicyKind, WebhookPolicy};
use jiff::Timestamp;

use super::amounts::{self, Counted, Seen};
use super::{Desired, NoAnswer, buffer, schedule};
use crate::stores::{Amount, Server};

/// What decisions see.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) fleet: Arc<Fleet>,
    /// Servers that may go, first to go first.
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) now: Timestamp,
}

/// One who may answer.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    /// How it is named where its word counts: its kind, or its place in the chain.
    pub(super) name: String,
    pub(super) word: Word<'a>,
}

/// What one says.
#[derive(Debug)]
pub(super) enum Word<'a> {
    Said(Result<Desired, NoAnswer>),
    /// To be asked.
    Ask(&'a WebhookPolicy),
}

/// Those who may answer, up to the first whose answer is known.
pub(super) fn candidates<'a>(policy: &'a Policy, snapshot: &Snapshot) -> Vec<Candidate<'a>> {
    if policy.kind != PolicyKind::Chain {
        let name = policy.kind.as_str().to_owned();
        return vec![Candidate { name, word: word(policy, snapshot) }];
    }
    let entries = policy.chain.as_deref().unwrap_or_default();
    if entries.is_empty() {
        return vec![Candidate { name: String::new(), word: Word::Said(Err(NoAnswer::EmptyChain)) }];
    }
    let mut candidates = Vec::new();
    for entry in entries {
        let id = entry.id.as_deref().unwrap_or_default();
        let name = format!("Chain:{id}:{}", entry.policy.kind.as_str());
        let word = word(&entry.policy, snapshot);
        let is_last = matches!(word, Word::Said(Ok(_)));
        candidates.push(Candidate { name, word });
        if is_last {
            break;
        }
    }
    candidates
}

fn word<'a>(policy: &'a Policy, snapshot: &Snapshot) -> Word<'a> {
    if policy.kind != PolicyKind::Schedule {
        return leaf(policy, snapshot);
    }
    let Some(schedule) = policy.schedule.as_deref() else {
        return Word::Said(Err(missing(policy.kind)));
    };
    match schedule::is_active(schedule, snapshot.now) {
        Ok(true) => leaf(&schedule.policy, snapshot),
        Ok(false) => Word::Said(Err(NoAnswer::Inactive)),
        Err(error) => Word::Said(Err(error.into())),
    }
}

fn leaf<'a>(policy: &'a Policy, snapshot: &Snapshot) -> Word<'a> {
    let missing = || missing(policy.kind);
    match policy.kind {
        PolicyKind::Webhook => match &policy.webhook {
            Some(webhook) => Word::Ask(webhook),
            None => Word::Said(Err(missing())),
        },
        PolicyKind::Buffer => Word::Said(match &policy.buffer {
            Some(buffer) => buffer::decide(buffer, allocated(&snapshot.fleet)),
            None => Err(missing()),
        }),
        PolicyKind::Counter => Word::Said(match &policy.counter {
            Some(policy) => amount(policy, Counted::Counter, snapshot),
            None => Err(missing()),
        }),
        PolicyKind::List => Word::Said(match &policy.list {
            Some(policy) => amount(policy, Counted::List, snapshot),
            None => Err(missing()),
        }),
        PolicyKind::Wasm => Word::Said(Err(NoAnswer::NotSupported)),
        PolicyKind::Schedule | PolicyKind::Chain => Word::Said(Err(NoAnswer::Nested)),
    }
}

fn missing(kind: PolicyKind) -> NoAnswer {
    NoAnswer::NoObject { kind: kind.as_str(), field: kind.field() }
}

fn allocated(fleet: &Fleet) -> i32 {
    fleet.status.as_ref().map_or(0, |status| status.allocated_replicas)
}

fn amount(policy: &AmountPolicy, counted: Counted, snapshot: &Snapshot) -> Result<Desired, NoAnswer> {
    let key = &policy.key;
    let unknown = |place| NoAnswer::NoSuchKey { place, kind: counted.as_str(), key: key.clone() };
    let fresh = fresh(&snapshot.fleet, counted, key).ok_or_else(|| unknown("template"))?;
    let status = snapshot.fleet.status.clone().unwrap_or_default();
    let sums = match counted {
        Counted::Counter => status.counters,
        Counted::List => status.lists,
    };
    let sum: CounterSum = sums.and_then(|sums| sums.get(key).copied()).ok_or_else(|| unknown("status"))?;
    let own = |server: &Arc<Server>| match counted {
        Counted::Counter => server.counters.get(key).copied(),
        Counted::List => server.lists.get(key).copied(),
    };
    let servers = snapshot.servers.iter().map(own).collect();
    amounts::decide(policy, &Seen { counted, replicas: status.replicas, fresh, sum, servers })
}

/// What a new server starts with.
fn fresh(fleet: &Fleet, counted: Counted, key: &str) -> Option<Amount> {
    let spec = &fleet.spec.template.spec;
    match counted {
        Counted::Counter => {
            let counter = spec.counters.as_ref()?.get(key)?.filled();
            Some(Amount {
                count: counter.count.unwrap_or_default(),
                capacity: counter.capacity.unwrap_or_default(),
            })
        }
        Counted::List => {
            let list = spec.lists.as_ref()?.get(key)?.filled();
            let count = list.values.as_ref().map_or(0, Vec::len);
            Some(Amount {
                count: i64::try_from(count).unwrap_or(i64::MAX),
                capacity: list.capacity.unwrap_or_default(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::server;

    fn policy(policy: Value) -> Policy {
        serde_json::from_value(policy).expect("a policy")
    }

    fn snapshot(template: Value, status: Value) -> Snapshot {
        let fleet = json!({
            "metadata": {"name": "lobby", "namespace": "games"},
            "spec": {"replicas": 3, "template": {"spec": template}},
            "status": status,
        });
        Snapshot {
            fleet: Arc::new(serde_json::from_value(fleet).expect("a Fleet")),
            servers: Vec::new(),
            now: "2026-05-06T12:00:00Z".parse().expect("a time"),
        }
    }

    fn plain(allocated: i32) -> Snapshot {
        snapshot(json!({"template": {}}), json!({"replicas": 3, "allocatedReplicas": allocated}))
    }

    /// What each says, in few words.
    fn said(policy: &Policy, snapshot: &Snapshot) -> Vec<(String, String)> {
        let word = |word: Word<'_>| match word {
            Word::Said(Ok(desired)) => desired.replicas.to_string(),
            Word::Said(Err(error)) => error.reason().to_owned(),
            Word::Ask(webhook) => format!("ask {}", webhook.url.as_deref().unwrap_or_default()),
        };
        candidates(policy, snapshot).into_iter().map(|one| (one.name, word(one.word))).collect()
    }

    fn buffer(size: i32) -> Value {
        json!({"type": "Buffer", "buffer": {"bufferSize": size, "maxReplicas": 100}})
    }

    fn evening(policy: Value) -> Value {
        let period = json!({"startCron": "0 18 * * *", "duration": "1h"});
        json!({"type": "Schedule", "schedule": {"activePeriod": period, "policy": policy}})
    }

    fn always(policy: Value) -> Value {
        json!({"type": "Schedule", "schedule": {"policy": policy}})
    }

    fn entry(id: &str, mut policy: Value) -> Value {
        policy["id"] = json!(id);
        policy
    }

    #[test]
    fn a_chain_falls_through_to_the_first_that_answers() {
        let chain = |entries: Vec<Value>| policy(json!({"type": "Chain", "chain": entries}));
        let pair = |name: &str, word: &str| (name.to_owned(), word.to_owned());
        let hook = json!({"type": "Webhook", "webhook": {"url": "http://a.example"}});
        let rows = [
            (
                "vector 36: an inactive schedule, then a buffer",
                chain(vec![entry("evening", evening(buffer(50))), entry("default", buffer(5))]),
                vec![pair("Chain:evening:Schedule", "ScheduleInactive"), pair("Chain:default:Buffer", "9")],
            ),
            (
                "an active schedule",
                chain(vec![entry("always", always(buffer(50))), entry("default", buffer(5))]),
                vec![pair("Chain:always:Schedule", "54")],
            ),
            (
                "a webhook, and who counts if it has no answer",
                chain(vec![
                    entry("hook", hook.clone()),
                    entry("default", buffer(5)),
                    entry("more", buffer(6)),
                ]),
                vec![pair("Chain:hook:Webhook", "ask http://a.example"), pair("Chain:default:Buffer", "9")],
            ),
            ("no id", chain(vec![buffer(5)]), vec![pair("Chain::Buffer", "9")]),
            ("nobody", chain(vec![]), vec![pair("", "ChainFailed")]),
            (
                "a module, and a chain in a chain",
                chain(vec![
                    entry("a", json!({"type": "Wasm", "wasm": {"from": {"url": {}}}})),
                    entry("b", json!({"type": "Chain", "chain": []})),
                ]),
                vec![pair("Chain:a:Wasm", "NotSupported"), pair("Chain:b:Chain", "InvalidPolicy")],
            ),
            ("a schedule alone", policy(always(hook)), vec![pair("Schedule", "ask http://a.example")]),
            ("an inactive one alone", policy(evening(buffer(5))), vec![pair("Schedule", "ScheduleInactive")]),
            ("a schedule of one", policy(always(always(buffer(5)))), vec![pair("Schedule", "InvalidPolicy")]),
            ("no object", policy(json!({"type": "List"})), vec![pair("List", "InvalidPolicy")]),
        ];
        for (what, policy, expected) in rows {
            assert_eq!(said(&policy, &plain(4)), expected, "{what}");
        }
    }

    #[test]
    fn counters_and_lists_are_those_of_the_fleet_and_its_servers() {
        let template = json!({
            "template": {},
            "counters": {"rooms": {"count": 0, "capacity": 10}},
            "lists": {"players": {"capacity": 4, "values": ["host"]}},
        });
        let sums = |count: i64, capacity: i64| json!({"count": count, "capacity": capacity});
        let status = json!({
            "replicas": 3,
            "counters": {"rooms": sums(6, 30)},
            "lists": {"players": sums(10, 12)},
        });
        let mut seen = snapshot(template, status);
        seen.servers =
            ["a", "b", "c"].map(|name| Arc::new(server(name).counter("rooms", 2, 10).build())).into();
        let amount = |kind: &str, field: &str, key: &str, size: i32| {
            let object = json!({"key": key, "bufferSize": size, "maxCapacity": 1000});
            policy(json!({"type": kind, field: object}))
        };
        let word = |policy: &Policy| said(policy, &seen)[0].1.clone();
        // 24 rooms are free; without one server 16 would be.
        assert_eq!(word(&amount("Counter", "counter", "rooms", 16)), "2");
        // 2 places are free, a new server brings 3.
        assert_eq!(word(&amount("List", "list", "players", 6)), "5");
        assert_eq!(word(&amount("Counter", "counter", "players", 1)), "NoSuchKey");
        assert_eq!(word(&amount("List", "list", "rooms", 1)), "NoSuchKey");
        let unreported = snapshot(json!({"template": {}, "counters": {"rooms": {}}}), json!({"replicas": 3}));
        assert_eq!(said(&amount("Counter", "counter", "rooms", 1), &unreported)[0].1, "NoSuchKey");
    }
}
