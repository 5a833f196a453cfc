//! One node: its namespaces, its cable, and what runs pods on it: containerd, kubelet and kube-proxy, or a simulation.

mod files;
mod inside;

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{Files, at, kubelet_access, lay_out, make_folder, write};
use inside::{enter_and_run, execute, import};

use super::configuration::{self, BOOT_ID, CONTAINERD_SOCKET, TUNABLES};
use super::network::{Network, NodeIndex};
use super::{ClusterError, NODE_LIMIT, link_exists};
use crate::binaries::Binaries;
use crate::cgroups;
use crate::command;
use crate::control_plane::ControlPlane;
use crate::eventually::eventually;
use crate::images::Image;
use crate::instance::{Daemon, DaemonError, Instance, Launch};
use crate::places;

const HOLD: &str = include_str!("hold.sh");

/// What every node of a cluster is made of.
pub(super) struct Parts {
    pub(super) engine: EngineParts,
    pub(super) kubelet_flags: Vec<String>,
}

/// What runs pods, before it runs.
pub(super) enum EngineParts {
    Real { binaries: Binaries, pause: Image },
    Simulated { program: PathBuf },
}

/// What runs pods.
struct Engine {
    kubelet: Daemon,
    /// What a real kubelet has beside it.
    around: Option<Around>,
}

struct Around {
    containerd: Daemon,
    proxy: Daemon,
}

/// A node of a running cluster.
pub struct Node {
    instance: Arc<Instance>,
    network: Network,
    index: NodeIndex,
    name: String,
    folder: PathBuf,
    holder: Daemon,
    engine: Engine,
}

/// Where a node's daemons are started.
struct Site<'a> {
    control_plane: &'a ControlPlane,
    network: Network,
    index: NodeIndex,
    name: &'a str,
    folder: &'a Path,
    holder: &'a Daemon,
}

impl Node {
    /// Starts what does not run yet of this node.
    pub(super) async fn boot(
        control_plane: &ControlPlane,
        network: Network,
        index: NodeIndex,
        parts: &Parts,
    ) -> Result<Self, ClusterError> {
        let instance = Arc::clone(control_plane.instance());
        let (name, short) = (format!("node-{index}"), format!("n{index}"));
        let folder = instance.subfolder(&short)?;
        let group = network.cgroup(index);
        instance.will_make_cgroup(&group)?;
        cgroups::create(&group)?;
        lay_out(&folder)?;

        let holder = hold(&instance, &folder, &name).await?;
        plug_in(&instance, network, index, &holder)?;
        execute(&holder, "sh", &["-c", &configuration::network_script(network, index)]).await?;

        let site = Site { control_plane, network, index, name: &name, folder: &folder, holder: &holder };
        let engine = match &parts.engine {
            EngineParts::Real { binaries, pause } => {
                site.start_real(binaries, pause, &parts.kubelet_flags).await?
            }
            EngineParts::Simulated { program } => site.start_simulated(program, &parts.kubelet_flags)?,
        };
        Ok(Self { instance, network, index, name, folder, holder, engine })
    }

    pub(super) fn index(&self) -> NodeIndex {
        self.index
    }

