//! One round: who is there, what happens to them, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::link::{Asked, Change, Sequence};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::Value;

use super::agent::Agent;
use super::api::{Api, Refused};
use super::drainer::Next as Drains;
use super::evictor::Evictor;
pub(super) use super::tally::Tally;
use super::worker::{Call, Next, Reply};
use super::{Make, Order, objects};
use crate::drain::marks::Marks;
use crate::drain::notice::{Notice, Severity, Signal, Source};
use crate::drain::plan::Step;

mod players;

/// When the drain is ordered, in milliseconds.
const ORDERED_AT: u64 = 1_000;
/// When nothing is left to happen.
const END: u64 = ORDERED_AT + 25_000;
/// How old the evicting controller's knowledge of pods is.
const STALE: RangeInclusive<u64> = 3_000..=3_000;
/// How long its knowledge of the Node takes to come.
const NODE_LAG: RangeInclusive<u64> = 1..=1_000;
/// How long a watch of the agent or of the allocator takes.
const LAG: RangeInclusive<u64> = 1..=300;

/// Who watches, and what: of one watch, nothing overtakes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Watch {
    AgentServers,
    AgentPods,
    AgentNode,
    Allocator,
    EvictorPods,
    EvictorNode,
}

/// What happens. Whatever concerns the agent concerns one life of it.
enum Event {
    Order,
    Hear { life: u32 },
    Die,
    Rise,
    Adopt { life: u32 },
    DrainerTurns { life: u32 },
    WorkerTurns { life: u32, name: String },
    Kept { life: u32, marks: Box<Marks>, step: Step },
    NodeIsRead { life: u32, step: Step },
    NodeWasRead { life: u32, step: Step, node: Box<Node> },
    NodeIsWritten { life: u32, body: Value },
    NodeWasWritten { life: u32, written: Option<Box<Node>> },
    Arrives { life: u32, name: String, call: Call },
    Answered { life: u32, name: String, call: Call, reply: Reply },
    AgentSeesServer { life: u32, name: String, server: Option<Arc<GameServer>> },
    AgentSeesPod { life: u32, name: String, pod: Option<Arc<Pod>> },
    AgentSeesNode { life: u32, node: Box<Node> },
    AllocatorSees { name: String, server: Option<Arc<GameServer>> },
    EvictorSeesPod { name: String, pod: Option<Arc<Pod>> },
    EvictorSeesNode { node: Box<Node> },
    EvictorDeletes { name: String },
    Allocate,
    Allocates { name: String, version: Option<String> },
    GameIsReady { name: String },
    SessionEnds { name: String },
    PodIsTouched { name: String },
    NodeIsTouched,
    PodIsGone { name: String },
}

pub(super) struct World {
    make: Make,
    order: Order,
    rng: StdRng,
    now: u64,
    events: BTreeMap<(u64, u32, u64), Event>,
    count: u64,
    last: BTreeMap<Watch, u64>,
    api: Api,
    agent: Option<Agent>,
    life: u32,
    copy: Option<Marks>,
    is_ordered: bool,
    evictor: Evictor,
    allocator: BTreeMap<String, Arc<GameServer>>,
    asked: BTreeMap<String, Vec<(Sequence, Asked)>>,
    /// Servers whose game has ended its session.
    over: BTreeSet<String>,
    losses: BTreeMap<String, String>,
    late: BTreeSet<String>,
    tally: Tally,
}

impl World {
    pub(super) fn new(make: Make, order: Order, rng: StdRng) -> Self {
        let mut world = Self {
            make,
            order,
            rng,
            now: 0,
            events: BTreeMap::new(),
            count: 0,
            last: BTreeMap::new(),
            api: Api::new(objects::node()),
            agent: None,
            life: 0,
            copy: None,
            is_ordered: false,
            evictor: Evictor::default(),
            allocator: BTreeMap::new(),
            asked: BTreeMap::new(),
            over: BTreeSet::new(),
            losses: BTreeMap::new(),
            late: BTreeSet::new(),
            tally: Tally::default(),
        };
        world.people();
        world
    }

