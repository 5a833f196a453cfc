//! The task that owns the servers and speaks with the agent about them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_api::link::{ListenerKey, MAX_SOCKETS, ServerUid, ToAgent, ToSdk, VERSIONS, common_version};
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::Clock;
use berth_runtime::error::chain;
use berth_runtime::health::Condition;
use berth_runtime::tasks::Spawner;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::LinkError;
use super::connection::{Arrival, Inbound, Outbound, connect};
use super::kept;
use super::listeners::Listeners;
use crate::metrics::{FailureLabels, SdkMetrics};
use crate::seat::{Seat, Surroundings, Tray, keeper};

const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Short enough that a new agent is found within a second.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long the agent may take to say Hello.
const HELLO: Duration = Duration::from_secs(5);
/// How long the agent is left waiting for a journal that takes its time; what it holds is told later then.
const JOURNAL: Duration = Duration::from_secs(5);
/// How long the last words may take when this process ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the worker is given.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) socket: PathBuf,
    /// Chosen anew by each process.
    pub(crate) process_id: String,
    pub(crate) clock: Clock,
    pub(crate) metrics: SdkMetrics,
    pub(crate) spawner: Spawner,
    /// Met while the agent is there.
    pub(crate) connected: Condition,
    /// Where seats wait for the journal.
    pub(crate) tray: Arc<Tray>,
    /// Tells which servers stand in the journal.
    pub(crate) in_journal: mpsc::Receiver<Vec<ServerUid>>,
}

/// Owns the servers and speaks with the agent.
#[derive(Debug)]
pub(crate) struct Worker {
    setup: Setup,
    surroundings: Surroundings,
    servers: BTreeMap<ServerUid, Server>,
}

#[derive(Debug)]
struct Server {
    seat: Arc<Seat>,
    listeners: Listeners,
}

impl Worker {
    pub(crate) fn new(setup: Setup) -> Self {
        let surroundings = Surroundings {
            clock: setup.clock,
            news: Arc::default(),
            tray: Arc::clone(&setup.tray),
            metrics: setup.metrics.seats.clone(),
            listening_since: setup.clock.instant().into_std(),
        };
        Self { setup, surroundings, servers: BTreeMap::new() }
    }

