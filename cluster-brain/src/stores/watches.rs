//! The tasks that feed the picture: one watch for each kind.

use std::fmt::Debug;
use std::sync::Arc;

use berth_api::fleet::Fleet;
use berth_api::fleet_autoscaler::FleetAutoscaler;
use berth_api::game_node::GameNode;
use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_api::names::{BRAIN_LEASE, SYSTEM_NAMESPACE};
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use berth_runtime::error::chain;
use berth_runtime::kube_client::{Lenient, Undecodable, watch_lenient};
use berth_runtime::tasks::TaskGroup;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tracing::warn;

use super::cluster::NodeRecord;
use super::world::World;
use super::{Key, Kind, Stores, Wake};

mod pods;

use pods::{Placeholders, SdkPods, SdkRevisions};

/// Starts the watches of nodes and their leases, which a standby keeps warm. `lease_changed` is told of changes of the
/// leader lease.
pub(crate) fn watch_cluster(
    group: &TaskGroup,
    client: &Client,
    stores: &Arc<Stores>,
    lease_changed: Arc<Notify>,
) {
    start(group, Api::all(client.clone()), stores, Nodes);
    start(group, Api::all(client.clone()), stores, GameNodes);
    start(group, Api::namespaced(client.clone(), SYSTEM_NAMESPACE), stores, Leases { lease_changed });
}

/// Starts the watches of Fleets, sets, servers, disruption budgets, autoscalers and the pods that concern us, for the time
/// of one leadership.
pub(crate) fn watch_objects(group: &TaskGroup, client: &Client, stores: &Arc<Stores>) {
    start(group, Api::all(client.clone()), stores, Fleets);
    start(group, Api::all(client.clone()), stores, Sets);
    start(group, Api::all(client.clone()), stores, Servers);
    start(group, Api::all(client.clone()), stores, Budgets);
    start(group, Api::all(client.clone()), stores, Autoscalers);
    start(group, Api::all(client.clone()), stores, Placeholders);
    start(group, Api::namespaced(client.clone(), SYSTEM_NAMESPACE), stores, SdkPods);
    start(group, Api::namespaced(client.clone(), SYSTEM_NAMESPACE), stores, SdkRevisions);
}

/// What a watch does to the picture.
trait Feed: Send + Sync + 'static {
    type Object: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static;
    const KIND: Kind;
    /// The label by which the watched objects are told from others of their kind.
    const LABEL: Option<&'static str> = None;

    fn begin(&self, world: &mut World);
    /// An object, from a list or from a watch.
    fn apply(&self, world: &mut World, object: Self::Object, is_listed: bool, now: Instant);
    /// An object that is there and cannot be read: what we knew of it stays.
    fn unread(&self, world: &mut World, object: &Undecodable);
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, now: Instant);
    fn end(&self, world: &mut World, now: Instant);
}

fn start<F: Feed>(group: &TaskGroup, api: Api<Lenient<F::Object>>, stores: &Arc<Stores>, feed: F) {
    let stores = Arc::clone(stores);
    let stop = group.token();
    group.spawn(format!("watch {}", F::KIND.as_str()), async move {
        follow(api, &stores, feed, &stop).await;
        Ok::<(), std::convert::Infallible>(())
    });
}

async fn follow<F: Feed>(api: Api<Lenient<F::Object>>, stores: &Stores, feed: F, stop: &CancellationToken) {
    let config = F::LABEL.map_or_else(Config::default, |label| Config::default().labels(label));
    let mut events = watch_lenient::<F::Object>(api, config, stores.metrics.skipped.clone()).boxed();
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(event)) => {
                let is_complete = matches!(event, Event::InitDone);
                stores.metrics.event(F::KIND);
                stores.change(|world, now| note(&feed, world, event, now));
                if is_complete {
                    stores.metrics.listed(F::KIND);
                    stores.note_listed(F::KIND);
                }
                if F::KIND == Kind::GameServer {
                    let known = stores.read(|world| world.servers.len());
                    stores.metrics.servers.set(i64::try_from(known).unwrap_or(i64::MAX));
                }
            }
            Some(Err(error)) => {
                stores.metrics.failed(F::KIND);
                warn!(kind = F::KIND.as_str(), error = %chain(&error), "a watch failed; it goes on");
            }
            // The stream never ends by itself; should it, the task ends unasked and the program with it.
            None => return,
        }
    }
}

