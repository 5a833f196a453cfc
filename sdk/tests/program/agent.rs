//! Plays the agent: listens on the link, passes listening sockets, hears what it is told. And starts the program.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::future::Future;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_api::game_server::{GameServerStatus, HealthRule};
use berth_api::lifecycle::State;
use berth_api::link::{
    Change, ListenerKey, Sequence, ServerUid, ToAgent, ToSdk, Transport, VERSIONS, View, decode, encode,
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tempfile::TempDir;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

/// How long anything here may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_berth-sdk");

/// Waits, with a limit and a word about what for.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {LIMIT:?}"),
    }
}

/// How much the program logs: where much is said to it, a line for each is too much to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Info,
    Debug,
}

/// `berth-sdk` as a process.
pub(crate) struct Program {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Program {
    /// Starts it with its state beside the agent's socket, so that the next one finds it there.
    pub(crate) fn start(socket: &Path) -> Self {
        Self::start_at(Level::Debug, socket)
    }

    pub(crate) fn start_in(socket: &Path, state: &Path) -> Self {
        Self::run(&[
            OsStr::new("--link-socket"),
            socket.as_os_str(),
            OsStr::new("--state-dir"),
            state.as_os_str(),
        ])
    }

    /// Starts it so that it logs no more than this.
    pub(crate) fn start_at(level: Level, socket: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("--link-socket").arg(socket).arg("--state-dir").arg(socket.with_file_name("state"));
        Self::spawn_at(level, command)
    }

    /// Starts it for one server that stands in no cluster.
    pub(crate) fn local(file: Option<&Path>) -> Self {
        let mut arguments = ["--local", "--grpc-port", "0", "--http-port", "0"].map(OsStr::new).to_vec();
        arguments.extend(file.iter().flat_map(|file| [OsStr::new("--file"), file.as_os_str()]));
        Self::run(&arguments)
    }

    fn run(arguments: &[&OsStr]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        Self::spawn(command)
    }

    /// Starts it by a command that takes more arguments.
    pub(crate) fn spawn(command: Command) -> Self {
        Self::spawn_at(Level::Debug, command)
    }

