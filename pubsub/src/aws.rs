//! Calls of AWS: what is asked, and how an answer is to be taken.

mod facts;
mod outcome;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_gamelift::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_gamelift::types::{GameServerInstance, GameServerInstanceStatus};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use berth_api::notice::InstanceStatus;

pub(crate) use outcome::{CallFailed, Outcome};

use crate::groups::Group;
use crate::limits::{Activity, GroupFacts, ScalingFacts};
use crate::metrics::PubsubMetrics;
use crate::pace::Ending;
use crate::picture::{Listed, Poll};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long a call may take with all its attempts.
const CALL: Duration = Duration::from_secs(12);
/// Attempts of one call.
const ATTEMPTS: u32 = 3;
/// Scaling activities that are looked at.
const ACTIVITIES: i32 = 20;
/// Names that one call for Auto Scaling groups takes.
const NAMES: usize = 50;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Instances,
    Group,
    ScalingGroups,
    ScalingActivities,
    Policies,
}

impl Operation {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Instances => "DescribeGameServerInstances",
            Self::Group => "DescribeGameServerGroup",
            Self::ScalingGroups => "DescribeAutoScalingGroups",
            Self::ScalingActivities => "DescribeScalingActivities",
            Self::Policies => "DescribePolicies",
        }
    }
}

/// An Auto Scaling group, and which of its instances it keeps from being scaled in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scaling {
    pub(crate) facts: ScalingFacts,
    pub(crate) protected: BTreeMap<String, bool>,
}

/// Region, credentials and connections, from the ordinary chain: environment, profile, web identity, container, instance.
pub(crate) async fn configuration(region: Option<&str>) -> SdkConfig {
    let http =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
    if let Some(region) = region.filter(|region| !region.is_empty()) {
        loader = loader.region(Region::new(region.to_owned()));
    }
    loader.load().await
}

/// Asks AWS.
#[derive(Clone, Debug)]
pub(crate) struct Aws {
    fleetiq: aws_sdk_gamelift::Client,
    scaling: aws_sdk_autoscaling::Client,
    metrics: PubsubMetrics,
}

impl Aws {
    /// Clients with limits on every call.
    pub(crate) fn new(configuration: &SdkConfig, metrics: PubsubMetrics) -> Self {
        let timeouts = TimeoutConfig::builder();
        let timeouts =
            timeouts.connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).operation_timeout(CALL);
        let retries = RetryConfig::standard().with_max_attempts(ATTEMPTS);
        let configuration =
            configuration.to_builder().timeout_config(timeouts.build()).retry_config(retries).build();
        Self {
            fleetiq: aws_sdk_gamelift::Client::new(&configuration),
            scaling: aws_sdk_autoscaling::Client::new(&configuration),
            metrics,
        }
    }

    /// All instances of a group, or those of the pages before something went wrong.
    pub(crate) async fn instances(&self, group: &Group) -> Poll {
        let ask = self.fleetiq.describe_game_server_instances().game_server_group_name(group.asked());
        let mut pages = ask.into_paginator().send();
        let mut poll = Poll { instances: Vec::new(), ending: Ending::Complete, error: None };
        while let Some(page) = pages.next().await {
            match self.taken(Operation::Instances, page) {
                Ok(page) => {
                    let listed = page.game_server_instances.unwrap_or_default();
                    poll.instances.extend(listed.into_iter().filter_map(|one| self.listed(one)));
                }
                Err(failed) => {
                    poll.ending = failed.outcome.ending();
                    poll.error = Some(failed.to_string());
                    break;
                }
            }
        }
        poll
    }

    fn listed(&self, instance: GameServerInstance) -> Option<Listed> {
        let status = match instance.instance_status {
            Some(GameServerInstanceStatus::Active) => Some(InstanceStatus::Active),
            Some(GameServerInstanceStatus::Draining) => Some(InstanceStatus::Draining),
            Some(GameServerInstanceStatus::SpotTerminating) => Some(InstanceStatus::SpotTerminating),
            Some(_) | None => None,
        };
        if status.is_none() || instance.instance_id.is_none() {
            self.metrics.unknown_statuses.inc();
        }
        let group_arn = instance.game_server_group_arn.unwrap_or_default();
        Some(Listed { instance: instance.instance_id?, group_arn, status })
    }

    /// What a group says of itself.
    pub(crate) async fn group(&self, group: &Group) -> Result<GroupFacts, CallFailed> {
        let asked =
            self.fleetiq.describe_game_server_group().game_server_group_name(group.asked()).send().await;
        let said = self.taken(Operation::Group, asked)?;
        Ok(said.game_server_group.map(facts::group).unwrap_or_default())
    }

    /// The Auto Scaling groups of these, by name.
    pub(crate) async fn scaling_groups(
        &self,
        groups: &[Group],
    ) -> Result<BTreeMap<String, Scaling>, CallFailed> {
        let mut found = BTreeMap::new();
        for some in groups.chunks(NAMES) {
            let names = some.iter().map(Group::scaling_group).collect();
            let ask = self.scaling.describe_auto_scaling_groups().set_auto_scaling_group_names(Some(names));
            let mut pages = ask.into_paginator().send();
            while let Some(page) = pages.next().await {
                let page = self.taken(Operation::ScalingGroups, page)?;
                let groups = page.auto_scaling_groups.unwrap_or_default();
                found.extend(groups.into_iter().filter_map(facts::scaling));
            }
        }
        Ok(found)
    }

    /// What Auto Scaling did for a group, the newest first.
    pub(crate) async fn activities(&self, group: &Group) -> Result<Vec<Activity>, CallFailed> {
        let ask = self.scaling.describe_scaling_activities().auto_scaling_group_name(group.scaling_group());
        let asked = ask.max_records(ACTIVITIES).send().await;
        let said = self.taken(Operation::ScalingActivities, asked)?;
        Ok(facts::activities(said.activities.unwrap_or_default()))
    }

    /// Whether a policy scales the group by the share of its utilized game servers.
    pub(crate) async fn scales_by_utilization(&self, group: &Group) -> Result<bool, CallFailed> {
        let asked =
            self.scaling.describe_policies().auto_scaling_group_name(group.scaling_group()).send().await;
        let said = self.taken(Operation::Policies, asked)?;
        Ok(said.scaling_policies.unwrap_or_default().iter().any(facts::follows_utilization))
    }

    /// Counts what came of a call.
    fn taken<T, E, R>(&self, operation: Operation, answer: Result<T, SdkError<E, R>>) -> Result<T, CallFailed>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        let taken = answer.map_err(|error| CallFailed::new(operation, &error));
        let outcome = taken.as_ref().map_or_else(|failed| failed.outcome, |_| Outcome::Done);
        self.metrics.note_call(operation, outcome);
        taken
    }
}
