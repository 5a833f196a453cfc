//! The tasks that keep the book (game servers, what the nodes' agents say, and their leases) and the shelf of policies.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use berth_api::allocation_policy::GameServerAllocationPolicy;
use berth_api::game_node::{GameNode, NodePhase};
use berth_api::game_server::GameServer;
use berth_api::names::SYSTEM_NAMESPACE;
use berth_runtime::CancellationToken;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::error::chain;
use berth_runtime::health::{Condition, Conditions};
use berth_runtime::kube_client::{Skipped, Undecodable, watch_lenient};
use berth_runtime::metrics::Metrics;
use berth_runtime::tasks::TaskGroup;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client, ResourceExt as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tracing::{info, warn};

use crate::book::{Book, Candidate, ServerKey, Version};
use crate::clusters::PolicyShelf;
use crate::take::Desk;

/// What the watches count.
#[derive(Clone, Debug)]
pub(crate) struct WatchMetrics {
    skipped: Skipped,
    failures: Counter,
    servers: Gauge,
}

impl WatchMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let mut watching = metrics.subsystem("allocator_book");
        Self {
            skipped: Skipped::register(&mut watching),
            failures: watching.register(
                "watch_failures",
                "Times that a watch failed; it goes on by itself",
                Counter::default(),
            ),
            servers: watching.register("servers", "Game servers that may be allocated", Gauge::default()),
        }
    }
}

/// Starts the watches. Ready is told for each of them once its first list is complete, as is whoever has what this
/// returns.
pub(crate) fn start(
    group: &TaskGroup,
    client: &Client,
    desk: &Arc<Desk>,
    shelf: Arc<PolicyShelf>,
    conditions: &mut Conditions,
    metrics: &WatchMetrics,
) -> Listed {
    let mut listed = Vec::new();
    let mut follower = |kind: &'static str| {
        let ready = conditions.name(kind);
        listed.push(ready.clone());
        Follow { kind, ready, failures: metrics.failures.clone(), stop: group.token() }
    };
    let skipped = || metrics.skipped.clone();
    let pages = || Pages { desk: Arc::clone(desk), servers: metrics.servers.clone() };

    let servers = Api::all(client.clone());
    let events = watch_lenient::<GameServer>(servers, Config::default(), skipped()).boxed();
    let (follow, pages_of_servers) = (follower("game servers"), pages());
    group.spawn(
        "watch game servers",
        follow.run(events, move |event| pages_of_servers.note(event, note_server)),
    );

    let nodes = Api::all(client.clone());
    let events = watch_lenient::<GameNode>(nodes, Config::default(), skipped()).boxed();
    let (follow, pages_of_nodes) = (follower("game nodes"), pages());
    let mut named = BTreeSet::new();
    group.spawn(
        "watch game nodes",
        follow.run(events, move |event| {
            pages_of_nodes.note(event, |book, event, _| note_node(book, &mut named, event));
        }),
    );

    let leases = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let events = watch_lenient::<Lease>(leases, Config::default(), skipped()).boxed();
    let (follow, pages_of_leases) = (follower("node leases"), pages());
    group
        .spawn("watch node leases", follow.run(events, move |event| pages_of_leases.note(event, note_lease)));

    let policies = Api::all(client.clone());
    let events = watch_lenient::<GameServerAllocationPolicy>(policies, Config::default(), skipped()).boxed();
    let follow = follower("policies");
    group.spawn("watch policies", follow.run(events, move |event| note_policy(&shelf, event)));
    Listed(listed)
}

/// Tells when everything has been listed: before that, every answer would be that there is no server.
#[derive(Clone, Debug)]
pub(crate) struct Listed(Vec<Condition>);

impl Listed {
    /// Waits until everything has been.
    pub(crate) async fn all(&self) {
        for kind in &self.0 {
            kind.met().await;
        }
    }
}

/// What a watch tells; a failure is news too.
type Told<K> = Result<Event<Result<K, Undecodable>>, watcher::Error>;

/// One watch.
struct Follow {
    kind: &'static str,
    ready: Condition,
    failures: Counter,
    stop: CancellationToken,
}

impl Follow {
    async fn run<K: Send>(
        self,
        mut events: impl Stream<Item = Told<K>> + Unpin + Send,
        mut note: impl FnMut(Told<K>) + Send,
    ) -> Result<(), Infallible> {
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                event = events.next() => event,
            };
            // The stream never ends by itself; should it, the task ends unasked and the program with it.
            let Some(event) = event else { return Ok(()) };
            if let Err(error) = &event {
                self.failures.inc();
                warn!(kind = self.kind, error = %chain(error), "a watch failed; it goes on");
            }
            let is_complete = matches!(event, Ok(Event::InitDone));
            note(event);
            if is_complete {
                self.ready.set(true);
            }
        }
    }
}

