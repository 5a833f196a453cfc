//! The main job, once, before the user's eyes: a Fleet becomes Ready, and one of its servers answers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use tokio::net::UdpSocket;

use super::{InstallError, manifests};
use crate::cluster::Cluster;
use crate::eventually::eventually;
use crate::images::{Image, ImageError};
use crate::places;

/// What `examples/fleet.yaml` names.
const IMAGE: &str = "localhost/simple-udp:dev";
const FLEET: &str = "simple-udp";
/// A minute is promised; a machine that compiles at the same time gets three.
const READY_LIMIT: Duration = Duration::from_secs(180);
const REPLY_LIMIT: Duration = Duration::from_secs(60);
/// A datagram may get lost; the next one is sent after this.
const ONE_REPLY: Duration = Duration::from_millis(500);

/// A game server's answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Who answered.
    pub server: SocketAddr,
    /// What was asked, and is in the answer.
    pub nonce: String,
}

/// The example game as an image, from its Containerfile and the program in this folder. Blocks.
///
/// # Errors
/// When it was not built, or the image cannot be.
pub fn game_image(programs: &Path) -> Result<Image, ImageError> {
    let containerfile = places::source_folder().join("examples/simple-udp/Containerfile");
    Image::of_files(&containerfile, &[&programs.join("simple-udp")], IMAGE)
}

/// Applies the example Fleet, tells what happens to it, waits until all of it is Ready, and asks one of its servers.
///
/// # Errors
/// When the Fleet does not become Ready, or the server does not answer, in time.
pub async fn first_run(cluster: &Cluster, say: &mut dyn FnMut(&str)) -> Result<Reply, InstallError> {
    let client = cluster.client();
    manifests::enable_namespace(&client, client.default_namespace()).await?;
    manifests::apply(&client, &places::source_folder().join("examples/fleet.yaml")).await?;
    wait_until_ready(&client, say).await?;
    let server = pick_ready(&client).await?;
    ask(server).await
}

fn kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("agones.dev", "v1", kind), plural)
}

fn fleets(client: &kube::Client) -> Api<DynamicObject> {
    Api::default_namespaced_with(client.clone(), &kind("Fleet", "fleets"))
}

fn game_servers(client: &kube::Client) -> Api<DynamicObject> {
    Api::default_namespaced_with(client.clone(), &kind("GameServer", "gameservers"))
}

async fn list_servers(client: &kube::Client) -> Result<Vec<DynamicObject>, kube::Error> {
    let selector = ListParams::default().labels(&format!("agones.dev/fleet={FLEET}"));
    Ok(game_servers(client).list(&selector).await?.items)
}

async fn wait_until_ready(client: &kube::Client, say: &mut dyn FnMut(&str)) -> Result<(), InstallError> {
    let (fleets, last) = (fleets(client), std::cell::RefCell::new(String::new()));
    // One cell each: the closure is called again and again.
    let say = std::cell::RefCell::new(say);
    let ready = eventually(READY_LIMIT, format!("the Fleet {FLEET} to be Ready"), async || {
        let fleet = fleets.get(FLEET).await.map_err(|error| error.to_string())?;
        let servers = list_servers(client).await.map_err(|error| error.to_string())?;
        let line = progress(&fleet, &servers);
        if last.replace(line.clone()) != line {
            (say.borrow_mut())(&line);
        }
        if is_ready(&fleet) { Ok(()) } else { Err(line) }
    });
    let hint = "`kubectl describe fleet,gameserver` and the programs' logs say why".to_owned();
    ready.await.map_err(|source| InstallError::Late { hint, source })
}

/// Counts, and servers by state.
fn progress(fleet: &DynamicObject, servers: &[DynamicObject]) -> String {
    let mut states = BTreeMap::<&str, usize>::new();
    for server in servers {
        *states.entry(server.data["status"]["state"].as_str().unwrap_or("new")).or_default() += 1;
    }
    let states: Vec<String> = states.into_iter().map(|(state, count)| format!("{count} {state}")).collect();
    let (ready, wanted) = counts(fleet);
    let servers = if states.is_empty() { "none yet".to_owned() } else { states.join(", ") };
    format!("  Fleet {FLEET}: {ready} of {wanted} Ready; game servers: {servers}")
}

/// How many are Ready, and how many are wanted.
fn counts(fleet: &DynamicObject) -> (u64, u64) {
    let count = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    (count(&fleet.data["status"]["readyReplicas"]), count(&fleet.data["spec"]["replicas"]))
}

fn is_ready(fleet: &DynamicObject) -> bool {
    let (ready, wanted) = counts(fleet);
    wanted > 0 && ready >= wanted
}

/// The address and first port of a server that the API lists Ready.
async fn pick_ready(client: &kube::Client) -> Result<SocketAddr, InstallError> {
    let found = eventually(READY_LIMIT, "a Ready game server with an address", async || {
        let servers = list_servers(client).await.map_err(|error| error.to_string())?;
        servers
            .iter()
            .find_map(address_of)
            .ok_or_else(|| format!("{} servers, none of them Ready", servers.len()))
    });
    let hint = "`kubectl get gameservers` shows them".to_owned();
    found.await.map_err(|source| InstallError::Late { hint, source })
}

fn address_of(server: &DynamicObject) -> Option<SocketAddr> {
    let status = &server.data["status"];
    let port = u16::try_from(status["ports"][0]["port"].as_u64()?).ok()?;
    let is_ready = status["state"] == "Ready";
    let address = status["address"].as_str().filter(|_| is_ready)?;
    (address, port).to_socket_addrs().ok()?.next()
}

async fn ask(server: SocketAddr) -> Result<Reply, InstallError> {
    let nonce = format!("{:016x}", rand::random::<u64>());
    let answered = eventually(REPLY_LIMIT, format!("{server} to answer {nonce}"), async || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        socket.connect(server).await?;
        socket.send(nonce.as_bytes()).await?;
        let mut buffer = [0; 1500];
        let length = tokio::time::timeout(ONE_REPLY, socket.recv(&mut buffer)).await??;
        let reply = String::from_utf8_lossy(&buffer[..length]);
        if reply.contains(&nonce) { Ok(()) } else { Err(std::io::Error::other(format!("it said {reply:?}"))) }
    });
    let hint = "`kubectl logs` of the server's pod says what it received".to_owned();
    answered.await.map_err(|source| InstallError::Late { hint, source })?;
    Ok(Reply { server, nonce })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(data: serde_json::Value) -> DynamicObject {
        DynamicObject::new("one", &kind("GameServer", "gameservers")).data(data)
    }

    #[test]
    fn only_a_ready_server_has_an_address_to_ask() {
        let mut status = json!({"state": "Scheduled", "address": "10.99.0.11", "ports": [{"port": 7001}]});
        assert_eq!(address_of(&object(json!({"status": status}))), None);
        status["state"] = json!("Ready");
        let server = object(json!({"status": status}));
        assert_eq!(address_of(&server).unwrap().to_string(), "10.99.0.11:7001");
    }

    #[test]
    fn an_empty_fleet_is_not_ready() {
        assert!(!is_ready(&object(json!({}))));
        assert!(!is_ready(&object(json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}))));
        assert!(is_ready(&object(json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 2}}))));
    }

    #[test]
    fn progress_counts_servers_by_state() {
        let fleet = object(json!({"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}));
        let servers = [object(json!({"status": {"state": "Ready"}})), object(json!({}))];
        assert_eq!(
            progress(&fleet, &servers),
            "  Fleet simple-udp: 1 of 2 Ready; game servers: 1 Ready, 1 new"
        );
    }
}
