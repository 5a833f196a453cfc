//! The worker of one server, but for its waiting: what it knows, what it decides, the calls that come of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_api::game_node::Room;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::link::{Asked, Sequence};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::api::Refused;
use crate::drain::Course;
use crate::game_server::Line;
use crate::game_server::amounts::Amounts;
use crate::game_server::decide::{Step, decide};
use crate::game_server::memory::Memory;
use crate::game_server::observe::{Surroundings, addresses, observe};
use crate::game_server::patches::{self, AtReady, Place};
use crate::game_server::view::applied;
use crate::game_server::wishes::Wishes;
use crate::identity::Identity;
use crate::node::NodeFacts;

/// What a worker asks of the API server.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Look,
    LookForPod,
    /// A merge patch of the server; the last one of its life where it is finished.
    Patch {
        body: Value,
        is_last: bool,
    },
    /// Delete the server in this version.
    Withdraw(Option<String>),
    DeleteServer,
    Tolerate(Value),
    DeletePod(Option<String>),
}

/// What the API server answers.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Server(Arc<GameServer>),
    Pod(Arc<Pod>),
    Refused(Refused),
}

/// What comes next.
pub(super) enum Next {
    Rest(Option<Timestamp>),
    Call(Call),
    Over,
}

/// What is around a worker.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) identity: &'a Identity,
    pub(super) node: &'a NodeFacts,
    pub(super) course: &'a Course,
    pub(super) now: Timestamp,
}

pub(super) struct Worker {
    server: Arc<GameServer>,
    pod: Option<Arc<Pod>>,
    memory: Memory,
    is_stale: bool,
    has_left: bool,
    lost_its_pod: bool,
    is_over: bool,
    pub(super) is_busy: bool,
}

impl Worker {
    pub(super) fn new(server: Arc<GameServer>, pod: Option<Arc<Pod>>, now: Timestamp) -> Self {
        Self {
            memory: Memory::new(server.state().unwrap_or(State::Creating), now),
            server,
            pod,
            is_stale: false,
            has_left: false,
            lost_its_pod: false,
            is_over: false,
            is_busy: false,
        }
    }

    pub(super) fn next(&mut self, around: Around<'_>) -> Next {
        if self.is_over {
            return Next::Over;
        }
        if std::mem::take(&mut self.lost_its_pod) {
            return Next::Call(Call::LookForPod);
        }
        if self.is_stale || self.has_left {
            return Next::Call(Call::Look);
        }
        loop {
            let surroundings = Surroundings {
                identity: around.identity,
                node: around.node,
                taken: Room::default(),
                course: around.course,
                ends_sessions: true,
            };
            let seen = observe(&self.server, self.pod.as_deref(), &self.memory, surroundings);
            let patch = |body| Next::Call(Call::Patch { body, is_last: false });
            return match decide(&seen, around.now) {
                Step::Wait(until) => Next::Rest(until),
                Step::DropWishes(wishes) => {
                    self.memory.pending.forget(wishes.up_to);
                    self.memory.dropped = self.memory.dropped.max(wishes.up_to);
                    continue;
                }
                Step::LookForPod => Next::Call(Call::LookForPod),
                Step::Grant(wishes) => patch(self.grant(&wishes, around)),
                Step::MakeReady => patch(self.at_ready(around, patches::make_ready)),
                Step::End { to, reason } => patch(patches::end(&self.server, to, &reason, around.now)),
                Step::DeleteServer => Next::Call(Call::DeleteServer),
                Step::Withdraw(_) => {
                    Next::Call(Call::Withdraw(self.server.metadata.resource_version.clone()))
                }
                Step::TellDrain(word) => patch(patches::tell_drain(&self.server, &word)),
                Step::Tolerate => {
                    Next::Call(Call::Tolerate(patches::tolerate(self.pod.as_ref().expect("a pod"))))
                }
                Step::DeletePod => {
                    Next::Call(Call::DeletePod(self.pod.as_ref().and_then(|pod| pod.metadata.uid.clone())))
                }
                Step::Finish => {
                    Next::Call(Call::Patch { body: patches::finish(&self.server), is_last: true })
                }
                Step::Tell(trouble) => patch(patches::tell(&self.server, trouble.as_ref(), around.now)),
                step @ (Step::HandBack(_)
                | Step::ReservePorts
                | Step::CreatePod
                | Step::NoteRefusal(_)
                | Step::Schedule
                | Step::EndSession { .. }
                | Step::Readdress) => panic!("no step of this world: {step:?}"),
            };
        }
    }