    fn spawn_at(level: Level, mut command: Command) -> Self {
        let level = match level {
            Level::Info => "info",
            Level::Debug => "debug",
        };
        let mut child = command
            .args(["--admin-address", "127.0.0.1:0", "--log-level", level])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        let stderr = child.stderr.take().expect("it is piped");
        std::thread::spawn(move || {
            use std::io::BufRead as _;
            for line in std::io::BufReader::new(stderr).lines().map_while(Result::ok) {
                written.lock().expect("nobody panics with it").push_str(&(line + "\n"));
            }
        });
        Self { child, log }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("it is there");
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        within("the program ends", async {
            loop {
                if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                    return status;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Waits for a line of the log that contains a text.
    pub(crate) async fn logged(&self, text: &str) -> String {
        within(text, async {
            loop {
                if let Some(line) = self.log().lines().find(|line| line.contains(text)) {
                    return line.to_owned();
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// The address of the admin endpoint.
    pub(crate) async fn admin(&self) -> SocketAddr {
        self.address("admin requests are answered").await
    }

    /// The address of the server that stands in no cluster.
    pub(crate) async fn local_address(&self, transport: &str) -> SocketAddr {
        self.address(&format!("a local game server is served transport={transport}")).await
    }

    async fn address(&self, line: &str) -> SocketAddr {
        let line = self.logged(line).await;
        line.rsplit("address=").next().and_then(|address| address.trim().parse().ok()).expect("an address")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the program\n{}", self.log());
        }
    }
}

/// The agent's end of the link.
pub(crate) struct Agent {
    folder: TempDir,
    listener: UnixListener,
}

impl Agent {
    pub(crate) fn listen() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("sdk.sock")).expect("a socket");
        Self { folder, listener }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("sdk.sock")
    }

    /// The next connection, before anything was said.
    pub(crate) async fn connection(&self) -> Link {
        let (stream, _) = within("a connection", self.listener.accept()).await.expect("accepts");
        Link { stream, bytes: Vec::new(), sockets: VecDeque::new() }
    }

    /// The next connection, after both Hellos, and what was handed back on it.
    pub(crate) async fn meet(&self) -> (Link, HandedBack) {
        let mut link = self.connection().await;
        link.greet(VERSIONS).await;
        let mut handed_back = HandedBack::new();
        loop {
            match link.next().await {
                ToAgent::HandBack { uid, keys } => {
                    let sockets = link.sockets.drain(..keys.len());
                    handed_back.entry(uid).or_default().extend(keys.into_iter().zip(sockets));
                }
                ToAgent::HandBackEnds => return (link, handed_back),
                other => panic!("{other:?} before the end of what is handed back"),
            }
        }
    }
}

pub(crate) type HandedBack = BTreeMap<ServerUid, Vec<(ListenerKey, OwnedFd)>>;

/// One connection of the link.
pub(crate) struct Link {
    stream: UnixStream,
    bytes: Vec<u8>,
    sockets: VecDeque<OwnedFd>,
}

impl Link {
    pub(crate) async fn greet(&mut self, versions: (u32, u32)) -> String {
        let ToAgent::Hello { process_id, .. } = self.next().await else { panic!("it begins with Hello") };
        self.send(&ToSdk::Hello { versions, agent: "test".to_owned(), node: "node".to_owned() }, &[]).await;
        process_id
    }

    pub(crate) async fn send(&mut self, frame: &ToSdk, sockets: &[&OwnedFd]) {
        let bytes = encode(frame).expect("encodes");
        self.send_raw(&bytes, sockets).await;
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8], sockets: &[&OwnedFd]) {
        let mut written = 0;
        while written < bytes.len() {
            let sent = self.stream.async_io(Interest::WRITABLE, || {
                let mut space = [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(16))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                let descriptors: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
                if written == 0 && !descriptors.is_empty() {
                    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
                }
                let part = [IoSlice::new(&bytes[written..])];
                Ok(sendmsg(&self.stream, &part, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
            });
            written += within("a frame is taken", sent).await.expect("sends");
        }
    }

    /// The next frame.
    pub(crate) async fn next(&mut self) -> ToAgent {
        within("a frame", self.try_next()).await.expect("the connection is there")
    }

    /// The next frame, or nothing when the connection has ended.
    pub(crate) async fn try_next(&mut self) -> Option<ToAgent> {
        loop {
            if let Some(frame) = decode(&mut self.bytes).expect("decodes") {
                return Some(frame);
            }
            let (stream, bytes, sockets) = (&self.stream, &mut self.bytes, &mut self.sockets);
            let received = stream.async_io(Interest::READABLE, || {
                let mut chunk = [0; 4096];
                let mut space = [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(64))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
                let received = recvmsg(stream, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags)?;
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                        sockets.extend(descriptors);
                    }
                }
                bytes.extend_from_slice(&chunk[..received.bytes]);
                Ok(received.bytes)
            });
            if received.await.ok()? == 0 {
                return None;
            }
        }
    }

    /// The next frame, which must be a change.
    pub(crate) async fn change(&mut self) -> (ServerUid, u64, Change) {
        match self.next().await {
            ToAgent::Change { uid, sequence, change, .. } => (uid, sequence.0, change),
            other => panic!("{other:?} is no change"),
        }
    }

    /// Introduces a server and passes its listeners.
    pub(crate) async fn offer(&mut self, uid: &str) -> Game {
        self.introduce(uid, &view(uid, State::Scheduled), 0).await;
        self.open(uid, 1).await
    }

    pub(crate) async fn introduce(&mut self, uid: &str, view: &View, applied: u64) {
        let view = Box::new(view.clone());
        self.send(&ToSdk::Server { uid: self::uid(uid), view, applied: Sequence(applied) }, &[]).await;
    }

    /// Passes new listeners of a server.
    pub(crate) async fn open(&mut self, uid: &str, generation: u32) -> Game {
        let listen = || std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
        let (grpc, rest) = (listen(), listen());
        let addresses = [&grpc, &rest].map(|listener| listener.local_addr().expect("it is bound"));
        let game = Game { grpc: addresses[0], rest: addresses[1], sockets: [grpc.into(), rest.into()] };
        self.pass(uid, &game, generation).await;
        game
    }

    /// Passes the listeners of a server.
    pub(crate) async fn pass(&mut self, uid: &str, game: &Game, generation: u32) {
        let keys = [Transport::Grpc, Transport::Rest]
            .map(|transport| ListenerKey { transport, ipv6: false, generation })
            .to_vec();
        self.send(&ToSdk::Listeners { uid: self::uid(uid), keys }, &game.sockets.each_ref()).await;
    }

    pub(crate) async fn acknowledge(&mut self, uid: &str, sequence: u64) {
        self.send(&ToSdk::Acknowledge { uid: self::uid(uid), sequence: Sequence(sequence) }, &[]).await;
    }

    pub(crate) async fn forget(&mut self, uid: &str) {
        self.send(&ToSdk::Forget { uid: self::uid(uid) }, &[]).await;
    }
}

/// Where a server is reached, and the agent's copies of its sockets.
pub(crate) struct Game {
    pub(crate) grpc: SocketAddr,
    pub(crate) rest: SocketAddr,
    pub(crate) sockets: [OwnedFd; 2],
}

pub(crate) fn uid(uid: &str) -> ServerUid {
    ServerUid(uid.to_owned())
}

/// A view with an hour's patience for pings.
pub(crate) fn view(uid: &str, state: State) -> View {
    let hour = Duration::from_secs(3600);
    View {
        name: format!("game-{uid}"),
        namespace: "default".to_owned(),
        uid: uid.to_owned(),
        resource_version: "1".to_owned(),
        generation: 1,
        creation_timestamp: 1_700_000_000,
        health: Some(HealthRule { disabled: false, period: hour, failure_threshold: 3, initial_delay: hour }),
        status: GameServerStatus {
            state: Some(state),
            address: "192.0.2.1".to_owned(),
            ports: Some(vec![berth_api::game_server::StatusPort {
                name: Some("default".to_owned()),
                port: 7777,
            }]),
            ..GameServerStatus::default()
        },
        ..View::default()
    }
}