    pub(super) fn play(mut self, seed: u64) -> Tally {
        while let Some(((time, ..), event)) = self.events.pop_first().filter(|((time, ..), _)| *time < END) {
            self.now = time;
            self.happen(event);
        }
        self.judge(seed);
        self.tally
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Order => {
                self.is_ordered = true;
                self.now(Event::Hear { life: self.life });
            }
            Event::Hear { life } => {
                let signal = Signal::Raised(Notice {
                    source: Source::FleetIq,
                    severity: Severity::Draining,
                    reason: "because".into(),
                    deadline: None,
                });
                let now = self.time();
                if let Some(agent) = self.living(life) {
                    agent.drainer.hear(signal, now);
                    self.turn_drainer(life);
                }
            }
            Event::Die => self.agent = None,
            Event::Rise => self.rise(),
            Event::Adopt { life } => self.adopt(life),
            Event::DrainerTurns { life } => self.turn_drainer(life),
            Event::WorkerTurns { life, name } => self.turn_worker(life, &name),
            Event::Kept { life, marks, step } => {
                if self.living(life).is_some() {
                    self.copy = Some(Marks::clone(&marks));
                }
                let next = self.living(life).map(|agent| agent.drainer.kept(*marks, step));
                self.drain_on(life, next);
                // What was said meanwhile.
                self.soon(0..=2, Event::DrainerTurns { life });
            }
            Event::NodeIsRead { life, step } => {
                let node = Box::new(self.api.node.clone());
                self.soon(1..=30, Event::NodeWasRead { life, step, node });
            }
            Event::NodeWasRead { life, step, node } => {
                let now = self.time();
                let Some(agent) = self.living(life) else { return };
                let (drainer, sight) = agent.drainer(now);
                let (is_news, next) = drainer.looked(*node, step, sight);
                self.spread(life, is_news);
                self.drain_on(life, Some(next));
            }
            Event::NodeIsWritten { life, body } => {
                let written = self.api.patch_node(&body).ok().map(Box::new);
                if written.is_some() {
                    self.publish_node();
                }
                self.soon(1..=30, Event::NodeWasWritten { life, written });
            }
            Event::NodeWasWritten { life, written } => {
                if let Some(agent) = self.living(life) {
                    agent.drainer.wrote(written.map(|node| *node));
                    self.turn_drainer(life);
                }
            }
            Event::Arrives { life, name, call } => {
                let reply = self.serve(&name, &call).unwrap_or_else(Reply::Refused);
                self.soon(1..=30, Event::Answered { life, name, call, reply });
            }
            Event::Answered { life, name, call, reply } => {
                let now = self.time();
                if let Some(worker) = self.living(life).and_then(|agent| agent.workers.get_mut(&name)) {
                    worker.hear(&call, reply, now);
                    self.turn_worker(life, &name);
                }
            }
            Event::AgentSeesServer { life, name, server } => {
                let now = self.time();
                if let Some(worker) = self.living(life).and_then(|agent| agent.workers.get_mut(&name)) {
                    match server {
                        Some(server) => worker.note_server(server, now),
                        None => worker.note_left(),
                    }
                    self.turn_worker(life, &name);
                }
            }
            Event::AgentSeesPod { life, name, pod } => {
                if let Some(agent) = self.living(life) {
                    agent.note_pod(&name, pod);
                    self.turn_worker(life, &name);
                    self.soon(0..=2, Event::DrainerTurns { life });
                }
            }
            Event::AgentSeesNode { life, node } => {
                if let Some(agent) = self.living(life) {
                    agent.note_node(&node);
                    self.turn_drainer(life);
                }
            }
            Event::EvictorSeesPod { name, pod } => {
                if self.evictor.see_pod(&name, pod) {
                    self.soon(1..=30, Event::EvictorDeletes { name });
                }
            }
            Event::EvictorSeesNode { node } => {
                for name in self.evictor.see_node(&node) {
                    self.soon(1..=30, Event::EvictorDeletes { name });
                }
            }
            Event::EvictorDeletes { name } => self.evict(&name),
            Event::AllocatorSees { name, server } => self.inform_allocator(name, server),
            Event::Allocate => self.allocate(),
            Event::Allocates { name, version } => self.write_allocation(&name, version.as_deref()),
            Event::GameIsReady { name } => self.game_is_ready(&name),
            Event::SessionEnds { name } => self.end_session(&name),
            Event::PodIsTouched { name } => {
                if self.api.touch_pod(&name) {
                    self.publish_pod(&name);
                }
            }
            Event::NodeIsTouched => {
                self.api.touch_node();
                self.publish_node();
            }
            Event::PodIsGone { name } => {
                self.api.pods.remove(&name);
                self.publish_pod(&name);
            }
        }
    }

    fn rise(&mut self) {
        self.life += 1;
        let life = self.life;
        let now = self.time();
        let agent = Agent::new(self.order, objects::identity(), &self.api.node, self.copy.clone(), now);
        self.agent = Some(agent);
        self.soon(20..=600, Event::Adopt { life });
        self.now(Event::DrainerTurns { life });
        if self.is_ordered {
            self.soon(0..=300, Event::Hear { life });
        }
    }

    fn adopt(&mut self, life: u32) {
        let now = self.time();
        let Some(agent) = self.agent.as_mut().filter(|_| life == self.life) else { return };
        agent.adopt(&self.api, now);
        for (name, worker) in &mut agent.workers {
            for (sequence, asked) in self.asked.get(name).into_iter().flatten() {
                worker.note_asked(*sequence, asked.clone());
            }
        }
        self.spread(life, true);
        self.now(Event::DrainerTurns { life });
    }

    fn turn_drainer(&mut self, life: u32) {
        let now = self.time();
        let Some(agent) = self.living(life).filter(|agent| !agent.drainer.is_busy) else { return };
        let (drainer, sight) = agent.drainer(now);
        let (is_news, next) = drainer.next(sight);
        self.spread(life, is_news);
        self.drain_on(life, Some(next));
    }

    /// Every worker looks again.
    fn spread(&mut self, life: u32, is_news: bool) {
        let names: Vec<String> = self
            .living(life)
            .filter(|_| is_news)
            .map(|agent| agent.workers.keys().cloned().collect())
            .unwrap_or_default();
        for name in names {
            self.soon(0..=2, Event::WorkerTurns { life, name });
        }
    }

    fn drain_on(&mut self, life: u32, next: Option<Drains>) {
        let Some(next) = next else { return };
        let is_busy = !matches!(next, Drains::Rest(_));
        if let Some(agent) = self.living(life) {
            agent.drainer.is_busy = is_busy;
        }
        match next {
            Drains::Rest(None) => {}
            Drains::Rest(Some(until)) => self.at(until, Event::DrainerTurns { life }),
            Drains::Keep(marks, step) => self.send(Event::Kept { life, marks, step }),
            Drains::Look(step) => self.send(Event::NodeIsRead { life, step }),
            Drains::Write(body) => self.send(Event::NodeIsWritten { life, body }),
        }
    }

    fn turn_worker(&mut self, life: u32, name: &str) {
        let now = self.time();
        let Some((is_news, next)) = self.living(life).and_then(|agent| agent.next_of(name, now)) else {
            return;
        };
        if is_news {
            self.soon(0..=2, Event::DrainerTurns { life });
        }
        match next {
            Next::Rest(Some(until)) => self.at(until, Event::WorkerTurns { life, name: name.to_owned() }),
            Next::Rest(None) | Next::Over => {}
            Next::Call(call) => self.send(Event::Arrives { life, name: name.to_owned(), call }),
        }
    }

    /// The API server does what a worker asks for.
    fn serve(&mut self, name: &str, call: &Call) -> Result<Reply, Refused> {
        let now = self.time();
        match call {
            Call::Look => self.api.servers.get(name).cloned().map(Reply::Server).ok_or(Refused::NotFound),
            Call::LookForPod => self.api.pods.get(name).cloned().map(Reply::Pod).ok_or(Refused::NotFound),
            Call::Patch { body, .. } => {
                let had_session = self.has_session(name);
                let server = self.api.patch_server(name, body)?;
                if had_session && server.state().is_none_or(State::is_terminal) {
                    self.lose(name, "was ended");
                }
                self.publish_server(name);
                Ok(Reply::Server(server))
            }
            Call::Withdraw(version) => {
                let had_session = self.has_session(name);
                let deleted = self.api.delete_server(name, version.as_deref(), now);
                if had_session {
                    match deleted {
                        Ok(_) => self.lose(name, "was deleted"),
                        Err(_) if self.is_allocated(name) => self.tally.allocate_first += 1,
                        Err(_) => {}
                    }
                }
                self.publish_server(name);
                deleted.map(Reply::Server)
            }
            Call::DeleteServer => {
                let deleted = self.api.delete_server(name, None, now)?;
                self.publish_server(name);
                Ok(Reply::Server(deleted))
            }
            Call::Tolerate(operations) => {
                let pod = self.api.patch_pod(name, operations)?;
                self.publish_pod(name);
                Ok(Reply::Pod(pod))
            }
            Call::DeletePod(uid) => self.delete_pod(name, uid.as_deref(), "lost its pod").map(Reply::Pod),
        }
    }

    fn is_allocated(&self, name: &str) -> bool {
        let server = self.api.servers.get(name);
        server.is_some_and(|server| server.state() == Some(State::Allocated))
    }

    fn evict(&mut self, name: &str) {
        let is_alive = self.api.pods.get(name).is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
        if is_alive && self.delete_pod(name, None, "was evicted").is_ok() {
            self.tally.evicted += 1;
        }
    }

    fn delete_pod(&mut self, name: &str, uid: Option<&str>, how: &str) -> Result<Arc<Pod>, Refused> {
        let pod = self.api.delete_pod(name, uid, self.time())?;
        if self.has_session(name) {
            self.lose(name, how);
        }
        self.publish_pod(name);
        self.soon(50..=2_000, Event::PodIsGone { name: name.to_owned() });
        Ok(pod)
    }

    fn publish_server(&mut self, name: &str) {
        let server = self.api.servers.get(name).cloned();
        let is_ready = server.as_ref().is_some_and(|server| players::is_ready(server));
        if self.is_ordered && is_ready && self.late.insert(name.to_owned()) {
            self.tally.late_ready += 1;
        }
        if self.agent.as_ref().is_some_and(|agent| agent.has_adopted) {
            let (life, name, server) = (self.life, name.to_owned(), server.clone());
            self.show(Watch::AgentServers, LAG, Event::AgentSeesServer { life, name, server });
        }
        self.show(Watch::Allocator, LAG, Event::AllocatorSees { name: name.to_owned(), server });
    }

    fn publish_pod(&mut self, name: &str) {
        let pod = self.api.pods.get(name).cloned();
        if self.agent.as_ref().is_some_and(|agent| agent.has_adopted) {
            let (life, name, pod) = (self.life, name.to_owned(), pod.clone());
            self.show(Watch::AgentPods, LAG, Event::AgentSeesPod { life, name, pod });
        }
        self.show(Watch::EvictorPods, STALE, Event::EvictorSeesPod { name: name.to_owned(), pod });
    }

    fn publish_node(&mut self) {
        let node = Box::new(self.api.node.clone());
        let life = self.life;
        self.show(Watch::AgentNode, LAG, Event::AgentSeesNode { life, node: node.clone() });
        self.show(Watch::EvictorNode, NODE_LAG, Event::EvictorSeesNode { node });
    }

    fn living(&mut self, life: u32) -> Option<&mut Agent> {
        self.agent.as_mut().filter(|_| life == self.life)
    }

    fn time(&self) -> Timestamp {
        let since = i64::try_from(self.now).expect("a short round");
        Timestamp::from_millisecond(since).expect("a time")
    }

    fn push(&mut self, time: u64, event: Event) {
        self.count += 1;
        let tie = self.rng.random();
        self.events.insert((time, tie, self.count), event);
    }

    fn now(&mut self, event: Event) {
        self.push(self.now, event);
    }

    fn at(&mut self, time: Timestamp, event: Event) {
        let time = u64::try_from(time.as_millisecond()).unwrap_or_default();
        self.push(time.max(self.now + 1), event);
    }

    fn soon(&mut self, after: RangeInclusive<u64>, event: Event) {
        let time = self.now + self.rng.random_range(after);
        self.push(time, event);
    }

    /// A call on its way, or a write to a disk: some take long.
    fn send(&mut self, event: Event) {
        let is_slow = self.rng.random_ratio(1, 25);
        self.soon(if is_slow { 200..=1_500 } else { 1..=30 }, event);
    }

    fn show(&mut self, watch: Watch, lag: RangeInclusive<u64>, event: Event) {
        let time = self.now + self.rng.random_range(lag);
        let last = self.last.entry(watch).or_default();
        // Of the same instant, ties are broken at random.
        *last = time.max(*last + 1);
        let time = *last;
        self.push(time, event);
    }
}

/// What a game asks for.
fn asked(change: Change, server: &GameServer) -> Asked {
    let session = server.annotation(berth_api::names::LAST_ALLOCATED_ANNOTATION).map(str::to_owned);
    let seen = berth_api::link::Seen {
        generation: server.metadata.generation.unwrap_or_default(),
        sessions: session.into_iter().collect(),
    };
    Asked { change, seen }
}