fn note<F: Feed>(feed: &F, world: &mut World, event: Event<Result<F::Object, Undecodable>>, now: Instant) {
    match event {
        Event::Init => feed.begin(world),
        Event::InitApply(Ok(object)) => feed.apply(world, object, true, now),
        Event::Apply(Ok(object)) => feed.apply(world, object, false, now),
        Event::InitApply(Err(object)) | Event::Apply(Err(object)) => feed.unread(world, &object),
        Event::Delete(Ok(object)) => {
            let key = Key::of(object.meta());
            feed.delete(world, &key, object.meta().uid.as_deref(), now);
        }
        Event::Delete(Err(object)) => feed.delete(world, &key_of(&object), object.uid.as_deref(), now),
        Event::InitDone => feed.end(world, now),
    }
}

fn key_of(object: &Undecodable) -> Key {
    Key::new(object.namespace.clone().unwrap_or_default(), &object.name)
}

struct Fleets;

impl Feed for Fleets {
    type Object = Fleet;
    const KIND: Kind = Kind::Fleet;

    fn begin(&self, world: &mut World) {
        world.fleets.begin_list();
    }
    fn apply(&self, world: &mut World, mut fleet: Fleet, _: bool, _: Instant) {
        fleet.metadata.managed_fields = None;
        let change = world.fleets.seen(fleet);
        world.note_fleet(change);
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.fleets.seen_unread(&key_of(object));
    }
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, _: Instant) {
        let change = world.fleets.gone(key, uid);
        world.note_fleet(change);
    }
    fn end(&self, world: &mut World, _: Instant) {
        for change in world.fleets.end_list() {
            world.note_fleet(Some(change));
        }
    }
}

struct Sets;

impl Feed for Sets {
    type Object = GameServerSet;
    const KIND: Kind = Kind::GameServerSet;

    fn begin(&self, world: &mut World) {
        world.sets.begin_list();
    }
    fn apply(&self, world: &mut World, mut set: GameServerSet, _: bool, _: Instant) {
        set.metadata.managed_fields = None;
        let change = world.sets.seen(set);
        world.note_set(change);
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.sets.seen_unread(&key_of(object));
    }
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, _: Instant) {
        let change = world.sets.gone(key, uid);
        world.note_set(change);
    }
    fn end(&self, world: &mut World, _: Instant) {
        for change in world.sets.end_list() {
            world.note_set(Some(change));
        }
        world.forget_orphans();
    }
}

struct Servers;

impl Feed for Servers {
    type Object = GameServer;
    const KIND: Kind = Kind::GameServer;

    fn begin(&self, world: &mut World) {
        world.servers.begin_list();
    }
    fn apply(&self, world: &mut World, server: GameServer, _: bool, _: Instant) {
        world.see_server(&server);
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.servers.seen_unread(&key_of(object));
    }
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, _: Instant) {
        let change = world.servers.gone(key, uid);
        world.note_server(change);
    }
    fn end(&self, world: &mut World, _: Instant) {
        for change in world.servers.end_list() {
            world.note_server(Some(change));
        }
    }
}

struct Budgets;

impl Feed for Budgets {
    type Object = PodDisruptionBudget;
    const KIND: Kind = Kind::DisruptionBudget;

    fn begin(&self, world: &mut World) {
        world.budgets.begin_list();
    }
    fn apply(&self, world: &mut World, mut budget: PodDisruptionBudget, _: bool, _: Instant) {
        budget.metadata.managed_fields = None;
        // It changes with every pod, and is no news to us.
        budget.status = None;
        let change = world.budgets.seen(budget);
        world.note_budget(change);
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.budgets.seen_unread(&key_of(object));
    }
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, _: Instant) {
        let change = world.budgets.gone(key, uid);
        world.note_budget(change);
    }
    fn end(&self, world: &mut World, _: Instant) {
        for change in world.budgets.end_list() {
            world.note_budget(Some(change));
        }
    }
}

struct Autoscalers;

impl Feed for Autoscalers {
    type Object = FleetAutoscaler;
    const KIND: Kind = Kind::FleetAutoscaler;