    /// Its name in the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, where the host ports of its pods answer from the machine and from other nodes.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.network.node(self.index)
    }

    /// Its control group, below the root of every hierarchy, as a path that begins with a slash.
    #[must_use]
    pub fn cgroup(&self) -> String {
        format!("/{}", self.network.cgroup(self.index))
    }

    /// Where a file of the node's `/run`, `/var/log`, or a folder in its `/var/lib` that is its own (`berth`, `cni`,
    /// `containerd`, `kubelet`), is on the machine. Other paths mean the same file on both.
    #[must_use]
    pub fn machine_path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        for (own, kept) in [("/run", "run"), ("/var/lib", "lib"), ("/var/log", "log")] {
            if let Ok(rest) = inside.strip_prefix(own) {
                return self.folder.join(kept).join(rest);
            }
        }
        inside.to_owned()
    }

    /// Its boot id: what `/proc/sys/kernel/random/boot_id` says in there.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn boot_id(&self) -> io::Result<String> {
        fs::read_to_string(self.folder.join("tunables").join(BOOT_ID)).map(|text| text.trim().to_owned())
    }

    /// Its containerd; a simulated node has none.
    #[must_use]
    pub fn containerd(&self) -> Option<&Daemon> {
        self.engine.around.as_ref().map(|around| &around.containerd)
    }

    /// Its kubelet, real or not.
    #[must_use]
    pub fn kubelet(&self) -> &Daemon {
        &self.engine.kubelet
    }

    /// Its kube-proxy; a simulated node has none.
    #[must_use]
    pub fn proxy(&self) -> Option<&Daemon> {
        self.engine.around.as_ref().map(|around| &around.proxy)
    }

    /// Whether it has power.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.holder.is_alive()
    }

    /// Starts a program on this node. Its name gets the node's in front.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, launch: Launch) -> Result<Daemon, DaemonError> {
        Daemon::start(&self.instance, self.placed(launch))
    }

    /// The program of this name that runs on this node already; otherwise starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn ensure(&self, launch: Launch) -> Result<Daemon, DaemonError> {
        Daemon::ensure(&self.instance, self.placed(launch))
    }

    fn placed(&self, launch: Launch) -> Launch {
        launch.named_after(&self.name).in_spaces_of(self.holder.identity())
    }

    /// Runs a command on this node to its end and gives what it wrote.
    ///
    /// # Errors
    /// When it cannot be run, or fails.
    pub async fn execute(&self, program: &str, arguments: &[&str]) -> Result<String, ClusterError> {
        execute(&self.holder, program, arguments).await
    }

    /// Makes an image available on this node. A simulated node does not look at images.
    ///
    /// # Errors
    /// When containerd does not take it.
    pub async fn import(&self, image: &Image) -> Result<(), ClusterError> {
        match self.engine.around {
            Some(_) => import(&self.holder, &self.folder, image).await,
            None => Ok(()),
        }
    }

    /// Pulls its cable: neither machine nor nodes reach it, and what runs on it goes on.
    ///
    /// # Errors
    /// When it has no cable, being off.
    pub fn partition(&self) -> Result<(), ClusterError> {
        command::run("ip", ["link", "set", &self.network.link(self.index), "down"])?;
        Ok(())
    }

    /// Plugs its cable in again.
    ///
    /// # Errors
    /// When it has no cable, being off.
    pub fn heal(&self) -> Result<(), ClusterError> {
        command::run("ip", ["link", "set", &self.network.link(self.index), "up"])?;
        Ok(())
    }

    /// Kills kubelet and containerd; the containers go on.
    ///
    /// # Errors
    /// When one of them stays.
    pub async fn kill(&self) -> Result<(), ClusterError> {
        self.kubelet().kill().await?;
        if let Some(containerd) = self.containerd() {
            containerd.kill().await?;
        }
        Ok(())
    }

    /// Cuts its power: everything on it ends at once, with no chance to say so.
    ///
    /// # Errors
    /// When it stays.
    pub async fn cut_power(&self) -> Result<(), ClusterError> {
        Ok(self.holder.kill().await?)
    }
}

impl Site<'_> {
    fn inside(&self, program: PathBuf) -> Launch {
        let base = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Launch::new(format!("{}-{base}", self.name), program).in_spaces_of(self.holder.identity())
    }

    async fn start_real(
        &self,
        binaries: &Binaries,
        pause: &Image,
        flags: &[String],
    ) -> Result<Engine, ClusterError> {
        let instance = self.control_plane.instance();
        let files = Files::write(self.control_plane, self.network, self.index, self.folder)?;
        let program =
            places::find_program("containerd").unwrap_or_else(|| PathBuf::from("/usr/bin/containerd"));
        let containerd =
            self.inside(program).argument("--config").argument(files.containerd.to_string_lossy());
        let containerd = Daemon::ensure(instance, containerd)?;
        wait_for_socket(&containerd, &self.folder.join(CONTAINERD_SOCKET.trim_start_matches('/'))).await?;
        import(self.holder, self.folder, pause).await?;

        let access = kubelet_access(self.control_plane, self.folder, self.name)?;
        let kubelet = self
            .inside(binaries.program("kubelet"))
            .argument(format!("--config={}", files.kubelet.display()))
            .argument(format!("--kubeconfig={}", access.display()))
            .argument(format!("--hostname-override={}", self.name))
            .argument(format!("--node-ip={}", self.network.node(self.index)))
            .argument("--root-dir=/var/lib/kubelet")
            .argument("--cert-dir=/var/lib/kubelet/pki")
            .arguments(flags.iter().cloned());
        let kubelet = Daemon::ensure(instance, kubelet)?;
        let proxy = self
            .inside(binaries.program("kube-proxy"))
            .argument(format!("--config={}", files.proxy.display()));
        let proxy = Daemon::ensure(instance, proxy)?;
        Ok(Engine { kubelet, around: Some(Around { containerd, proxy }) })
    }

    fn start_simulated(&self, program: &Path, flags: &[String]) -> Result<Engine, ClusterError> {
        let access = kubelet_access(self.control_plane, self.folder, self.name)?;
        let kubelet = self
            .inside(program.to_owned())
            .argument(format!("--kubeconfig={}", access.display()))
            .argument(format!("--node-name={}", self.name))
            .argument(format!("--node-address={}", self.network.node(self.index)))
            .argument(format!("--pod-network={}", self.network.first_pod(self.index)))
            .argument(format!("--cgroup-root=/{}", self.network.cgroup(self.index)))
            .arguments(flags.iter().cloned());
        Ok(Engine { kubelet: Daemon::ensure(self.control_plane.instance(), kubelet)?, around: None })
    }
}

