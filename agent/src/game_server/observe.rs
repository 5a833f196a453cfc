//! Folds all that is known of one server into what a decision needs. Pure.

use std::time::Duration;

use berth_api::conditions::{self, ConditionKind};
use berth_api::game_node::Room;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::{HandOver, Returned};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

pub(super) use self::endings::{addresses, game_status, may_restart};
use self::endings::{ending, grace, terminated, terminating_since, to_end_by};
pub(super) use self::hindrance::Hindrance;
use self::hindrance::hindrance;
use super::addresses::Shown;
use super::memory::{Exit, Memory};
use super::wishes::Wishes;
use crate::drain::Course;
use crate::drain::notice::Notice;
use crate::identity::Identity;
use crate::node::NodeFacts;
use crate::node::room::{minus, taken_by};
use crate::pods::{Endures, endures, is_pod_of, phase};

mod endings;
mod hindrance;

/// Name of the container by which another system's pods speak for their game.
const FOREIGN_SIDECAR: &str = "agones-gameserver-sidecar";
/// What a decision needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The state.
    pub state: State,
    /// Since when we have seen it.
    pub since: Timestamp,
    /// Whether somebody has asked for deletion.
    pub deleting: bool,
    /// Whether a finalizer of ours keeps the object.
    pub has_finalizer: bool,
    /// Whom the server was handed to.
    pub handed: Handed,
    /// Why the node does not take it.
    pub node_refuses: Option<String>,
    /// Whether the node has an address that players can use.
    pub has_node_address: bool,
    /// Whether the server's status shows one.
    pub has_address: bool,
    /// Whether the addresses that it shows are out of date.
    pub has_moved_address: bool,
    /// Whether its host ports are reserved.
    pub has_ports: bool,
    /// Whether it has had a pod.
    pub had_pod: bool,
    /// Kubelet would not run its pod.
    pub refusal: Option<String>,
    /// The pod as it is now.
    pub pod: PodSight,
    /// The pod is not the one that the server recorded.
    pub is_other_pod: bool,
    /// Health pings missed in a row, where that means failure.
    pub missed: Option<u32>,
    /// The end of a reservation.
    pub reserved_until: Option<Timestamp>,
    /// What the game asks for.
    pub wishes: Wishes,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// The game has got another sandbox, and with it another start, since it was Ready.
    pub has_new_sandbox: bool,
    /// Why the game cannot reach its SDK.
    pub sdk_error: Option<String>,
    /// The game's own processes are not on this kernel's network, which is where the SDK is.
    pub is_out_of_reach: bool,
    /// The reason that the object gives for not going on.
    pub told: Option<String>,
    /// What the node is for.
    pub course: Course,
    /// Whether sessions are ended before the node is gone.
    pub ends_sessions: bool,
    /// What the object says to its game of the node's end.
    pub drain_word: DrainWord,
    /// The session was asked to end, since its node is gone by then.
    pub cut_short: Option<Timestamp>,
}

/// What a GameServer says to its game of the node's end. By default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainWord {
    /// Why the node is being emptied.
    pub reason: Option<String>,
    /// RFC 3339 time by which it will be gone, where that is known.
    pub deadline: Option<String>,
    /// The label by which allocations can avoid the server.
    pub is_labelled: bool,
}

impl DrainWord {
    /// What a game is to be told of this notice.
    pub(super) fn of(notice: &Notice) -> Self {
        Self {
            reason: Some(notice.reason.clone()),
            deadline: notice.deadline.map(|deadline| deadline.to_string()),
            is_labelled: true,
        }
    }

    fn read(server: &GameServer) -> Self {
        let labels = server.metadata.labels.as_ref();
        Self {
            reason: server.annotation(names::DRAIN_REASON_ANNOTATION).map(str::to_owned),
            deadline: server.annotation(names::TERMINATING_AT_ANNOTATION).map(str::to_owned),
            is_labelled: labels.is_some_and(|labels| labels.contains_key(names::DRAINING_LABEL)),
        }
    }
}

/// Whom a server was handed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handed {
    /// This boot of this node.
    ToUs,
    /// This node, before it was started again.
    ToAnotherBoot,
    /// Somebody else, or nobody.
    Wrong {
        /// What is wrong.
        why: String,
    },
}

/// The pod of a server's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSight {
    /// There is none, as the watch says; `confirmed` where the API server says so too.
    Absent {
        /// Whether the API server was asked.
        confirmed: bool,
    },
    /// There is one that is not the server's.
    Foreign {
        /// Whose it is.
        owner: String,
    },
    /// The server's, on another node.
    Elsewhere {
        /// That node.
        node: String,
    },
    /// The server's.
    Ours(PodFacts),
}

