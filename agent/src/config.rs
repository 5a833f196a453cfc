//! Flags and their environment twins, parsed once into [`Settings`]. Nothing else of the agent reads the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use berth_api::game_node::Room;
use berth_api::node_lease;
use berth_api::quantity::Quantity;
use berth_runtime::exit::BadConfiguration;
use berth_runtime::kube_client::KubeSettings;
use berth_runtime::telemetry::LogSettings;
use jiff::Timestamp;

use crate::drain::drainer::DrainSettings;
use crate::fleetiq::settings::{FleetFlags, FleetSettings};
use crate::metadata::settings::{MetadataFlags, MetadataSettings};
use crate::ports::PortRange;

/// Name of the local socket below the run folder.
pub const SOCKET_NAME: &str = "agent.sock";
/// Longest lease: a dead node's servers wait that long for their replacement.
const LONGEST_LEASE: Duration = Duration::from_secs(300);
/// Shortest lease: below it, a slow API server costs the lease.
const SHORTEST_LEASE: Duration = Duration::from_secs(4);
/// Shortest margin: every write has to be over within three quarters of it.
const SHORTEST_MARGIN: Duration = Duration::from_secs(1);

/// The agent of one node: host ports, pods, health and the local socket.
#[derive(Debug, clap::Parser)]
#[command(name = "berth-agent", version)]
pub struct CommandLine {
    /// What to do; without a word, `run`
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of `run`
    #[command(flatten)]
    pub run: Flags,
}

/// What the program is asked to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Serve this node (the default)
    Run(Box<Flags>),
    /// Show what the agent of this node knows
    Status(StatusFlags),
    /// Empty this node: servers without a session leave, sessions are waited for
    #[command(
        after_help = "Exit codes: 0 it is ordered (with --plan: no session is at risk; with --wait: the node is empty), \
                            1 it is not, 3 with --plan: sessions are at risk, 64 bad usage"
    )]
    Drain(DrainFlags),
    /// Take back an order to empty this node
    #[command(after_help = "Exit codes: 0 the node takes servers again, 1 nothing was done, \
                            3 the order is taken back, and somebody else keeps the node closed or draining, 64 bad usage")]
    Undrain(AskFlags),
    /// Give this instance back to FleetIQ, as before Berth is removed
    #[command(after_help = "Exit codes: 0 it is given back, 1 it is not, 64 bad usage")]
    Deregister(AskFlags),
    /// Say why a game server is where it is
    #[command(
        after_help = "Exit codes: 0 it is known, 1 nobody answered, 3 it is not on this node, 64 bad usage"
    )]
    Why(WhyFlags),
    /// Get a new token for the agent of this node, where it runs outside of pods
    RenewToken(TokenFlags),
}

/// Flags of `renew-token`.
#[derive(Clone, Debug, clap::Args)]
pub struct TokenFlags {
    /// Name of this node
    #[arg(long, env = "BERTH_NODE_NAME")]
    pub node_name: String,
    /// Where the API server is, and the credentials to ask with
    #[command(flatten)]
    pub kube: KubeSettings,
    /// File of the token, as `tokenFile` of the kubeconfig
    #[arg(long, env = "BERTH_TOKEN_FILE", default_value = "/etc/berth/token")]
    pub file: PathBuf,
    /// How long the token is to be good for; an API server may grant less
    #[arg(long, env = "BERTH_TOKEN_LIFETIME", default_value = "24h", value_parser = duration)]
    pub lifetime: Duration,
}

/// Where to ask, and how to print.
#[derive(Clone, Debug, clap::Args)]
pub struct AskFlags {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Socket of the agent
    #[arg(long, env = "BERTH_SOCKET", default_value = "/run/berth/agent.sock")]
    pub socket: PathBuf,
}

/// Flags of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusFlags {
    /// Where and how
    #[command(flatten)]
    pub ask: AskFlags,
    /// Show it again every second, until interrupted
    #[arg(long)]
    pub watch: bool,
}

/// Flags of `drain`.
#[derive(Clone, Debug, clap::Args)]
pub struct DrainFlags {
    /// Where and how
    #[command(flatten)]
    pub ask: AskFlags,
    /// When the node will be gone: a length of time such as 10m, or an RFC 3339 time. Sessions that last until then are
    /// ended, as --spot-sessions of the agent says; without it none ever is
    #[arg(long, value_parser = deadline)]
    pub deadline: Option<Deadline>,
    /// Why, for everybody who looks
    #[arg(long)]
    pub reason: Option<String>,
    /// Only say what it would mean
    #[arg(long)]
    pub plan: bool,
    /// Wait until no game server is left
    #[arg(long, conflicts_with = "plan")]
    pub wait: bool,
}

