//! Flags and environment of the instance's metadata.

use std::time::Duration;

use berth_runtime::exit::BadConfiguration;

use super::client::Base;
use super::{OnRebalance, Rules};
use crate::config::duration;
use crate::hook::HookName;

/// Whether the metadata are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wanted {
    /// On EC2, which is told by the Node's provider id, an endpoint that is set, or a game server group.
    #[default]
    Auto,
    /// In any case.
    On,
    /// Never.
    Off,
}

/// Flags, as given.
#[derive(Clone, Debug, clap::Args)]
pub struct MetadataFlags {
    /// Whether the instance's metadata are read for notices of its end
    #[arg(long, env = "BERTH_METADATA", value_enum, default_value = "auto")]
    pub metadata: Wanted,
    /// Where the instance's metadata are; 169.254.169.254 unless told otherwise
    #[arg(long, env = "AWS_EC2_METADATA_SERVICE_ENDPOINT")]
    pub metadata_endpoint: Option<String>,
    /// What a recommendation to rebalance does
    #[arg(long, env = "BERTH_METADATA_REBALANCE", value_enum, default_value = "ignore")]
    pub metadata_rebalance: OnRebalance,
    /// How long before a scheduled event the node is emptied
    #[arg(long, env = "BERTH_METADATA_SCHEDULED_LEAD", default_value = "2h", value_parser = duration)]
    pub metadata_scheduled_lead: Duration,
    /// Lifecycle hook of the instance's Auto Scaling group to answer when the instance ends, so that it waits for sessions
    #[arg(long, env = "BERTH_ASG_HOOK")]
    pub asg_hook: Option<String>,
}

/// What the poller runs by.
#[derive(Clone, Debug)]
pub struct MetadataSettings {
    /// Whether they are read.
    pub wanted: Wanted,
    /// Where they are, where that was told.
    pub endpoint: Option<Base>,
    /// How they are read.
    pub rules: Rules,
    /// The lifecycle hook that is answered, where one is.
    pub hook: Option<HookName>,
}

impl TryFrom<MetadataFlags> for MetadataSettings {
    type Error = BadConfiguration;

    fn try_from(flags: MetadataFlags) -> Result<Self, Self::Error> {
        let endpoint = flags.metadata_endpoint.filter(|text| !text.is_empty());
        let endpoint = endpoint.map(|text| {
            Base::parse(&text).ok_or_else(|| {
                BadConfiguration::new(format!(
                    "--metadata-endpoint is {text:?}; it must be an http URL such as http://169.254.169.254"
                ))
            })
        });
        let hook = flags.asg_hook.filter(|text| !text.is_empty());
        let hook = hook.map(|text| text.parse::<HookName>());
        let hook = hook.transpose().map_err(|error| BadConfiguration::new(format!("--asg-hook: {error}")))?;
        if hook.is_some() && flags.metadata == Wanted::Off {
            return Err(BadConfiguration::new(
                "--asg-hook needs the instance's metadata, which say when Auto Scaling ends it, and --metadata is off",
            ));
        }
        Ok(Self {
            wanted: flags.metadata,
            endpoint: endpoint.transpose()?,
            rules: Rules {
                on_rebalance: flags.metadata_rebalance,
                scheduled_lead: flags.metadata_scheduled_lead,
                has_hook: hook.is_some(),
            },
            hook,
        })
    }
}

impl MetadataSettings {
    /// Without metadata.
    #[must_use]
    pub fn off() -> Self {
        Self { wanted: Wanted::Off, endpoint: None, rules: Rules::default(), hook: None }
    }

    /// Where to read, if at all; `is_on_ec2` says what else is known.
    #[must_use]
    pub fn base(&self, is_on_ec2: bool) -> Option<Base> {
        let base = self.endpoint.clone();
        match self.wanted {
            Wanted::Off => None,
            Wanted::Auto if !is_on_ec2 => base,
            Wanted::Auto | Wanted::On => Some(base.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{MetadataFlags, MetadataSettings};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: MetadataFlags,
    }

    fn settings(arguments: &[&str]) -> Result<MetadataSettings, String> {
        let line =
            Line::try_parse_from(["agent"].iter().chain(arguments)).map_err(|error| error.to_string())?;
        MetadataSettings::try_from(line.flags).map_err(|error| error.to_string())
    }

    #[test]
    fn a_hook_is_answered_where_one_is_named_and_the_metadata_are_read() {
        let table: [(&[&str], Result<Option<&str>, &str>); 5] = [
            (&[], Ok(None)),
            (&["--asg-hook="], Ok(None)),
            (&["--asg-hook=berth-drain"], Ok(Some("berth-drain"))),
            (&["--asg-hook=a hook"], Err("no name of a lifecycle hook")),
            (&["--asg-hook=berth-drain", "--metadata=off"], Err("--metadata is off")),
        ];
        for (given, expected) in table {
            match (settings(given), expected) {
                (Ok(settings), Ok(name)) => {
                    assert_eq!(settings.hook.as_ref().map(|hook| hook.as_str()), name, "{given:?}");
                    assert_eq!(settings.rules.has_hook, name.is_some(), "{given:?}");
                }
                (Err(error), Err(words)) => assert!(error.contains(words), "{given:?}: {error}"),
                (other, _) => panic!("{given:?}: {other:?}"),
            }
        }
    }
}