    fn grant(&self, wishes: &Wishes, around: Around<'_>) -> Value {
        let amounts = Amounts::of(&self.server.status.clone().unwrap_or_default(), wishes);
        self.at_ready(around, |server, at| patches::grant(server, wishes, &amounts, at))
    }

    fn at_ready(&self, around: Around<'_>, body: impl FnOnce(&GameServer, AtReady<'_>) -> Value) -> Value {
        let pod_addresses = self.pod.as_deref().map(|pod| addresses(pod, &[])).unwrap_or_default();
        let place = Place {
            server: &self.server,
            name: &around.identity.node,
            node: around.node,
            ports: self.server.spec.ports(),
            pod_addresses: &pod_addresses,
        };
        body(&self.server, AtReady { place, container: None })
    }

    /// The answer to a call; as the worker takes it.
    pub(super) fn hear(&mut self, call: &Call, reply: Reply, now: Timestamp) {
        self.is_busy = false;
        match (call, reply) {
            (Call::Look, Reply::Refused(_)) => self.is_over = true,
            (Call::Look, Reply::Server(server)) => {
                (self.is_stale, self.has_left) = (false, false);
                self.note_server(server, now);
            }
            (Call::LookForPod, Reply::Refused(_)) => self.memory.pod_is_gone = true,
            (Call::DeletePod(_), Reply::Refused(Refused::NotFound)) => self.note_no_pod(),
            (Call::Tolerate(_), Reply::Refused(_)) => self.lost_its_pod = true,
            (Call::Patch { is_last: true, .. }, Reply::Server(_) | Reply::Refused(Refused::NotFound)) => {
                self.is_over = true;
            }
            (_, Reply::Refused(_)) => self.is_stale = true,
            (_, Reply::Server(server)) => self.note_server(server, now),
            (_, Reply::Pod(pod)) => self.note_pod(pod),
        }
    }

    pub(super) fn note_server(&mut self, server: Arc<GameServer>, now: Timestamp) {
        let version = |server: &GameServer| number(server.metadata.resource_version.as_deref());
        if version(&server) <= version(&self.server) {
            return;
        }
        self.has_left = false;
        self.memory.note_state(server.state().unwrap_or(State::Creating), now);
        self.memory.pending.forget(applied(&server));
        self.server = server;
    }

    pub(super) fn note_left(&mut self) {
        self.has_left = true;
    }

    pub(super) fn note_pod(&mut self, pod: Arc<Pod>) {
        let version = |pod: &Pod| number(pod.metadata.resource_version.as_deref());
        if self.pod.as_ref().is_none_or(|known| version(&pod) > version(known)) {
            self.memory.pod_is_gone = false;
            self.pod = Some(pod);
        }
    }

    pub(super) fn note_no_pod(&mut self) {
        self.pod = None;
        self.memory.pod_is_gone = true;
    }

    pub(super) fn note_asked(&mut self, sequence: Sequence, asked: Asked) {
        if sequence > applied(&self.server).max(self.memory.dropped) {
            self.memory.pending.note(sequence, asked);
        }
    }

    /// What the others see of it.
    pub(super) fn line(&self) -> Line {
        Line {
            namespace: "games".into(),
            name: self.server.metadata.name.clone().unwrap_or_default(),
            uid: self.server.metadata.uid.clone().unwrap_or_default(),
            state: self.memory.state,
            since: String::new(),
            deleting: self.server.metadata.deletion_timestamp.is_some(),
            address: String::new(),
            ports: Vec::new(),
            pod: None,
            sdk: String::new(),
            reason: None,
            players: None,
            amounts: BTreeMap::new(),
            history: Vec::new(),
        }
    }
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|text| text.parse().ok()).unwrap_or_default()
}
