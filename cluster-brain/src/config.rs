//! Settings: flags with environment twins, parsed once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use berth_api::game_node::Room;
use berth_api::quantity::Quantity;
use berth_runtime::kube_client::KubeSettings;
use berth_runtime::telemetry::LogSettings;
use clap::Parser;

/// The cluster brain of Berth: Fleets, sets, and the placing of game servers on nodes
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-brain", version)]
pub struct Settings {
    /// Where the API server is
    #[command(flatten)]
    pub kube: KubeSettings,
    /// How to log
    #[command(flatten)]
    pub log: LogSettings,
    /// Address for /livez, /readyz and /metrics; without it there is no such endpoint
    #[arg(long, env = "BERTH_ADMIN_ADDRESS")]
    pub admin_address: Option<SocketAddr>,
    /// How long this brain leads without renewing its lease, and so how long another waits when it is gone
    #[arg(long, env = "BERTH_LEASE_DURATION", default_value = "2s", value_parser = lease_duration)]
    pub lease_duration: Duration,
    /// How long sessions on a node are kept whose agent and kubelet are silent and whose Node object is still there
    #[arg(long, env = "BERTH_SESSION_LOST_AFTER", default_value = "15m", value_parser = lost_after)]
    pub session_lost_after: Duration,
    /// Processor time and memory kept free on every node beside what its agent keeps, as cpu=100m,memory=128Mi
    #[arg(long, env = "BERTH_NODE_RESERVE", default_value = "", value_parser = reserve)]
    pub node_reserve: Room,
    /// Image of the pods that ask for room in the name of game servers that wait; empty for no such pods
    #[arg(long, env = "BERTH_PLACEHOLDER_IMAGE", default_value = "registry.k8s.io/pause:3.10.1")]
    pub placeholder_image: String,
    /// Labels of the nodes that games run on, as kubernetes.io/os=linux,pool=games: such pods go to no others
    #[arg(long, env = "BERTH_GAME_NODE_LABELS", default_value = "", value_parser = labels)]
    pub game_node_labels: BTreeMap<String, String>,
    /// How the sets work
    #[command(flatten)]
    pub batches: BatchSettings,
}

/// How many servers a set makes and removes at once.
#[derive(Clone, Debug, clap::Args)]
pub struct BatchSettings {
    /// Game servers of one set that are created at the same time
    #[arg(long, env = "MAX_CREATION_PARALLELISM", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_creation_parallelism: u32,
    /// Game servers that a set creates before it looks again
    #[arg(long, env = "MAX_GAME_SERVER_CREATIONS_PER_BATCH", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_game_server_creations_per_batch: u32,
    /// Game servers of one set that are removed at the same time
    #[arg(long, env = "MAX_DELETION_PARALLELISM", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_deletion_parallelism: u32,
    /// Game servers that a set removes before it looks again
    #[arg(long, env = "MAX_GAME_SERVER_DELETIONS_PER_BATCH", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_game_server_deletions_per_batch: u32,
    /// Game servers of one set that may be on their way to Ready at the same time
    #[arg(long, env = "MAX_POD_PENDING_COUNT", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_pod_pending_count: u32,
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    within(text, 1, 60).ok_or_else(|| "must lie between 1s and 60s, such as 2s".to_owned())
}

fn lost_after(text: &str) -> Result<Duration, String> {
    within(text, 1, 7 * 86_400).ok_or_else(|| "must lie between 1s and 168h, such as 15m".to_owned())
}

/// A duration between so many seconds.
fn within(text: &str, least: u64, most: u64) -> Option<Duration> {
    let signed: jiff::SignedDuration = text.parse().ok()?;
    let limits = Duration::from_secs(least)..=Duration::from_secs(most);
    Duration::try_from(signed).ok().filter(|duration| limits.contains(duration))
}

fn reserve(text: &str) -> Result<Room, String> {
    let mut room = Room::default();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, amount) = part.split_once('=').ok_or("must look like cpu=100m,memory=128Mi")?;
        let amount = Quantity::parse(amount).ok_or_else(|| format!("{amount:?} is not a quantity"))?;
        match name.trim() {
            "cpu" => room.milli_cpu = amount.as_milli(),
            "memory" => room.memory_bytes = amount.as_whole(),
            other => return Err(format!("{other:?} is neither cpu nor memory")),
        }
    }
    Ok(room)
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let read = |part: &str| match part.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{part:?} must look like kubernetes.io/os=linux")),
    };
    parts.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let settings = Settings::try_parse_from(["berth-brain"]).unwrap();
        assert_eq!(settings.lease_duration, Duration::from_secs(2));
        assert_eq!(settings.session_lost_after, Duration::from_secs(900));
        assert_eq!(settings.batches.max_creation_parallelism, 16);
        assert_eq!(settings.node_reserve, Room::default());
        assert!(!settings.placeholder_image.is_empty() && settings.game_node_labels.is_empty());
    }

    #[test]
    fn labels_are_read() {
        let read = labels("kubernetes.io/os=linux, pool=games,").expect("labels");
        let read: Vec<_> = read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(read, [("kubernetes.io/os", "linux"), ("pool", "games")]);
        assert_eq!(labels(""), Ok(BTreeMap::new()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for arguments in [
            ["--lease-duration", "0s"],
            ["--lease-duration", "two"],
            ["--lease-duration", "61s"],
            ["--session-lost-after", "0s"],
            ["--session-lost-after", "8d"],
            ["--node-reserve", "cpu"],
            ["--node-reserve", "disk=1"],
            ["--node-reserve", "cpu=many"],
            ["--max-creation-parallelism", "0"],
            ["--admin-address", "8080"],
            ["--game-node-labels", "linux"],
            ["--game-node-labels", "=linux"],
        ] {
            let all = ["berth-brain"].into_iter().chain(arguments);
            assert!(Settings::try_parse_from(all).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn a_reserve_is_read() {
        let room = Room { milli_cpu: 100, memory_bytes: 128 * 1024 * 1024, pods: 0 };
        assert_eq!(reserve("cpu=100m,memory=128Mi"), Ok(room));
    }
}
