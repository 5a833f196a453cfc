//! A GameServer in small form: what decisions need, without its pod template. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::conditions::{self, Condition, ConditionKind};
use berth_api::game_server::{GameServer, PortPolicy, PortProtocol, Scheduling, split_both_protocols};
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::Returned;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use super::Key;
use super::shelf::Kept;
use crate::placement::Needs;

/// First words of the reasons that another server of the same template is likely to have too. What a node, a drain or a
/// person did is none of them.
const FAULTS_OF_A_BUILD: [&str; 9] = [
    "Completed",
    "Failed",
    "HandedBack",
    "InvalidTemplate",
    "PingsMissed",
    "QuotaExceeded",
    "Restarted",
    "ShutdownCalled",
    "TooLong",
];

/// How much of something there is, and how much fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) count: i64,
    pub(crate) capacity: i64,
}

/// What decisions need of a GameServer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// UID of the set that controls it.
    pub(crate) set: Option<String>,
    /// Name of that set.
    pub(crate) set_name: Option<String>,
    pub(crate) state: Option<State>,
    /// It was Ready once; of one that is met later in its life, that is taken for granted.
    pub(crate) was_ready: bool,
    pub(crate) node: Option<String>,
    pub(crate) created: Timestamp,
    /// It has a deletion timestamp.
    pub(crate) is_ending: bool,
    /// Its object stays until one of our finalizers is removed.
    pub(crate) finalizers: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Without what other tools keep there in bulk.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) counters: BTreeMap<String, Amount>,
    pub(crate) lists: BTreeMap<String, Amount>,
    pub(crate) players: Option<Amount>,
    pub(crate) scheduling: Scheduling,
    pub(crate) needs: Arc<Needs>,
    /// What is not, or was not, as it should be.
    pub(crate) conditions: Vec<Condition>,
    /// Host ports it has, or will have because its author chose them.
    pub(crate) host_ports: Vec<(u16, PortProtocol)>,
}

impl Kept for Server {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Server {
    /// The small form. A server that is placed keeps the needs known of it: its pod template does not change.
    pub(crate) fn read(object: &GameServer, known: Option<&Self>) -> Self {
        let metadata = &object.metadata;
        let status = object.status.clone().unwrap_or_default();
        let owner = metadata.owner_references.iter().flatten().find(|owner| {
            owner.controller == Some(true)
                && owner.kind == "GameServerSet"
                && owner.api_version.starts_with("agones.dev/")
        });
        let uid = metadata.uid.clone().unwrap_or_default();
        let needs = match known.filter(|known| known.uid == uid && known.node.is_some()) {
            Some(known) => Arc::clone(&known.needs),
            None => {
                let fresh = Needs::of(&object.spec);
                let same = known.filter(|known| *known.needs == fresh);
                same.map_or_else(|| Arc::new(fresh), |known| Arc::clone(&known.needs))
            }
        };
        let state = object.state();
        let is_young = state.is_none_or(State::is_before_ready);
        let was_ready = match known.filter(|known| known.uid == uid) {
            Some(known) => {
                known.was_ready || matches!(state, Some(State::Ready | State::Allocated | State::Reserved))
            }
            None => !is_young,
        };
        let mut annotations = metadata.annotations.clone().unwrap_or_default();
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        let counters = status.counters.iter().flatten().map(|(name, counter)| {
            let amount = Amount {
                count: counter.count.unwrap_or(0),
                capacity: counter.filled().capacity.unwrap_or(0),
            };
            (name.clone(), amount)
        });
        let lists = status.lists.iter().flatten().map(|(name, list)| {
            let count =
                list.values.as_ref().map_or(0, |values| i64::try_from(values.len()).unwrap_or(i64::MAX));
            (name.clone(), Amount { count, capacity: list.filled().capacity.unwrap_or(0) })
        });
        Self {
            key: Key::of(metadata),
            uid,
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            set: owner.map(|owner| owner.uid.clone()),
            set_name: owner.map(|owner| owner.name.clone()),
            state,
            was_ready,
            node: object.node_name().map(str::to_owned),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            is_ending: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations,
            counters: counters.collect(),
            lists: lists.collect(),
            players: status
                .players
                .as_ref()
                .map(|players| Amount { count: players.count, capacity: players.capacity }),
            scheduling: object.spec.scheduling(),
            needs,
            conditions: status.conditions.unwrap_or_default(),
            host_ports: host_ports(object),
        }
    }

