//! The tour: brings every program past each of its effects, again and again, on every node.
//!
//! What the tour itself touches may end; whatever else ends is a fault, and named at once.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use berth_api::game_node::GameNode;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::eventually;
use berth_stories::harbour::Harbour;
use berth_stories::world::STEP;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::guests::Guests;
use super::session::{Session, allocate, settled};
use super::silence::{Awaited, Silence};
use super::truth::Expected;

/// The Fleet whose servers are poked.
const FLEET: &str = "lobby";
/// How large it is, by turns and in the end.
const SIZES: [i32; 2] = [10, 8];
const LAST_SIZE: i32 = 8;
/// Servers that nobody touches.
const LONE: usize = 2;
/// Servers of the Fleet that are taken at the beginning.
const SESSIONS: usize = 2;
/// What every game does.
pub(super) const SCRIPT: [&str; 3] = ["--ready-after=100ms", "--health=2s", "--chatter=700ms"];
/// Between two turns.
const PAUSE: Duration = Duration::from_millis(250);
/// How many turns go by between two of an act that costs more than a few writes.
const SELDOM: usize = 8;
/// How many turns go by between two acts that end servers, so that there are always some to poke.
const ENDS: usize = 3;
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Acts that a failure is told with.
const REMEMBERED: usize = 25;

/// What is done to a server that has nobody on it, as operators, old programs and games do.
#[derive(Clone, Copy, Debug)]
enum Poke {
    /// Somebody asks for Ready in its name.
    RequestReady,
    /// Its addresses are wiped.
    WipeAddress,
    /// It is said not to go on.
    SayTrouble,
    /// Its node is wiped.
    WipeNode,
    /// Its game fails.
    Fail,
    /// Its game calls Shutdown.
    ShutDown,
    /// It is removed, finalizer and all.
    Remove,
}

impl Poke {
    const GENTLE: [Self; 4] = [Self::RequestReady, Self::WipeAddress, Self::SayTrouble, Self::WipeNode];
    const HARD: [Self; 3] = [Self::Fail, Self::ShutDown, Self::Remove];
}

/// Takes a server, whatever its game writes meanwhile.
async fn take(harbour: &Harbour, name: &str) -> anyhow::Result<Session> {
    let taken = eventually(STEP, format!("a session on {name}"), async || {
        let server = harbour.servers().get(name).await?;
        allocate(harbour, &server).await?.context("somebody else wrote")
    });
    Ok(taken.await?)
}

/// Everything that is done.
pub(crate) struct Tour<'a> {
    harbour: &'a Harbour,
    began: Instant,
    turns: usize,
    guests: Guests<'a>,
    silence: Silence<'a>,
    sessions: BTreeSet<Session>,
    lone: Vec<GameServer>,
    /// Servers, by UID, that may end.
    poked: BTreeSet<String>,
    acts: Vec<String>,
}

impl<'a> Tour<'a> {
    /// Sets the scene, with nobody dying yet.
    pub(crate) async fn begin(harbour: &'a Harbour, awaited: Awaited) -> anyhow::Result<Self> {
        harbour.create_fleet(FLEET, LAST_SIZE, &SCRIPT).await?;
        for number in 0..LONE {
            harbour.create_server(&format!("lone-{number}"), &SCRIPT).await?;
        }
        let servers = harbour.until_ready(LONE + usize::try_from(LAST_SIZE)?).await?;
        let (lone, of_fleet): (Vec<_>, Vec<_>) =
            servers.into_iter().partition(|server| server.name_any().starts_with("lone-"));
        let mut sessions = BTreeSet::new();
        for server in of_fleet.iter().take(SESSIONS) {
            sessions.insert(take(harbour, &server.name_any()).await?);
        }
        Ok(Self {
            harbour,
            began: Instant::now(),
            turns: 0,
            guests: Guests::new(harbour),
            silence: Silence::new(harbour, awaited),
            sessions,
            lone,
            poked: BTreeSet::new(),
            acts: Vec::new(),
        })
    }

    /// Goes on until something is wrong.
    pub(crate) async fn go_on(&mut self) -> anyhow::Error {
        loop {
            match timeout(CALL_LIMIT, self.turn()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(_) => return anyhow::anyhow!("a turn of the tour took more than {CALL_LIMIT:?}"),
            }
            sleep(PAUSE).await;
        }
    }

    /// Guests leave, and the Fleet gets its last size.
    pub(crate) async fn come_to_rest(&mut self) -> anyhow::Result<()> {
        self.silence.end();
        self.guests.leave().await?;
        Ok(self.harbour.scale(FLEET, LAST_SIZE).await?)
    }

