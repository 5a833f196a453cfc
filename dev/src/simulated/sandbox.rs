//! Sandboxes: a network namespace with one process in it that does nothing, in the control group of its pod; and
//! containers in it, each a process in a control group of its own, which ends as its game does.
//!
//! A namespace belongs to a thread, so each sandbox is made, and each connection into it opened, on a thread of its own
//! that ends right after.

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use nix::sched::{CloneFlags, setns, unshare};
use rand::Rng;
use rustix::fs::{Mode, OFlags};

use super::loopback;
use crate::cgroups;
use crate::eventually::eventually;

/// The process of a sandbox. It reacts to nothing but its end.
const PAUSE: &str = "/bin/sleep";
/// The process of a container: it ends with the code that it is told, and by itself when nobody is left to tell it.
const CONTAINER: [&str; 3] = ["/bin/sh", "-c", "read -r code; exit ${code:-137}"];
/// Stack of a thread that makes two calls.
const STACK: usize = 128 * 1024;
/// A control group is busy for a moment after its last process.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// A sandbox that could not be made, used or taken away.
#[derive(Debug, thiserror::Error)]
#[error("could not {action}")]
pub struct SandboxError {
    action: String,
    source: io::Error,
}

impl SandboxError {
    /// A file that could not be opened.
    pub(super) fn of_file(path: &Path, source: io::Error) -> Self {
        Self { action: format!("open {}", path.display()), source }
    }
}

fn failed(action: impl Into<String>) -> impl FnOnce(io::Error) -> SandboxError {
    let action = action.into();
    move |source| SandboxError { action, source }
}

/// Where kubelet keeps the control groups of pods.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    pods: PathBuf,
}

impl Groups {
    /// Below kubelet's root, in the hierarchy that every pod is in.
    pub(super) fn below(root: &Path) -> Self {
        let root = root.strip_prefix("/").unwrap_or(root);
        Self { pods: cgroups::of_processes().join(root).join("kubepods") }
    }

    fn pod(&self, class: &str, uid: &str) -> PathBuf {
        let parent =
            if class == "Guaranteed" { self.pods.clone() } else { self.pods.join(class.to_lowercase()) };
        parent.join(format!("pod{uid}"))
    }

    /// Ends what an earlier run has left.
    ///
    /// # Errors
    /// Something stays.
    pub(super) async fn clear(&self) -> Result<(), SandboxError> {
        let cleared = eventually(REMOVAL_LIMIT, "old pods to be gone", async || {
            for pid in cgroups::members_below(&self.pods) {
                if let Some(process) = crate::process::Identity::of(pid) {
                    process.signal(rustix::process::Signal::KILL);
                }
            }
            cgroups::remove_below(&self.pods).map_err(|error| error.to_string())
        });
        cleared.await.map_err(|error| failed("clear the control groups of pods")(io::Error::other(error)))?;
        for class in ["burstable", "besteffort"] {
            let folder = self.pods.join(class);
            fs::create_dir_all(&folder).map_err(failed(format!("make {}", folder.display())))?;
        }
        Ok(())
    }
}

/// A sandbox that runs.
#[derive(Debug)]
pub(super) struct Sandbox {
    folder: PathBuf,
    process: Child,
    namespace: Arc<OwnedFd>,
    pub(super) address: Ipv4Addr,
}

/// Where to make one.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) groups: &'a Groups,
    /// The pod's class of service.
    pub(super) class: &'a str,
    pub(super) uid: &'a str,
    pub(super) address: Ipv4Addr,
}

impl Sandbox {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn make(place: Place<'_>) -> Result<Self, SandboxError> {
        let folder = place.groups.pod(place.class, place.uid);
        let address = place.address;
        on_thread("make a sandbox", move || make(folder, address)).await
    }

    /// Starts a container.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn start_container(&self) -> Result<Container, SandboxError> {
        let (folder, namespace) = (self.folder.clone(), Arc::clone(&self.namespace));
        let start = move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET)?;
            let id = container_id();
            let [program, arguments @ ..] = CONTAINER;
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::piped());
            let process = spawn_in(&folder.join(&id), command)?;
            Ok(Container { id, process })
        };
        on_thread("start a container", start).await
    }

    /// A way in.
    pub(super) fn door(&self) -> Door {
        Door { namespace: Arc::clone(&self.namespace) }
    }

    /// Ends it.
    ///
    /// # Errors
    /// Its control group stays.
    pub(super) async fn end(mut self) -> Result<(), SandboxError> {
        // One that has ended by itself is as good.
        let _ = self.process.kill();
        self.process.wait().map_err(failed("wait for the process of a sandbox"))?;
        let folder = self.folder;
        let gone = eventually(REMOVAL_LIMIT, format!("{} to go", folder.display()), async || {
            cgroups::remove_below(&folder).map_err(|error| error.to_string())
        });
        gone.await.map_err(|error| failed("remove the control group of a pod")(io::Error::other(error)))
    }
}

/// A container that runs.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) id: String,
    process: Child,
}

impl Container {
    /// Ends it with this code, or by force where there is none.
    ///
    /// # Errors
    /// It does not end.
    pub(super) async fn end(mut self, code: Option<i32>) -> Result<(), SandboxError> {
        let end = move || {
            let told = self.process.stdin.take().zip(code);
            match told {
                Some((mut input, code)) => writeln!(input, "{code}")?,
                None => self.process.kill()?,
            }
            self.process.wait().map(drop)
        };
        on_thread("end a container", end).await
    }
}

/// A way into a sandbox that may have ended.
#[derive(Clone, Debug)]
pub(super) struct Door {
    namespace: Arc<OwnedFd>,
}

impl Door {
    /// Connects to a port of the sandbox's loopback.
    ///
    /// # Errors
    /// Nobody listens.
    pub(super) async fn connect(&self, port: u16) -> Result<tokio::net::TcpStream, SandboxError> {
        let namespace = Arc::clone(&self.namespace);
        let connect = move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET)?;
            let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = on_thread("connect to the SDK", connect).await?;
        tokio::net::TcpStream::from_std(stream).map_err(failed("wait for the SDK"))
    }
}

fn make(folder: PathBuf, address: Ipv4Addr) -> io::Result<Sandbox> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    loopback::set_up(address)?;
    let path = "/proc/thread-self/ns/net";
    let namespace = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut command = Command::new(PAUSE);
    command.arg("infinity").stdin(Stdio::null());
    let process = spawn_in(&folder.join(container_id()), command)?;
    Ok(Sandbox { folder, process, namespace: Arc::new(namespace), address })
}

/// Starts a process in the calling thread's namespaces and in this control group.
fn spawn_in(group: &Path, mut command: Command) -> io::Result<Child> {
    fs::create_dir_all(group)?;
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // From here on an agent may find it; it is in its namespace from its first instruction.
    if let Err(error) = fs::write(group.join("cgroup.procs"), process.id().to_string()) {
        process.kill()?;
        process.wait()?;
        return Err(error);
    }
    Ok(process)
}

/// 64 hexadecimal digits, as container runtimes name things.
fn container_id() -> String {
    let mut random = rand::rng();
    (0..4).map(|_| format!("{:016x}", random.random::<u64>())).collect()
}

async fn on_thread<T: Send + 'static>(
    action: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let (answer, answered) = oneshot::channel();
    let started = thread::Builder::new().stack_size(STACK).spawn(move || {
        // Whoever asked may have gone.
        let _ = answer.send(work());
    });
    started.map_err(failed(action))?;
    let outcome = answered.await.map_err(|_| failed(action)(io::Error::other("its thread died")))?;
    outcome.map_err(failed(action))
}
