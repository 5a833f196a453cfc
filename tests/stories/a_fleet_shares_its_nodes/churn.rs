//! What players, operators and other users of the nodes do, chosen by a seed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::quantity::Quantity;
use berth_dev::eventually;
use berth_stories::game::{address_of, fleet, game_container, pod, spec};
use berth_stories::world::{IDLE, STEP, Stage, delete_all};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};

const FLEET: &str = "lobby";
/// Pods that the scheduler places.
pub(crate) const CROWD: &str = "crowd";
/// Pods with a host port in the range of the Fleet.
const PORTED: &str = "ported";
const PORT: u16 = 7100;
/// What Fleet and crowd ask for when both are as large as they get, of all the nodes' processor time, in hundredths: more
/// than there is, together.
const SHARE: i64 = 60;
const MOST_CROWD: i32 = 12;
pub(crate) const CROWD_AT_REST: i32 = 4;
/// Between two acts, in milliseconds.
const PACE: std::ops::Range<u64> = 50..800;
/// Sessions at most, in parts of the Fleet.
const SESSIONS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Scale,
    Delete,
    Allocate,
    EndSession,
    Crowd,
    Ported,
}

/// How likely each act is.
const ACTS: [(Act, u32); 6] = [
    (Act::Scale, 3),
    (Act::Delete, 3),
    (Act::Allocate, 4),
    (Act::EndSession, 3),
    (Act::Crowd, 4),
    (Act::Ported, 1),
];

/// A session that nobody but its players may end.
pub(crate) struct Session {
    pub(crate) uid: String,
    address: SocketAddr,
}

/// Everything that is done.
pub(crate) struct Churn<'a> {
    stage: &'a Stage,
    random: StdRng,
    size: i32,
    pub(crate) sessions: BTreeMap<String, Session>,
    done: BTreeMap<Act, usize>,
}