/// Flags of `why`.
#[derive(Clone, Debug, clap::Args)]
pub struct WhyFlags {
    /// The game server: NAME, or NAMESPACE/NAME where several have that name
    pub server: String,
    /// Where and how
    #[command(flatten)]
    pub ask: AskFlags,
}

/// A time to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// After so long.
    In(Duration),
    /// Then.
    At(Timestamp),
}

impl Deadline {
    /// The time itself.
    #[must_use]
    pub fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::In(length) => now.saturating_add(length).unwrap_or(Timestamp::MAX),
            Self::At(time) => time,
        }
    }
}

fn deadline(text: &str) -> Result<Deadline, String> {
    duration(text).map(Deadline::In).or_else(|_| {
        let wrong = |_| "must be a length such as 10m, or a time such as 2026-01-31T12:00:00Z".to_owned();
        text.parse().map(Deadline::At).map_err(wrong)
    })
}

/// Flags of `run`, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Name of this node; NODE_NAME is read as well
    #[arg(long, env = "BERTH_NODE_NAME")]
    pub node_name: Option<String>,
    /// Where the API server is
    #[command(flatten)]
    pub kube: KubeSettings,
    /// Folder of the sockets and the lock
    #[arg(long, env = "BERTH_RUN_DIR", default_value = "/run/berth")]
    pub run_dir: PathBuf,
    /// Folder of what must outlive a boot
    #[arg(long, env = "BERTH_STATE_DIR", default_value = "/var/lib/berth")]
    pub state_dir: PathBuf,
    /// Kubelet's cgroup root, as `cgroupRoot` of its configuration
    #[arg(long, env = "BERTH_CGROUP_ROOT", default_value = "/")]
    pub cgroup_root: PathBuf,
    /// File that names this boot of the kernel
    #[arg(long, env = "BERTH_BOOT_ID_FILE", default_value = "/proc/sys/kernel/random/boot_id")]
    pub boot_id_file: PathBuf,
    /// Name of this boot, instead of the file's
    #[arg(long, env = "BERTH_BOOT_ID")]
    pub boot_id: Option<String>,
    /// Range of host ports as NAME=MIN-MAX; may be given several times
    #[arg(
        long = "port-range",
        env = "BERTH_PORT_RANGES",
        value_delimiter = ',',
        default_value = "default=7000-8000"
    )]
    pub port_ranges: Vec<String>,
    /// Ports of the node's loopback for the SDK of pods on the node's network, as MIN-MAX; `none` refuses such pods
    #[arg(long, env = "BERTH_HOST_NETWORK_PORTS", default_value = "9500-9699")]
    pub host_network_ports: String,
    /// How long the node lease lasts without renewal
    #[arg(long, env = "BERTH_LEASE_DURATION", default_value = "10s", value_parser = duration)]
    pub lease_duration: Duration,
    /// How often the node lease is renewed
    #[arg(long, env = "BERTH_LEASE_RENEWAL", default_value = "3s", value_parser = duration)]
    pub lease_renewal: Duration,
    /// How long before the end of the lease the agent stops acting
    #[arg(long, env = "BERTH_LEASE_MARGIN", default_value = "2s", value_parser = duration)]
    pub lease_margin: Duration,
    /// User that berth-sdk runs as
    #[arg(long, env = "BERTH_SDK_UID", default_value_t = 65532)]
    pub sdk_uid: u32,
    /// Address of /livez, /readyz and /metrics; none without it
    #[arg(long, env = "BERTH_ADMIN_ADDRESS")]
    pub admin_address: Option<SocketAddr>,
    /// Namespaces whose game servers are served, separated by commas; all without it
    #[arg(long, env = "BERTH_GAME_NAMESPACES", value_delimiter = ',')]
    pub game_namespaces: Vec<String>,
    /// Processor time kept for the node's own daemons
    #[arg(long, env = "BERTH_RESERVE_CPU", default_value = "0")]
    pub reserve_cpu: String,
    /// Memory kept for the node's own daemons
    #[arg(long, env = "BERTH_RESERVE_MEMORY", default_value = "0")]
    pub reserve_memory: String,
    /// How long game servers without a session stay on a node that somebody else has cordoned
    #[arg(long, env = "BERTH_CORDON_GRACE", default_value = "30s", value_parser = duration)]
    pub cordon_grace: Duration,
    /// How long a drain waits for sessions before the node counts as empty; without end if not given
    #[arg(long, env = "BERTH_DRAIN_MAX_WAIT", value_parser = duration)]
    pub drain_max_wait: Option<Duration>,
    /// What becomes of sessions that their node does not outlive
    #[arg(long, env = "BERTH_SPOT_SESSIONS", value_enum, default_value_t = SpotSessions::Sigterm)]
    pub spot_sessions: SpotSessions,
    /// GameLift FleetIQ
    #[command(flatten)]
    pub fleetiq: FleetFlags,
    /// The instance's metadata
    #[command(flatten)]
    pub metadata: MetadataFlags,
    /// How to log
    #[command(flatten)]
    pub log: LogSettings,
}

