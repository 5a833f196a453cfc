//! The commands of `berth-dev`.

use std::path::PathBuf;
use std::process::{Command as Process, ExitCode};

use anyhow::Context;
use berth_dev::install::{self, PodsOptions};
use berth_dev::{
    Binaries, Cluster, ClusterOptions, Instance, NodeIndex, Owner, instances, machine, packages,
};
use clap::Subcommand;
use tracing_subscriber::EnvFilter;

/// Real Kubernetes on this machine, for people.
#[derive(Debug, clap::Parser)]
#[command(name = "berth-dev", version)]
pub(crate) struct Command {
    /// The cluster's name. Several can run side by side.
    #[arg(long, global = true, env = "BERTH_DEV_NAME", default_value = "berth")]
    name: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Bring up a cluster with Berth on it, apply the example Fleet, and ask one of its servers. Continues where it
    /// stopped.
    Run {
        /// How many nodes it has.
        #[arg(long, env = "BERTH_DEV_NODES", default_value_t = 2, value_parser = node_count())]
        nodes: u8,
        /// Folder of Berth's programs; that of this one if not given
        #[arg(long, env = "BERTH_DEV_PROGRAMS")]
        programs: Option<PathBuf>,
    },
    /// Install what is missing on this machine: Debian packages, and the programs of Kubernetes.
    Install,
    /// Start a cluster, or what does not run of it.
    Up {
        /// How many nodes it has.
        #[arg(long, env = "BERTH_DEV_NODES", default_value_t = 2, value_parser = node_count())]
        nodes: u8,
    },
    /// Take the cluster down and leave nothing of it.
    Down,
    /// Take down what dead processes left.
    Sweep,
    /// List the clusters on this machine.
    Status,
    /// Run kubectl against the cluster.
    Kubectl {
        /// What kubectl is given.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn node_count() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(1..=i64::from(NodeIndex::MOST))
}

/// Warnings, unless `RUST_LOG` asks for more.
pub(crate) fn log_to_standard_error() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,kube_client=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let name = command.name.as_str();
    match command.action {
        Action::Run { nodes, programs } => first_run(name, nodes, programs).await?,
        Action::Install => prepare()?,
        Action::Up { nodes } => {
            let cluster = up(name, nodes).await?;
            println!("{nodes} nodes are Ready; kubeconfig: {}", cluster.kubeconfig_path().display());
        }
        Action::Down => {
            let was_there = berth_dev::down(name).await?;
            println!("{name} {}", if was_there { "is down, and left nothing" } else { "was not up" });
        }
        Action::Sweep => {
            for swept in berth_dev::sweep().await? {
                println!("{swept} is swept away");
            }
        }
        Action::Status => status(),
        Action::Kubectl { arguments } => return kubectl(name, &arguments),
    }
    Ok(ExitCode::SUCCESS)
}

fn say(line: &str) {
    println!("{line}");
}

fn prepare() -> anyhow::Result<()> {
    machine::require_root_on_debian()?;
    packages::ensure(&mut say)?;
    machine::require_kernel()?;
    Binaries::ensure(&mut say)?;
    Ok(())
}

async fn up(name: &str, nodes: u8) -> anyhow::Result<Cluster> {
    prepare()?;
    let instance = Instance::open(name)?;
    Cluster::start_in(&instance, ClusterOptions { nodes: nodes.into(), ..ClusterOptions::default() })
        .await
        .context("could not start the cluster")
}

async fn first_run(name: &str, nodes: u8, programs: Option<PathBuf>) -> anyhow::Result<()> {
    let options = PodsOptions::default();
    let options = PodsOptions { programs: programs.unwrap_or_else(|| options.programs.clone()), ..options };
    let cluster = up(name, nodes).await?;
    say(&format!("{nodes} nodes are Ready, Kubernetes {}", berth_dev::kubernetes_version()));
    cluster.import(&install::game_image(&options.programs)?).await?;
    say("installing Berth: manifests/, with images of what was built");
    install::install_pods(&cluster, &options).await.context("could not install Berth")?;
    say("applying examples/fleet.yaml");
    let reply = install::first_run(&cluster, &mut say).await?;
    print_next_steps(&cluster);
    println!("reply from {}: {}", reply.server, reply.nonce);
    Ok(())
}

/// Before the reply, which is the last line.
fn print_next_steps(cluster: &Cluster) {
    println!(
        "
Try next:
  export KUBECONFIG={kubeconfig}
  kubectl get fleet,gameserverset,gameserver,gamenode
  kubectl scale fleet simple-udp --replicas=10
  kubectl -n berth-system exec ds/berth-agent -- /berth-agent status
  kubectl -n berth-system logs ds/berth-agent
Logs of Kubernetes itself: {logs}
Stop all of it, and leave nothing: make down
",
        kubeconfig = cluster.kubeconfig_path().display(),
        logs = cluster.instance().folder().join("logs").display(),
    );
}

fn status() {
    for instance in instances() {
        let owner = match instance.owner {
            Owner::Nobody => "stays until `down`".to_owned(),
            Owner::Process(owner) => format!("belongs to process {}", owner.pid()),
        };
        println!("{}  {}  {owner}", instance.name, instance.folder.display());
    }
}

fn kubectl(name: &str, arguments: &[String]) -> anyhow::Result<ExitCode> {
    let instance = instances().into_iter().find(|instance| instance.name == name);
    let kubeconfig =
        instance.map(|instance| instance.folder.join("kubeconfig")).filter(|path| path.is_file());
    let kubeconfig =
        kubeconfig.with_context(|| format!("the cluster {name} is not up: start it with `make run`"))?;
    let binaries = Binaries::ensure(&mut say)?;
    let status = Process::new(binaries.kubectl())
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .status()
        .context("could not run kubectl")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