impl<'a> Churn<'a> {
    /// Sets the scene: the Fleet whole, and nobody else there.
    pub(crate) async fn begin(stage: &'a Stage, size: i32, seed: u64) -> anyhow::Result<Self> {
        let nodes = Api::<Node>::all(stage.client()).list(&ListParams::default()).await?;
        let amounts = nodes.iter().filter_map(|node| node.status.as_ref()?.allocatable.as_ref()?.get("cpu"));
        let all: i64 = amounts.filter_map(|amount| Quantity::parse(&amount.0)).map(Quantity::as_milli).sum();
        let each = |count: i32| format!("{}m", (all * SHARE / 100 / i64::from(count)).max(1));
        let mut container = game_container(&[]);
        container["resources"]["requests"]["cpu"] = json!(each(size));
        let mut lobby = fleet(FLEET, size, &spec(&pod(&json!([container]), &json!([]))));
        lobby["spec"]["scheduling"] = json!("Distributed");
        stage.fleets().create(&PostParams::default(), &serde_json::from_value(lobby)?).await?;
        let limit = STEP + Duration::from_secs(2) * u32::try_from(size)?;
        eventually(limit, format!("{size} Ready servers"), async || {
            let fleet = stage.fleets().get(FLEET).await.map_err(|error| error.to_string())?;
            let status = fleet.status.unwrap_or_default();
            if status.ready_replicas == size { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await?;
        let churn = Self {
            stage,
            random: StdRng::seed_from_u64(seed),
            size,
            sessions: BTreeMap::new(),
            done: BTreeMap::new(),
        };
        churn.others(CROWD, &each(MOST_CROWD), &json!([])).await?;
        churn
            .others(PORTED, "1m", &json!([{ "containerPort": 7654, "hostPort": PORT, "protocol": "UDP" }]))
            .await?;
        Ok(churn)
    }

    /// A Deployment, without pods yet.
    async fn others(&self, name: &str, cpu: &str, ports: &Value) -> anyhow::Result<()> {
        let labels = json!({ "app": name });
        let deployment = json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": 0,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "idle", "image": IDLE, "imagePullPolicy": "Never", "args": ["sleep", "86400"],
                            "resources": { "requests": { "cpu": cpu } }, "ports": ports,
                        }],
                    },
                },
            },
        });
        let deployment: Deployment = serde_json::from_value(deployment)?;
        self.deployments().create(&PostParams::default(), &deployment).await?;
        Ok(())
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.stage.client(), &self.stage.namespace)
    }

    /// Goes on for so long.
    pub(crate) async fn go_on(&mut self, length: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            let act = ACTS.choose_weighted(&mut self.random, |(_, weight)| *weight)?.0;
            if self.perform(act).await.with_context(|| format!("{act:?}"))? {
                *self.done.entry(act).or_insert(0) += 1;
            }
            sleep(Duration::from_millis(self.random.random_range(PACE))).await;
        }
        Ok(())
    }

    pub(crate) fn summary(&self) -> String {
        let done: Vec<String> = self.done.iter().map(|(act, count)| format!("{act:?} {count}")).collect();
        done.join(", ")
    }

    /// The Fleet is to be whole, and there is room for it beside the others.
    pub(crate) async fn come_to_rest(&mut self) -> anyhow::Result<()> {
        self.scale_others(CROWD, CROWD_AT_REST).await?;
        self.scale_others(PORTED, 0).await?;
        self.scale(self.size).await
    }

    /// How many servers there are then.
    pub(crate) fn size_at_rest(&self) -> anyhow::Result<usize> {
        Ok(usize::try_from(self.size)?.max(self.sessions.len()))
    }

    /// The others leave.
    pub(crate) async fn end(&self) -> anyhow::Result<()> {
        delete_all(&self.deployments(), &DeleteParams::background()).await
    }

    /// Whether there was something to be done.
    async fn perform(&mut self, act: Act) -> anyhow::Result<bool> {
        match act {
            Act::Scale => {
                let size = self.random.random_range(self.size / 2..=self.size);
                self.scale(size).await?;
            }
            Act::Crowd => {
                let size = self.random.random_range(0..=MOST_CROWD);
                self.scale_others(CROWD, size).await?;
            }
            Act::Ported => {
                let size = self.random.random_range(0..=2);
                self.scale_others(PORTED, size).await?;
            }
            Act::Delete => {
                let Some(server) = self.choose().await? else { return Ok(false) };
                let of_this = DeleteParams::default().preconditions(kube::api::Preconditions {
                    uid: server.uid(),
                    resource_version: server.resource_version(),
                });
                let deleted = self.stage.game_servers().delete(&server.name_any(), &of_this).await;
                return settled(deleted.map(drop));
            }
            Act::Allocate => return self.allocate().await,
            Act::EndSession => {
                let Some((name, session)) = self.sessions.pop_first() else { return Ok(false) };
                self.end_session(&name, &session).await?;
            }
        }
        Ok(true)
    }

    /// As the last player does. The game may be gone before it has answered, so the server tells.
    async fn end_session(&self, name: &str, session: &Session) -> anyhow::Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        eventually(STEP, format!("the session on {name} to end"), async || {
            socket.send_to(b"EXIT", session.address).await.map_err(|error| error.to_string())?;
            let server = self.stage.game_servers().get_opt(name).await.map_err(|error| error.to_string())?;
            match server {
                Some(server)
                    if server.uid().as_deref() == Some(&session.uid)
                        && server.state() == Some(State::Allocated) =>
                {
                    Err("it goes on".to_owned())
                }
                Some(_) | None => Ok(()),
            }
        })
        .await?;
        Ok(())
    }

    /// As a matchmaker does: the state, under the resource version that was read.
    async fn allocate(&mut self) -> anyhow::Result<bool> {
        if self.sessions.len() * SESSIONS >= usize::try_from(self.size)? {
            return Ok(false);
        }
        let Some(server) = self.choose().await? else { return Ok(false) };
        let name = server.name_any();
        let address = address_of(&server).with_context(|| format!("{name} is Ready and has no address"))?;
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": server.resource_version() },
            "status": { "state": "Allocated" },
        }));
        let taken = self.stage.game_servers().patch(&name, &PatchParams::default(), &patch).await;
        let is_taken = settled(taken.map(drop))?;
        if is_taken {
            self.sessions.insert(name, Session { uid: server.uid().unwrap_or_default(), address });
        }
        Ok(is_taken)
    }

    /// A server that is Ready and is to stay.
    async fn choose(&mut self) -> anyhow::Result<Option<GameServer>> {
        let mut servers =
            eventually(STEP, "the servers to be listed", async || self.stage.all_servers().await).await?;
        servers.retain(|server| {
            server.state() == Some(State::Ready) && server.metadata.deletion_timestamp.is_none()
        });
        Ok(servers.choose(&mut self.random).cloned())
    }

    async fn scale(&self, size: i32) -> anyhow::Result<()> {
        scale(&self.stage.fleets(), FLEET, size).await
    }

    async fn scale_others(&self, name: &str, size: i32) -> anyhow::Result<()> {
        scale(&self.deployments(), name, size).await
    }
}

async fn scale<K>(api: &Api<K>, name: &str, size: i32) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = Patch::Merge(json!({ "spec": { "replicas": size } }));
    let scaled = eventually(STEP, format!("{name} to be scaled"), async || {
        api.patch(name, &PatchParams::default(), &patch).await
    });
    scaled.await?;
    Ok(())
}

/// Whether the write was taken. That the object has changed or gone is no failure, nor that a busy API server gives no
/// answer.
fn settled(answer: kube::Result<()>) -> anyhow::Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(kube::Error::Service(_) | kube::Error::HyperError(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
