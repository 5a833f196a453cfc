//! The task that watches this node's game servers and pods, and that starts, feeds and forgets workers.
//!
//! At start-up it waits for the lease, lists servers and pods, enters every port in the ledger, and only then lets
//! workers act: a port or a pod that an earlier agent made is known before anything new is made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use berth_api::game_node::Room;
use berth_api::game_server::GameServer;
use berth_api::link::{Asked, Pulse, ServerUid};
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::error::chain;
use berth_runtime::health::Condition;
use berth_runtime::kube_client::{Lenient, Undecodable, watch_lenient};
use berth_runtime::tasks::{ChildError, Spawner};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, Stream};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::{self, Config, Event};
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

use super::apply::Actor;
use super::mailbox::{Ended, Mailbox};
use super::worker::Worker;
use crate::front::FrontEvent;
use crate::host::Host;
use crate::pods::{GamePod, PodBook, owner_uid};

/// First and longest pause after a look that failed.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Why the supervisor ended.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// A watch ended, which none ever does.
    #[error("the watch of {what} ended")]
    WatchEnded {
        /// What was watched.
        what: &'static str,
    },
    /// The front's task is gone.
    #[error("the front has ended")]
    FrontEnded,
}

/// What the supervisor tells the rest of the agent.
#[derive(Clone, Debug)]
pub struct Outlets {
    /// What pods that are no game servers take.
    pub others: watch::Sender<Room>,
    /// What game pods take.
    pub games: watch::Sender<Room>,
    /// The pods of game servers, by UID.
    pub game_pods: watch::Sender<BTreeMap<String, GamePod>>,
    /// Whether everything that was there at start-up has been adopted.
    pub adopted: watch::Sender<bool>,
    /// The same, for the admin endpoint.
    pub ready: Condition,
}

struct Entry {
    mailbox: Arc<Mailbox>,
    server: Arc<GameServer>,
}

type Servers = Event<Result<GameServer, Undecodable>>;
type Pods = Event<Result<Pod, Undecodable>>;

/// Watches, starts, feeds and forgets.
pub struct Supervisor<H> {
    actor: Arc<Actor<H>>,
    namespaces: BTreeSet<String>,
    spawner: Spawner,
    front_events: mpsc::Receiver<FrontEvent>,
    outlets: Outlets,
    entries: BTreeMap<ServerUid, Entry>,
    endings: FuturesUnordered<BoxFuture<'static, (ServerUid, Result<(), ChildError>)>>,
    /// Servers whose worker has ended, until the watch has seen it too.
    tombstones: BTreeMap<ServerUid, Ended>,
    pods: PodBook,
    /// Servers seen by the list that is going on.
    listed_servers: BTreeSet<ServerUid>,
    /// What the first lists hold, until both are complete.
    first_servers: Option<Vec<Arc<GameServer>>>,
    has_first_pods: bool,
    has_first_servers: bool,
}

impl<H: Host> Supervisor<H> {
    /// A supervisor; an empty set of namespaces means all.
    pub fn new(
        actor: Arc<Actor<H>>,
        namespaces: BTreeSet<String>,
        spawner: Spawner,
        front_events: mpsc::Receiver<FrontEvent>,
        outlets: Outlets,
    ) -> Self {
        Self {
            actor,
            namespaces,
            spawner,
            front_events,
            outlets,
            entries: BTreeMap::new(),
            endings: FuturesUnordered::new(),
            tombstones: BTreeMap::new(),
            pods: PodBook::default(),
            listed_servers: BTreeSet::new(),
            first_servers: Some(Vec::new()),
            has_first_pods: false,
            has_first_servers: false,
        }
    }

