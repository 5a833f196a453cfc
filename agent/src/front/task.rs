//! The task that keeps `berth-sdk` informed, and the core too.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use berth_api::link::{ListenerKey, ServerUid, ToAgent, ToSdk, VERSIONS, common_version};
use berth_runtime::CancellationToken;
use berth_runtime::clock::{self, Instant};
use berth_runtime::error::chain;
use berth_runtime::kill_point::{Effect as _, Side, pass};
use rustix::net::sockopt::socket_acceptconn;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tracing::{debug, info, warn};

use super::connection::{Connection, LinkError};
use super::handle::Command;
use super::metrics::FrameLabels;
use super::servers::{Outgoing, Servers};
use super::socket::{LinkSocket, Visitor};
use super::{EVENTS, FrontError, FrontEvent, FrontMetrics, FrontSettings};
use crate::effects::Effect;

/// How long `berth-sdk` may take, between two pieces of it, to say who it is and what it holds.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long not to accept after the kernel had no room.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Owns the link. Run it once, in the agent's task group.
pub struct FrontTask {
    settings: FrontSettings,
    metrics: FrontMetrics,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<FrontEvent>,
    /// Events that the channel had no room for yet. While it is full, `berth-sdk` is not read from.
    outbox: VecDeque<FrontEvent>,
    servers: Servers,
    socket: Option<LinkSocket>,
    accept_after: Instant,
    peer: Option<Peer>,
}

/// The `berth-sdk` that is connected.
struct Peer {
    connection: Connection,
    stage: Stage,
    /// When the handshake is overdue.
    deadline: Instant,
}

enum Stage {
    /// It has not said who it is.
    Unknown,
    /// It says what it holds.
    HandingBack { process_id: String, version: String },
    /// It is told everything.
    Up,
}

/// What the task was woken by.
enum Woken {
    Stopped,
    Told(Command),
    Visited(io::Result<Visitor>),
    /// Bytes or an event.
    Moved,
    Broken(LinkError),
}

