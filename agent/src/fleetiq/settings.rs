//! Flags and environment of FleetIQ. The names of the GameLift FleetIQ adapter are taken as they are.

use std::time::Duration;

use berth_runtime::exit::BadConfiguration;
use berth_runtime::redis_url::{RedisFlags, RedisServer};
use tracing::warn;

use super::machine::Unprotected;
use crate::config::duration;

/// Whether FleetIQ is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wanted {
    /// Where a game server group can be had.
    #[default]
    Auto,
    /// In any case: a group that cannot be had is a problem.
    On,
    /// Never.
    Off,
}

/// Whether an instance that nobody needs is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleRelease {
    /// Never: it stays in use until its node is emptied.
    Off,
    /// When no session has been on it for so long.
    After(Duration),
}

impl IdleRelease {
    /// After how long, if ever.
    #[must_use]
    pub fn length(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::After(length) => Some(length),
        }
    }
}

/// Flags, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetFlags {
    /// Whether GameLift FleetIQ is used
    #[arg(long, env = "BERTH_FLEETIQ", value_enum, default_value = "auto")]
    pub fleetiq: Wanted,
    /// Game server group of this node's instance; else the Node's label gamelift.status/group, else its Auto Scaling group
    #[arg(long, env = "GAME_SERVER_GROUP_NAME")]
    pub game_server_group_name: Option<String>,
    /// Region of the group; else the instance's
    #[arg(long, env = "AWS_REGION")]
    pub aws_region: Option<String>,
    /// Whether servers are offered while FleetIQ does not keep the instance: refuse, or allow-after:DURATION
    #[arg(long, env = "BERTH_FLEETIQ_UNPROTECTED", default_value = "allow-after:5m", value_parser = unprotected)]
    pub fleetiq_unprotected: Unprotected,
    /// How long a node has had no session when it may be let go, if its game servers are not needed there; or off
    #[arg(long, env = "BERTH_FLEETIQ_IDLE_RELEASE", default_value = "10m", value_parser = idle_release)]
    pub fleetiq_idle_release: IdleRelease,
    /// Where the instances' statuses are published
    #[command(flatten)]
    pub redis: RedisFlags,
    /// Of the adapter; without effect
    #[arg(long, hide = true)]
    pub failure_threshold: Option<u32>,
    /// Of the adapter; without effect
    #[arg(long, hide = true)]
    pub healthcheck_interval: Option<u32>,
}

/// What the FleetIQ part runs by.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Whether it is in use.
    pub wanted: Wanted,
    /// The group, where it was told.
    pub group: Option<String>,
    /// The region, where it was told.
    pub region: Option<String>,
    /// Whether an instance is offered that is not kept.
    pub unprotected: Unprotected,
    /// Whether an instance that nobody needs is given back.
    pub idle_release: IdleRelease,
    /// Where statuses are published.
    pub redis: Option<RedisServer>,
    /// Flags of the adapter that were given and do nothing.
    pub ignored: Vec<&'static str>,
}

impl TryFrom<FleetFlags> for FleetSettings {
    type Error = BadConfiguration;

    fn try_from(flags: FleetFlags) -> Result<Self, Self::Error> {
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let ignored = [
            ("--failure-threshold", flags.failure_threshold.is_some()),
            ("--healthcheck-interval", flags.healthcheck_interval.is_some()),
        ];
        Ok(Self {
            wanted: flags.fleetiq,
            group: said(flags.game_server_group_name),
            region: said(flags.aws_region),
            unprotected: flags.fleetiq_unprotected,
            idle_release: flags.fleetiq_idle_release,
            redis: flags.redis.server()?,
            ignored: ignored.into_iter().filter_map(|(flag, is_given)| is_given.then_some(flag)).collect(),
        })
    }
}

impl FleetSettings {
    /// Without FleetIQ.
    #[must_use]
    pub fn off() -> Self {
        Self {
            wanted: Wanted::Off,
            group: None,
            region: None,
            unprotected: Unprotected::Refuse,
            idle_release: IdleRelease::Off,
            redis: None,
            ignored: Vec::new(),
        }
    }

    /// Says which flags do nothing here.
    pub fn warn_of_ignored(&self) {
        for flag in &self.ignored {
            warn!(
                flag,
                "taken from the FleetIQ adapter, and without effect: a sign of life is given each minute"
            );
        }
    }
}

fn idle_release(text: &str) -> Result<IdleRelease, String> {
    if text == "off" {
        return Ok(IdleRelease::Off);
    }
    duration(text).map(IdleRelease::After).map_err(|error| format!("{error}; or off"))
}

fn unprotected(text: &str) -> Result<Unprotected, String> {
    match text.split_once(':') {
        None if text == "refuse" => Ok(Unprotected::Refuse),
        Some(("allow-after", wait)) => duration(wait).map(Unprotected::AllowAfter),
        _ => Err("must be refuse or allow-after:DURATION, such as allow-after:5m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::{FleetFlags, FleetSettings, IdleRelease, Wanted};
    use crate::fleetiq::machine::Unprotected;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: FleetFlags,
    }

    fn settings(arguments: &[&str]) -> Result<FleetSettings, String> {
        let line =
            Line::try_parse_from(["agent"].iter().chain(arguments)).map_err(|error| error.to_string())?;
        FleetSettings::try_from(line.flags).map_err(|error| error.to_string())
    }

    #[test]
    fn the_flags_of_the_adapter_are_taken_and_named_as_without_effect() {
        let given = ["--failure-threshold=2", "--healthcheck-interval=60", "--game-server-group-name=pvp"];
        let settings = settings(&given).expect("valid");
        assert_eq!(settings.group.as_deref(), Some("pvp"));
        assert_eq!(settings.ignored, ["--failure-threshold", "--healthcheck-interval"]);
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let settings = settings(&["--game-server-group-name=", "--redis-url="]).expect("valid");
        assert_eq!((settings.wanted, settings.group), (Wanted::Auto, None));
        assert!(settings.redis.is_none());
        assert_eq!(settings.unprotected, Unprotected::AllowAfter(Duration::from_secs(300)));
        assert_eq!(settings.idle_release, IdleRelease::After(Duration::from_secs(600)));
    }

    #[test]
    fn an_idle_instance_is_given_back_after_a_while_or_never() {
        let table = [
            ("off", Some(IdleRelease::Off)),
            ("90s", Some(IdleRelease::After(Duration::from_secs(90)))),
            ("never", None),
            ("", None),
        ];
        for (text, expected) in table {
            let given =
                settings(&["--fleetiq-idle-release", text]).ok().map(|settings| settings.idle_release);
            assert_eq!(given, expected, "{text}");
        }
    }

    #[test]
    fn unprotected_nodes_are_refused_or_allowed_after_a_while() {
        let table = [
            ("refuse", Some(Unprotected::Refuse)),
            ("allow-after:90s", Some(Unprotected::AllowAfter(Duration::from_secs(90)))),
            ("allow-after", None),
            ("allow-after:soon", None),
            ("always", None),
        ];
        for (text, expected) in table {
            let given = settings(&["--fleetiq-unprotected", text]).ok().map(|settings| settings.unprotected);
            assert_eq!(given, expected, "{text}");
        }
    }
}
