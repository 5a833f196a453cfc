//! What must be so once all is at rest, read from the API server and from the nodes themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use berth_api::game_node::GameNode;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names::{BRAIN_MANAGER, POD_UID_ANNOTATION, SYSTEM_NAMESPACE};
use berth_dev::{Write, eventually};
use berth_stories::harbour::Harbour;
use berth_stories::world::STEP;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::session::Session;
use super::witness::{CHATTER, Witness};

/// A reason for which kubelet refuses a pod only when a story orders it.
pub(crate) const ORDERED: &str = "UnexpectedAdmissionError";

/// What must be there.
pub(crate) struct Expected<'a> {
    /// Servers in all.
    pub(crate) servers: usize,
    /// Those of them that somebody plays on.
    pub(crate) sessions: &'a BTreeSet<Session>,
    /// Those that nobody has touched since they became Ready.
    pub(crate) lone: &'a [GameServer],
}

/// Checks everything.
pub(crate) async fn check(
    harbour: &Harbour,
    expected: &Expected<'_>,
    witness: &Witness,
) -> anyhow::Result<()> {
    let servers = until_whole(harbour, expected.servers).await?;
    no_session_was_ended(&servers, expected)?;
    no_lone_server_was_lost(&servers, expected)?;
    every_server_has_its_pod_and_its_ports(harbour, &servers).await?;
    no_port_is_leaked(harbour, &servers).await?;
    let diaries = Diaries::read(harbour)?;
    what_was_answered_is_applied(harbour, &servers, &diaries).await?;
    no_pod_was_made_twice(harbour, &diaries)?;
    anyhow::ensure!(!witness.heard.is_empty(), "the witness heard no game");
    Ok(())
}

/// The Fleet has its size, the sessions go on, and everybody else is Ready.
async fn until_whole(harbour: &Harbour, count: usize) -> anyhow::Result<Vec<GameServer>> {
    let whole = eventually(STEP, format!("{count} servers at rest"), async || {
        let servers = harbour.all_servers().await.map_err(|error| error.to_string())?;
        let other = servers.iter().find(|server| {
            !matches!(server.state(), Some(State::Ready | State::Allocated))
                || server.metadata.deletion_timestamp.is_some()
        });
        match other {
            None if servers.len() == count => Ok(servers),
            other => Err(format!(
                "{} servers, such as {:?}",
                servers.len(),
                other.map(|one| (&one.metadata.name, &one.metadata.annotations, &one.status))
            )),
        }
    });
    Ok(whole.await?)
}

fn no_session_was_ended(servers: &[GameServer], expected: &Expected<'_>) -> anyhow::Result<()> {
    for session in expected.sessions {
        let found = servers.iter().find(|server| server.uid().as_deref() == Some(&session.uid));
        anyhow::ensure!(found.is_some(), "the session on {} is gone", session.name);
        let state = found.and_then(GameServer::state);
        anyhow::ensure!(state == Some(State::Allocated), "the session on {} is {state:?}", session.name);
        let pod = found.and_then(|server| server.annotation(POD_UID_ANNOTATION));
        anyhow::ensure!(pod == Some(&session.pod_uid), "the session on {} is on another pod", session.name);
    }
    Ok(())
}

fn no_lone_server_was_lost(servers: &[GameServer], expected: &Expected<'_>) -> anyhow::Result<()> {
    for lone in expected.lone {
        let is_there = servers.iter().any(|server| server.uid() == lone.uid());
        anyhow::ensure!(is_there, "{} is lost, and nobody had touched it", lone.name_any());
    }
    Ok(())
}

async fn every_server_has_its_pod_and_its_ports(
    harbour: &Harbour,
    servers: &[GameServer],
) -> anyhow::Result<()> {
    let of_servers: BTreeSet<String> = servers.iter().map(ResourceExt::name_any).collect();
    let pods = eventually(STEP, "a pod for each server and none else", async || {
        let pods = harbour.pods().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let names: BTreeSet<String> = pods.iter().map(ResourceExt::name_any).collect();
        if names == of_servers { Ok(pods) } else { Err(format!("{names:?} for {of_servers:?}")) }
    })
    .await?;
    let mut taken = BTreeMap::new();
    for pod in &pods {
        let spec = pod.spec.clone().unwrap_or_default();
        let node = spec.node_name.unwrap_or_default();
        let ports = spec.containers.iter().flat_map(|one| one.ports.iter().flatten());
        for port in ports.filter_map(|port| port.host_port) {
            if let Some(other) = taken.insert((node.clone(), port), pod.name_any()) {
                anyhow::bail!("port {port} of {node} was given to {other} and to {}", pod.name_any());
            }
        }
    }
    for server in servers {
        let status = server.status.clone().unwrap_or_default();
        for port in status.ports.iter().flatten() {
            let key = (status.node_name.clone(), i32::from(port.port));
            let holder = taken.get(&key);
            anyhow::ensure!(
                holder == Some(&server.name_any()),
                "{} shows port {} of {}, which is {holder:?}'s",
                server.name_any(),
                port.port,
                status.node_name
            );
        }
    }
    Ok(())
}

