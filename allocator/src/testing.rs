//! Fixtures of this crate's tests.

use berth_api::allocation::{GameServerAllocation, Request, Wanted};
use berth_api::game_server::{Counter, List};
use serde_json::{Value, json};

use crate::book::{Book, Candidate, Players, ServerKey, Version};

/// The namespace of all fixtures.
pub(crate) const NAMESPACE: &str = "games";

/// A Ready server on a node.
pub(crate) fn on(node: &str) -> Candidate {
    Candidate {
        version: version(1),
        state: Wanted::Ready,
        node: node.to_owned(),
        labels: Default::default(),
        players: None,
        counters: Default::default(),
        lists: Default::default(),
    }
}

pub(crate) fn version(number: u64) -> Version {
    Version { uid: "u".to_owned(), resource: number.to_string() }
}

pub(crate) fn key(name: &str) -> ServerKey {
    ServerKey::new(NAMESPACE, name)
}

impl Candidate {
    pub(crate) fn allocated(mut self) -> Self {
        self.state = Wanted::Allocated;
        self
    }

    pub(crate) fn at(mut self, number: u64) -> Self {
        self.version = version(number);
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn players(mut self, count: i64, capacity: i64) -> Self {
        self.players = Some(Players { count, capacity });
        self
    }

    pub(crate) fn counter(mut self, name: &str, count: i64, capacity: i64) -> Self {
        let counter = Counter { count: Some(count), capacity: Some(capacity) };
        self.counters.insert(name.to_owned(), counter);
        self
    }

    pub(crate) fn list(mut self, name: &str, values: &[&str], capacity: i64) -> Self {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        self.lists.insert(name.to_owned(), List { capacity: Some(capacity), values: Some(values) });
        self
    }
}

/// A book of these servers.
pub(crate) fn book(servers: &[(&str, Candidate)]) -> Book {
    let mut book = Book::default();
    for (name, candidate) in servers {
        book.see(&key(name), candidate.version.clone(), Some(candidate.clone()));
    }
    book
}

/// What a spec means.
pub(crate) fn request(spec: Value) -> Request {
    let mut asked: GameServerAllocation =
        serde_json::from_value(json!({ "metadata": { "namespace": NAMESPACE }, "spec": spec })).unwrap();
    asked.read().unwrap()
}
