//! The drainer, but for its waiting: what it hears, what it decides, the writes to the Node that come of it. While it
//! waits for an answer it looks at nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::link::ServerUid;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::Order;
use crate::drain::Course;
use crate::drain::exposure::{Tolerations, expose};
use crate::drain::marks::{At, Marks};
use crate::drain::memory::Memory;
use crate::drain::node::body;
use crate::drain::notice::Signal;
use crate::drain::plan::{OurTaint, Plan, Seen, Step, plan};
use crate::drain::sources;
use crate::fleetiq::Standing;
use crate::game_server::Line;
use crate::node::{NodeFacts, version};
use crate::pods::GamePod;

/// What comes next.
pub(super) enum Next {
    Rest(Option<Timestamp>),
    /// Keep a copy of the marks, then go on with the step.
    Keep(Box<Marks>, Step),
    /// Read the Node, then go on with the step.
    Look(Step),
    Write(Value),
}

/// What it sees of the pods and servers.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) pods: &'a BTreeMap<String, GamePod>,
    pub(super) lines: &'a BTreeMap<ServerUid, Line>,
    pub(super) are_known: bool,
    pub(super) now: Timestamp,
}

pub(super) struct Drainer {
    order: Order,
    memory: Memory,
    tolerations: Tolerations,
    witness: Witness,
    node: Arc<NodeFacts>,
    object: Option<Node>,
    copied: Marks,
    pub(super) course: Course,
    pub(super) is_busy: bool,
}

impl Drainer {
    pub(super) fn new(order: Order, node: &Node, copied: Option<Marks>, sight: Sight<'_>) -> Self {
        let node = Arc::new(NodeFacts::read(node));
        let marks = copied.clone().unwrap_or_else(|| node.marks.clone());
        let mut drainer = Self {
            order,
            memory: Memory::resume(&marks, "boot", sight.now),
            tolerations: Tolerations::default(),
            witness: Witness { lacking: BTreeSet::new(), last: marks.phase.map(|_| sight.now) },
            node,
            object: None,
            copied: copied.unwrap_or_default(),
            course: Course::Open,
            is_busy: false,
        };
        drainer.course = drainer.plan(sight).course;
        drainer
    }

    pub(super) fn hear(&mut self, signal: Signal, now: Timestamp) {
        self.memory.hear(signal, now);
    }

    pub(super) fn note_node(&mut self, node: &Node) {
        self.node = Arc::new(NodeFacts::read(node));
    }

    /// Answers whether there is another course, and what comes next.
    pub(super) fn next(&mut self, sight: Sight<'_>) -> (bool, Next) {
        let plan = self.plan(sight);
        let is_news = self.course != plan.course;
        self.course = plan.course;
        if self.copied != plan.marks {
            return (is_news, Next::Keep(Box::new(plan.marks), plan.step));
        }
        (is_news, self.act(plan.step))
    }

    pub(super) fn kept(&mut self, marks: Marks, step: Step) -> Next {
        self.is_busy = false;
        self.copied = marks;
        self.act(step)
    }

    /// The Node as it is now; where that asks for another step, that comes first.
    pub(super) fn looked(&mut self, node: Node, step: Step, sight: Sight<'_>) -> (bool, Next) {
        self.is_busy = false;
        self.object = Some(node);
        if self.plan(sight).step == step { (false, self.act(step)) } else { self.next(sight) }
    }

    /// The Node after a write, where that was done.
    pub(super) fn wrote(&mut self, written: Option<Node>) {
        self.is_busy = false;
        self.object = written;
    }

    fn act(&self, step: Step) -> Next {
        match (step, &self.object) {
            (Step::Wait(until), _) => Next::Rest(until),
            (step, None) => Next::Look(step),
            (step, Some(object)) => Next::Write(body(&step, object)),
        }
    }

    fn facts(&mut self) -> Arc<NodeFacts> {
        match &self.object {
            Some(object) if version(object) > self.node.version => Arc::new(NodeFacts::read(object)),
            Some(_) | None => {
                self.object = self.object.take().filter(|object| version(object) == self.node.version);
                Arc::clone(&self.node)
            }
        }
    }

    fn plan(&mut self, sight: Sight<'_>) -> Plan {
        let node = self.facts();
        for signal in sources::of_node(&node, self.memory.notices()) {
            self.memory.hear(signal, sight.now);
        }
        self.tolerations.note(sight.pods, sight.now);
        self.witness.note(sight);
        let mut pods = expose(sight.pods, sight.lines, &self.tolerations, sight.are_known);
        if self.order == Order::Witnessed {
            pods.tolerated_at = self.witness.last;
        }
        let mut plan = plan(Seen {
            gravest: self.memory.gravest().as_ref(),
            kept: &self.memory.notices().kept(),
            let_go_at: sight.now,
            given_up_at: None,
            before: &self.course,
            node: &node,
            standing: &Standing::default(),
            pods: &pods,
            at: At { boot_id: "boot", now: sight.now },
        });
        let waits_for_others = plan.withheld.as_ref().is_some_and(|(taint, _)| *taint == OurTaint::Draining);
        let settles = matches!(plan.course, Course::Draining { .. })
            && !node.has_taint(OurTaint::Draining.key())
            && plan.withheld.is_none()
            && pods.are_known
            && matches!(plan.step, Step::Wait(Some(_)));
        let is_early = match self.order {
            Order::Ours | Order::Witnessed => false,
            Order::TaintFirst => waits_for_others || settles,
            Order::Unsettled => settles,
        };
        if is_early {
            plan.step = Step::Taint(OurTaint::Draining);
        }
        plan
    }
}

/// Whoever counts a toleration only where he has seen the pod without.
struct Witness {
    lacking: BTreeSet<String>,
    last: Option<Timestamp>,
}

impl Witness {
    fn note(&mut self, sight: Sight<'_>) {
        let (tolerating, lacking): (Vec<_>, Vec<_>) =
            sight.pods.iter().partition(|(_, pod)| pod.tolerates_draining);
        if tolerating.iter().any(|(uid, _)| self.lacking.contains(*uid)) {
            self.last = Some(sight.now);
        }
        self.lacking = lacking.into_iter().map(|(uid, _)| uid.clone()).collect();
    }
}