impl std::fmt::Debug for FrontTask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FrontTask").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl FrontTask {
    pub(super) fn new(
        settings: FrontSettings,
        metrics: FrontMetrics,
        commands: mpsc::Receiver<Command>,
        events: mpsc::Sender<FrontEvent>,
    ) -> Self {
        Self {
            settings,
            metrics,
            commands,
            events,
            outbox: VecDeque::new(),
            servers: Servers::default(),
            socket: None,
            accept_after: Instant::now(),
            peer: None,
        }
    }

    /// Runs until stopped; the socket file is removed then, and every copy of a listener closed.
    ///
    /// # Errors
    /// The socket cannot be listened on.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), FrontError> {
        loop {
            if let Err(error) = self.turn() {
                self.disconnect(&error);
            }
            self.show();
            match self.wait(&stop).await {
                Woken::Stopped => return Ok(()),
                Woken::Told(command) => self.obey(command)?,
                Woken::Visited(visitor) => self.welcome(visitor),
                Woken::Moved => {}
                Woken::Broken(error) => self.disconnect(&error),
            }
        }
    }

    /// Waits for anything to happen.
    async fn wait(&mut self, stop: &CancellationToken) -> Woken {
        let Self { socket, peer, outbox, events, commands, accept_after, .. } = self;
        let may_read = outbox.len() < EVENTS;
        tokio::select! {
            // The core's commands and events before the link, so that a busy link never makes the core wait; a new
            // connection before the old one's bytes, since it takes its place.
            biased;
            () = stop.cancelled() => Woken::Stopped,
            Some(command) = commands.recv() => Woken::Told(command),
            permit = events.reserve(), if !outbox.is_empty() => {
                match permit {
                    Ok(permit) => {
                        if let Some(event) = outbox.pop_front() {
                            permit.send(event);
                        }
                    }
                    // The core has gone; the process is about to end.
                    Err(_) => outbox.clear(),
                }
                Woken::Moved
            }
            visitor = accept(socket.as_ref(), *accept_after) => Woken::Visited(visitor),
            ready = ready(peer.as_ref(), may_read) => ready.map_or_else(Woken::Broken, |()| Woken::Moved),
            () = overdue(peer.as_ref(), may_read) => Woken::Broken(LinkError::Overdue),
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), FrontError> {
        match command {
            Command::Serve { uid, view, applied } => self.servers.serve(uid, view, applied),
            Command::Listeners { uid, listeners } => self.servers.listeners(uid, listeners),
            Command::Started { uid, at } => self.servers.started(uid, at),
            Command::Acknowledge { uid, sequence } => self.servers.acknowledge(uid, sequence),
            Command::Forget { uid } => self.servers.forget(uid),
            // Whoever asked may have lost interest.
            Command::Held { uid, answer } => drop(answer.send(self.servers.held(&uid))),
            Command::Settled => self.servers.settle(),
            Command::SetListening(true) if self.socket.is_some() => {}
            Command::SetListening(true) => {
                pass(Effect::Listen, Side::Before);
                self.socket = Some(LinkSocket::bind(&self.settings)?);
                pass(Effect::Listen, Side::After);
                info!(socket = %self.settings.socket.display(), "listening for berth-sdk");
            }
            Command::SetListening(false) => {
                if self.socket.take().is_some() {
                    info!("no longer listening for berth-sdk");
                }
                self.disconnect(&LinkError::NotListening);
            }
        }
        Ok(())
    }

    fn welcome(&mut self, visitor: io::Result<Visitor>) {
        match visitor {
            Ok(Visitor::Sdk(stream)) => {
                self.disconnect(&LinkError::Replaced);
                debug!("berth-sdk connected");
                let deadline = Instant::now() + HANDSHAKE;
                self.servers.begin();
                self.peer =
                    Some(Peer { connection: Connection::new(stream), stage: Stage::Unknown, deadline });
            }
            Ok(Visitor::Stranger { uid }) => {
                self.metrics.disconnected("wrong_uid");
                warn!(?uid, expected = ?self.settings.sdk_uid, "refused a connection of a user that is not berth-sdk's");
            }
            Err(error) => {
                self.metrics.disconnected("accept");
                warn!(%error, "could not accept a connection");
                self.accept_after = Instant::now() + ACCEPT_PAUSE;
            }
        }
    }

    /// Reads and writes what can be without waiting.
    fn turn(&mut self) -> Result<(), LinkError> {
        // Everything that has come is taken before more is read, so a full outbox stops the reading.
        if self.take_frames()?
            && let Some(peer) = &mut self.peer
        {
            peer.connection.fill()?;
            self.take_frames()?;
        }
        self.say_what_is_owed()
    }

    /// Takes the frames that have arrived while there is room for what they tell; true when none is left.
    fn take_frames(&mut self) -> Result<bool, LinkError> {
        while self.outbox.len() < EVENTS {
            let Some(peer) = &mut self.peer else { return Ok(false) };
            let Some(frame) = peer.connection.next()? else { return Ok(true) };
            peer.deadline = Instant::now() + HANDSHAKE;
            self.hear(frame)?;
        }
        Ok(false)
    }

    fn hear(&mut self, frame: ToAgent) -> Result<(), LinkError> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        let name = name_of(&frame);
        self.metrics.frames_received.get_or_create(&FrameLabels { frame: name }).inc();
        match (&mut peer.stage, frame) {
            (Stage::Unknown, ToAgent::Hello { versions, sdk, process_id }) => {
                let version = common_version(VERSIONS, versions)
                    .ok_or(LinkError::Version { theirs: versions, ours: VERSIONS })?;
                debug!(version, sdk, process_id, "berth-sdk said hello");
                peer.stage = Stage::HandingBack { process_id, version: sdk };
                let frame = ToSdk::Hello {
                    versions: VERSIONS,
                    agent: self.settings.version.clone(),
                    node: self.settings.node.clone(),
                };
                self.say(Outgoing { frame, sockets: Vec::new() });
            }
            (Stage::HandingBack { .. }, ToAgent::HandBack { uid, keys }) => {
                let sockets = peer.connection.sockets(keys.len())?;
                self.take_back(uid, keys, sockets)?;
            }
            (Stage::HandingBack { process_id, version }, ToAgent::HandBackEnds) => {
                let (process_id, version) = (std::mem::take(process_id), std::mem::take(version));
                peer.stage = Stage::Up;
                info!(process_id, version, "berth-sdk is connected");
                self.servers.hand_back_ends();
                self.metrics.last_connected.set(clock::now().as_second());
                self.outbox.push_back(FrontEvent::Connected { process_id, version });
            }
            (Stage::HandingBack { .. } | Stage::Up, ToAgent::Change { uid, sequence, change, seen }) => {
                self.outbox.push_back(FrontEvent::Change { uid, sequence, change, seen });
            }
            (Stage::HandingBack { .. } | Stage::Up, ToAgent::Pings { uid, pulse }) => {
                self.outbox.push_back(FrontEvent::Pings { uid, pulse });
            }
            (Stage::Unknown, _)
            | (Stage::HandingBack { .. }, ToAgent::Hello { .. })
            | (Stage::Up, ToAgent::Hello { .. } | ToAgent::HandBack { .. } | ToAgent::HandBackEnds) => {
                return Err(LinkError::OutOfTurn { frame: name });
            }
        }
        Ok(())
    }

    fn take_back(
        &mut self,
        uid: ServerUid,
        keys: Vec<ListenerKey>,
        sockets: Vec<OwnedFd>,
    ) -> Result<(), LinkError> {
        let (good, bad): (Vec<_>, Vec<_>) = keys
            .into_iter()
            .zip(sockets)
            .partition(|(_, socket)| socket_acceptconn(socket.as_fd()).unwrap_or(false));
        if !bad.is_empty() {
            self.metrics.sockets_refused.inc_by(bad.len() as u64);
            warn!(%uid, refused = bad.len(), "berth-sdk handed back sockets that do not listen");
        }
        let keys = good.iter().map(|(key, _)| *key).collect();
        self.servers.hand_back(uid.clone(), good).map_err(|_| LinkError::TooManyServers)?;
        self.outbox.push_back(FrontEvent::HandedBack { uid, keys });
        Ok(())
    }

    fn say_what_is_owed(&mut self) -> Result<(), LinkError> {
        let now = Instant::now();
        loop {
            let Some(peer) = &mut self.peer else { return Ok(()) };
            peer.connection.flush()?;
            if !peer.connection.is_idle() {
                return Ok(());
            }
            let Some(outgoing) = self.servers.next(now) else { return Ok(()) };
            self.say(outgoing);
        }
    }

    fn say(&mut self, outgoing: Outgoing) {
        let Some(peer) = &mut self.peer else { return };
        let name = Effect::from(&outgoing.frame).word();
        match peer.connection.write(outgoing) {
            Ok(()) => drop(self.metrics.frames_sent.get_or_create(&FrameLabels { frame: name }).inc()),
            Err(error) => {
                self.metrics.frames_unsendable.inc();
                warn!(frame = name, error = %chain(&error), "left out a frame that cannot be written");
            }
        }
    }

    fn disconnect(&mut self, error: &LinkError) {
        let Some(peer) = self.peer.take() else { return };
        self.servers.end();
        self.metrics.disconnected(error.category());
        match error {
            LinkError::Closed | LinkError::Replaced | LinkError::NotListening => {
                info!(reason = error.category(), "berth-sdk is disconnected");
            }
            _ => warn!(error = %chain(error), "closed the connection to berth-sdk"),
        }
        if matches!(peer.stage, Stage::Up) {
            self.outbox.push_back(FrontEvent::Disconnected);
        }
    }

    fn show(&self) {
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let (servers, listeners) = self.servers.counts();
        self.metrics.servers.set(gauge(servers));
        self.metrics.listeners.set(gauge(listeners));
        self.metrics.events_waiting.set(gauge(self.outbox.len()));
        let is_up = self.peer.as_ref().is_some_and(|peer| matches!(peer.stage, Stage::Up));
        self.metrics.connected.set(i64::from(is_up));
    }
}

async fn accept(socket: Option<&LinkSocket>, after: Instant) -> io::Result<Visitor> {
    match socket {
        Some(socket) => {
            sleep_until(after).await;
            socket.accept().await
        }
        None => std::future::pending().await,
    }
}

async fn ready(peer: Option<&Peer>, may_read: bool) -> Result<(), LinkError> {
    match peer {
        Some(peer) => peer.connection.ready(may_read).await,
        None => std::future::pending().await,
    }
}

/// Ends when the handshake has taken too long; never while it is we who do not read.
async fn overdue(peer: Option<&Peer>, may_read: bool) {
    match peer {
        Some(Peer { stage: Stage::Unknown | Stage::HandingBack { .. }, deadline, .. }) if may_read => {
            sleep_until(*deadline).await;
        }
        Some(_) | None => std::future::pending().await,
    }
}

const fn name_of(frame: &ToAgent) -> &'static str {
    match frame {
        ToAgent::Hello { .. } => "hello",
        ToAgent::HandBack { .. } => "hand_back",
        ToAgent::HandBackEnds => "hand_back_ends",
        ToAgent::Change { .. } => "change",
        ToAgent::Pings { .. } => "pings",
    }
}
