//! The picture itself: what is in it, how much of it a change of leaders leaves, and who must look again after a change of
//! anything but a server. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use berth_api::fleet::Fleet;
use berth_api::fleet_autoscaler::FleetAutoscaler;
use berth_api::game_node::Room;
use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_api::names::FLEET_LABEL;
use berth_runtime::clock::Instant;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ObjectMeta;

use super::cluster::Cluster;
use super::placeholder::Placeholder;
use super::sdk::{SdkPod, SdkRevision};
use super::server::Server;
use super::shelf::{Change, Kept, Shelf};
use super::{Key, Wake};
use crate::fencing::Sight;
use crate::game_server_set::Strain;
use crate::placement::Needs;

impl Kept for Fleet {
    fn key(&self) -> Key {
        Key::of(&self.metadata)
    }
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

impl Kept for GameServerSet {
    fn key(&self) -> Key {
        Key::of(&self.metadata)
    }
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

impl Kept for FleetAutoscaler {
    fn key(&self) -> Key {
        Key::of(&self.metadata)
    }
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

impl Kept for PodDisruptionBudget {
    fn key(&self) -> Key {
        Key::of(&self.metadata)
    }
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

/// A server that is being created, or a hand-over that is being written.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    /// UID of the set it is created for; `None` for the hand-over of a server that exists.
    pub(crate) set: Option<String>,
    /// The node it goes to.
    pub(crate) node: Option<String>,
    pub(crate) needs: Arc<Needs>,
    /// The object, to be sent again under the same name while nobody knows whether it arrived.
    pub(crate) object: Option<Arc<GameServer>>,
}

/// What the brain knows.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    /// Kept free on each node.
    pub(crate) reserve: Room,
    pub(crate) fleets: Shelf<Fleet>,
    pub(crate) sets: Shelf<GameServerSet>,
    pub(crate) servers: Shelf<Server>,
    pub(crate) budgets: Shelf<PodDisruptionBudget>,
    pub(crate) autoscalers: Shelf<FleetAutoscaler>,
    pub(crate) placeholders: Shelf<Placeholder>,
    pub(crate) sdk_pods: Shelf<SdkPod>,
    pub(crate) sdk_revisions: Shelf<SdkRevision>,
    /// The node whose pod of `berth-sdk` is being replaced.
    pub(crate) closed_for_sdk: Option<String>,
    /// By the server's key, until a watch or an answer shows what became of it.
    pub(super) in_flight: BTreeMap<Key, InFlight>,
    pub(super) by_set: HashMap<String, BTreeSet<Key>>,
    pub(super) by_node: BTreeMap<String, BTreeSet<Key>>,
    pub(super) waiting: BTreeSet<Key>,
    /// Placeholders, by the server that they are for.
    pub(super) by_waiting: BTreeMap<Key, BTreeSet<Key>>,
    /// How the new servers of sets fare, by the set's UID.
    pub(super) strains: HashMap<String, Strain>,
    wakes: Vec<Wake>,
}

impl World {
    /// An empty picture. `lease_gap`: the longest time without an event of a watch of leases that lives.
    pub(crate) fn new(reserve: Room, lease_gap: Duration) -> Self {
        let mut world = Self { reserve, ..Self::default() };
        world.cluster.expect_leases_every(lease_gap);
        world
    }

    /// What is seen of the nodes that matter; `None` while nobody may judge them.
    pub(crate) fn sights(&self, now: Instant) -> Option<BTreeMap<String, Sight>> {
        let is_own = |node: &&String| !self.cluster.leases.contains_key(*node);
        self.cluster.sights(self.by_node.keys().filter(is_own).map(String::as_str), now)
    }

    pub(crate) fn take_wakes(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.wakes)
    }

    pub(super) fn wake(&mut self, wake: Wake) {
        if !self.wakes.contains(&wake) {
            self.wakes.push(wake);
        }
    }

    /// Keys of the servers that wait for a node.
    pub(crate) fn waiting(&self) -> Vec<Key> {
        self.waiting.iter().cloned().collect()
    }

    /// Forgets Fleets, sets and servers, but not the servers of which nobody knows whether they arrived.
    pub(super) fn forget_objects(&mut self) {
        let (cluster, reserve) = (std::mem::take(&mut self.cluster), self.reserve);
        let mut in_flight = std::mem::take(&mut self.in_flight);
        in_flight.retain(|_, flight| flight.object.is_some());
        *self = Self { cluster, reserve, in_flight, ..Self::default() };
    }

    /// Forgets what was on its way.
    pub(crate) fn forget_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// All sets are known: what is on its way to others is wanted by nobody.
    pub(super) fn forget_orphans(&mut self) {
        let Self { sets, in_flight, .. } = self;
        let known: BTreeSet<&str> = sets.iter().map(|set| set.uid()).collect();
        in_flight.retain(|_, flight| flight.set.as_deref().is_none_or(|set| known.contains(set)));
    }

