//! Sandboxes as a kernel has them: real cgroups, real network namespaces, one child process in the part of a runtime.
//!
//! Needs root, `unshare` and `nsenter`, and `ip`; without the capabilities it says so and passes.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use berth_agent::host::{
    Exit, Host, HostError, HostMetrics, LinuxHost, LinuxSettings, NetnsId, SandboxRequest, SdkSockets,
};
use berth_api::link::Transport;
use berth_runtime::CancellationToken;
use berth_runtime::metrics::Metrics;
use futures::FutureExt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const LIMIT: Duration = Duration::from_secs(30);
const CONTAINER: &str = "d3b07384d113edec49eaa6238ad5ff00c157afec5f0a54fba5ff1d3fba3a3c17";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 5);

/// How kubelet and runtime name things.
#[derive(Clone, Copy, Debug)]
enum Driver {
    Cgroupfs,
    Systemd,
}

/// A cgroup root of the test's own, removed with everything below it.
struct Node {
    mount: PathBuf,
    /// The hierarchy that the agent will choose in `mount`.
    hierarchy: PathBuf,
    root: String,
    driver: Driver,
}

impl Node {
    fn new(mount: &str, driver: Driver) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mount = PathBuf::from(mount);
        let hierarchy =
            if mount.join("cgroup.controllers").exists() { mount.clone() } else { mount.join("pids") };
        if !hierarchy.join("cgroup.procs").exists() {
            eprintln!("skipped: no cgroups in {}", mount.display());
            return None;
        }
        let root =
            format!("/berth_host_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let node = Self { mount, hierarchy, root, driver };
        fs::create_dir_all(node.root_folder()).expect("a cgroup");
        Some(node)
    }

    /// The layouts of this machine.
    fn all() -> Vec<Self> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let drivers = [Driver::Cgroupfs, Driver::Systemd];
        mounts
            .iter()
            .flat_map(|mount| drivers.iter().filter_map(|driver| Self::new(mount, *driver)))
            .collect()
    }

    fn root_folder(&self) -> PathBuf {
        let name = self.root.trim_matches('/');
        match self.driver {
            Driver::Cgroupfs => self.hierarchy.join(name),
            Driver::Systemd => self.hierarchy.join(format!("{name}.slice")),
        }
    }

    fn pod_folder(&self, uid: &str) -> PathBuf {
        let name = self.root.trim_matches('/');
        match self.driver {
            Driver::Cgroupfs => self.root_folder().join("kubepods/besteffort").join(format!("pod{uid}")),
            Driver::Systemd => self.root_folder().join(format!(
                "{name}-kubepods.slice/{name}-kubepods-besteffort.slice/{name}-kubepods-besteffort-pod{}.slice",
                uid.replace('-', "_")
            )),
        }
    }

    fn container_folder(&self, uid: &str) -> PathBuf {
        self.pod_folder(uid).join(match self.driver {
            Driver::Cgroupfs => CONTAINER.to_owned(),
            Driver::Systemd => format!("cri-containerd-{CONTAINER}.scope"),
        })
    }

    fn host(&self) -> Option<Arc<LinuxHost>> {
        let settings = LinuxSettings {
            cgroup_mount: self.mount.clone(),
            cgroup_root: self.root.clone(),
            boot_id: Some("this-boot".to_owned()),
        };
        match LinuxHost::start(&settings, HostMetrics::register(&mut Metrics::new("test", "0"))) {
            Ok(host) => Some(Arc::new(host)),
            Err(error @ HostError::Capability { .. }) => {
                eprintln!("skipped: {error}");
                None
            }
            Err(error) => panic!("the host starts: {error:?}"),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        remove(&self.root_folder());
    }
}