    /// Runs until asked to stop. Workers are children of the same group and stop by the same token.
    ///
    /// # Errors
    /// A watch or the front has ended.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), SupervisorError> {
        let mut authority = self.actor.authority.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            _ = authority.held() => {}
        }
        self.actor.front.set_listening(true).await;
        let mut servers = std::pin::pin!(self.watch_servers());
        let mut pods = std::pin::pin!(self.watch_pods());
        loop {
            // Pods before servers: a server is better met with its pod known. The rest in no order that matters. What
            // games say waits until their servers are known.
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some((uid, ending)) = self.endings.next(), if !self.endings.is_empty() => {
                    self.note_ending(uid, ending, &stop).await;
                }
                event = pods.next() => {
                    self.note_pods(event.ok_or(SupervisorError::WatchEnded { what: "pods" })?);
                    self.adopt(&stop).await;
                }
                event = servers.next() => {
                    self.note_servers(event.ok_or(SupervisorError::WatchEnded { what: "game servers" })?, &stop);
                    self.adopt(&stop).await;
                }
                event = self.front_events.recv(), if self.first_servers.is_none() => {
                    match event {
                        Some(event) => self.note_front(event),
                        // The front ends by the same token, and may be first.
                        None if stop.is_cancelled() => return Ok(()),
                        None => return Err(SupervisorError::FrontEnded),
                    }
                }
            }
        }
    }

    fn watch_servers(&self) -> impl Stream<Item = Result<Servers, watcher::Error>> + Send + use<H> {
        let api: Api<Lenient<GameServer>> = Api::all(self.actor.client.clone());
        let config = servers_of(&self.actor.identity.node);
        watch_lenient(api, config, self.actor.metrics.skipped.clone())
    }

    fn watch_pods(&self) -> impl Stream<Item = Result<Pods, watcher::Error>> + Send + use<H> {
        let api: Api<Lenient<Pod>> = Api::all(self.actor.client.clone());
        let config = pods_of(&self.actor.identity.node);
        watch_lenient(api, config, self.actor.metrics.skipped.clone())
    }

    /// Once both first lists are complete: every port is entered, then every worker starts.
    async fn adopt(&mut self, stop: &CancellationToken) {
        if !self.has_first_pods || !self.has_first_servers || self.first_servers.is_none() {
            return;
        }
        let strays = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            strays = look_for_strays(&self.actor, self.stray_pods()) => strays,
        };
        let Some(found) = self.first_servers.take() else { return };
        let mut workers: Vec<_> = found.into_iter().map(|server| self.employ(server)).collect();
        for server in strays {
            let (uid, mut worker) = self.employ(server);
            worker.doubt();
            workers.push((uid, worker));
        }
        for (_, worker) in &mut workers {
            worker.introduce().await;
        }
        self.actor.front.settled().await;
        info!(game_servers = workers.len(), "adopted what was here");
        for (uid, worker) in workers {
            self.start(uid, worker, stop);
        }
        self.outlets.adopted.send_replace(true);
        self.outlets.ready.set(true);
    }

    /// Pods of servers that no list of ours shows.
    fn stray_pods(&self) -> Vec<(ServerUid, Arc<Pod>)> {
        let is_listed =
            |uid: &ServerUid| self.first_servers.iter().flatten().any(|server| uid_of(server) == *uid);
        let is_served = |pod: &Pod| self.serves(pod.metadata.namespace.as_deref().unwrap_or_default());
        let strays = self.pods.of_servers().filter(|(owner, pod)| !is_listed(owner) && is_served(pod));
        strays.map(|(owner, pod)| (owner.clone(), Arc::clone(pod))).collect()
    }

    fn serves(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }

    fn note_servers(&mut self, event: Result<Servers, watcher::Error>, stop: &CancellationToken) {
        match event {
            Err(error) => warn!(error = %chain(&error), "could not watch game servers"),
            Ok(Event::Init) => self.listed_servers.clear(),
            Ok(Event::InitApply(Ok(server))) => {
                self.listed_servers.insert(uid_of(&server));
                self.note_server(server, stop);
            }
            Ok(Event::Apply(Ok(server))) => self.note_server(server, stop),
            Ok(Event::Delete(Ok(server))) => self.note_left(&uid_of(&server)),
            Ok(Event::InitDone) => self.note_list_end(),
            Ok(Event::InitApply(Err(undecodable)) | Event::Apply(Err(undecodable))) => {
                // It is still there, so a worker that has it keeps what it knew.
                self.listed_servers.extend(undecodable.uid.map(ServerUid));
            }
            Ok(Event::Delete(Err(undecodable))) => {
                if let Some(uid) = undecodable.uid {
                    self.note_left(&ServerUid(uid));
                }
            }
        }
    }

    fn note_server(&mut self, server: GameServer, stop: &CancellationToken) {
        let namespace = server.metadata.namespace.clone().unwrap_or_default();
        if !self.serves(&namespace) {
            debug!(namespace, "game server of a namespace that is not served");
            self.actor.metrics.foreign_namespaces.inc();
            return;
        }
        if server.dev_address().is_some() {
            // A development server has no pod; the brain alone looks after it.
            return;
        }
        let server = Arc::new(server);
        if let Some(first) = &mut self.first_servers {
            first.retain(|known| known.metadata.uid != server.metadata.uid);
            first.push(server);
            return;
        }
        let uid = uid_of(&server);
        if let Some(entry) = self.entries.get_mut(&uid) {
            entry.server = Arc::clone(&server);
            entry.mailbox.post(|mail| {
                mail.server = Some(server);
                mail.left = false;
            });
            return;
        }
        if self.tombstones.get(&uid).is_some_and(|ended| is_old_news(ended, &server)) {
            return;
        }
        self.tombstones.remove(&uid);
        let (uid, worker) = self.employ(server);
        self.start(uid, worker, stop);
    }

    fn note_left(&mut self, uid: &ServerUid) {
        self.tombstones.remove(uid);
        if let Some(first) = &mut self.first_servers {
            first.retain(|known| known.metadata.uid.as_deref() != Some(uid.0.as_str()));
        }
        if let Some(entry) = self.entries.get(uid) {
            entry.mailbox.post(|mail| mail.left = true);
        }
    }

    /// What a complete list does not show has left while nobody looked.
    fn note_list_end(&mut self) {
        for (uid, entry) in &self.entries {
            if !self.listed_servers.contains(uid) {
                entry.mailbox.post(|mail| mail.left = true);
            }
        }
        self.tombstones.retain(|uid, _| self.listed_servers.contains(uid));
        self.has_first_servers = true;
    }

    fn note_pods(&mut self, event: Result<Pods, watcher::Error>) {
        match event {
            Err(error) => warn!(error = %chain(&error), "could not watch pods"),
            Ok(Event::Init) => self.pods.begin_list(),
            Ok(Event::InitApply(Ok(pod)) | Event::Apply(Ok(pod))) => {
                let pod = Arc::new(pod);
                self.pods.note(&pod, &self.actor.ports);
                if let Some(entry) =
                    owner_uid(&pod).and_then(|uid| self.entries.get(&ServerUid(uid.to_owned())))
                {
                    entry.mailbox.post(|mail| mail.pod = Some(pod));
                }
            }
            Ok(Event::InitApply(Err(undecodable)) | Event::Apply(Err(undecodable))) => {
                self.pods.keep(undecodable.uid.as_deref());
            }
            Ok(Event::Delete(Ok(pod))) => {
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                if let Some(owner) = self.pods.remove(&uid, &self.actor.ports) {
                    self.tell_gone(&owner, uid, true);
                }
            }
            Ok(Event::Delete(Err(undecodable))) => {
                let uid = undecodable.uid.unwrap_or_default();
                if let Some(owner) = self.pods.remove(&uid, &self.actor.ports) {
                    self.tell_gone(&owner, uid, true);
                }
            }
            Ok(Event::InitDone) => {
                for (uid, owner) in self.pods.end_list(&self.actor.ports) {
                    if let Some(owner) = owner {
                        self.tell_gone(&owner, uid, false);
                    }
                }
                self.has_first_pods = true;
            }
        }
        send(&self.outlets.others, self.pods.others());
        send(&self.outlets.games, self.pods.games());
        send(&self.outlets.game_pods, self.pods.game_pods());
    }

    fn tell_gone(&self, owner: &ServerUid, pod_uid: String, is_certain: bool) {
        if let Some(entry) = self.entries.get(owner) {
            entry.mailbox.post(|mail| {
                if is_certain {
                    mail.gone_pod = Some(pod_uid);
                } else {
                    mail.unlisted_pod = Some(pod_uid);
                }
            });
        }
    }

    fn note_front(&mut self, event: FrontEvent) {
        match event {
            FrontEvent::Connected { process_id, version } => {
                info!(process_id, version, "berth-sdk is connected");
            }
            FrontEvent::Disconnected => {
                warn!("berth-sdk is not connected");
                // A new one has no pings yet, and says again who is silent.
                for entry in self.entries.values() {
                    entry.mailbox.post(|mail| mail.pulse = Some(Pulse::Alive));
                }
            }
            FrontEvent::Change { uid, sequence, change, seen } => match self.entries.get(&uid) {
                Some(entry) => {
                    entry.mailbox.post(|mail| mail.changes.push((sequence, Asked { change, seen })))
                }
                // Said again after the next connect, when its server may be known.
                None => debug!(game_server = %uid, "a change of an unknown server"),
            },
            FrontEvent::Pings { uid, pulse } => {
                if let Some(entry) = self.entries.get(&uid) {
                    entry.mailbox.post(|mail| mail.pulse = Some(pulse));
                }
            }
            FrontEvent::HandedBack { uid, keys } => {
                if let Some(entry) = self.entries.get(&uid) {
                    entry.mailbox.post(|mail| mail.handed_back = Some(keys));
                }
            }
        }
    }

    /// A worker for a server, its ports entered.
    fn employ(&mut self, server: Arc<GameServer>) -> (ServerUid, Worker<H>) {
        let uid = uid_of(&server);
        let mailbox = Arc::new(Mailbox::default());
        let pod = self.pods.of(&uid);
        let worker = Worker::new(&self.actor, &mailbox, Arc::clone(&server), pod);
        self.entries.insert(uid.clone(), Entry { mailbox, server });
        self.actor.metrics.workers.set(i64::try_from(self.entries.len()).unwrap_or(i64::MAX));
        (uid, worker)
    }

    fn start(&mut self, uid: ServerUid, worker: Worker<H>, stop: &CancellationToken) {
        let name = format!("game-server-{uid}");
        let mut child = self.spawner.spawn_child(name, worker.run(stop.clone()));
        self.endings.push(async move { (uid, child.ended().await) }.boxed());
    }

    async fn note_ending(
        &mut self,
        uid: ServerUid,
        ending: Result<(), ChildError>,
        stop: &CancellationToken,
    ) {
        let Some(entry) = self.entries.remove(&uid) else { return };
        self.actor.metrics.workers.set(i64::try_from(self.entries.len()).unwrap_or(i64::MAX));
        match (ending, entry.mailbox.ended()) {
            (Ok(()), Some(ended)) => {
                // News that came while the worker was ending belongs to another life of the server.
                if is_old_news(&ended, &entry.server) {
                    self.tombstones.insert(uid, ended);
                } else {
                    let (uid, worker) = self.employ(entry.server);
                    self.start(uid, worker, stop);
                }
            }
            (Ok(()), None) => {}
            (Err(failure), _) => {
                if stop.is_cancelled() {
                    return;
                }
                error!(game_server = %uid, error = %chain(&failure), "worker failed; starting another");
                self.actor.metrics.panics.inc();
                let (uid, worker) = self.employ(entry.server);
                self.start(uid, worker, stop);
                // What its game had said went down with the worker; `berth-sdk` says it again when it comes back.
                self.actor.front.set_listening(false).await;
                self.actor.front.set_listening(true).await;
            }
        }
    }
}