    /// What must be there once all is at rest.
    pub(crate) fn expected(&self) -> Expected<'_> {
        let servers = self.lone.len() + usize::try_from(LAST_SIZE).unwrap_or_default();
        Expected { servers, sessions: &self.sessions, lone: &self.lone }
    }

    pub(crate) fn last_acts(&self) -> Vec<String> {
        self.acts[self.acts.len().saturating_sub(REMEMBERED)..].to_vec()
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        let servers = self.harbour.all_servers().await?;
        self.nothing_ends_by_itself(&servers)?;
        self.poke_one_on_each_node(&servers, Poke::GENTLE[self.turns % Poke::GENTLE.len()]).await?;
        if self.turns.is_multiple_of(ENDS) {
            let poke = Poke::HARD[self.turns / ENDS % Poke::HARD.len()];
            self.poke_one_on_each_node(&servers, poke).await?;
        }
        if self.turns.is_multiple_of(SELDOM) {
            self.harbour.scale(FLEET, SIZES[self.turns / SELDOM % SIZES.len()]).await?;
            self.meddle().await?;
        }
        self.acts.extend(self.guests.turn(&servers).await?);
        let done = self.silence.turn(FLEET, &servers).await?;
        self.acts.extend(done.acts);
        self.sessions.extend(done.session);
        self.poked.extend(done.may_end);
        self.turns += 1;
        Ok(())
    }

    fn nothing_ends_by_itself(&self, servers: &[GameServer]) -> anyhow::Result<()> {
        for server in servers {
            let has_failed = matches!(server.state(), Some(State::Unhealthy | State::Error));
            let reason = server.annotation(names::REASON_ANNOTATION).unwrap_or_default();
            let may = self.guests.may_end(server)
                || self.poked.contains(&server.uid().unwrap_or_default())
                // A node that falls silent is our doing.
                || reason.starts_with("NodeSilent");
            anyhow::ensure!(
                !has_failed || may,
                "{} has ended, and nobody had touched it: {:?} {:?}",
                server.name_any(),
                server.metadata.annotations,
                server.status
            );
        }
        Ok(())
    }

    async fn poke_one_on_each_node(&mut self, servers: &[GameServer], poke: Poke) -> anyhow::Result<()> {
        for node in self.harbour.cluster.nodes() {
            let found = servers.iter().find(|server| {
                server.name_any().starts_with(FLEET)
                    && server.node_name() == Some(node.name())
                    && server.state() == Some(State::Ready)
                    && server.metadata.deletion_timestamp.is_none()
                    && !self.poked.contains(&server.uid().unwrap_or_default())
            });
            if let Some(server) = found {
                self.poke(server, poke).await?;
            }
        }
        Ok(())
    }

    async fn poke(&mut self, server: &GameServer, poke: Poke) -> anyhow::Result<()> {
        let name = server.name_any();
        let seconds = self.began.elapsed().as_secs_f64();
        self.acts.push(format!("{seconds:>8.3} s  {name}: {poke:?}"));
        let may_end = || server.uid().unwrap_or_default();
        match poke {
            Poke::RequestReady => self.change(server, json!({ "status": { "state": "RequestReady" } })).await,
            Poke::WipeAddress => {
                self.change(server, json!({ "status": { "address": "", "addresses": [] } })).await
            }
            Poke::SayTrouble => {
                let trouble = json!([{
                    "type": "Progressing",
                    "status": "False",
                    "reason": "NotReady",
                    "message": "the game runs and has not called Ready",
                    "lastTransitionTime": "2025-01-01T00:00:00Z",
                }]);
                self.change(server, json!({ "status": { "conditions": trouble } })).await
            }
            Poke::WipeNode => self.change(server, json!({ "status": { "nodeName": "" } })).await,
            Poke::Fail => {
                self.poked.insert(may_end());
                self.order(&name, "exit 1").await
            }
            Poke::ShutDown => {
                self.poked.insert(may_end());
                self.order(&name, "shutdown").await
            }
            Poke::Remove => {
                self.poked.insert(may_end());
                let finalizers = json!({ "metadata": { "finalizers": null } });
                self.change(server, finalizers).await?;
                let deleted = self.harbour.servers().delete(&name, &DeleteParams::default()).await;
                settled(deleted.map(drop)).map(drop)
            }
        }
    }

    /// Whatever its game writes at the same time.
    async fn change(&self, server: &GameServer, change: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(change);
        let changed = self.harbour.servers().patch(&server.name_any(), &PatchParams::default(), &patch).await;
        settled(changed.map(drop)).map(drop)
    }

    async fn order(&self, pod: &str, order: &str) -> anyhow::Result<()> {
        super::guests::order(self.harbour, pod, order).await
    }

    /// Takes away or spoils what programs are to keep.
    async fn meddle(&self) -> anyhow::Result<()> {
        let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(self.harbour.client.clone());
        let budget = names::DISRUPTION_BUDGET;
        if (self.turns / SELDOM).is_multiple_of(2) {
            settled(budgets.delete(budget, &DeleteParams::default()).await.map(drop))?;
        } else {
            let spoiled = Patch::Merge(json!({ "spec": { "maxUnavailable": "50%" } }));
            settled(budgets.patch(budget, &PatchParams::default(), &spoiled).await.map(drop))?;
        }
        let game_nodes: Api<GameNode> = Api::all(self.harbour.client.clone());
        let nodes = self.harbour.cluster.nodes();
        let node = nodes[self.turns / SELDOM % nodes.len()].name();
        settled(game_nodes.delete(node, &DeleteParams::default()).await.map(drop)).map(drop)
    }
}