/// Removes a tree of cgroups, deepest first, once the processes of a test that failed have ended.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let since = Instant::now();
    while let Err(error) = fs::remove_dir(folder) {
        if error.kind() != io::ErrorKind::ResourceBusy || since.elapsed() > LIMIT {
            return eprintln!("could not remove {}: {error}", folder.display());
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A process that enters a cgroup first and a prepared network namespace when told, as runc does.
struct Process {
    /// Keeps the namespace, outside the cgroup, as the network plugin does.
    namespace: Held,
    process: Held,
}

/// A process that speaks and waits.
struct Held {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Held {
    fn start(script: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout }
    }

    fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    async fn says(&mut self, word: &str) {
        let mut line = String::new();
        within(word, self.stdout.read_line(&mut line)).await.expect("it speaks");
        assert_eq!(line.trim(), word);
    }
}

impl Process {
    /// Enters the cgroup, and stays in the host's network namespace.
    async fn start(container: &Path) -> Self {
        let prepare =
            format!("ip addr add {ADDRESS}/32 dev lo && ip link set lo up && echo prepared && read _");
        let mut namespace = Held::start(&format!("exec unshare -n sh -c '{prepare}'"));
        namespace.says("prepared").await;
        let enter = format!("exec nsenter -t {} -n sh -c 'echo inside && read _'", namespace.pid());
        let process = Held::start(&format!("read _; {enter}"));
        fs::create_dir_all(container).expect("a cgroup");
        fs::write(container.join("cgroup.procs"), process.pid().to_string()).expect("it enters the cgroup");
        Self { namespace, process }
    }

    /// Enters the network namespace.
    async fn go_inside(&mut self) {
        self.process.stdin.write_all(b"\n").await.expect("it listens");
        self.process.says("inside").await;
    }

    fn namespace(&self) -> NetnsId {
        let file = fs::metadata(format!("/proc/{}/ns/net", self.process.pid())).expect("it runs");
        NetnsId { device: file.dev(), inode: file.ino() }
    }

    /// Connects from inside; false when refused.
    async fn reaches(&self, address: &str, port: u16) -> bool {
        let status = Command::new("nsenter")
            .args(["-t", &self.process.pid().to_string(), "-n", "bash", "-c"])
            .arg(format!("exec 3<>/dev/tcp/{address}/{port}"))
            .stderr(Stdio::null())
            .status();
        within("a connection from inside", status).await.expect("nsenter runs").success()
    }

    async fn end(mut self) {
        self.process.child.kill().await.expect("it ends");
        self.namespace.child.kill().await.expect("it ends");
    }
}

async fn within<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("waited {LIMIT:?} for {what}"))
}

fn request(uid: &str) -> SandboxRequest {
    SandboxRequest {
        pod_uid: uid.to_owned(),
        grpc_port: 9357,
        http_port: 9358,
        generation: 1,
        other_than: None,
        on_host: false,
    }
}

fn uid(number: u32) -> String {
    format!("6c4ef7f5-9c1b-4f5e-8a7a-{number:012x}")
}

async fn open(host: &LinuxHost, request: SandboxRequest) -> Result<SdkSockets, HostError> {
    within("the sandbox", host.open_sdk(request, &CancellationToken::new())).await
}

