//! The front as a test runs it, and `berth-sdk` as a test plays it.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use berth_agent::front::{self, FrontError, FrontEvent, FrontHandle, FrontMetrics, FrontSettings};
use berth_api::link::{
    ListenerKey, MAX_SOCKETS, ServerUid, ToAgent, ToSdk, Transport, VERSIONS, View, decode, encode,
};
use berth_runtime::CancellationToken;
use berth_runtime::metrics::Metrics;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("waited {LIMIT:?} for {what}"))
}

pub(crate) fn uid(name: &str) -> ServerUid {
    ServerUid(name.to_owned())
}

pub(crate) fn key(transport: Transport, generation: u32) -> ListenerKey {
    ListenerKey { transport, ipv6: false, generation }
}

pub(crate) fn view(name: &str) -> View {
    View { name: name.to_owned(), ..View::default() }
}

/// A listener on a free port, and its address.
pub(crate) fn listener(transport: Transport, generation: u32) -> ((ListenerKey, OwnedFd), SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    ((key(transport, generation), listener.into()), address)
}

/// Whether somebody holds the listener.
pub(crate) async fn is_listening(address: SocketAddr) -> bool {
    within("a connection", TcpStream::connect(address)).await.is_ok()
}

pub(crate) async fn until_closed(address: SocketAddr) {
    within("a listener to be closed", async {
        while is_listening(address).await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A front that runs.
pub(crate) struct Front {
    pub(crate) handle: FrontHandle,
    pub(crate) events: mpsc::Receiver<FrontEvent>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), FrontError>>,
}

/// A folder for the socket, and who may come in.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) sdk_uid: Option<u32>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), sdk_uid: None }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("link/sdk.sock")
    }

    pub(crate) fn settings(&self) -> FrontSettings {
        FrontSettings {
            socket: self.socket(),
            sdk_uid: self.sdk_uid,
            node: "node-a".to_owned(),
            version: "1.2.3".to_owned(),
        }
    }

    pub(crate) fn start(&self) -> Front {
        let mut metrics = Metrics::new("test", "0");
        let (handle, events, task) = front::new(self.settings(), FrontMetrics::register(&mut metrics));
        let stop = CancellationToken::new();
        let running = task.run(stop.clone());
        #[allow(clippy::disallowed_methods, reason = "the test is its own supervisor")]
        let task = tokio::spawn(running);
        Front { handle, events, metrics, stop, task }
    }

    pub(crate) async fn listening(&self) -> Front {
        let front = self.start();
        front.handle.set_listening(true).await;
        // Answered after the command before it was obeyed.
        within("the front", front.handle.held(uid("nobody"))).await;
        front
    }

    pub(crate) async fn connect(&self) -> Sdk {
        let stream = within("a connection", UnixStream::connect(self.socket())).await.expect("it listens");
        Sdk { stream, inbox: Vec::new(), sockets: VecDeque::new() }
    }
}

impl Front {
    pub(crate) async fn event(&mut self) -> FrontEvent {
        within("an event", self.events.recv()).await.expect("the front runs")
    }

    pub(crate) async fn connected(&mut self) {
        let event = self.event().await;
        assert!(matches!(event, FrontEvent::Connected { .. }), "{event:?}");
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        within("the end", self.task).await.expect("no panic").expect("no error");
    }

    /// Waits until the metrics contain a line.
    pub(crate) async fn counts(&self, line: &str) {
        within(line, async {
            while !self.metrics.encode().expect("encodes").contains(line) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// The other end.
pub(crate) struct Sdk {
    pub(crate) stream: UnixStream,
    pub(crate) inbox: Vec<u8>,
    pub(crate) sockets: VecDeque<OwnedFd>,
}

impl Sdk {
    pub(crate) async fn hello(&mut self) {
        self.say(&ToAgent::Hello {
            versions: VERSIONS,
            sdk: "0.9.0".to_owned(),
            process_id: "process-1".to_owned(),
        })
        .await;
        let hello = self.hear().await;
        let expected =
            ToSdk::Hello { versions: VERSIONS, agent: "1.2.3".to_owned(), node: "node-a".to_owned() };
        assert_eq!(hello, expected);
    }

    /// Says hello and hands back what it holds.
    pub(crate) async fn join(&mut self, held: &[(&str, Vec<(ListenerKey, &OwnedFd)>)]) {
        self.hello().await;
        for (name, listeners) in held {
            let keys = listeners.iter().map(|(key, _)| *key).collect();
            let sockets: Vec<&OwnedFd> = listeners.iter().map(|(_, socket)| *socket).collect();
            self.say_with(&ToAgent::HandBack { uid: uid(name), keys }, &sockets).await;
        }
        self.say(&ToAgent::HandBackEnds).await;
    }

    pub(crate) async fn say(&mut self, frame: &ToAgent) {
        self.say_with(frame, &[]).await;
    }

    pub(crate) async fn say_with(&mut self, frame: &ToAgent, sockets: &[&OwnedFd]) {
        self.send(&encode(frame).expect("encodes"), sockets).await;
    }

    pub(crate) async fn send(&mut self, bytes: &[u8], sockets: &[&OwnedFd]) {
        let mut sent = 0;
        while sent < bytes.len() {
            let stream = &self.stream;
            sent += within(
                "room",
                stream.async_io(Interest::WRITABLE, || {
                    let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
                    let mut control = SendAncillaryBuffer::new(&mut space);
                    if sent == 0 && !fds.is_empty() {
                        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
                    }
                    Ok(sendmsg(stream, &[IoSlice::new(&bytes[sent..])], &mut control, SendFlags::NOSIGNAL)?)
                }),
            )
            .await
            .expect("it is connected");
        }
    }

    /// The next frame; none when the agent closed the connection.
    pub(crate) async fn try_hear(&mut self) -> Option<ToSdk> {
        loop {
            if let Some(frame) = decode(&mut self.inbox).expect("a frame") {
                return Some(frame);
            }
            let Self { stream, inbox, sockets } = self;
            let received = within(
                "a frame",
                stream.async_io(Interest::READABLE, || {
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
                    let mut control = RecvAncillaryBuffer::new(&mut space);
                    let mut piece = [0; 4096];
                    let mut bytes = [IoSliceMut::new(&mut piece)];
                    let received = recvmsg(&*stream, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(arrived) = message {
                            sockets.extend(arrived);
                        }
                    }
                    inbox.extend_from_slice(&piece[..received.bytes]);
                    Ok(received.bytes)
                }),
            )
            .await;
            match received {
                Ok(0) => return None,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Ok(_) => {}
                Err(error) => panic!("reading the link: {error}"),
            }
        }
    }

    pub(crate) async fn hear(&mut self) -> ToSdk {
        self.try_hear().await.expect("the agent goes on")
    }

    /// The sockets of a Listeners frame.
    pub(crate) async fn listeners(&mut self, name: &str) -> Vec<(ListenerKey, OwnedFd)> {
        match self.hear().await {
            ToSdk::Listeners { uid: server, keys } if server == uid(name) => {
                assert!(self.sockets.len() >= keys.len(), "{keys:?}");
                keys.into_iter().zip(std::mem::take(&mut self.sockets)).collect()
            }
            other => panic!("listeners of {name} were expected, not {other:?}"),
        }
    }

    pub(crate) async fn until_sent_away(mut self) {
        while let Some(frame) = self.try_hear().await {
            assert!(matches!(frame, ToSdk::Hello { .. }), "{frame:?}");
        }
    }
}