/// Starts the process that holds the node's namespaces and waits until it has made the node's view of the machine.
async fn hold(instance: &Arc<Instance>, folder: &Path, name: &str) -> Result<Daemon, ClusterError> {
    let launch = Launch::new(name, "/bin/bash")
        .arguments([folder.join("etc/hold.sh").to_string_lossy(), folder.to_string_lossy(), name.into()])
        .in_new_spaces();
    if instance.running(name).is_none() {
        // A boot: /run is empty and the boot id is new.
        let run = folder.join("run");
        if run.exists() {
            fs::remove_dir_all(&run).map_err(at(&run))?;
        }
        make_folder(&run)?;
        for (setting, value) in TUNABLES {
            write(&folder.join("tunables").join(setting), &format!("{value}\n"))?;
        }
        let fresh = Path::new("/proc/sys/kernel/random/uuid");
        let boot_id = fs::read_to_string(fresh).map_err(at(fresh))?;
        write(&folder.join("tunables").join(BOOT_ID), &boot_id)?;
    }
    let holder = Daemon::ensure(instance, launch)?;
    let sign = folder.join("run/node-is-up");
    let up = eventually(NODE_LIMIT, format!("{name} to hold its namespaces"), async || {
        match (sign.exists(), holder.is_alive()) {
            (true, _) => Ok(()),
            (false, true) => Err("it is still mounting"),
            (false, false) => Err("it has ended"),
        }
    });
    up.await.map_err(|source| not_up(&holder, source))?;
    Ok(holder)
}

/// A cable from the bridge into the node's namespace. Leaves one that is there.
fn plug_in(
    instance: &Instance,
    network: Network,
    index: NodeIndex,
    holder: &Daemon,
) -> Result<(), ClusterError> {
    let (link, bridge, pid) = (network.link(index), network.bridge(), holder.pid().to_string());
    let has_end = enter_and_run(holder, "ip", &["link", "show", "eth0"]).is_ok();
    if !has_end {
        instance.will_make_link(&link)?;
        // That of the node's last boot may not have followed its other end yet.
        if link_exists(&link)
            && let Err(error) = command::run("ip", ["link", "delete", &link])
            && link_exists(&link)
        {
            return Err(error.into());
        }
        command::run(
            "ip",
            ["link", "add", &link, "master", &bridge, "type", "veth", "peer", "name", "eth0", "netns", &pid],
        )?;
    }
    command::run("ip", ["link", "set", &link, "up"])?;
    Ok(())
}

async fn wait_for_socket(daemon: &Daemon, socket: &Path) -> Result<(), ClusterError> {
    let answers = eventually(NODE_LIMIT, format!("{} to listen", daemon.name()), async || {
        match UnixStream::connect(socket) {
            Ok(_) => Ok(()),
            Err(error) if daemon.is_alive() => Err(error.to_string()),
            Err(_) => Err("it has ended".to_owned()),
        }
    });
    answers.await.map_err(|source| not_up(daemon, source))
}

fn not_up(daemon: &Daemon, source: crate::eventually::Overdue) -> ClusterError {
    ClusterError::NotUp { name: daemon.name().to_owned(), last_words: daemon.last_words(), source }
}
