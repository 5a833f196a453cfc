//! Whatever happens to whoever started it, a cluster can be taken away whole.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and its helpers are no tests to clippy"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_dev::{
    Cluster, ClusterOptions, ControlPlane, ControlPlaneOptions, Instance, RunningInstance, eventually,
    instances, instances_folder,
};

const LIMIT: Duration = Duration::from_secs(120);
/// Folders of the machine that nodes have their own of, and settings that kubelet would change.
const MACHINE_PATHS: [&str; 9] = [
    "/run/berth",
    "/run/netns",
    "/run/containerd",
    "/var/lib/berth",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/pods",
    "/var/log/containers",
    "/etc/cni",
];
const MACHINE_SETTINGS: [&str; 3] =
    ["/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic", "/proc/sys/net/ipv4/ip_forward"];

/// What of the machine a cluster must not change.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    rules: Vec<String>,
    paths: Vec<&'static str>,
    settings: Vec<String>,
}

impl Machine {
    fn look() -> Self {
        let rules = Command::new("iptables-save").output().unwrap().stdout;
        let rules = String::from_utf8(rules).unwrap();
        Self {
            rules: rules.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect(),
            paths: MACHINE_PATHS.into_iter().filter(|path| Path::new(path).exists()).collect(),
            settings: MACHINE_SETTINGS.iter().map(|path| fs::read_to_string(path).unwrap()).collect(),
        }
    }
}

/// Everything on this machine that bears an instance's name or number.
fn traces(folder: &Path, number: u8) -> Vec<String> {
    let text = folder.to_string_lossy().into_owned();
    let mut found = Vec::new();
    if folder.exists() {
        found.push(text.clone());
    }
    for process in procfs::process::all_processes().unwrap().filter_map(Result::ok) {
        let line = process.cmdline().unwrap_or_default().join(" ");
        let is_marked = process.environ().unwrap_or_default().values().any(|value| *value == *text);
        let is_dead = process.stat().is_ok_and(|stat| stat.state == 'Z');
        if (line.contains(&format!("{text}/")) || is_marked) && !is_dead {
            found.push(format!("process {}: {line}", process.pid));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(&text)).map(str::to_owned));
    let (device, group) = (format!("bd{number}"), format!("berth-{number}-"));
    for name in names_in("/sys/class/net") {
        if name == device || name.starts_with(&format!("{device}n")) {
            found.push(format!("device {name}"));
        }
    }
    for hierarchy in names_in("/sys/fs/cgroup") {
        let folder = Path::new("/sys/fs/cgroup").join(&hierarchy);
        let groups = std::iter::once(hierarchy).chain(names_in(folder));
        found.extend(
            groups.filter(|name| name.starts_with(&group)).map(|name| format!("control group {name}")),
        );
    }
    found
}

fn names_in(folder: impl AsRef<Path>) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn a_dropped_cluster_leaves_the_machine_as_it_was() {
    let before = Machine::look();
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let (folder, number) = (cluster.instance().folder().to_owned(), cluster.instance().number());
    assert_eq!(Machine::look(), before);
    assert!(traces(&folder, number).len() > 10);
    drop(cluster);
    assert_eq!(traces(&folder, number), Vec::<String>::new());
    assert_eq!(Machine::look(), before);
}

/// Starts a cluster by command and kills the command once so many things are made.
async fn cut_off_after(things: usize) -> RunningInstance {
    let name = format!("cut-{}-{things}", std::process::id());
    let made = instances_folder().join(&name).join("made.jsonl");
    let mut up = Command::new(env!("CARGO_BIN_EXE_berth-dev"))
        .args(["up", "--nodes", "2", "--name", &name])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually(LIMIT, format!("{things} things made"), async || {
        let made = fs::read_to_string(&made).unwrap_or_default();
        let count = made.lines().filter(|line| !line.is_empty()).count();
        if count >= things { Ok(()) } else { Err(format!("{count} made")) }
    })
    .await
    .unwrap();
    up.kill().unwrap();
    up.wait().unwrap();
    instances().into_iter().find(|instance| instance.name == name).unwrap()
}

