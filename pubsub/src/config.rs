//! Settings: flags with environment twins, parsed once. Names that other publishers' deployments set are taken too.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use berth_runtime::kube_client::KubeSettings;
use berth_runtime::redis_url::RedisFlags;
use berth_runtime::telemetry::LogSettings;
use clap::{Parser, ValueEnum};

use crate::groups::FILE_NAME;

/// Tells every node what FleetIQ thinks of its instance, by Redis, and names the limit that stops a scale-up
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-pubsub", version)]
pub struct Settings {
    /// Where the API server is
    #[command(flatten)]
    pub kube: KubeSettings,
    /// How to log
    #[command(flatten)]
    pub log: LogSettings,
    /// Where Redis is; needed
    #[command(flatten)]
    pub redis: RedisFlags,
    /// Address for /livez, /readyz and /metrics; without it there is no such endpoint
    #[arg(long, env = "BERTH_ADMIN_ADDRESS")]
    pub admin_address: Option<SocketAddr>,
    /// AWS Region of the groups; without it what the environment, the profile or the instance says
    #[arg(long, env = "AWS_REGION")]
    pub region: Option<String>,
    /// Where the groups are named: in the mounted file, or in the ConfigMap by the API
    #[arg(long, env = "BERTH_GROUPS_FROM", value_enum, default_value_t = GroupsFrom::File)]
    pub groups_from: GroupsFrom,
    /// The mounted file, read again at each poll
    #[arg(long, env = "BERTH_GROUPS_FILE", default_value_os_t = PathBuf::from("/etc/fleetiq").join(FILE_NAME))]
    pub groups_file: PathBuf,
    /// The ConfigMap, as NAMESPACE/NAME; Events are about it, wherever the groups are named
    #[arg(long, env = "BERTH_GROUPS_CONFIG_MAP", default_value = "default/fleetiqconfig")]
    pub groups_config_map: ConfigMapName,
    /// How often each group's instances are asked for, 10s to 300s; AWS asks for 10 s at least
    #[arg(long, env = "BERTH_POLL_PERIOD", default_value = "30s", value_parser = poll_period)]
    pub poll_period: Duration,
    /// How often an unchanged status is published, 60s to 120s. Readers of other makes take one step a message, and
    /// fall behind when there are more
    #[arg(long, env = "BERTH_HEARTBEAT_PERIOD", default_value = "60s", value_parser = heartbeat_period)]
    pub heartbeat_period: Duration,
    /// How often to look which limits bite, 30s to 1h
    #[arg(long, env = "BERTH_LIMITS_PERIOD", default_value = "60s", value_parser = limits_period)]
    pub limits_period: Duration,
    /// Game servers that a group may have: the account's quota
    #[arg(long, env = "BERTH_SERVERS_PER_GROUP", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub servers_per_group: u32,
    /// Several of us, of which one polls, by a Lease in the cluster; off for one alone
    #[arg(long, env = "BERTH_LEADER_ELECTION", value_enum, default_value_t = LeaderElection::On)]
    pub leader_election: LeaderElection,
    /// Tell by Events what is wrong and which limit bites, and look at the cluster's own limits too; off without a cluster
    #[arg(long, env = "BERTH_EVENTS", value_enum, default_value_t = Events::On)]
    pub events: Events,
    /// How long we lead without renewing the lease, and so how long another waits when we are gone, 2s to 60s
    #[arg(long, env = "BERTH_LEASE_DURATION", default_value = "15s", value_parser = lease_duration)]
    pub lease_duration: Duration,
}

/// Where the groups are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupsFrom {
    /// In a file.
    File,
    /// In a ConfigMap.
    ConfigMap,
}

/// Whether there may be several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeaderElection {
    /// One of several polls.
    On,
    /// There is but one.
    Off,
}

/// Whether the cluster is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Events {
    /// By Events.
    On,
    /// The log alone is.
    Off,
}

impl Settings {
    /// Whether there must be a cluster.
    #[must_use]
    pub fn needs_cluster(&self) -> bool {
        self.leader_election == LeaderElection::On
            || self.groups_from == GroupsFrom::ConfigMap
            || self.events == Events::On
    }
}

/// Namespace and name of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ConfigMapName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ConfigMapName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            Some(_) | None => Err("must be NAMESPACE/NAME, such as default/fleetiqconfig"),
        }
    }
}

/// As other publishers have it: a bare number is in seconds.
fn between(text: &str, least: u64, most: u64) -> Result<Duration, String> {
    let signed = match text.parse::<i64>() {
        Ok(seconds) => jiff::SignedDuration::from_secs(seconds),
        Err(_) => text.parse().map_err(|error| format!("{error}; try {least}s"))?,
    };
    Duration::try_from(signed)
        .ok()
        .filter(|given| (Duration::from_secs(least)..=Duration::from_secs(most)).contains(given))
        .ok_or_else(|| format!("must lie between {least}s and {most}s"))
}

fn poll_period(text: &str) -> Result<Duration, String> {
    between(text, 10, 300)
}

fn heartbeat_period(text: &str) -> Result<Duration, String> {
    between(text, 60, 120)
}

fn limits_period(text: &str) -> Result<Duration, String> {
    between(text, 30, 3600)
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    between(text, 2, 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let settings = Settings::try_parse_from(["berth-pubsub"]).unwrap();
        assert_eq!(settings.groups_file, PathBuf::from("/etc/fleetiq/fleetiq.conf"));
        assert_eq!(settings.groups_config_map.to_string(), "default/fleetiqconfig");
        assert_eq!((settings.poll_period.as_secs(), settings.heartbeat_period.as_secs()), (30, 60));
        assert_eq!((settings.lease_duration.as_secs(), settings.servers_per_group), (15, 1000));
        assert_eq!((settings.leader_election, settings.events), (LeaderElection::On, Events::On));
        let alone = ["berth-pubsub", "--leader-election", "off", "--events", "off"];
        assert!(settings.needs_cluster() && !Settings::try_parse_from(alone).unwrap().needs_cluster());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for arguments in [
            ["--poll-period", "9s"],
            ["--poll-period", "301"],
            ["--poll-period", "often"],
            ["--heartbeat-period", "30s"],
            ["--heartbeat-period", "1h"],
            ["--limits-period", "1s"],
            ["--servers-per-group", "0"],
            ["--groups-config-map", "fleetiqconfig"],
            ["--groups-config-map", "a/b/c"],
            ["--groups-from", "etcd"],
            ["--lease-duration", "1s"],
            ["--leader-election", "perhaps"],
        ] {
            let all = ["berth-pubsub"].into_iter().chain(arguments);
            assert!(Settings::try_parse_from(all).is_err(), "{arguments:?}");
        }
        let settings = Settings::try_parse_from(["berth-pubsub", "--poll-period", "45"]).unwrap();
        assert_eq!(settings.poll_period.as_secs(), 45);
    }
}