/// What becomes of sessions whose node will be gone at a known time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SpotSessions {
    /// Their pods are deleted with their grace, so that it is over 5 s before the node is
    #[default]
    Sigterm,
    /// Their games are told, and nothing else
    Notify,
}

/// Where the name of this boot comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootIdSource {
    /// The first line of a file.
    File(PathBuf),
    /// A setting, for nodes that share one kernel.
    Given(String),
}

/// The three times of a node lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long it lasts without renewal.
    pub duration: Duration,
    /// How often it is renewed.
    pub renewal: Duration,
    /// How long before its end the holder stops acting.
    pub margin: Duration,
}

impl LeaseTiming {
    /// How long a write may take: it must be over before the lease is, even when it began at the last moment.
    pub fn write_limit(&self) -> Duration {
        self.margin * 3 / 4
    }
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self { duration: node_lease::DURATION, renewal: node_lease::RENEWAL, margin: node_lease::MARGIN }
    }
}

/// What the agent runs by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of this node.
    pub node_name: String,
    /// Where the API server is.
    pub kube: KubeSettings,
    /// Folder of the sockets and the lock.
    pub run_dir: PathBuf,
    /// Folder of what must outlive a boot.
    pub state_dir: PathBuf,
    /// Kubelet's cgroup root.
    pub cgroup_root: PathBuf,
    /// Where the name of this boot comes from.
    pub boot_id: BootIdSource,
    /// Host ports by name of range.
    pub port_ranges: BTreeMap<String, PortRange>,
    /// Ports of the node's loopback for the SDK of pods that share it; none where such pods are refused.
    pub host_network_ports: Option<PortRange>,
    /// Times of the node lease.
    pub lease: LeaseTiming,
    /// User that berth-sdk runs as.
    pub sdk_uid: u32,
    /// Address of the admin endpoint.
    pub admin_address: Option<SocketAddr>,
    /// Namespaces whose game servers are served; empty means all.
    pub game_namespaces: BTreeSet<String>,
    /// Kept for the node's own daemons.
    pub reserve: Room,
    /// How the node is emptied.
    pub drain: DrainSettings,
    /// What becomes of sessions that their node does not outlive.
    pub spot_sessions: SpotSessions,
    /// GameLift FleetIQ.
    pub fleetiq: FleetSettings,
    /// The instance's metadata.
    pub metadata: MetadataSettings,
}

impl TryFrom<Flags> for Settings {
    type Error = BadConfiguration;

    fn try_from(flags: Flags) -> Result<Self, Self::Error> {
        let node_name = node_name(flags.node_name)?;
        for (flag, folder) in [
            ("--run-dir", &flags.run_dir),
            ("--state-dir", &flags.state_dir),
            ("--cgroup-root", &flags.cgroup_root),
        ] {
            if !folder.is_absolute() {
                return Err(BadConfiguration::new(format!(
                    "{flag} is {:?}; it must be an absolute path",
                    folder.display()
                )));
            }
        }
        let boot_id = match flags.boot_id {
            Some(given) => BootIdSource::Given(
                boot_id(&given)
                    .map_err(|what| BadConfiguration::new(format!("--boot-id is {given:?}; it {what}")))?,
            ),
            None => BootIdSource::File(flags.boot_id_file),
        };
        let port_ranges = port_ranges(&flags.port_ranges)?;
        Ok(Self {
            node_name,
            kube: flags.kube,
            run_dir: flags.run_dir,
            state_dir: flags.state_dir,
            cgroup_root: flags.cgroup_root,
            boot_id,
            host_network_ports: host_network_ports(&flags.host_network_ports, &port_ranges)?,
            port_ranges,
            lease: lease_timing(flags.lease_duration, flags.lease_renewal, flags.lease_margin)?,
            sdk_uid: flags.sdk_uid,
            admin_address: flags.admin_address,
            game_namespaces: namespaces(flags.game_namespaces)?,
            drain: DrainSettings {
                cordon_grace: flags.cordon_grace,
                max_wait: flags.drain_max_wait,
                idle_release: flags.fleetiq.fleetiq_idle_release.length(),
            },
            spot_sessions: flags.spot_sessions,
            fleetiq: FleetSettings::try_from(flags.fleetiq)?,
            metadata: MetadataSettings::try_from(flags.metadata)?,
            reserve: Room {
                milli_cpu: amount("--reserve-cpu", &flags.reserve_cpu)?.as_milli(),
                memory_bytes: amount("--reserve-memory", &flags.reserve_memory)?.as_whole(),
                pods: 0,
            },
        })
    }
}

