//! What a request means, once nothing is wrong with it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector as LabelRule, SelectorExt as _};

use super::MetadataPatch;
use crate::game_server::Scheduling;
use crate::lifecycle::State;

/// A request that can be served.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where the servers are.
    pub namespace: String,
    /// In order; never empty.
    pub selectors: Vec<Selector>,
    /// The order of servers that fit the same selector.
    pub scheduling: Scheduling,
    /// Refines that order.
    pub priorities: Vec<Priority>,
    /// What the server gets.
    pub metadata: MetadataPatch,
    /// What happens to its counters.
    pub counters: BTreeMap<String, CounterChange>,
    /// What happens to its lists.
    pub lists: BTreeMap<String, ListChange>,
    /// The policies to follow, where other clusters are asked too.
    pub policies: Option<LabelRule>,
}

/// The state that a server must be in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Nobody uses it yet.
    #[default]
    Ready,
    /// Somebody does already.
    Allocated,
}

impl Wanted {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        self.state().as_str()
    }

    /// The state itself.
    pub const fn state(self) -> State {
        match self {
            Self::Ready => State::Ready,
            Self::Allocated => State::Allocated,
        }
    }
}

/// Which servers fit.
#[derive(Clone, Debug)]
pub struct Selector {
    /// By label.
    pub labels: LabelRule,
    /// By state.
    pub state: Wanted,
    /// By room for players; absent where they do not matter.
    pub players: Option<PlayerChoice>,
    /// By counters: a server without one of these does not fit.
    pub counters: BTreeMap<String, CounterChoice>,
    /// By lists: a server without one of these does not fit.
    pub lists: BTreeMap<String, ListChoice>,
}

impl Selector {
    /// Whether labels like these fit.
    pub fn fits_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.matches(labels)
    }
}

/// Amounts from one to another, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amounts(RangeInclusive<i64>);

impl Amounts {
    /// From `least` to `most`, where a `most` of 0 is no limit.
    pub const fn new(least: i64, most: i64) -> Self {
        Self(least..=if most == 0 { i64::MAX } else { most })
    }

    /// Whether `amount` is one of them.
    pub fn hold(&self, amount: i64) -> bool {
        self.0.contains(&amount)
    }
}

/// By room for players. A server without player tracking fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerChoice {
    /// Room.
    pub available: Amounts,
}

/// By one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterChoice {
    /// Its count.
    pub count: Amounts,
    /// Its room.
    pub available: Amounts,
}

/// By one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChoice {
    /// An entry it must hold.
    pub contains: Option<String>,
    /// Its room.
    pub available: Amounts,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PriorityKind {
    /// A counter.
    Counter,
    /// A list.
    List,
}

/// Which end comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The least room first.
    #[default]
    Ascending,
    /// The most room first.
    Descending,
}

/// What servers are ordered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// What is counted.
    pub kind: PriorityKind,
    /// Its name.
    pub key: String,
    /// Which end comes first; a server that does not have it comes last either way.
    pub direction: Direction,
}

/// What happens to one counter: first its capacity, then its count, which stays within bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterChange {
    /// Its new capacity.
    pub capacity: Option<i64>,
    /// By how much its count moves, down where negative; the word of an action that is neither is kept for the Event.
    pub step: Option<Result<i64, String>>,
}

/// What happens to one list: first its capacity, then entries added, then entries removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListChange {
    /// Its new capacity.
    pub capacity: Option<i64>,
    /// Entries it gets.
    pub add: Vec<String>,
    /// Entries it loses.
    pub delete: Vec<String>,
}

/// The rule of a label selector.
pub(super) fn label_rule(selector: &LabelSelector) -> Result<LabelRule, String> {
    LabelRule::try_from(selector.clone()).map_err(|error| error.to_string())
}