/// A pod of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Its UID.
    pub uid: String,
    /// When somebody asked for its deletion.
    pub terminating_since: Option<Timestamp>,
    /// When its grace is over, where somebody asked for its deletion.
    pub to_end_by: Option<Timestamp>,
    /// How it, or its game, has ended.
    pub ending: Option<Ending>,
    /// Since when the game is known to have ended although kubelet does not say how yet.
    pub over_since: Option<Timestamp>,
    /// What keeps the game from running.
    pub(super) hindrance: Option<Hindrance>,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// The game's container is known well enough to tell a later restart from an earlier one.
    pub is_container_known: bool,
    /// A disruption budget keeps the pod from being evicted. The API server asks none for a pod in phase Pending, which it
    /// is until kubelet has told that all of its containers were started.
    pub is_held_by_budgets: bool,
    /// The game's container is another one than when the server became Ready.
    pub restarted_since_ready: bool,
    /// How long it has to end.
    pub grace: Duration,
    /// How long it stays under the taint of a node that is being emptied.
    pub endures: Endures,
}

/// How a pod has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Kubelet would not run it.
    Refused {
        /// What it says.
        message: String,
    },
    /// Kubelet threw it out.
    Evicted {
        /// What it says.
        message: String,
    },
    /// It failed.
    Failed {
        /// What is known.
        message: String,
    },
    /// The game ended with success.
    Succeeded,
}

/// What is around a server.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Who we are.
    pub identity: &'a Identity,
    /// Our node.
    pub node: &'a NodeFacts,
    /// What its pods take.
    pub taken: Room,
    /// What it is for.
    pub course: &'a Course,
    /// Whether sessions are ended before the node is gone.
    pub ends_sessions: bool,
}

impl Surroundings<'_> {
    /// Why a new pod of this template has no place here: what kubelet would say of it, before it has to.
    fn refuses(&self, template: Option<&PodSpec>) -> Option<String> {
        self.node.refuses(template).or_else(|| {
            let needed = taken_by(template?);
            let left = minus(self.node.allocatable, self.taken);
            let short = [
                ("processor time", needed.milli_cpu, left.milli_cpu),
                ("memory", needed.memory_bytes, left.memory_bytes),
                ("pods", needed.pods, left.pods),
            ];
            let (what, ..) = short.into_iter().find(|(_, needed, left)| *needed > 0 && needed > left)?;
            Some(format!("the node has too little room: {what}"))
        })
    }
}

/// Folds.
pub(super) fn observe(
    server: &GameServer,
    pod: Option<&Pod>,
    memory: &Memory,
    around: Surroundings<'_>,
) -> Observed {
    let recorded = server.annotation(names::POD_UID_ANNOTATION);
    let pod_addresses = pod.map(|pod| addresses(pod, &memory.sandbox_addresses)).unwrap_or_default();
    let pod = sight(server, pod, memory, &around.identity.node);
    let is_other_pod = match (&pod, recorded) {
        (PodSight::Ours(facts), Some(recorded)) => facts.uid != recorded,
        (_, None) => false,
        (PodSight::Absent { .. } | PodSight::Foreign { .. } | PodSight::Elsewhere { .. }, _) => false,
    };
    let status = server.status.as_ref();
    let finalizers = server.metadata.finalizers.iter().flatten();
    // Reading a template costs; only a server without a pod has to ask whether the node takes it.
    let is_coming =
        matches!(pod, PodSight::Absent { .. }) && server.state().is_none_or(State::is_before_ready);
    let template = || server.spec.template.read().ok().and_then(|template| template.spec);
    Observed {
        state: server.state().unwrap_or(State::Creating),
        since: memory.since,
        deleting: server.metadata.deletion_timestamp.is_some(),
        has_finalizer: finalizers.into_iter().any(|name| is_our_finalizer(name)),
        handed: handed(server, around.identity),
        node_refuses: is_coming.then(template).and_then(|spec| around.refuses(spec.as_ref())),
        has_node_address: around.node.address_for(server).is_some(),
        has_address: status.is_some_and(|status| !status.address.is_empty()),
        has_moved_address: Shown::new(server, around.node, &pod_addresses).is_news_to(server),
        has_ports: memory.ports.is_some(),
        had_pod: recorded.is_some() || memory.made_pod,
        refusal: server.annotation(names::REFUSED_ANNOTATION).map(str::to_owned),
        pod,
        is_other_pod,
        missed: memory.missed.filter(|_| !server.spec.health_rule().disabled),
        reserved_until: status
            .and_then(|status| status.reserved_until.as_deref())
            .and_then(|until| until.parse().ok()),
        wishes: memory.pending.fold(),
        last_error: memory.last_error.clone(),
        has_new_sandbox: memory.has_new_sandbox,
        sdk_error: memory.sdk_error.clone(),
        is_out_of_reach: memory.is_out_of_reach,
        told: status
            .and_then(|status| status.conditions.as_deref())
            .and_then(|conditions| conditions::trouble(conditions, ConditionKind::Progressing))
            .map(|condition| condition.reason.clone()),
        course: around.course.clone(),
        ends_sessions: around.ends_sessions,
        drain_word: DrainWord::read(server),
        cut_short: memory.cut_short,
    }
}

