//! Game servers and Fleets as stories write them, and talking to a game.

use std::net::SocketAddr;
use std::time::Duration;

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UdpSocket};

use crate::world::{GAME, STEP, Stage};

/// One try of a datagram: it may be lost, so there are several.
const TRY: Duration = Duration::from_millis(500);

/// A pod template with these containers (and init containers), quick to end.
pub fn pod(containers: &Value, init_containers: &Value) -> Value {
    json!({ "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": containers,
        "initContainers": init_containers,
    } })
}

/// The example game as a container, with these arguments.
pub fn game_container(arguments: &[&str]) -> Value {
    json!({
        "name": "game",
        "image": GAME,
        "imagePullPolicy": "Never",
        "args": arguments,
        "resources": { "requests": { "cpu": "1m", "memory": "8Mi" } },
    })
}

/// The spec of a game server that speaks UDP on a Dynamic port.
pub fn spec(template: &Value) -> Value {
    json!({
        "ports": [{ "name": "default", "portPolicy": "Dynamic", "containerPort": 7654, "protocol": "UDP" }],
        "template": template,
    })
}

/// A GameServer.
pub fn game_server(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "agones.dev/v1", "kind": "GameServer", "metadata": { "name": name }, "spec": spec })
}

/// A Fleet.
pub fn fleet(name: &str, replicas: i32, spec: &Value) -> Value {
    json!({
        "apiVersion": "agones.dev/v1",
        "kind": "Fleet",
        "metadata": { "name": name },
        "spec": { "replicas": replicas, "template": { "spec": spec } },
    })
}

impl Stage {
    /// Waits until a GameServer is in this state.
    ///
    /// # Errors
    /// It is not in time: what it is instead.
    pub async fn until_state(&self, name: &str, state: State) -> anyhow::Result<GameServer> {
        let found = berth_dev::eventually(STEP, format!("{name} to be {state}"), async || {
            let server = self.game_servers().get(name).await.map_err(|error| error.to_string())?;
            if server.state() == Some(state) {
                Ok(server)
            } else {
                Err(format!("{:?}; {:?}", server.status, server.metadata.annotations))
            }
        })
        .await?;
        Ok(found)
    }

    /// Waits until a GameServer is gone.
    ///
    /// # Errors
    /// It is there after all the time.
    pub async fn until_gone(&self, name: &str) -> anyhow::Result<()> {
        berth_dev::eventually(STEP, format!("{name} to be gone"), async || {
            let left = self.game_servers().get_opt(name).await.map_err(|error| error.to_string())?;
            left.map_or(Ok(()), |server| Err(format!("{:?}; {:?}", server.status, server.metadata)))
        })
        .await?;
        Ok(())
    }

    /// Waits until every container of a pod runs, and gives back the pod as it is then.
    ///
    /// # Errors
    /// One does not in time: what kubelet says of the pod.
    pub async fn until_running(&self, name: &str) -> anyhow::Result<Pod> {
        let found = berth_dev::eventually(STEP, format!("all of {name} to run"), async || {
            let pod = self.pods().get(name).await.map_err(|error| error.to_string())?;
            let wanted = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
            let status = pod.status.clone().unwrap_or_default();
            let runs =
                |one: &ContainerStatus| one.state.as_ref().is_some_and(|state| state.running.is_some());
            let running = status.container_statuses.iter().flatten().filter(|one| runs(one)).count();
            if wanted > 0 && running == wanted { Ok(pod) } else { Err(format!("{status:?}")) }
        })
        .await?;
        Ok(found)
    }
}

/// Where players reach a server.
pub fn address_of(server: &GameServer) -> Option<SocketAddr> {
    let status = server.status.as_ref()?;
    let port = status.ports.as_ref()?.first()?.port;
    Some(SocketAddr::new(status.address.parse().ok()?, port))
}

/// Sends a datagram until it is answered.
///
/// # Errors
/// No answer in time.
pub async fn ask(to: SocketAddr, text: &str) -> anyhow::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").await?;
    socket.connect(to).await?;
    let answer = berth_dev::eventually(STEP, format!("an answer from {to}"), async || {
        socket.send(text.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut buffer = [0; 2048];
        match tokio::time::timeout(TRY, socket.recv(&mut buffer)).await {
            Ok(Ok(length)) => Ok(String::from_utf8_lossy(&buffer[..length]).into_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("nothing within {TRY:?}")),
        }
    })
    .await?;
    Ok(answer)
}

/// Sends a line over TCP until it is answered.
///
/// # Errors
/// No answer in time.
pub async fn ask_tcp(to: SocketAddr, text: &str) -> anyhow::Result<String> {
    let exchange = async || {
        let stream = TcpStream::connect(to).await?;
        let (reader, mut writer) = stream.into_split();
        writer.write_all(format!("{text}\n").as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(reader).read_line(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = berth_dev::eventually(STEP, format!("an answer over TCP from {to}"), async || {
        match tokio::time::timeout(TRY, exchange()).await {
            Ok(Ok(answer)) if !answer.is_empty() => Ok(answer),
            Ok(Ok(_)) => Err("the end of the connection".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("nothing within {TRY:?}")),
        }
    })
    .await?;
    Ok(answer)
}