/// Servers whose pods are here although no list of ours shows them: somebody has changed their place while no agent
/// looked.
async fn look_for_strays<H: Host>(
    actor: &Actor<H>,
    pods: Vec<(ServerUid, Arc<Pod>)>,
) -> Vec<Arc<GameServer>> {
    let mut strays = Vec::new();
    for (owner, pod) in pods {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let mut backoff = Backoff::new(WAITS.0, WAITS.1);
        let found = loop {
            match actor.look_leniently(namespace, name).await {
                Ok(found) => break found,
                Err(error) => {
                    warn!(namespace, name, error = %chain(&error), "could not look for the server of a pod");
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        };
        strays.extend(found.filter(|server| uid_of(server) == owner).map(Arc::new));
    }
    strays
}

/// What is watched of all servers.
fn servers_of(node: &str) -> Config {
    Config::default().fields(&format!("status.nodeName={node}"))
}

/// What is watched of all pods.
fn pods_of(node: &str) -> Config {
    Config::default().fields(&format!("spec.nodeName={node}"))
}

fn uid_of(server: &GameServer) -> ServerUid {
    ServerUid(server.metadata.uid.clone().unwrap_or_default())
}

/// Whether an object is no newer than what a worker knew when it ended.
fn is_old_news(ended: &Ended, server: &GameServer) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    match ended {
        Ended::Gone => true,
        Ended::At(version) => {
            let seen = server.metadata.resource_version.as_deref().and_then(number);
            match (seen, number(version)) {
                (Some(seen), Some(known)) => seen <= known,
                _ => false,
            }
        }
    }
}

fn send<T: PartialEq>(channel: &watch::Sender<T>, new: T) {
    channel.send_if_modified(|known| {
        let changed = *known != new;
        *known = new;
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::{pods_of, servers_of};

    /// Many nodes that each list everything are more than an API server bears.
    #[test]
    fn defect_6_a_node_looks_at_its_own_servers_and_pods_alone() {
        let selected = |config: kube::runtime::watcher::Config| config.field_selector;
        assert_eq!(selected(servers_of("node-7")).as_deref(), Some("status.nodeName=node-7"));
        assert_eq!(selected(pods_of("node-7")).as_deref(), Some("spec.nodeName=node-7"));
    }
}
