//! Flags and environment of the instance's metadata.

use std::time::Duration;

use berth_runtime::exit::BadConfiguration;

use super::client::Base;
use super::{OnRebalance, Rules};
use crate::config::duration;

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
        Ok(Self {
            wanted: flags.metadata,
            endpoint: endpoint.transpose()?,
            rules: Rules {
                on_rebalance: flags.metadata_rebalance,
                scheduled_lead: flags.metadata_scheduled_lead,
            },
        })
    }
}

impl MetadataSettings {
    /// Without metadata.
    #[must_use]
    pub fn off() -> Self {
        Self { wanted: Wanted::Off, endpoint: None, rules: Rules::default() }
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