#[tokio::test]
async fn a_sandbox_is_listened_in_as_soon_as_its_process_is_inside_and_never_before() {
    for node in Node::all() {
        let layout = format!("{:?} in {}", node.driver, node.mount.display());
        let Some(host) = node.host() else { return };
        let uid = uid(1);
        let cancel = CancellationToken::new();
        // Asked for before kubelet has made anything.
        let mut opening = host.open_sdk(request(&uid), &cancel);
        assert!((&mut opening).now_or_never().is_none(), "{layout}");
        assert_eq!(host.current_sandbox(&uid).expect("asked"), None, "{layout}");

        let mut process = Process::start(&node.container_folder(&uid)).await;
        assert_eq!(
            host.current_sandbox(&uid).expect("asked"),
            None,
            "{layout}: it is in the host's namespace"
        );
        assert!((&mut opening).now_or_never().is_none(), "{layout}");

        process.go_inside().await;
        let sockets =
            within("the sandbox", opening).await.unwrap_or_else(|error| panic!("{layout}: {error:?}"));
        assert_eq!(sockets.sandbox, process.namespace(), "{layout}");
        assert_eq!(host.current_sandbox(&uid).expect("asked"), Some(process.namespace()), "{layout}");
        assert_eq!(sockets.addresses, [IpAddr::from(ADDRESS)], "{layout}");
        assert!(process.reaches("127.0.0.1", 9357).await, "{layout}");
        assert!(process.reaches("127.0.0.1", 9358).await, "{layout}");
        assert!(!process.reaches("127.0.0.1", 9359).await, "{layout}");
        let has_ipv6 = sockets.listeners.iter().any(|(key, _)| key.ipv6);
        assert_eq!(process.reaches("::1", 9357).await, has_ipv6, "{layout}");
        assert_eq!(process.reaches("::1", 9358).await, has_ipv6, "{layout}");
        assert!(
            !process.reaches(&ADDRESS.to_string(), 9357).await,
            "{layout}: loopback alone is listened on"
        );
        // What came in on the listeners came from inside: nothing of the host's reaches them.
        for (key, socket) in sockets.listeners {
            let listener = TcpListener::from(socket);
            let (_, peer) = listener.accept().unwrap_or_else(|error| panic!("{layout}: {key:?}: {error}"));
            assert!(peer.ip().is_loopback());
            let port = listener.local_addr().expect("bound").port();
            let from_host = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port));
            drop(from_host);
            let again = listener.accept().map(|_| ()).map_err(|error| error.kind());
            assert_eq!(again, Err(io::ErrorKind::WouldBlock), "{layout}: {key:?}");
            assert_eq!(port, if key.transport == Transport::Grpc { 9357 } else { 9358 });
        }
        process.end().await;
        assert_eq!(host.current_sandbox(&uid).expect("asked"), None, "{layout}");
    }
}

#[tokio::test]
async fn an_existing_sandbox_is_found_at_once_and_its_listeners_are_respected() {
    let Some(node) = Node::new("/sys/fs/cgroup", Driver::Cgroupfs) else { return };
    let uid = uid(2);
    let mut process = Process::start(&node.container_folder(&uid)).await;
    process.go_inside().await;
    let Some(host) = node.host() else { return };
    let first = open(&host, request(&uid)).await.expect("the first listens");
    let second = open(&host, request(&uid)).await;
    assert!(matches!(second, Err(HostError::AddressInUse { .. })), "{second:?}");
    drop(first);
    let again = async {
        loop {
            match open(&host, request(&uid)).await {
                // A process that another test is just starting holds a copy until it runs.
                Err(HostError::AddressInUse { .. }) => tokio::task::yield_now().await,
                other => break other,
            }
        }
    };
    within("what is let go of", again).await.expect("it can be had again");
    process.end().await;
}

#[tokio::test]
async fn a_sandbox_that_is_made_again_is_another_one() {
    let Some(node) = Node::new("/sys/fs/cgroup", Driver::Cgroupfs) else { return };
    let Some(host) = node.host() else { return };
    let uid = uid(3);
    let mut old = Process::start(&node.container_folder(&uid)).await;
    old.go_inside().await;
    let first = open(&host, request(&uid)).await.expect("the first listens");
    let cancel = CancellationToken::new();
    let again = SandboxRequest { generation: 2, other_than: Some(first.sandbox), ..request(&uid) };
    let mut opening = host.open_sdk(again, &cancel);
    assert!((&mut opening).now_or_never().is_none(), "the old one is not wanted");
    // A namespace that the game makes for itself is not the pod's.
    let mut own = Process::start(&node.pod_folder(&uid).join("game")).await;
    own.go_inside().await;
    let early = tokio::time::timeout(Duration::from_millis(100), &mut opening).await;
    assert!(early.is_err(), "{early:?}");
    own.end().await;
    // The old one's namespace lives on through its listeners, so the new one is told from it.
    old.end().await;
    let mut new = Process::start(&node.pod_folder(&uid).join("another")).await;
    new.go_inside().await;
    let second = within("the new sandbox", opening).await.expect("the second listens");
    assert_eq!(second.sandbox, new.namespace());
    assert_ne!(second.sandbox, first.sandbox);
    assert!(second.listeners.iter().all(|(key, _)| key.generation == 2));
    new.end().await;
}