fn node_name(given: Option<String>) -> Result<String, BadConfiguration> {
    // The usual name of the variable in DaemonSets, beside our own.
    let name = given.or_else(|| std::env::var("NODE_NAME").ok()).unwrap_or_default();
    let allowed =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    if name.is_empty() {
        return Err(BadConfiguration::new("--node-name is missing; set it, BERTH_NODE_NAME or NODE_NAME"));
    }
    if name.len() > 253 || !name.chars().all(allowed) {
        return Err(BadConfiguration::new(format!(
            "--node-name is {name:?}; it must be the name of a Node: at most 253 of a-z, 0-9, '-' and '.'"
        )));
    }
    Ok(name)
}

/// A boot id as it may stand in a holder identity.
pub(crate) fn boot_id(text: &str) -> Result<String, &'static str> {
    let id = text.trim();
    if id.is_empty() || id.len() > 128 || id.contains(['/', ' ', '\n']) {
        return Err("must be 1 to 128 characters without '/' and blanks");
    }
    Ok(id.to_owned())
}

fn port_ranges(given: &[String]) -> Result<BTreeMap<String, PortRange>, BadConfiguration> {
    let mut ranges: BTreeMap<String, PortRange> = BTreeMap::new();
    for text in given.iter().filter(|text| !text.trim().is_empty()) {
        let (name, range) = port_range(text.trim())
            .map_err(|what| BadConfiguration::new(format!("--port-range is {text:?}; {what}")))?;
        let clash = ranges.iter().find(|(_, other)| other.overlaps(range));
        if let Some((other_name, other)) = clash {
            return Err(BadConfiguration::new(format!(
                "--port-range {name}={range} overlaps {other_name}={other}; ranges must not share a port"
            )));
        }
        if ranges.insert(name.clone(), range).is_some() {
            return Err(BadConfiguration::new(format!("--port-range {name} is given twice")));
        }
    }
    if ranges.is_empty() {
        return Err(BadConfiguration::new("--port-range is empty; give at least one NAME=MIN-MAX"));
    }
    Ok(ranges)
}

fn host_network_ports(
    text: &str,
    others: &BTreeMap<String, PortRange>,
) -> Result<Option<PortRange>, BadConfiguration> {
    if text.trim() == "none" {
        return Ok(None);
    }
    let wrong = |what: String| BadConfiguration::new(format!("--host-network-ports is {text:?}; {what}"));
    let (_, range) = port_range(&format!("sdk={}", text.trim()))
        .map_err(|_| wrong("it must have the form MIN-MAX, such as 9500-9699, or be none".to_owned()))?;
    match others.iter().find(|(_, other)| other.overlaps(range)) {
        Some((name, other)) => Err(wrong(format!("it overlaps --port-range {name}={other}"))),
        None => Ok(Some(range)),
    }
}

fn port_range(text: &str) -> Result<(String, PortRange), String> {
    let form = || "it must have the form NAME=MIN-MAX, such as default=7000-8000".to_owned();
    let (name, bounds) = text.split_once('=').ok_or_else(form)?;
    let (min, max) = bounds.split_once('-').ok_or_else(form)?;
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.is_empty() || name.len() > 63 || !name.chars().all(allowed) {
        return Err("the name must be 1 to 63 of a-z, 0-9 and '-'".to_owned());
    }
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let (Some(min), Some(max)) = (port(min), port(max)) else {
        return Err("both bounds must be ports, 1 to 65535".to_owned());
    };
    PortRange::new(min, max)
        .map(|range| (name.to_owned(), range))
        .ok_or_else(|| format!("its first port {min} must not be above its last port {max}"))
}