/// Each number of things made is another instant at which the command dies.
#[tokio::test]
async fn a_command_that_is_killed_at_any_instant_can_be_taken_down() {
    let before = Machine::look();
    for things in [1, 3, 5, 7, 9, 11, 13] {
        let cut = cut_off_after(things).await;
        assert!(berth_dev::down(&cut.name).await.unwrap());
        assert_eq!(traces(&cut.folder, cut.number), Vec::<String>::new(), "after {things} things");
    }
    assert_eq!(Machine::look(), before);
}

#[tokio::test]
async fn a_command_that_was_killed_is_continued_by_the_next() {
    for things in [2, 6, 10] {
        let cut = cut_off_after(things).await;
        let instance = Instance::open(&cut.name).unwrap();
        let cluster = Cluster::start_in(&instance, ClusterOptions::default()).await.unwrap();
        assert_eq!(cluster.nodes().len(), 2, "after {things} things");
        drop((cluster, instance));
        assert!(berth_dev::down(&cut.name).await.unwrap());
        assert_eq!(traces(&cut.folder, cut.number), Vec::<String>::new(), "after {things} things");
    }
}

#[test]
fn one_command_at_a_time_works_on_an_instance() {
    let name = format!("busy-{}", std::process::id());
    let held = Instance::open(&name).unwrap();
    let refusal = Instance::open(&name).unwrap_err().to_string();
    assert!(refusal.contains("another command"), "{refusal}");
    drop(held);
    let output =
        Command::new(env!("CARGO_BIN_EXE_berth-dev")).args(["down", "--name", &name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// An instance that commands work on; taken down even when the test fails.
struct Named(String);

impl Named {
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth-dev"));
        let output = command.args(arguments).args(["--name", &self.0]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Command::new(env!("CARGO_BIN_EXE_berth-dev")).args(["down", "--name", &self.0]).status();
    }
}

#[tokio::test]
async fn a_command_that_came_to_its_end_continues_and_goes_down() {
    let named = Named(format!("twice-{}", std::process::id()));
    named.run(&["up", "--nodes", "1"]);
    let instance = instances().into_iter().find(|instance| instance.name == named.0).unwrap();
    let made = || fs::read_to_string(instance.folder.join("made.jsonl")).unwrap().matches("process").count();
    let processes = made();
    named.run(&["up", "--nodes", "1"]);
    assert_eq!(made(), processes);
    assert!(named.run(&["status"]).contains(&named.0));
    named.run(&["down"]);
    assert_eq!(traces(&instance.folder, instance.number), Vec::<String>::new());
    assert!(named.run(&["down"]).contains("was not up"));
}

#[tokio::test]
async fn what_a_killed_owner_left_ends_with_it_and_is_swept() {
    if std::env::var_os(OWNER).is_some() {
        return own_until_killed().await;
    }
    let mut owner = Owner::start();
    let folder = owner.folder();
    let number = instances().into_iter().find(|instance| instance.folder == folder).unwrap().number;
    owner.0.kill().unwrap();
    owner.0.wait().unwrap();
    eventually(LIMIT, "its processes to end", async || {
        let left: Vec<String> =
            traces(&folder, number).into_iter().filter(|trace| trace.starts_with("process")).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
    })
    .await
    .unwrap();
    berth_dev::sweep().await.unwrap();
    assert_eq!(traces(&folder, number), Vec::<String>::new());
}

/// Set where this program is the owner that a test has started, and is to be killed.
const OWNER: &str = "BERTH_TEST_OWNER";

/// A process that owns an instance: this very program, told to run the test that begins with being one.
struct Owner(Child);

impl Owner {
    fn start() -> Self {
        let arguments = ["--exact", "what_a_killed_owner_left_ends_with_it_and_is_swept", "--nocapture"];
        let mut program = Command::new(std::env::current_exe().unwrap());
        Self(program.args(arguments).env(OWNER, "1").stdout(Stdio::piped()).spawn().unwrap())
    }

    fn folder(&mut self) -> PathBuf {
        let output = BufReader::new(self.0.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        let folder =
            lines.find_map(|line| line.split_once("folder: ").map(|(_, folder)| PathBuf::from(folder)));
        folder.unwrap()
    }
}

async fn own_until_killed() {
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    println!("folder: {}", control_plane.instance().folder().display());
    std::future::pending::<()>().await;
}