    /// Somebody has asked for its deletion, by the API or by the state Shutdown.
    pub(crate) fn is_being_deleted(&self) -> bool {
        self.is_ending || self.state == Some(State::Shutdown)
    }

    /// A session is on it, or set aside.
    pub(crate) fn is_protected(&self) -> bool {
        self.state.is_some_and(State::is_protected)
    }

    /// Players are on it, and it stays.
    pub(crate) fn has_session(&self) -> bool {
        self.state == Some(State::Allocated) && !self.is_being_deleted()
    }

    /// Given up with its node, for which nobody acted; another is there in its place. A session makes it count again.
    pub(crate) fn is_lost(&self) -> bool {
        let is_open = matches!(
            self.state,
            Some(State::Starting | State::Scheduled | State::RequestReady | State::Ready)
        );
        is_open && !self.is_ending && self.annotations.contains_key(names::LOST_ANNOTATION)
    }

    /// How it failed, where it did before it was ever Ready; what was not wanted any more did not fail.
    pub(crate) fn failed_start(&self) -> Option<String> {
        let reason = self.annotations.get(names::REASON_ANNOTATION);
        let word = reason.and_then(|reason| reason.split(':').next());
        if word.is_some_and(|word| !FAULTS_OF_A_BUILD.contains(&word)) {
            return None;
        }
        match self.state.filter(|_| !self.was_ready)? {
            state @ (State::Unhealthy | State::Error) => {
                Some(reason.map_or_else(|| state.to_string(), |reason| format!("{state}, {reason}")))
            }
            State::Shutdown => reason.cloned(),
            State::PortAllocation
            | State::Creating
            | State::Starting
            | State::Scheduled
            | State::RequestReady
            | State::Ready
            | State::Allocated
            | State::Reserved => None,
        }
    }

    /// What was said of it under one kind of condition.
    pub(crate) fn trouble(&self, kind: ConditionKind) -> Option<&Condition> {
        conditions::trouble(&self.conditions, kind)
    }

    /// It belongs to the brain alone: no pod, an address that its author gave.
    pub(crate) fn is_development(&self) -> bool {
        self.annotations.contains_key(names::DEV_ADDRESS_ANNOTATION)
    }

    /// It waits for a node.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.is_ending
            && self.node.is_none()
            && !self.is_development()
            && matches!(self.state, None | Some(State::PortAllocation | State::Creating))
    }

    /// What the last node that handed it back said.
    pub(crate) fn returned(&self) -> Option<Returned> {
        Returned::from_annotation(self.annotations.get(names::RETURNED_ANNOTATION)?).ok()
    }

    /// It uses room on its node: every server that has a node and may have, or may get, a pod there.
    pub(crate) fn uses_room(&self) -> bool {
        self.node.is_some() && self.state != Some(State::Error)
    }

    /// For Events.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("agones.dev/v1".to_owned()),
            kind: Some("GameServer".to_owned()),
            namespace: Some(self.key.namespace.clone()),
            name: Some(self.key.name.clone()),
            uid: Some(self.uid.clone()),
            resource_version: Some(self.resource_version.clone()),
            field_path: None,
        }
    }
}

/// Chosen by the author, or reported by the node. Ports that speak both protocols count for each.
fn host_ports(object: &GameServer) -> Vec<(u16, PortProtocol)> {
    let ports = split_both_protocols(object.spec.ports());
    let reported = object.status.as_ref().and_then(|status| status.ports.as_deref()).unwrap_or_default();
    let on_host = ports.iter().enumerate().filter(|(_, port)| port.policy() != PortPolicy::None);
    on_host
        .filter_map(|(index, port)| {
            let given = port.host_port.or_else(|| reported.get(index).map(|port| port.port))?;
            (given != 0).then(|| (given, port.protocol()))
        })
        .collect()
}