    /// Speaks with the agent, whenever there is one, until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut was_said = false;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            found = tokio::time::timeout(JOURNAL, self.setup.in_journal.recv()) => {
                self.seat_all(found.ok().flatten().unwrap_or_default());
            }
        }
        self.serve_kept();
        loop {
            let Err(error) = self.meet(&stop, &mut backoff, &mut was_said).await else {
                return Ok(());
            };
            self.setup.metrics.link.connected.set(0);
            self.setup.connected.set(false);
            self.setup.metrics.link.failures.get_or_create(&FailureLabels { reason: error.category() }).inc();
            if was_said {
                debug!(error = %chain(&error), "no agent");
            } else {
                warn!(error = %chain(&error), "no agent; calls are answered, and told to it when it is back");
                was_said = true;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(backoff.next()) => {}
            }
        }
    }

    /// One connection, from its beginning to its end; `Ok` when this process is to stop.
    async fn meet(
        &mut self,
        stop: &CancellationToken,
        backoff: &mut Backoff,
        was_said: &mut bool,
    ) -> Result<(), LinkError> {
        let greeted = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            greeted = tokio::time::timeout(HELLO, self.greet()) => greeted,
        };
        let (mut inbound, mut outbound, version) =
            greeted.unwrap_or(Err(LinkError::NoHello { seconds: HELLO.as_secs() }))?;
        backoff.reset();
        *was_said = false;
        self.setup.metrics.link.connections.inc();
        self.setup.metrics.link.connected.set(1);
        self.setup.connected.set(true);
        self.hand_back(&mut outbound, version)?;
        self.talk(&mut inbound, &mut outbound, stop).await
    }

    async fn greet(&self) -> Result<(Inbound, Outbound, u32), LinkError> {
        let (mut inbound, mut outbound) = connect(&self.setup.socket).await?;
        let hello = ToAgent::Hello {
            versions: VERSIONS,
            sdk: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: self.setup.process_id.clone(),
        };
        outbound.push(&hello, Vec::new())?;
        outbound.flush().await?;
        let ToSdk::Hello { versions, agent, node } = inbound.next().await?.frame else {
            return Err(LinkError::Impolite);
        };
        let Some(version) = common_version(VERSIONS, versions) else {
            return Err(LinkError::Version { ours: VERSIONS, theirs: versions });
        };
        info!(agent, node, version, "connected to the agent");
        Ok((inbound, outbound, version))
    }

    /// Says what is held: every server, with its listeners, also one that has none; and that everything is owed again.
    fn hand_back(&self, outbound: &mut Outbound, version: u32) -> Result<(), LinkError> {
        for (uid, server) in &self.servers {
            let held = server.listeners.held();
            let mut parts = held.chunks(MAX_SOCKETS).map(<[_]>::to_vec).collect::<Vec<_>>();
            if parts.is_empty() {
                parts.push(Vec::new());
            }
            for part in parts {
                let (keys, sockets): (Vec<ListenerKey>, Vec<Arc<TcpListener>>) = part.into_iter().unzip();
                outbound.push(&ToAgent::HandBack { uid: uid.clone(), keys }, sockets)?;
            }
        }
        outbound.push(&ToAgent::HandBackEnds, Vec::new())?;
        for server in self.servers.values() {
            server.seat.rewind(version);
        }
        Ok(())
    }

    /// Takes frames and tells news until the connection breaks. What comes goes before what is owed, so that an
    /// acknowledgement is never waited for in vain; neither can starve the other for long, as both are bounded.
    async fn talk(
        &mut self,
        inbound: &mut Inbound,
        outbound: &mut Outbound,
        stop: &CancellationToken,
    ) -> Result<(), LinkError> {
        loop {
            self.tell_news(outbound)?;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                arrival = inbound.next() => self.take(arrival?)?,
                written = outbound.write_some() => written?,
                found = next_found(&mut self.setup.in_journal) => {
                    self.seat_all(found);
                    return Err(LinkError::Found);
                }
                () = self.surroundings.news.arrived(), if outbound.has_room() => {}
            }
        }
        // Calls are refused from here on; what was promised before still goes out.
        let last_words = async {
            loop {
                self.tell_news(outbound)?;
                if outbound.is_empty() {
                    return Ok(());
                }
                outbound.flush().await?;
            }
        };
        tokio::time::timeout(LAST_WORDS, last_words).await.unwrap_or(Ok(()))
    }

    fn tell_news(&self, outbound: &mut Outbound) -> Result<(), LinkError> {
        while outbound.has_room() {
            let Some(uid) = self.surroundings.news.take() else {
                return Ok(());
            };
            for frame in self.servers.get(&uid).map(|server| server.seat.take_news()).unwrap_or_default() {
                outbound.push(&frame, Vec::new())?;
            }
        }
        Ok(())
    }

    fn take(&mut self, Arrival { frame, sockets }: Arrival) -> Result<(), LinkError> {
        match frame {
            ToSdk::Hello { .. } => return Err(LinkError::Impolite),
            ToSdk::Server { uid, view, applied } => self.server(uid).seat.introduce(view, applied),
            ToSdk::Listeners { uid, keys } => {
                let (metrics, spawner) = (self.setup.metrics.serve.clone(), self.setup.spawner.clone());
                let server = self.server(uid);
                for (key, socket) in keys.into_iter().zip(sockets) {
                    server.listeners.take(key, socket, &metrics, &spawner);
                }
            }
            ToSdk::Started { uid, ago } => self.server(uid).seat.started(ago),
            ToSdk::Acknowledge { uid, sequence } => {
                if let Some(server) = self.servers.get(&uid) {
                    server.seat.acknowledge(sequence);
                }
            }
            ToSdk::Forget { uid } => {
                if let Some(mut server) = self.servers.remove(&uid) {
                    server.listeners.close_all();
                    server.seat.forget();
                    info!(game_server = %uid, "game server forgotten");
                }
                self.setup.tray.forget(uid);
            }
        }
        Ok(())
    }

    /// The servers that stand in the journal are there, whether the agent speaks of them or not: it is told what they
    /// were promised, and tells which of them to forget.
    fn seat_all(&mut self, found: Vec<ServerUid>) {
        for uid in found {
            self.server(uid);
        }
    }

    /// Goes on with the listeners of the process before this one, where somebody kept them: games that connect are
    /// answered before the agent is there.
    fn serve_kept(&mut self) {
        let (metrics, spawner) = (self.setup.metrics.serve.clone(), self.setup.spawner.clone());
        for kept::Kept { uid, key, socket } in kept::take() {
            let listeners = &mut self.server(uid.clone()).listeners;
            listeners.take(key, socket, &metrics, &spawner);
            if !listeners.has(key) {
                kept::release(&uid, key);
            }
        }
    }

    /// The server, which begins to exist here when the agent first speaks of it.
    fn server(&mut self, uid: ServerUid) -> &mut Server {
        self.servers.entry(uid).or_insert_with_key(|uid| {
            let gone = self.setup.spawner.token().child_token();
            let seat = Seat::new(uid.clone(), self.surroundings.clone(), gone);
            drop(self.setup.spawner.spawn_child("keeper", keeper::keep(Arc::clone(&seat))));
            Server { listeners: Listeners::new(Arc::clone(&seat)), seat }
        })
    }
}

/// Waits for servers that were found late; for ever when there is nobody to find any.
async fn next_found(found: &mut mpsc::Receiver<Vec<ServerUid>>) -> Vec<ServerUid> {
    loop {
        match found.recv().await {
            Some(found) if found.is_empty() => {}
            Some(found) => return found,
            None => std::future::pending().await,
        }
    }
}
