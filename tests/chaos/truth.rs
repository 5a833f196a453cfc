//! What must be so once all is at rest, read from the API server and from the nodes themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use berth_api::game_node::GameNode;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::{Write, eventually};
use berth_stories::harbour::Harbour;
use berth_stories::world::STEP;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::churn::{Churn, LAST_SIZE, LONE};
use super::witness::{CHATTER, Witness};

/// Checks everything.
pub(crate) async fn check(harbour: &Harbour, churn: &Churn<'_>, witness: &Witness) -> anyhow::Result<()> {
    let servers = until_whole(harbour, churn).await?;
    no_session_was_ended(&servers, churn)?;
    no_lone_server_was_lost(&servers, churn)?;
    every_server_has_its_pod_and_its_ports(harbour, &servers).await?;
    no_port_is_leaked(harbour, &servers).await?;
    what_was_answered_is_applied(harbour, &servers).await?;
    no_pod_was_made_twice(harbour)?;
    anyhow::ensure!(!witness.heard.is_empty(), "the witness heard no game");
    Ok(())
}

/// The Fleet has its size, the sessions go on, and everybody else is Ready.
async fn until_whole(harbour: &Harbour, churn: &Churn<'_>) -> anyhow::Result<Vec<GameServer>> {
    let count = LONE + usize::try_from(LAST_SIZE)?.max(churn.sessions.len());
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

fn no_session_was_ended(servers: &[GameServer], churn: &Churn<'_>) -> anyhow::Result<()> {
    for session in &churn.sessions {
        let found = servers.iter().find(|server| server.uid().as_deref() == Some(&session.uid));
        anyhow::ensure!(found.is_some(), "the session on {} is gone", session.name);
        let state = found.and_then(GameServer::state);
        anyhow::ensure!(state == Some(State::Allocated), "the session on {} is {state:?}", session.name);
    }
    Ok(())
}

fn no_lone_server_was_lost(servers: &[GameServer], churn: &Churn<'_>) -> anyhow::Result<()> {
    for lone in &churn.lone {
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

/// The last change that each game was answered is on its server; what comes after it is on its way.
async fn what_was_answered_is_applied(harbour: &Harbour, servers: &[GameServer]) -> anyhow::Result<()> {
    let mut answered: BTreeMap<String, u64> = BTreeMap::new();
    for node in harbour.cluster.nodes() {
        for line in fs::read_to_string(node.machine_path("/var/log/pods.jsonl"))?.lines() {
            let entry: Value = serde_json::from_str(line)?;
            let pod = entry["pod"].as_str().unwrap_or_default().to_owned();
            match entry["act"].as_str() {
                // Kubelet counts for itself: it refuses what was handed out twice.
                Some("admission") => anyhow::bail!("kubelet refused {pod}: {}", entry["reason"]),
                Some("chatter") => _ = answered.insert(pod, entry["value"].as_u64().unwrap_or_default()),
                _ => {}
            }
        }
    }
    anyhow::ensure!(!answered.is_empty(), "no game was answered anything");
    for server in servers {
        let name = server.name_any();
        let Some(said) = answered.get(&name) else { continue };
        eventually(STEP, format!("change {said} of {name}"), async || {
            let server = harbour.servers().get(&name).await.map_err(|error| error.to_string())?;
            let shown: Option<u64> = server.annotation(CHATTER).and_then(|text| text.parse().ok());
            if shown >= Some(*said) { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await?;
    }
    Ok(())
}

fn no_pod_was_made_twice(harbour: &Harbour) -> anyhow::Result<()> {
    let is_pod = |write: &Write| {
        write.resource == "pods"
            && write.verb == "create"
            && write.subresource.is_empty()
            && write.succeeded()
            && write.user.starts_with("berth")
    };
    let mut made = BTreeSet::new();
    for write in harbour.audit()?.news()?.into_iter().filter(is_pod) {
        anyhow::ensure!(made.insert(write.name.clone()), "two pods were made for {}", write.name);
    }
    anyhow::ensure!(!made.is_empty(), "the log shows no pod");
    Ok(())
}