/// Whether a finalizer is ours to remove.
pub(super) fn is_our_finalizer(name: &str) -> bool {
    name == names::FINALIZER || name == names::LEGACY_FINALIZER
}

/// How often a server has been handed back.
pub(super) fn times_returned(server: &GameServer) -> u32 {
    server
        .annotation(names::RETURNED_ANNOTATION)
        .and_then(|text| Returned::from_annotation(text).ok())
        .map_or(0, |returned| returned.times)
}

/// Whom the annotation names.
pub(super) fn handed(server: &GameServer, identity: &Identity) -> Handed {
    let Some(text) = server.annotation(names::LEASE_ANNOTATION) else {
        return Handed::Wrong { why: format!("it has no annotation {}", names::LEASE_ANNOTATION) };
    };
    match HandOver::from_annotation(text) {
        Err(error) => Handed::Wrong { why: berth_runtime::error::chain(&error) },
        Ok(given) if given.node_uid != identity.node_uid => {
            Handed::Wrong { why: "it was handed to another Node object of this name".to_owned() }
        }
        Ok(given) if given.boot_id != identity.boot_id => Handed::ToAnotherBoot,
        Ok(_) => Handed::ToUs,
    }
}

/// Whether the pod is one that speaks for its game by a container of its own.
pub(super) fn has_foreign_sidecar(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let init = spec.init_containers.iter().flatten();
    spec.containers.iter().chain(init).any(|one| one.name == FOREIGN_SIDECAR)
}

fn sight(server: &GameServer, pod: Option<&Pod>, memory: &Memory, node: &str) -> PodSight {
    let Some(pod) = pod else {
        return PodSight::Absent { confirmed: memory.pod_is_gone };
    };
    if !is_pod_of(pod, server) {
        let owners = pod.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true)).map_or_else(
            || "nobody".to_owned(),
            |owner| format!("{} {} with UID {}", owner.kind, owner.name, owner.uid),
        );
        return PodSight::Foreign { owner };
    }
    let place = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if !place.is_empty() && place != node {
        return PodSight::Elsewhere { node: place.to_owned() };
    }
    let restarts = may_restart(pod);
    let game = game_status(server, pod);
    let container = game.and_then(|game| game.container_id.as_deref()).filter(|id| !id.is_empty());
    let running = game.and_then(|game| game.state.as_ref()?.running.as_ref()).is_some();
    let has_ended = game.is_some_and(|game| terminated(game).is_some());
    // What we saw end, where kubelet has not seen it yet.
    let over = memory.exit.as_ref().filter(|exit| !has_ended && Some(exit.container.as_str()) == container);
    let at_ready = server
        .annotation(names::READY_CONTAINER_ANNOTATION)
        .or_else(|| server.annotation(names::OLD_READY_CONTAINER_ANNOTATION));
    let is_another = container.is_some_and(|container| Some(container) != at_ready);
    PodSight::Ours(PodFacts {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        terminating_since: terminating_since(pod),
        to_end_by: to_end_by(pod),
        ending: ending(server, pod).or_else(|| over.filter(|_| !restarts).and_then(failure)),
        over_since: over.map(|exit| exit.at),
        addresses: addresses(pod, &memory.sandbox_addresses),
        is_held_by_budgets: phase(pod).is_some_and(|phase| phase != "Pending"),
        is_container_known: !restarts || (running && container.is_some()),
        restarted_since_ready: restarts && at_ready.is_some() && (is_another || has_ended || over.is_some()),
        hindrance: hindrance(server, pod),
        grace: grace(pod),
        endures: endures(pod, names::DRAINING_TAINT),
    })
}

/// The end of a game's process, where that alone tells enough. Success is for kubelet to say: other containers of the
/// pod may matter too.
fn failure(exit: &Exit) -> Option<Ending> {
    exit.failure.clone().map(|message| Ending::Failed { message })
}

#[cfg(test)]
mod tests;