/// The desk's book, for what a watch tells.
struct Pages {
    desk: Arc<Desk>,
    servers: Gauge,
}

impl Pages {
    fn note<K>(&self, event: Told<K>, note: impl FnOnce(&mut Book, Told<K>, Instant)) {
        let now = Clock::system().instant();
        let servers = self.desk.change(|book| {
            note(book, event, now);
            book.len()
        });
        self.servers.set(i64::try_from(servers).unwrap_or(i64::MAX));
    }
}

fn note_server(book: &mut Book, event: Told<GameServer>, _: Instant) {
    match event {
        Ok(Event::Init) => book.begin_list(),
        Ok(Event::InitApply(Ok(server)) | Event::Apply(Ok(server))) => {
            book.see(&key(&server), Version::of(&server), Candidate::read(&server));
        }
        Ok(Event::Delete(Ok(server))) => book.forget(&key(&server), Version::of(&server)),
        // One that cannot be read cannot be allocated.
        Ok(Event::InitApply(Err(server)) | Event::Apply(Err(server)) | Event::Delete(Err(server))) => {
            let key = ServerKey::new(server.namespace.unwrap_or_default(), server.name);
            let version = Version { uid: server.uid.unwrap_or_default(), resource: String::new() };
            book.see(&key, version, None);
        }
        Ok(Event::InitDone) => book.end_list(),
        Err(_) => {}
    }
}

fn note_policy(shelf: &PolicyShelf, event: Told<GameServerAllocationPolicy>) {
    match event {
        Ok(Event::Init) => shelf.begin_list(),
        Ok(Event::InitApply(Ok(policy))) => shelf.list(policy),
        Ok(Event::Apply(Ok(policy))) => shelf.put(policy),
        Ok(Event::Delete(Ok(policy))) => {
            shelf.forget(&policy.namespace().unwrap_or_default(), &policy.name_any());
        }
        Ok(Event::Apply(Err(policy)) | Event::Delete(Err(policy))) => {
            shelf.forget(&policy.namespace.unwrap_or_default(), &policy.name);
        }
        Ok(Event::InitDone) => shelf.end_list(),
        Ok(Event::InitApply(Err(_))) | Err(_) => {}
    }
}

fn key(server: &GameServer) -> ServerKey {
    ServerKey::new(server.namespace().unwrap_or_default(), server.name_any())
}

fn note_node(book: &mut Book, listed: &mut BTreeSet<String>, event: Told<GameNode>) {
    match event {
        Ok(Event::Init) => listed.clear(),
        Ok(Event::InitApply(Ok(node)) | Event::Apply(Ok(node))) => {
            let name = node.name_any();
            match &node.status {
                Some(status) => turn(book, &name, status.phase),
                None => book.nodes.forget_phase(&name),
            }
            listed.insert(name);
        }
        Ok(Event::InitApply(Err(node)) | Event::Apply(Err(node))) => {
            // What we knew of it stays.
            listed.insert(node.name);
        }
        Ok(Event::Delete(Ok(node))) => book.nodes.forget_phase(&node.name_any()),
        Ok(Event::Delete(Err(node))) => book.nodes.forget_phase(&node.name),
        Ok(Event::InitDone) => book.nodes.keep_phases(listed),
        Err(_) => {}
    }
}

/// A node's agent says so. What is told of it comes after it holds.
fn turn(book: &mut Book, node: &str, phase: NodePhase) {
    if book.nodes.set_phase(node, phase) {
        info!(node, ?phase, "nothing is taken from a node unless it is Active");
    }
}

fn note_lease(book: &mut Book, event: Told<Lease>, now: Instant) {
    match event {
        Ok(Event::Init) | Err(_) => book.nodes.lose_sight(),
        Ok(Event::InitApply(Ok(lease)) | Event::Apply(Ok(lease))) => {
            book.nodes.see_lease(&lease.name_any(), &lease, now);
        }
        Ok(Event::InitApply(Err(_)) | Event::Apply(Err(_))) => {}
        Ok(Event::Delete(Ok(lease))) => book.nodes.forget_lease(&lease.name_any()),
        Ok(Event::Delete(Err(lease))) => book.nodes.forget_lease(&lease.name),
        Ok(Event::InitDone) => book.nodes.regain_sight(now),
    }
}
