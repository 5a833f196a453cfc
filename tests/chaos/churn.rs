//! The churn: what players, operators, others in the cluster, networks and accidents do, chosen by a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::{Daemon, Line};
use berth_stories::harbour::Harbour;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::session::{Session, allocate, settled};
use super::truth::Expected;

/// The Fleet of the story.
const FLEET: &str = "lobby";
/// Servers that nobody touches.
const LONE: usize = 4;
/// What every game does.
const SCRIPT: [&str; 3] = ["--ready-after=200ms", "--health=2s", "--chatter=2s"];
/// Between two acts, in milliseconds.
const PACE: std::ops::Range<u64> = 20..500;
/// How long the dead stay dead, in milliseconds.
const DEATH: std::ops::Range<u64> = 1..2500;
/// How slow the line may be, in milliseconds a piece.
const DELAY: std::ops::Range<u64> = 0..150;
/// How long it may be silent, in milliseconds: shorter than any lease.
const SILENCE: std::ops::Range<u64> = 200..3000;
/// How large the Fleet is at any time.
const SIZES: std::ops::Range<i32> = 8..25;
/// How large it is in the end.
const LAST_SIZE: i32 = 16;
/// Sessions at most, so that there is always room for other servers.
const SESSIONS: usize = 8;
/// Acts that a failure is told with.
const REMEMBERED: usize = 25;
const CALL_LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Kill,
    Scale,
    Allocate,
    EndSession,
    GameExits,
    GameShutsDown,
    Delete,
    /// Somebody else writes to a server.
    Touch,
    /// Some connections to the API server break, watches among them.
    Cut,
    /// The line becomes slower, or quick again.
    Slow,
    /// Nothing comes through for a while.
    Silence,
}

/// How likely each act is.
const ACTS: [(Act, u32); 11] = [
    (Act::Kill, 8),
    (Act::Scale, 3),
    (Act::Allocate, 5),
    (Act::EndSession, 2),
    (Act::GameExits, 3),
    (Act::GameShutsDown, 2),
    (Act::Delete, 2),
    (Act::Touch, 4),
    (Act::Cut, 3),
    (Act::Slow, 2),
    (Act::Silence, 1),
];

/// Everything that is done.
pub(crate) struct Churn<'a> {
    harbour: &'a Harbour,
    line: &'a Line,
    random: StdRng,
    began: Instant,
    /// Programs that are dead, and when they come back.
    dead: Vec<(Instant, &'a Daemon)>,
    /// When the line is heard again.
    silent_until: Option<Instant>,
    sessions: BTreeSet<Session>,
    /// Servers whose games were told to end: the agents may be dead just then, and such a server still shows Ready.
    doomed: BTreeSet<String>,
    lone: Vec<GameServer>,
    done: BTreeMap<Act, usize>,
    acts: Vec<String>,
}

impl<'a> Churn<'a> {
    /// Sets the scene, with nobody dying yet.
    pub(crate) async fn begin(harbour: &'a Harbour, line: &'a Line, seed: u64) -> anyhow::Result<Self> {
        harbour.create_fleet(FLEET, LAST_SIZE, &SCRIPT).await?;
        for number in 0..LONE {
            harbour.create_server(&format!("lone-{number}"), &SCRIPT).await?;
        }
        let servers = harbour.until_ready(LONE + usize::try_from(LAST_SIZE)?).await?;
        let lone = servers.into_iter().filter(|server| server.name_any().starts_with("lone-")).collect();
        Ok(Self {
            harbour,
            line,
            random: StdRng::seed_from_u64(seed),
            began: Instant::now(),
            dead: Vec::new(),
            silent_until: None,
            sessions: BTreeSet::new(),
            doomed: BTreeSet::new(),
            lone,
            done: BTreeMap::new(),
            acts: Vec::new(),
        })
    }