fn lease_timing(
    duration: Duration,
    renewal: Duration,
    margin: Duration,
) -> Result<LeaseTiming, BadConfiguration> {
    let wrong = |what: String| Err(BadConfiguration::new(what));
    if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&duration) || duration.subsec_nanos() != 0 {
        return wrong(format!("--lease-duration is {duration:?}; it must be 4s to 300s in whole seconds"));
    }
    if margin < SHORTEST_MARGIN {
        return wrong(format!("--lease-margin is {margin:?}; it must be at least 1s"));
    }
    if renewal.is_zero() || renewal * 2 + margin > duration {
        return wrong(format!(
            "--lease-renewal is {renewal:?}; twice that and the margin of {margin:?} must fit into the duration of \
             {duration:?}"
        ));
    }
    Ok(LeaseTiming { duration, renewal, margin })
}

fn namespaces(given: Vec<String>) -> Result<BTreeSet<String>, BadConfiguration> {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let names: BTreeSet<String> =
        given.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    match names.iter().find(|name| name.len() > 63 || !name.chars().all(allowed)) {
        Some(name) => Err(BadConfiguration::new(format!(
            "--game-namespaces names {name:?}; a namespace is at most 63 of a-z, 0-9 and '-'"
        ))),
        None => Ok(names),
    }
}

fn amount(flag: &str, text: &str) -> Result<Quantity, BadConfiguration> {
    Quantity::parse(text).filter(|amount| *amount >= Quantity::ZERO).ok_or_else(|| {
        BadConfiguration::new(format!(
            "{flag} is {text:?}; it must be a quantity such as 500m or 1Gi, not below 0"
        ))
    })
}

/// A time such as `10s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 =
        number.parse().map_err(|_| "must be a whole number with a unit, such as 10s".to_owned())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs).ok_or_else(|| "is too long".to_owned()),
        "h" => number.checked_mul(3600).map(Duration::from_secs).ok_or_else(|| "is too long".to_owned()),
        _ => Err("must end in ms, s, m or h, such as 10s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{BootIdSource, CommandLine, Settings};

    fn settings(arguments: &[&str]) -> Result<Settings, String> {
        let line = CommandLine::try_parse_from(["berth-agent"].iter().chain(arguments))
            .map_err(|error| error.to_string())?;
        Settings::try_from(line.run).map_err(|error| error.to_string())
    }

    #[test]
    fn a_node_name_is_enough() {
        let settings = settings(&["--node-name", "node-1", "--boot-id", "b"]).expect("valid");
        assert_eq!(settings.node_name, "node-1");
        assert_eq!(settings.port_ranges["default"].to_string(), "7000-8000");
        assert_eq!(settings.boot_id, BootIdSource::Given("b".into()));
        assert!(settings.game_namespaces.is_empty());
        let range = settings.host_network_ports.map(|range| range.to_string());
        assert_eq!(range.as_deref(), Some("9500-9699"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_limit() {
        let table: [(&[&str], &str); 14] = [
            (&["--host-network-ports", "9500"], "MIN-MAX"),
            (&["--host-network-ports", "7990-9000"], "overlaps --port-range default=7000-8000"),
            (&["--port-range", "default=9000-8000"], "must not be above its last port 8000"),
            (&["--port-range", "a=1-10", "--port-range", "b=10-20"], "b=10-20 overlaps a=1-10"),
            (&["--port-range", "a=0-10"], "1 to 65535"),
            (&["--port-range", "a=1-65536"], "1 to 65535"),
            (&["--port-range", "7000-8000"], "NAME=MIN-MAX"),
            (&["--port-range", "A b=1-2"], "1 to 63 of a-z"),
            (&["--lease-duration", "2s"], "4s to 300s"),
            (&["--lease-margin", "100ms"], "at least 1s"),
            (&["--lease-renewal", "5s"], "must fit into the duration"),
            (&["--lease-duration", "10"], "must end in ms, s, m or h"),
            (&["--reserve-memory=-1"], "not below 0"),
            (&["--run-dir", "run"], "absolute path"),
        ];
        for (arguments, expected) in table {
            let arguments: Vec<&str> = ["--node-name", "n"].iter().chain(arguments).copied().collect();
            let error = settings(&arguments).expect_err("refused");
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
        assert!(settings(&["--node-name", "Node 1"]).expect_err("refused").contains("253"));
    }
}
