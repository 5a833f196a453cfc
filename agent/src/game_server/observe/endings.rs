//! What kubelet's words about a pod and its containers mean for the game in it. Pure.

use std::net::IpAddr;
use std::time::Duration;

use berth_api::game_server::GameServer;
use berth_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::Ending;
use crate::pods::phase;

/// What kubelet says of a pod that it will not run; `OutOf…` is one of them too.
const REFUSALS: [&str; 6] = [
    "NodePorts",
    "NodeAffinity",
    "UnexpectedAdmissionError",
    "NodeName",
    "TopologyAffinityError",
    "NodeShutdown",
];

/// When somebody asked for the pod's deletion.
pub(super) fn terminating_since(pod: &Pod) -> Option<Timestamp> {
    let deadline = to_end_by(pod)?;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    Some(deadline.saturating_sub(jiff::SignedDuration::from_secs(grace)).unwrap_or(deadline))
}

/// When the pod's grace is over.
pub(super) fn to_end_by(pod: &Pod) -> Option<Timestamp> {
    Some(pod.metadata.deletion_timestamp.as_ref()?.0)
}

/// How long the pod has to end, as Kubernetes has it where nobody says.
pub(super) fn grace(pod: &Pod) -> Duration {
    let seconds = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    Duration::from_secs(seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(30))
}

/// The addresses kubelet reports, or, before it does, those of the sandbox.
pub(in crate::game_server) fn addresses(pod: &Pod, sandbox: &[IpAddr]) -> Vec<String> {
    let reported: Vec<String> = pod
        .status
        .iter()
        .flat_map(|status| status.pod_ips.iter().flatten())
        .map(|one| one.ip.clone())
        .filter(|ip| !ip.is_empty())
        .collect();
    if reported.is_empty() { sandbox.iter().map(ToString::to_string).collect() } else { reported }
}

/// Whether kubelet starts containers of the pod again.
pub(in crate::game_server) fn may_restart(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    policy.is_some_and(|policy| policy != "Never")
}

/// What kubelet says of the game's container.
pub(in crate::game_server) fn game_status<'a>(
    server: &GameServer,
    pod: &'a Pod,
) -> Option<&'a ContainerStatus> {
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

/// Exit code and reason of a container that has ended and was not started again yet.
pub(super) fn terminated(status: &ContainerStatus) -> Option<(i32, Option<&str>)> {
    let ended = status.state.as_ref()?.terminated.as_ref()?;
    Some((ended.exit_code, ended.reason.as_deref()))
}

/// How the pod, or its game, has ended.
pub(super) fn ending(server: &GameServer, pod: &Pod) -> Option<Ending> {
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
    match phase(pod) {
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
