//! What really happened, from a watch of its own: how many servers there ever were, and how many at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names::GAME_SERVER_SET_LABEL;
use berth_runtime::tasks::Child;
use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event};

use crate::cluster::Cluster;

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Servers that count, by set.
    live: BTreeMap<String, BTreeSet<String>>,
    /// The most of them at a time, by set.
    pub(crate) most: BTreeMap<String, usize>,
    /// UIDs of all servers there ever were.
    pub(crate) ever: BTreeSet<String>,
    /// The first state in which each was seen was without a node.
    pub(crate) born_without_node: usize,
    /// The version at which the first was seen.
    pub(crate) first_version: Option<u64>,
    /// Servers that can be allocated.
    ready: BTreeSet<String>,
    /// The fewest of them at a time, since somebody wanted to know.
    pub(crate) fewest_ready: Option<usize>,
    /// The most servers at a time, of all sets.
    pub(crate) most_in_all: usize,
}

/// A watch of all servers.
pub(crate) struct Truth {
    seen: Arc<Mutex<Seen>>,
    task: Child,
}

impl Drop for Truth {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Truth {
    pub(crate) fn watch(cluster: &Cluster) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = Arc::clone(&seen);
        let mut events = watcher::watcher(cluster.servers(), watcher::Config::default()).boxed();
        let task = cluster.spawner.spawn_child("truth", async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(server) | Event::InitApply(server)) => {
                        note(&mut noted.lock().expect("the truth"), &server, false);
                    }
                    Ok(Event::Delete(server)) => note(&mut noted.lock().expect("the truth"), &server, true),
                    Ok(Event::Init | Event::InitDone) => {}
                    Err(error) => panic!("the watch of the test failed: {error}"),
                }
            }
        });
        Self { seen, task }
    }

    /// Notes from now on the fewest servers that could be allocated.
    pub(crate) fn mind_the_fewest(&self) {
        let mut seen = self.seen.lock().expect("the truth");
        seen.fewest_ready = Some(seen.ready.len());
        seen.most_in_all = 0;
    }

    /// How many servers can be allocated now.
    pub(crate) fn ready(&self) -> usize {
        self.seen.lock().expect("the truth").ready.len()
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().expect("the truth").clone()
    }
}

fn note(seen: &mut Seen, server: &GameServer, is_gone: bool) {
    let set = server.labels().get(GAME_SERVER_SET_LABEL).cloned().unwrap_or_default();
    let uid = server.uid().expect("a UID");
    if seen.ever.insert(uid.clone()) && server.node_name().is_none() {
        seen.born_without_node += 1;
    }
    let version = server.resource_version().and_then(|version| version.parse().ok());
    seen.first_version = [seen.first_version, version].into_iter().flatten().min();
    if !is_gone && !server.is_being_deleted() && server.state() == Some(State::Ready) {
        seen.ready.insert(uid.clone());
    } else {
        seen.ready.remove(&uid);
    }
    seen.fewest_ready = seen.fewest_ready.map(|fewest| fewest.min(seen.ready.len()));
    let live = seen.live.entry(set.clone()).or_default();
    if is_gone || server.is_being_deleted() {
        live.remove(&uid);
    } else {
        live.insert(uid);
    }
    let most = seen.most.entry(set).or_default();
    *most = (*most).max(live.len());
    let in_all = seen.live.values().map(BTreeSet::len).sum();
    seen.most_in_all = seen.most_in_all.max(in_all);
}
