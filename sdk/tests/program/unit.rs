//! Under a service manager: what it is told, and the listeners that it keeps from one process to the next.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::agent::{Agent, PROGRAM, Program, uid, within};
use crate::rest::ask;

/// Plays systemd, as far as a unit hears of it.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
    /// What was heard so far, but for proofs of life.
    heard: Vec<String>,
    proofs: usize,
    kept: BTreeMap<String, OwnedFd>,
}

impl Manager {
    fn listen() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        Self { folder, socket, heard: Vec::new(), proofs: 0, kept: BTreeMap::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// Listens until something is so.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            let (text, descriptors) = within(what, self.hear()).await;
            self.note(&text, descriptors);
        }
    }

    async fn hear(&self) -> (String, Vec<OwnedFd>) {
        let heard = self.socket.async_io(Interest::READABLE, || {
            let mut bytes = [0; 512];
            let mut space = [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(8))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
            let descriptors = control.drain().flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
                _ => Vec::new(),
            });
            Ok((String::from_utf8_lossy(&bytes[..received.bytes]).into_owned(), descriptors.collect()))
        });
        heard.await.expect("the socket is there")
    }

    fn note(&mut self, text: &str, descriptors: Vec<OwnedFd>) {
        let lines: Vec<&str> = text.lines().collect();
        match lines.as_slice() {
            ["WATCHDOG=1"] => self.proofs += 1,
            ["FDSTORE=1", name] => {
                let name = name.strip_prefix("FDNAME=").expect("a name").to_owned();
                let [descriptor] = descriptors.try_into().expect("one descriptor");
                self.kept.insert(name, descriptor);
            }
            ["FDSTOREREMOVE=1", name] => {
                drop(self.kept.remove(name.strip_prefix("FDNAME=").expect("a name")));
            }
            _ => self.heard.push(text.trim().to_owned()),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.kept.keys().map(String::as_str).collect()
    }

    /// Starts the program as its unit does, with what is kept for it as its first descriptors.
    fn start(&mut self, link: &Path) -> Program {
        let kept = std::mem::take(&mut self.kept);
        let mut command = match kept.len() {
            0 => Command::new(PROGRAM),
            2 => {
                // Which numbers descriptors have in another program is for a shell to say.
                let mut shell = Command::new("/bin/sh");
                let script =
                    "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$; export LISTEN_PID; exec \"$@\"";
                shell.args(["-c", script, "sh", PROGRAM]);
                shell.env("LISTEN_FDS", "2");
                shell.env("LISTEN_FDNAMES", kept.keys().cloned().collect::<Vec<_>>().join(":"));
                let mut descriptors = kept.into_values().map(Stdio::from);
                shell.stdin(descriptors.next().expect("two")).stdout(descriptors.next().expect("two"));
                shell
            }
            others => panic!("{others} descriptors are kept"),
        };
        let state = self.folder.path().join("state");
        command.arg("--link-socket").arg(link).arg("--state-dir").arg(state);
        command.env("NOTIFY_SOCKET", self.path()).env("WATCHDOG_USEC", "300000");
        Program::spawn(command)
    }
}

#[tokio::test]
async fn a_service_manager_hears_of_it_and_keeps_its_listeners_for_the_next_process() {
    let mut manager = Manager::listen();
    let agent = Agent::listen();
    let mut first = manager.start(&agent.socket());
    manager.until("ready", |manager| manager.heard == ["READY=1"]).await;
    manager.until("three proofs of life", |manager| manager.proofs >= 3).await;

    let (mut link, _) = agent.meet().await;
    let game = link.offer("a").await;
    manager.until("two listeners to keep", |manager| manager.kept.len() == 2).await;
    assert_eq!(manager.names(), ["a/grpc/4/1", "a/rest/4/1"]);
    first.signal(Signal::TERM);
    manager.until("the end", |manager| manager.heard == ["READY=1", "STOPPING=1"]).await;
    assert!(first.ended().await.success());
    assert_eq!(manager.names(), ["a/grpc/4/1", "a/rest/4/1"], "nothing is let go at the end");

    // Nobody else has the listeners, and no agent is there.
    let addresses = (game.grpc, game.rest);
    let socket = agent.socket();
    drop((game, link));
    let mut second = manager.start(&socket);
    manager.until("both once more", |manager| manager.kept.len() == 2).await;
    assert_eq!(manager.names(), ["a/grpc/4/1", "a/rest/4/1"]);
    let answer = ask(addresses.1, "POST", "/health", "Content-Type: application/json\r\n", Some("{}")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);

    let (mut link, handed_back) = agent.meet().await;
    assert_eq!(handed_back[&uid("a")].len(), 2);
    drop(handed_back);
    // An agent that knows no such server.
    link.forget("a").await;
    manager.until("nothing is kept", |manager| manager.kept.is_empty()).await;
    within("both are closed", async {
        for address in [addresses.0, addresses.1] {
            while tokio::net::TcpStream::connect(address).await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    second.signal(Signal::TERM);
    assert!(second.ended().await.success());
}
