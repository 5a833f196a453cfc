//! Starting Berth's programs, each as the user and with the privileges that it ships with.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{InstallError, at, manifests, offer, programs};
use crate::cluster::{Cluster, Node};
use crate::eventually::eventually;
use crate::instance::{Daemon, Launch};
use crate::places;

/// The user that `berth-sdk` runs as: nobody in particular, and the one its agent expects.
const SDK_USER: u32 = 65532;
/// Who brain and agents are where they run outside of pods.
const BRAIN_USER: &str = "berth-brain";
const AGENT_GROUP: &str = "berth:agents";
/// Agents offer their nodes within a second or two.
const UP_LIMIT: Duration = Duration::from_secs(60);

/// What is installed, and from where.
#[derive(Debug, Clone)]
pub struct BerthOptions {
    /// The folder of the programs.
    pub programs: PathBuf,
    /// The folder of the manifests.
    pub manifests: PathBuf,
    /// Where the programs find the API server, if not where it is.
    pub api_server: Option<SocketAddr>,
    /// Flags for the brain beside ours.
    pub brain_flags: Vec<String>,
    /// Flags for every agent beside ours.
    pub agent_flags: Vec<String>,
    /// Flags for every `berth-sdk` beside ours.
    pub sdk_flags: Vec<String>,
}

impl Default for BerthOptions {
    /// What was built together with us.
    fn default() -> Self {
        Self {
            programs: places::program_folder(),
            manifests: places::source_folder().join("manifests"),
            api_server: None,
            brain_flags: Vec::new(),
            agent_flags: Vec::new(),
            sdk_flags: Vec::new(),
        }
    }
}

/// Berth, running in a cluster.
#[derive(Debug)]
pub struct Berth {
    brain: Daemon,
    agents: Vec<Daemon>,
    sdks: Vec<Daemon>,
}

impl Berth {
    /// Applies the manifests but for the programs, starts what does not run, starts anew what was built anew, and waits until every agent
    /// offers its node.
    ///
    /// # Errors
    /// When an object is refused, a program is missing or ends, or a node is not offered in time.
    pub async fn install(cluster: &Cluster, options: &BerthOptions) -> Result<Self, InstallError> {
        let client = cluster.client();
        manifests::apply(&client, &options.manifests.join("namespace.yaml")).await?;
        manifests::apply_folder(&client, &options.manifests.join("crds")).await?;
        manifests::apply_folder(&client, &options.manifests.join("policies")).await?;
        manifests::apply(&client, &options.manifests.join("rbac.yaml")).await?;
        manifests::apply(&client, &options.manifests.join("priority.yaml")).await?;
        let folder = cluster.instance().subfolder("bin")?;
        let place = |name: &str| programs::place(&options.programs.join(name), &folder);
        let (brain, agent, sdk) = (place("berth-brain")?, place("berth-agent")?, place("berth-sdk")?);

        let access = cluster.control_plane().access();
        let access = options.api_server.map_or_else(|| access.clone(), |address| access.by_way_of(address));
        let kubeconfig = cluster.instance().folder().join("brain.kubeconfig");
        let kubeconfig = access.ensure_kubeconfig(&kubeconfig, BRAIN_USER, &[])?;
        let launch = Launch::new("berth-brain", &brain)
            .arguments(["--kubeconfig".to_owned(), kubeconfig.to_string_lossy().into_owned()])
            .arguments(options.brain_flags.iter().cloned());
        let brain = renew(Daemon::ensure(cluster.instance(), launch)?, &brain).await?;

        let (mut sdks, mut agents) = (Vec::new(), Vec::new());
        for node in cluster.nodes() {
            prepare_folders(node)?;
            let launch = sdk_launch(&sdk).arguments(options.sdk_flags.iter().cloned());
            sdks.push(renew(node.ensure(launch)?, &sdk).await?);
            let user = format!("berth:agent:{}", node.name());
            let kubeconfig = cluster.instance().folder().join(format!("agent-{}.kubeconfig", node.name()));
            let kubeconfig = access.ensure_kubeconfig(&kubeconfig, &user, &[AGENT_GROUP])?;
            let launch =
                agent_launch(&agent, node, &kubeconfig).arguments(options.agent_flags.iter().cloned());
            agents.push(renew(node.ensure(launch)?, &agent).await?);
        }
        let berth = Self { brain, agents, sdks };
        for position in 0..cluster.nodes().len() {
            berth.wait_until_offered(cluster, position).await?;
        }
        Ok(berth)
    }

    /// The brain.
    #[must_use]
    pub fn brain(&self) -> &Daemon {
        &self.brain
    }

    /// The agent of one node, counted from 0.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn agent(&self, position: usize) -> &Daemon {
        &self.agents[position]
    }

    /// The SDK server of one node, counted from 0.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn sdk(&self, position: usize) -> &Daemon {
        &self.sdks[position]
    }

    /// Waits until a node's agent says that it takes game servers.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn wait_until_offered(&self, cluster: &Cluster, position: usize) -> Result<(), InstallError> {
        let client = cluster.client();
        let name = cluster.node(position).name();
        let daemons = [&self.brain, &self.sdks[position], &self.agents[position]];
        let offered = eventually(UP_LIMIT, format!("{name} to be offered"), async || {
            if let Some(dead) = daemons.into_iter().find(|daemon| !daemon.is_alive()) {
                return Err(format!("{} has ended", dead.name()));
            }
            offer::check(&client, name).await
        });
        offered.await.map_err(|source| {
            let dead = daemons.into_iter().find(|daemon| !daemon.is_alive());
            let daemon = dead.unwrap_or(&self.agents[position]);
            InstallError::NotUp { log: daemon.log().to_owned(), last_words: daemon.last_words(), source }
        })
    }
}

/// The folders that a unit or a DaemonSet makes for the programs.
fn prepare_folders(node: &Node) -> Result<(), InstallError> {
    let state = node.machine_path("/var/lib/berth/sdk");
    fs::create_dir_all(&state)
        .and_then(|()| chown(&state, Some(SDK_USER), Some(SDK_USER)))
        .map_err(at(&state))?;
    let run = node.machine_path("/run/berth");
    fs::create_dir_all(&run).map_err(at(&run))
}

/// Without any privilege, and without a way to get one.
fn sdk_launch(program: &Path) -> Launch {
    let user = SDK_USER.to_string();
    Launch::new("berth-sdk", "/usr/bin/setpriv")
        .arguments(["--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs"])
        .arguments(["--bounding-set=-all", "--inh-caps=-all", "--"])
        .argument(program.to_string_lossy())
        .arguments(["--link-socket", "/run/berth/link/sdk.sock"])
}

fn agent_launch(program: &Path, node: &Node, kubeconfig: &Path) -> Launch {
    Launch::new("berth-agent", program)
        .arguments(["--kubeconfig", &kubeconfig.to_string_lossy(), "--node-name", node.name()])
        .arguments([
            "--run-dir",
            "/run/berth",
            "--state-dir",
            "/var/lib/berth",
            "--cgroup-root",
            &node.cgroup(),
        ])
}

/// Starts a daemon anew when it runs from a file that has been replaced.
async fn renew(daemon: Daemon, program: &Path) -> Result<Daemon, InstallError> {
    if daemon.was_running() && !daemon.runs_from(program) {
        daemon.terminate(UP_LIMIT).await?;
        daemon.start_again()?;
    }
    Ok(daemon)
}