async fn no_port_is_leaked(harbour: &Harbour, servers: &[GameServer]) -> anyhow::Result<()> {
    let nodes: Api<GameNode> = Api::all(harbour.client.clone());
    for node in harbour.cluster.nodes() {
        let used = servers.iter().filter(|server| server.node_name() == Some(node.name())).count();
        let used = i64::try_from(used)?;
        eventually(STEP, format!("{used} used ports on {}", node.name()), async || {
            let seen = nodes.get(node.name()).await.map_err(|error| error.to_string())?;
            let ports = seen.status.unwrap_or_default().ports;
            let count = ports.get("default").copied().unwrap_or_default();
            if count.total - count.free == used { Ok(()) } else { Err(format!("{count:?}")) }
        })
        .await?;
    }
    Ok(())
}

/// What the kubelets have written down.
#[derive(Default)]
struct Diaries {
    /// The last change that the game in each pod was answered.
    answered: BTreeMap<String, u64>,
    /// How often kubelet was ordered to refuse a pod of that name.
    refused: BTreeMap<String, usize>,
}

impl Diaries {
    fn read(harbour: &Harbour) -> anyhow::Result<Self> {
        let mut read = Self::default();
        for node in harbour.cluster.nodes() {
            for line in fs::read_to_string(node.machine_path("/var/log/pods.jsonl"))?.lines() {
                let entry: Value = serde_json::from_str(line)?;
                let pod = entry["pod"].as_str().unwrap_or_default().to_owned();
                match entry["act"].as_str() {
                    Some("admission") if entry["reason"] == ORDERED => {
                        *read.refused.entry(pod).or_insert(0) += 1
                    }
                    // Kubelet counts for itself: it refuses what was handed out twice.
                    Some("admission") => anyhow::bail!("kubelet refused {pod}: {}", entry["reason"]),
                    Some("chatter") => {
                        read.answered.insert(pod, entry["value"].as_u64().unwrap_or_default());
                    }
                    _ => {}
                }
            }
        }
        Ok(read)
    }
}

/// The last change that each game was answered is on its server; what comes after it is on its way.
async fn what_was_answered_is_applied(
    harbour: &Harbour,
    servers: &[GameServer],
    diaries: &Diaries,
) -> anyhow::Result<()> {
    anyhow::ensure!(!diaries.answered.is_empty(), "no game was answered anything");
    for server in servers {
        let name = server.name_any();
        let Some(said) = diaries.answered.get(&name) else { continue };
        eventually(STEP, format!("change {said} of {name}"), async || {
            let server = harbour.servers().get(&name).await.map_err(|error| error.to_string())?;
            let shown: Option<u64> = server.annotation(CHATTER).and_then(|text| text.parse().ok());
            if shown >= Some(*said) { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await?;
    }
    Ok(())
}

/// A server that kubelet refuses is handed back, and its next node makes it another pod.
fn no_pod_was_made_twice(harbour: &Harbour, diaries: &Diaries) -> anyhow::Result<()> {
    let is_pod = |write: &Write| {
        write.resource == "pods"
            && write.verb == "create"
            && write.subresource.is_empty()
            && write.succeeded()
            && write.user.starts_with("berth")
            // A guest there stands for a pod of `berth-sdk`.
            && write.namespace != SYSTEM_NAMESPACE
            // What a brain makes are placeholders.
            && !write.user.contains(BRAIN_MANAGER)
    };
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for write in harbour.audit()?.news()?.into_iter().filter(is_pod) {
        *made.entry(write.name).or_insert(0) += 1;
    }
    for (name, count) in &made {
        let refused = diaries.refused.get(name).copied().unwrap_or_default();
        anyhow::ensure!(*count <= 1 + refused, "{count} pods were made for {name}, {refused} refused");
    }
    anyhow::ensure!(!made.is_empty(), "the log shows no pod");
    Ok(())
}