    pub(crate) fn note_fleet(&mut self, change: Option<Change<Fleet>>) {
        if let Some(Change { before: None, after: Some(fleet) }) = &change {
            self.wake_autoscalers_of(&fleet.key());
        }
        for fleet in change.iter().flat_map(|change| [&change.before, &change.after]).flatten() {
            self.wake(Wake::Fleet(fleet.key()));
        }
    }

    /// A Fleet is there that was not: its autoscalers need not wait for their next look.
    fn wake_autoscalers_of(&mut self, fleet: &Key) {
        let of_fleet = |one: &&Arc<FleetAutoscaler>| one.spec.fleet_name == fleet.name;
        let keys: Vec<Key> =
            self.autoscalers.within(&fleet.namespace).filter(of_fleet).map(|one| one.key()).collect();
        for key in keys {
            self.wake(Wake::Autoscaler(key));
        }
    }

    /// What an autoscaler wants: nothing of its own status is news.
    pub(crate) fn note_autoscaler(&mut self, change: Option<Change<FleetAutoscaler>>) {
        let Some(change) = change else { return };
        let spec = |one: &Option<Arc<FleetAutoscaler>>| {
            one.as_ref().map(|one| (one.metadata.uid.clone(), one.metadata.generation))
        };
        if spec(&change.before) == spec(&change.after) {
            return;
        }
        if let Some(after) = &change.after {
            self.wake(Wake::Autoscaler(after.key()));
        }
        // What their Buffer says is how many sets make at most.
        for one in [&change.before, &change.after].into_iter().flatten() {
            let namespace = one.key().namespace;
            let fleet = self
                .fleets
                .get(&Key::new(&namespace, &one.spec.fleet_name))
                .map(|fleet| fleet.uid().to_owned());
            let sets = fleet.map(|uid| self.sets_of(&namespace, &uid)).unwrap_or_default();
            for set in sets {
                self.wake(Wake::Set(set.key()));
            }
        }
    }

    pub(crate) fn note_set(&mut self, change: Option<Change<GameServerSet>>) {
        let Some(change) = change else { return };
        let spec = |set: &Option<Arc<GameServerSet>>| {
            set.as_ref().map(|set| (set.metadata.generation, set.metadata.deletion_timestamp.is_some()))
        };
        let is_soon = spec(&change.before) == spec(&change.after);
        for set in [&change.before, &change.after].into_iter().flatten() {
            self.wake(Wake::Set(set.key()));
            if let Some(fleet) = fleet_of(&set.metadata) {
                self.wake(if is_soon { Wake::FleetSoon(fleet) } else { Wake::Fleet(fleet) });
            }
        }
        if let (Some(set), None) = (&change.before, &change.after) {
            // Nobody is left to want what is still on its way; what arrives goes with the set.
            let uid = set.uid().to_owned();
            self.in_flight.retain(|_, flight| flight.set.as_deref() != Some(&uid));
            self.strains.remove(&uid);
        }
    }

    pub(crate) fn note_budget(&mut self, change: Option<Change<PodDisruptionBudget>>) {
        let Some(change) = change else { return };
        let spec = |budget: &Option<Arc<PodDisruptionBudget>>| {
            budget.as_ref().map(|budget| (budget.spec.clone(), budget.metadata.deletion_timestamp.is_some()))
        };
        if spec(&change.before) == spec(&change.after) {
            return;
        }
        let Some(one) = change.after.as_ref().or(change.before.as_ref()) else { return };
        let namespace = one.metadata.namespace.clone().unwrap_or_default();
        let sets: Vec<Key> = self.sets.within(&namespace).map(|set| set.key()).collect();
        for set in sets {
            self.wake(Wake::SetSoon(set));
        }
        self.wake(Wake::Namespace(namespace));
    }

    /// A node is told so, or nothing any more.
    pub(crate) fn hear_word(&mut self, node: &str, word: Option<String>) {
        if self.cluster.put_word(node, word) {
            self.wake(Wake::Waiting);
        }
    }

    /// A node came or went: its servers are looked at again.
    pub(crate) fn wake_servers_on(&mut self, node: &str) {
        for key in self.keys_on(node) {
            self.wake(Wake::Server(key));
        }
    }
}

/// The Fleet that an object says it belongs to.
fn fleet_of(metadata: &ObjectMeta) -> Option<Key> {
    let name = metadata.labels.as_ref()?.get(FLEET_LABEL).filter(|name| !name.is_empty())?;
    Some(Key::new(metadata.namespace.clone().unwrap_or_default(), name))
}
