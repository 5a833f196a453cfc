//! The program outside of pods: what a service manager hears of it, and the token that says whose agent it is: issued as
//! documented, renewed by the agent itself for its own node alone, and taken up without a pause.

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use berth_api::game_node::{GameNode, NodePhase};
use berth_dev::{Binaries, ControlPlane, ControlPlaneOptions, eventually, install, source_folder};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_berth-agent");
const LIMIT: Duration = Duration::from_secs(60);
/// A client reads the file of its token again once a minute.
const TAKEN_UP: Duration = Duration::from_secs(180);

/// A control plane with one Node, and the folders of that node.
struct World {
    cluster: ControlPlane,
    folder: TempDir,
    /// What the service manager hears.
    heard: Receiver<String>,
}

impl World {
    async fn make() -> Self {
        let options = ControlPlaneOptions { audit: true, ..ControlPlaneOptions::default() };
        let cluster = ControlPlane::start(options).await.expect("an API server");
        let manifests = source_folder().join("manifests");
        let crds = ["crds/gameservers.yaml", "crds/gamenodes.yaml"].map(|file| manifests.join(file));
        let rights = ["namespace.yaml", "rbac.yaml", "systemd/tokens.yaml"].map(|file| manifests.join(file));
        let policies = std::fs::read_dir(manifests.join("policies")).expect("the folder of the policies");
        let policies = policies.map(|file| file.expect("a file").path());
        let policies = policies.filter(|path| path.to_string_lossy().contains("agents-"));
        for file in rights.into_iter().chain(crds).chain(policies) {
            install::apply(&cluster.client(), &file).await.expect("a manifest");
        }
        let node = serde_json::from_value(json!({ "metadata": { "name": "node-a" } })).expect("a Node");
        Api::<Node>::all(cluster.client()).create(&PostParams::default(), &node).await.expect("a Node");
        let folder = tempfile::tempdir().expect("a folder");
        let heard = listen(&folder.path().join("notify"));
        Self { cluster, folder, heard }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn token(&self) -> String {
        std::fs::read_to_string(self.path("token")).expect("a token")
    }

    /// As docs/systemd.md says.
    fn issue(&self) {
        let kubectl = Binaries::ensure(&mut |line| println!("{line}")).expect("kubectl");
        let output = Command::new(kubectl.kubectl())
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig_path())
            .args(["create", "token", "berth-agent", "--namespace", "berth-system", "--duration", "24h"])
            .args(["--bound-object-kind", "Node", "--bound-object-name", "node-a"])
            // Needed before kubectl 1.33.
            .env("KUBECTL_NODE_BOUND_TOKENS", "true")
            .output()
            .expect("kubectl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(self.path("token"), String::from_utf8_lossy(&output.stdout).trim()).expect("a file");

        let text = std::fs::read_to_string(self.cluster.kubeconfig_path()).expect("a kubeconfig");
        let mut kubeconfig: Value = serde_json::from_str(&text).expect("JSON, as it is made here");
        kubeconfig["users"][0]["user"] = json!({ "tokenFile": self.path("token") });
        std::fs::write(self.path("kubeconfig"), kubeconfig.to_string()).expect("a file");
    }

    fn command(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command.env("KUBECONFIG", self.path("kubeconfig")).env("BERTH_NODE_NAME", "node-a");
        command
    }

    fn renew(&self, more: &[&str]) -> Output {
        let mut command = self.command();
        command.arg("renew-token").arg("--file").arg(self.path("token")).args(more);
        command.output().expect("the program runs")
    }

    fn start(&self) -> Running {
        let mut command = self.command();
        command
            .env("BERTH_RUN_DIR", self.path("run"))
            .env("BERTH_STATE_DIR", self.path("state"))
            .env("NOTIFY_SOCKET", self.path("notify"))
            .env("WATCHDOG_USEC", "1000000")
            .stderr(Stdio::from(std::fs::File::create(self.path("log")).expect("a log")));
        Running { child: command.spawn().expect("the program starts"), log: self.path("log") }
    }

    /// Waits until the manager hears something, and nothing else but proofs of life before.
    fn hear(&self, wanted: &str) {
        loop {
            let heard = self.heard.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{wanted}: {error}"));
            if heard == wanted {
                return;
            }
            assert_eq!(heard, "WATCHDOG=1", "while waiting for {wanted}");
        }
    }
}

/// Plays systemd, which always reads: whoever speaks to it would wait otherwise.
fn listen(path: &Path) -> Receiver<String> {
    let socket = UnixDatagram::bind(path).expect("a socket");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 256];
        while let Ok(length) = socket.recv(&mut bytes) {
            let said = String::from_utf8_lossy(&bytes[..length]).trim().to_owned();
            if sender.send(said).is_err() {
                return;
            }
        }
    });
    receiver
}

struct Running {
    child: Child,
    log: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// The tokens by which the node's lease was written, as the API server tells.
fn tokens_of_the_lease(log: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours = lines.filter(|line| {
        line["objectRef"]["resource"] == "leases"
            && line["objectRef"]["name"] == "node-a"
            && line["verb"] == "update"
    });
    let credential = "/user/extra/authentication.kubernetes.io~1credential-id/0";
    ours.filter_map(|line| line.pointer(credential).and_then(Value::as_str).map(str::to_owned)).collect()
}

#[tokio::test]
async fn an_agent_outside_of_pods_is_known_by_its_nodes_token_and_renews_it() {
    let world = World::make().await;
    world.issue();
    let mut running = world.start();
    world.hear("READY=1");
    world.hear("WATCHDOG=1");
    let nodes = Api::<GameNode>::all(world.cluster.client());
    eventually(LIMIT, "an active node", async || {
        let status = nodes.get("node-a").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        if status.phase == NodePhase::Active { Ok(()) } else { Err(format!("{:?}", status.phase)) }
    })
    .await
    .expect("its own objects are its to write");

    // For another node it gets none, and keeps what it has.
    let first = world.token();
    let foreign = world.renew(&["--node-name", "node-b"]);
    let said = String::from_utf8_lossy(&foreign.stderr).into_owned();
    assert_eq!(foreign.status.code(), Some(1), "{said}");
    assert!(said.contains("tokens.agents.berth.dev") && said.contains("the Node node-a"), "{said}");
    assert_eq!(world.token(), first);

    let renewed = world.renew(&[]);
    assert!(renewed.status.success(), "{}", String::from_utf8_lossy(&renewed.stderr));
    assert!(String::from_utf8_lossy(&renewed.stdout).contains("for node node-a until"));
    assert_ne!(world.token(), first);
    let log = world.cluster.audit_log().expect("a log");
    eventually(TAKEN_UP, "the new token in use", async || {
        let tokens = tokens_of_the_lease(log);
        if tokens.len() == 2 { Ok(()) } else { Err(format!("{tokens:?}")) }
    })
    .await
    .expect("the file is read again");
    let lease = Api::<Lease>::namespaced(world.cluster.client(), "berth-system").get("node-a").await;
    let transitions = lease.expect("a lease").spec.and_then(|spec| spec.lease_transitions);
    assert_eq!(transitions, Some(1), "the lease was never lost");

    let process = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it is there");
    world.hear("STOPPING=1");
    assert!(running.child.wait().expect("it ends").success());
}