#[tokio::test]
async fn the_oldest_namespace_of_a_pod_is_its_sandbox() {
    let Some(node) = Node::new("/sys/fs/cgroup", Driver::Cgroupfs) else { return };
    let Some(host) = node.host() else { return };
    let uid = uid(4);
    let mut sandbox = Process::start(&node.container_folder(&uid)).await;
    sandbox.go_inside().await;
    let mut game = Process::start(&node.pod_folder(&uid).join("game")).await;
    game.go_inside().await;
    assert_eq!(host.current_sandbox(&uid).expect("asked"), Some(sandbox.namespace()));
    game.end().await;
    sandbox.end().await;
}

#[tokio::test]
async fn waiting_ends_when_told_and_with_the_host() {
    let Some(node) = Node::new("/sys/fs/cgroup", Driver::Cgroupfs) else { return };
    let Some(host) = node.host() else { return };
    let cancel = CancellationToken::new();
    cancel.cancel();
    let cancelled = host.open_sdk(request(&uid(5)), &cancel).await;
    assert!(matches!(cancelled, Err(HostError::Cancelled)), "{cancelled:?}");
    let nonsense = open(&host, request("../../etc")).await;
    assert!(matches!(nonsense, Err(HostError::PodUid(_))), "{nonsense:?}");
    assert_eq!(host.boot_id().expect("set"), "this-boot");
}

#[tokio::test]
async fn many_pods_at_once_are_all_listened_in() {
    const PODS: u32 = 60;
    let Some(node) = Node::new("/sys/fs/cgroup", Driver::Cgroupfs) else { return };
    let Some(host) = node.host() else { return };
    let cancel = CancellationToken::new();
    let opening: Vec<_> = (0..PODS).map(|number| host.open_sdk(request(&uid(number)), &cancel)).collect();
    let all = futures::future::join_all(opening);
    let start = async {
        let mut processes = Vec::new();
        for number in 0..PODS {
            let mut process = Process::start(&node.container_folder(&uid(number))).await;
            process.process.stdin.write_all(b"\n").await.expect("it listens");
            processes.push(process);
        }
        processes
    };
    let (opened, processes) = within("all sandboxes", futures::future::join(all, start)).await;
    for (opened, process) in opened.iter().zip(&processes) {
        assert_eq!(opened.as_ref().expect("it listens").sandbox, process.namespace());
    }
    for process in processes {
        process.end().await;
    }
}

#[tokio::test]
async fn the_end_of_a_containers_process_is_heard_at_once() {
    let Some(node) = Node::new("/sys/fs/cgroup", Driver::Cgroupfs) else { return };
    let Some(host) = node.host() else { return };
    let uid = uid(6);
    assert!(host.find_container(&uid, CONTAINER).await.expect("asked").is_none(), "there is no pod");
    let mut process = Process::start(&node.container_folder(&uid)).await;
    process.go_inside().await;
    let other = CONTAINER.replace('d', "e");
    assert!(host.find_container(&uid, &other).await.expect("asked").is_none(), "it is another container's");
    let found = host.find_container(&uid, CONTAINER).await.expect("asked").expect("found");
    assert_eq!(found.network, process.namespace());
    let mut exit = found.exit;
    assert!((&mut exit).now_or_never().is_none(), "it runs");
    process.end().await;
    // Its parent, this test, may have collected it before it could be asked how it ended.
    let exit = within("the end", exit).await;
    assert!(matches!(exit, Exit::Signal(9) | Exit::Somehow), "{exit:?}");
}