    fn begin(&self, world: &mut World) {
        world.autoscalers.begin_list();
    }
    fn apply(&self, world: &mut World, mut autoscaler: FleetAutoscaler, _: bool, _: Instant) {
        autoscaler.metadata.managed_fields = None;
        let change = world.autoscalers.seen(autoscaler);
        world.note_autoscaler(change);
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.autoscalers.seen_unread(&key_of(object));
    }
    fn delete(&self, world: &mut World, key: &Key, uid: Option<&str>, _: Instant) {
        let change = world.autoscalers.gone(key, uid);
        world.note_autoscaler(change);
    }
    fn end(&self, world: &mut World, _: Instant) {
        for change in world.autoscalers.end_list() {
            world.note_autoscaler(Some(change));
        }
    }
}

struct Nodes;

impl Feed for Nodes {
    type Object = Node;
    const KIND: Kind = Kind::Node;

    fn begin(&self, world: &mut World) {
        world.cluster.begin_list(Kind::Node.as_str());
    }
    fn apply(&self, world: &mut World, node: Node, _: bool, _: Instant) {
        let name = node.name_any();
        world.cluster.note_name(Kind::Node.as_str(), &name);
        let is_new = !world.cluster.nodes.contains_key(&name);
        if world.cluster.put_node(&name, NodeRecord::read(&node)) {
            world.wake(Wake::Waiting);
        }
        if is_new {
            world.wake_servers_on(&name);
        }
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.cluster.note_name(Kind::Node.as_str(), &object.name);
    }
    fn delete(&self, world: &mut World, key: &Key, _: Option<&str>, _: Instant) {
        if world.cluster.nodes.remove(&key.name).is_some() {
            world.wake_servers_on(&key.name);
        }
    }
    fn end(&self, world: &mut World, now: Instant) {
        let known = world.cluster.nodes.keys().cloned().collect();
        for name in world.cluster.end_list(Kind::Node.as_str(), known) {
            self.delete(world, &Key::new("", name), None, now);
        }
    }
}

struct GameNodes;

impl Feed for GameNodes {
    type Object = GameNode;
    const KIND: Kind = Kind::GameNode;

    fn begin(&self, world: &mut World) {
        world.cluster.begin_list(Kind::GameNode.as_str());
    }
    fn apply(&self, world: &mut World, node: GameNode, _: bool, _: Instant) {
        let name = node.name_any();
        world.cluster.note_name(Kind::GameNode.as_str(), &name);
        world.hear_word(&name, node.spec.surplus);
        if world.cluster.put_game_node(&name, node.status.unwrap_or_default()) {
            world.wake(Wake::Waiting);
        }
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.cluster.note_name(Kind::GameNode.as_str(), &object.name);
    }
    fn delete(&self, world: &mut World, key: &Key, _: Option<&str>, _: Instant) {
        world.cluster.lose_game_node(&key.name);
    }
    fn end(&self, world: &mut World, _: Instant) {
        let known = world.cluster.game_nodes.keys().cloned().collect();
        for name in world.cluster.end_list(Kind::GameNode.as_str(), known) {
            world.cluster.lose_game_node(&name);
        }
    }
}

struct Leases {
    lease_changed: Arc<Notify>,
}

impl Feed for Leases {
    type Object = Lease;
    const KIND: Kind = Kind::Lease;

    fn begin(&self, world: &mut World) {
        world.cluster.begin_list(Kind::Lease.as_str());
    }
    fn apply(&self, world: &mut World, lease: Lease, is_listed: bool, now: Instant) {
        let name = lease.name_any();
        if !is_listed {
            world.cluster.hear(now);
        }
        if name == BRAIN_LEASE {
            self.lease_changed.notify_one();
            return;
        }
        world.cluster.note_name(Kind::Lease.as_str(), &name);
        if is_listed {
            world.cluster.list_lease(&name, &lease);
        } else if world.cluster.see_lease(&name, &lease, now) {
            world.wake(Wake::Waiting);
        }
    }
    fn unread(&self, world: &mut World, object: &Undecodable) {
        world.cluster.note_name(Kind::Lease.as_str(), &object.name);
    }
    fn delete(&self, world: &mut World, key: &Key, _: Option<&str>, now: Instant) {
        if key.name == BRAIN_LEASE {
            self.lease_changed.notify_one();
        }
        world.cluster.lose_lease(&key.name, now);
    }
    fn end(&self, world: &mut World, now: Instant) {
        let known = world.cluster.leases.keys().cloned().collect();
        for name in world.cluster.end_list(Kind::Lease.as_str(), known) {
            world.cluster.lose_lease(&name, now);
        }
        world.cluster.note_leases_listed(now);
    }
}
