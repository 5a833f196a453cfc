//! Folds all that is known of one server into what a decision needs. Pure.

use std::net::IpAddr;

use berth_api::game_node::Room;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::{HandOver, Returned};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodSpec};

use super::memory::Memory;
use super::wishes::Wishes;
use crate::identity::Identity;
use crate::node::NodeFacts;
use crate::node::room::{minus, taken_by};

/// Name of the container by which another system's pods speak for their game.
const FOREIGN_SIDECAR: &str = "agones-gameserver-sidecar";
/// What kubelet says of a pod that it will not run; `OutOf…` is one of them too.
const REFUSALS: [&str; 5] =
    ["NodePorts", "NodeAffinity", "UnexpectedAdmissionError", "NodeName", "TopologyAffinityError"];

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
    /// How it, or its game, has ended.
    pub ending: Option<Ending>,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// The game's container is known well enough to tell a later restart from an earlier one.
    pub is_container_known: bool,
    /// The game's container is another one than when the server became Ready.
    pub restarted_since_ready: bool,
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
    let pod = sight(server, pod, memory);
    let is_other_pod = match (&pod, recorded) {
        (PodSight::Ours(facts), Some(recorded)) => facts.uid != recorded,
        (PodSight::Ours(_) | PodSight::Absent { .. } | PodSight::Foreign { .. }, _) => false,
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
        has_node_address: around.node.address().is_some(),
        has_address: status.is_some_and(|status| !status.address.is_empty()),
        has_ports: memory.ports.is_some(),
        had_pod: recorded.is_some() || memory.made_pod,
        refusal: memory.refusal.clone(),
        pod,
        is_other_pod,
        missed: memory.missed.filter(|_| !server.spec.health_rule().disabled),
        reserved_until: status
            .and_then(|status| status.reserved_until.as_deref())
            .and_then(|until| until.parse().ok()),
        wishes: memory.pending.fold(),
        last_error: memory.last_error.clone(),
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

/// UID of the GameServer that a pod belongs to.
pub(super) fn owner_uid(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == "GameServer")
        .map(|owner| owner.uid.as_str())
}

/// Whether a pod belongs to a server.
pub(super) fn is_pod_of(pod: &Pod, server: &GameServer) -> bool {
    let owner = owner_uid(pod);
    owner.is_some() && owner == server.metadata.uid.as_deref()
}

/// Whether the pod is one that speaks for its game by a container of its own.
pub(super) fn has_foreign_sidecar(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let init = spec.init_containers.iter().flatten();
    spec.containers.iter().chain(init).any(|one| one.name == FOREIGN_SIDECAR)
}

fn sight(server: &GameServer, pod: Option<&Pod>, memory: &Memory) -> PodSight {
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
    let restarts = may_restart(pod);
    let game = game_status(server, pod);
    let container = game.and_then(|game| game.container_id.as_deref()).filter(|id| !id.is_empty());
    let running = game.and_then(|game| game.state.as_ref()?.running.as_ref()).is_some();
    let at_ready = server.annotation(names::READY_CONTAINER_ANNOTATION);
    PodSight::Ours(PodFacts {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        terminating_since: terminating_since(pod),
        ending: ending(server, pod),
        addresses: addresses(pod, &memory.sandbox_addresses),
        is_container_known: !restarts || (running && container.is_some()),
        restarted_since_ready: restarts
            && at_ready.is_some()
            && (container.is_some_and(|container| Some(container) != at_ready)
                || game.is_some_and(|game| terminated(game).is_some())),
    })
}

fn terminating_since(pod: &Pod) -> Option<Timestamp> {
    let deadline = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    Some(deadline.saturating_sub(jiff::SignedDuration::from_secs(grace)).unwrap_or(deadline))
}

/// The addresses kubelet reports, or, before it does, those of the sandbox.
pub(super) fn addresses(pod: &Pod, sandbox: &[IpAddr]) -> Vec<String> {
    let reported: Vec<String> = pod
        .status
        .iter()
        .flat_map(|status| status.pod_ips.iter().flatten())
        .map(|one| one.ip.clone())
        .filter(|ip| !ip.is_empty())
        .collect();
    if reported.is_empty() { sandbox.iter().map(ToString::to_string).collect() } else { reported }
}

fn may_restart(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    policy.is_some_and(|policy| policy != "Never")
}

/// What kubelet says of the game's container.
pub(super) fn game_status<'a>(server: &GameServer, pod: &'a Pod) -> Option<&'a ContainerStatus> {
    let name = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::CONTAINER_ANNOTATION).map(String::as_str))
        .or(server.spec.container.as_deref());
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    match name {
        Some(name) => statuses.iter().find(|one| one.name == name),
        None => statuses.first(),
    }
}

fn terminated(status: &ContainerStatus) -> Option<(i32, Option<&str>)> {
    let ended = status.state.as_ref()?.terminated.as_ref()?;
    Some((ended.exit_code, ended.reason.as_deref()))
}

fn ending(server: &GameServer, pod: &Pod) -> Option<Ending> {
    let status = pod.status.as_ref()?;
    let reason = status.reason.clone().unwrap_or_default();
    let message = status.message.clone().unwrap_or_default();
    if reason == "Evicted" {
        return Some(Ending::Evicted { message });
    }
    let game = game_status(server, pod);
    let exit = game.and_then(terminated).map(|(code, why)| {
        let name = game.map(|game| game.name.clone()).unwrap_or_default();
        let why = why.filter(|why| *why != "Error").map(|why| format!(" ({why})")).unwrap_or_default();
        (code, format!("container {name} ended with exit code {code}{why}"))
    });
    match status.phase.as_deref() {
        Some("Failed") => {
            let was_run = status.container_statuses.as_ref().is_some_and(|statuses| !statuses.is_empty());
            let is_refusal = reason.starts_with("OutOf") || REFUSALS.contains(&reason.as_str());
            if is_refusal && !was_run {
                return Some(Ending::Refused {
                    message: format!("kubelet refused the pod: {reason}: {message}"),
                });
            }
            let told = if reason.is_empty() { message } else { format!("{reason}: {message}") };
            let message = match exit {
                Some((code, exit)) if code != 0 => exit,
                Some(_) | None if told.is_empty() => failed_container(pod),
                Some(_) | None => told,
            };
            Some(Ending::Failed { message })
        }
        Some("Succeeded") => Some(Ending::Succeeded),
        // The game has ended for good while another container of its pod lives on.
        _ if !may_restart(pod) => match exit {
            Some((0, _)) => Some(Ending::Succeeded),
            Some((_, message)) => Some(Ending::Failed { message }),
            None => None,
        },
        _ => None,
    }
}

fn failed_container(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let statuses = status.iter().flat_map(|status| {
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
    });
    statuses
        .filter_map(|one| terminated(one).filter(|(code, _)| *code != 0).map(|(code, _)| (one, code)))
        .map(|(one, code)| format!("container {} ended with exit code {code}", one.name))
        .next()
        .unwrap_or_else(|| "the pod failed".to_owned())
}

#[cfg(test)]
mod tests;