    /// Goes on for so long, and until so many have been killed.
    pub(crate) async fn go_on(&mut self, length: Duration, kills: usize) -> anyhow::Result<()> {
        let end = Instant::now() + length;
        while Instant::now() < end || self.done.get(&Act::Kill).copied().unwrap_or_default() < kills {
            self.raise_the_dead(Instant::now())?;
            self.end_silence(Instant::now());
            let act = ACTS.choose_weighted(&mut self.random, |(_, weight)| *weight)?.0;
            if self.perform(act).await? {
                *self.done.entry(act).or_insert(0) += 1;
            }
            sleep(Duration::from_millis(self.random.random_range(PACE))).await;
        }
        Ok(())
    }

    /// The dead come back, the line is quick, and the Fleet gets its last size.
    pub(crate) async fn come_to_rest(&mut self) -> anyhow::Result<()> {
        let late = self.dead.iter().map(|(at, _)| *at).max().unwrap_or_else(Instant::now);
        self.raise_the_dead(late)?;
        self.line.silence(false);
        self.line.delay(Duration::ZERO);
        Ok(self.harbour.scale(FLEET, LAST_SIZE).await?)
    }

    /// What must be there once all is at rest.
    pub(crate) fn expected(&self) -> anyhow::Result<Expected<'_>> {
        let servers = LONE + usize::try_from(LAST_SIZE)?.max(self.sessions.len());
        Ok(Expected { servers, sessions: &self.sessions, lone: &self.lone })
    }

    pub(crate) fn summary(&self) -> String {
        let done: Vec<String> = self.done.iter().map(|(act, count)| format!("{act:?} {count}")).collect();
        done.join(", ")
    }

    pub(crate) fn last_acts(&self) -> &[String] {
        &self.acts[self.acts.len().saturating_sub(REMEMBERED)..]
    }

    fn note(&mut self, what: String) {
        self.acts.push(format!("{:>8.3} s  {what}", self.began.elapsed().as_secs_f64()));
    }

    fn raise_the_dead(&mut self, now: Instant) -> anyhow::Result<()> {
        let (due, later) = std::mem::take(&mut self.dead).into_iter().partition(|(at, _)| *at <= now);
        self.dead = later;
        let due: Vec<(Instant, &Daemon)> = due;
        for (_, daemon) in due {
            daemon.start_again()?;
            self.note(format!("{} starts again", daemon.name()));
        }
        Ok(())
    }

    fn end_silence(&mut self, now: Instant) {
        if self.silent_until.take_if(|until| *until <= now).is_some() {
            self.line.silence(false);
            self.note("the line is heard again".to_owned());
        }
    }

    /// Whether there was anything to do.
    async fn perform(&mut self, act: Act) -> anyhow::Result<bool> {
        match act {
            Act::Kill => self.kill().await,
            Act::Scale => {
                let size = self.random.random_range(SIZES);
                self.note(format!("scale to {size}"));
                timeout(CALL_LIMIT, self.harbour.scale(FLEET, size)).await??;
                Ok(true)
            }
            Act::Allocate => self.allocate().await,
            Act::EndSession => {
                let sessions: Vec<Session> = self.sessions.iter().cloned().collect();
                let Some(session) = sessions.choose(&mut self.random).cloned() else { return Ok(false) };
                // From here on it may end at any time.
                self.sessions.remove(&session);
                let order = if self.random.random_bool(0.5) { "shutdown" } else { "exit 0" };
                self.order(&session.name, order).await
            }
            Act::GameExits => {
                let code = ["exit 0", "exit 1"][usize::from(self.random.random_bool(0.5))];
                match self.choose(serves_nobody).await? {
                    Some(server) => self.order(&server.name_any(), code).await,
                    None => Ok(false),
                }
            }
            Act::GameShutsDown => match self.choose(serves_nobody).await? {
                Some(server) => self.order(&server.name_any(), "shutdown").await,
                None => Ok(false),
            },
            Act::Delete => match self.choose(serves_nobody).await? {
                Some(server) => {
                    self.note(format!("delete {}", server.name_any()));
                    let of_this = DeleteParams {
                        preconditions: Some(kube::api::Preconditions {
                            uid: server.uid(),
                            resource_version: server.resource_version(),
                        }),
                        ..DeleteParams::default()
                    };
                    let deleted = self.harbour.servers().delete(&server.name_any(), &of_this).await;
                    settled(deleted.map(drop))
                }
                None => Ok(false),
            },
            Act::Touch => match self.choose(|_| true).await? {
                Some(server) => self.touch(&server.name_any()).await,
                None => Ok(false),
            },
            Act::Cut => {
                let (line, random) = (self.line, &mut self.random);
                let count = line.cut(|_| random.random_bool(0.5));
                self.note(format!("{count} connections are cut"));
                Ok(count > 0)
            }
            Act::Slow => {
                let delay = if self.random.random_bool(0.5) { 0 } else { self.random.random_range(DELAY) };
                self.note(format!("the line takes {delay} ms"));
                self.line.delay(Duration::from_millis(delay));
                Ok(true)
            }
            Act::Silence => {
                let length = Duration::from_millis(self.random.random_range(SILENCE));
                self.note(format!("the line is silent for {length:?}"));
                self.line.silence(true);
                self.silent_until = Some(Instant::now() + length);
                Ok(true)
            }
        }
    }

    async fn kill(&mut self) -> anyhow::Result<bool> {
        let berth = &self.harbour.berth;
        let mut all = vec![berth.brain()];
        for position in 0..self.harbour.cluster.nodes().len() {
            all.extend([berth.agent(position), berth.sdk(position)]);
        }
        all.retain(|one| !self.dead.iter().any(|(_, dead)| dead.name() == one.name()));
        let Some(victim) = all.choose(&mut self.random).copied() else { return Ok(false) };
        anyhow::ensure!(victim.is_alive(), "{} ended by itself: {}", victim.name(), victim.last_words());
        self.note(format!("kill {}", victim.name()));
        victim.kill().await?;
        let back = Instant::now() + Duration::from_millis(self.random.random_range(DEATH));
        self.dead.push((back, victim));
        Ok(true)
    }

    async fn allocate(&mut self) -> anyhow::Result<bool> {
        if self.sessions.len() >= SESSIONS {
            return Ok(false);
        }
        let Some(server) = self.choose(|state| state == State::Ready).await? else { return Ok(false) };
        if self.doomed.contains(&server.name_any()) {
            return Ok(false);
        }
        let Some(session) = allocate(self.harbour, &server).await? else { return Ok(false) };
        self.note(format!("allocate {}", session.name));
        self.sessions.insert(session);
        Ok(true)
    }

    /// A server of the Fleet in such a state, with no session and none to come.
    async fn choose(&mut self, is_fit: impl Fn(State) -> bool) -> anyhow::Result<Option<GameServer>> {
        let servers = timeout(CALL_LIMIT, self.harbour.all_servers()).await??;
        let fit: Vec<&GameServer> = servers
            .iter()
            .filter(|server| {
                server.metadata.deletion_timestamp.is_none()
                    && server.name_any().starts_with(FLEET)
                    && server.state().is_some_and(&is_fit)
                    && !self.sessions.iter().any(|session| session.name == server.name_any())
            })
            .collect();
        Ok(fit.choose(&mut self.random).map(|server| (*server).clone()))
    }

    /// A write that nobody of Berth knows of: who holds an older version of the server is refused.
    async fn touch(&mut self, name: &str) -> anyhow::Result<bool> {
        self.note(format!("touch {name}"));
        let now = self.began.elapsed().as_millis().to_string();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/touched": now } } }));
        settled(self.harbour.servers().patch(name, &PatchParams::default(), &patch).await.map(drop))
    }

    async fn order(&mut self, name: &str, order: &str) -> anyhow::Result<bool> {
        self.note(format!("{name}: {order}"));
        self.doomed.insert(name.to_owned());
        let patch =
            Patch::Merge(json!({ "metadata": { "annotations": { "simulated.kubelet/order": order } } }));
        settled(self.harbour.pods().patch(name, &PatchParams::default(), &patch).await.map(drop))
    }
}

fn serves_nobody(state: State) -> bool {
    matches!(state, State::Scheduled | State::Ready)
}
