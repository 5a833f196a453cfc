//! A node falls silent for a while: what the brain does about that is never done otherwise.
//!
//! It happens only while the brain is to die at one of those effects, since each silence takes longer than a lease.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::HandOver;
use berth_brain::Effect;
use berth_runtime::kill_point::{KillPoint, Side};
use berth_stories::harbour::Harbour;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::Instant;

use super::session::{Session, allocate, settled};

/// After this the node is heard again, whatever has come of it.
const LONGEST: Duration = Duration::from_secs(60);
/// How long it is heard before the next silence.
const HEARD: Duration = Duration::from_secs(5);
/// Servers that the Fleet gets more, so that some are on their way to the node when it falls silent.
const MORE: i32 = 6;
/// Sessions that are begun on silent nodes at most.
const SESSIONS: usize = 3;

/// What the brain does about silent nodes.
const EFFECTS: [Effect; 6] =
    [Effect::TakeBack, Effect::RemovePod, Effect::Lose, Effect::LetSurplusGo, Effect::Keep, Effect::Fail];

/// Which of them the brain is to die at, as the reaper says.
pub(crate) type Awaited = Rc<Cell<Option<Effect>>>;

/// The silence of the last node.
pub(crate) struct Silence<'a> {
    harbour: &'a Harbour,
    awaited: Awaited,
    since: Option<Instant>,
    heard_since: Instant,
    /// Sessions that began on it.
    sessions: usize,
}

/// The effect of such a point.
pub(crate) fn needed_by(point: &KillPoint) -> Option<Effect> {
    let is_of = |effect: &Effect| Side::ALL.iter().any(|side| *point == KillPoint::new(*effect, *side));
    EFFECTS.into_iter().find(is_of)
}

/// What the silence has done.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) acts: Vec<String>,
    pub(crate) session: Option<Session>,
    /// Servers, by UID, that may end of it.
    pub(crate) may_end: BTreeSet<String>,
}

impl<'a> Silence<'a> {
    pub(crate) fn new(harbour: &'a Harbour, awaited: Awaited) -> Self {
        Self { harbour, awaited, since: None, heard_since: Instant::now(), sessions: 0 }
    }

    /// The node is heard.
    pub(crate) fn end(&mut self) {
        if self.since.take().is_some() {
            self.agent().resume();
            self.heard_since = Instant::now();
        }
    }

    /// One step on.
    pub(crate) async fn turn(&mut self, fleet: &str, servers: &[GameServer]) -> anyhow::Result<Done> {
        let mut done = Done::default();
        let (Some(effect), node) = (self.awaited.get(), self.node()) else {
            self.end();
            return Ok(done);
        };
        let Some(since) = self.since else {
            if self.heard_since.elapsed() > HEARD && self.agent().pause() {
                self.since = Some(Instant::now());
                let size = self.harbour.fleets().get(fleet).await?.spec.replicas();
                self.harbour.scale(fleet, size + MORE).await?;
                done.acts.push(format!("{node} falls silent"));
            }
            return Ok(done);
        };
        // It may have been started again meanwhile.
        self.agent().pause();
        let here: Vec<&GameServer> = servers
            .iter()
            .filter(|one| one.node_name() == Some(node.as_str()) && one.name_any().starts_with(fleet))
            .filter(|one| one.metadata.deletion_timestamp.is_none())
            .collect();
        for server in &here {
            self.meddle(effect, server, &mut done).await?;
        }
        let is_lost = |one: &&&GameServer| one.annotation(names::LOST_ANNOTATION).is_some();
        let (played, idle): (Vec<&GameServer>, Vec<&GameServer>) =
            here.iter().filter(is_lost).partition(|one| one.state() == Some(State::Allocated));
        let has_enough = match effect {
            Effect::Keep => !played.is_empty(),
            Effect::LetSurplusGo => !idle.is_empty(),
            _ => false,
        };
        if has_enough || since.elapsed() > LONGEST {
            self.end();
            done.acts.push(format!("{node} is heard again"));
        }
        Ok(done)
    }

    async fn meddle(&mut self, effect: Effect, server: &GameServer, done: &mut Done) -> anyhow::Result<()> {
        let name = server.name_any();
        let is_lost = server.annotation(names::LOST_ANNOTATION).is_some();
        match (effect, server.state()) {
            // Its agent was about to write Scheduled.
            (Effect::TakeBack | Effect::RemovePod, Some(State::Creating)) => {
                let is_made = self.make_pod(server).await?;
                done.acts.extend(is_made.then(|| format!("{name} has a pod already")));
            }
            (Effect::Keep, Some(State::Ready)) if is_lost && self.sessions < SESSIONS => {
                if let Some(session) = allocate(self.harbour, server).await? {
                    self.sessions += 1;
                    done.acts.push(format!("{name} has a session"));
                    done.session = Some(session);
                }
            }
            (Effect::Fail, Some(State::Ready)) if done.may_end.is_empty() => {
                done.may_end.extend(server.uid());
                let nodes: Api<Node> = Api::all(self.harbour.client.clone());
                let uid = nodes.get(&self.node()).await?.uid().unwrap_or_default();
                let other = HandOver::new(self.node(), uid, "an-earlier-boot").to_annotation();
                let annotations =
                    json!({ "metadata": { "annotations": { names::LEASE_ANNOTATION: other } } });
                let patch = Patch::Merge(annotations);
                let moved = self.harbour.servers().patch(&name, &PatchParams::default(), &patch).await;
                settled(moved.map(drop))?;
                done.acts.push(format!("{name} is of an earlier boot"));
            }
            _ => {}
        }
        Ok(())
    }

    /// The pod that an agent makes, as far as anybody looks at it.
    async fn make_pod(&self, server: &GameServer) -> anyhow::Result<bool> {
        let name = server.name_any();
        let pod = json!({
            "metadata": {
                "name": name,
                "labels": { names::ROLE_LABEL: names::ROLE_GAME_SERVER },
                "ownerReferences": [{
                    "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": name, "uid": server.uid(),
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": { "nodeName": self.node(), "containers": [{ "name": "game", "image": "none" }] },
        });
        let pods = self.harbour.pods();
        settled(pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await.map(drop))
    }

    fn node(&self) -> String {
        self.harbour.cluster.nodes().last().map(|node| node.name().to_owned()).unwrap_or_default()
    }

    fn agent(&self) -> &berth_dev::Daemon {
        self.harbour.berth.agent(self.harbour.cluster.nodes().len() - 1)
    }
}
