//! One life of the agent: a drainer, a worker for each server, and what they see of each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::link::ServerUid;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::Order;
use super::api::Api;
use super::drainer::{Drainer, Sight};
use super::worker::{Around, Next, Worker};
use crate::drain::marks::Marks;
use crate::game_server::Line;
use crate::identity::Identity;
use crate::node::NodeFacts;
use crate::pods::{GamePod, PodBook};
use crate::ports::ledger::Ledger;
use crate::ports::{PortMetrics, Ports};

pub(super) struct Agent {
    identity: Identity,
    node: Arc<NodeFacts>,
    pub(super) drainer: Drainer,
    pub(super) workers: BTreeMap<String, Worker>,
    ports: Ports,
    book: PodBook,
    pods: BTreeMap<String, GamePod>,
    lines: BTreeMap<ServerUid, Line>,
    /// It knows every pod and server, and watches them.
    pub(super) has_adopted: bool,
}

impl Agent {
    pub(super) fn new(
        order: Order,
        identity: Identity,
        node: &Node,
        copy: Option<Marks>,
        now: Timestamp,
    ) -> Self {
        let (pods, lines) = (BTreeMap::new(), BTreeMap::new());
        let sight = Sight { pods: &pods, lines: &lines, are_known: false, now };
        Self {
            identity,
            node: Arc::new(NodeFacts::read(node)),
            drainer: Drainer::new(order, node, copy, sight),
            workers: BTreeMap::new(),
            ports: Ports::new(Ledger::new(BTreeMap::new(), 0), PortMetrics::default()),
            book: PodBook::default(),
            pods,
            lines,
            has_adopted: false,
        }
    }

    /// Lists what is there.
    pub(super) fn adopt(&mut self, api: &Api, now: Timestamp) {
        for pod in api.pods.values() {
            self.book.note(pod, &self.ports);
        }
        self.pods = self.book.game_pods();
        for (name, server) in &api.servers {
            let worker = Worker::new(Arc::clone(server), api.pods.get(name).cloned(), now);
            self.lines.insert(uid(name), worker.line());
            self.workers.insert(name.clone(), worker);
        }
        self.has_adopted = true;
    }

    pub(super) fn note_node(&mut self, node: &Node) {
        self.node = Arc::new(NodeFacts::read(node));
        self.drainer.note_node(node);
    }

    pub(super) fn note_pod(&mut self, name: &str, pod: Option<Arc<Pod>>) {
        match &pod {
            Some(pod) => self.book.note(pod, &self.ports),
            None => {
                self.book.remove(&format!("{name}-pod"), &self.ports);
            }
        }
        self.pods = self.book.game_pods();
        let Some(worker) = self.workers.get_mut(name) else { return };
        match pod {
            Some(pod) => worker.note_pod(pod),
            None => worker.note_no_pod(),
        }
    }

    /// What a worker does next, and whether it shows something new. None where nobody is at work, or where he waits.
    pub(super) fn next_of(&mut self, name: &str, now: Timestamp) -> Option<(bool, Next)> {
        let worker = self.workers.get_mut(name).filter(|worker| !worker.is_busy)?;
        let line = worker.line();
        let is_news = self.lines.get(&uid(name)) != Some(&line);
        let around = Around { identity: &self.identity, node: &self.node, course: &self.drainer.course, now };
        let next = worker.next(around);
        worker.is_busy = matches!(next, Next::Call(_));
        if matches!(next, Next::Over) {
            self.workers.remove(name);
            self.lines.remove(&uid(name));
            return Some((true, next));
        }
        self.lines.insert(uid(name), line);
        Some((is_news, next))
    }

    /// The drainer, and what it sees.
    pub(super) fn drainer(&mut self, now: Timestamp) -> (&mut Drainer, Sight<'_>) {
        let sight = Sight { pods: &self.pods, lines: &self.lines, are_known: self.has_adopted, now };
        (&mut self.drainer, sight)
    }
}

fn uid(name: &str) -> ServerUid {
    ServerUid(format!("{name}-uid"))
}
