//! From the SDK's types to ours, where everything may be missing. Pure.

use aws_sdk_autoscaling::types::{AutoScalingGroup, Instance, ScalingActivityStatusCode, ScalingPolicy};
use aws_sdk_gamelift::types::GameServerGroup;

use super::Scaling;
use crate::limits::{Activity, ActivityEnding, GroupFacts, ScalingFacts};

/// The measure that FleetIQ's own scaling policy follows.
const UTILIZATION: &str = "PercentUtilizedGameServers";
/// The process that ends instances so that zones have equally many.
const ZONES: &str = "AZRebalance";

/// What a game server group says of itself.
pub(super) fn group(group: GameServerGroup) -> GroupFacts {
    let definitions = group.instance_definitions.unwrap_or_default();
    let weight = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(1);
    GroupFacts {
        protection_policy: group.game_server_protection_policy.map(|policy| policy.as_str().to_owned()),
        balancing_strategy: group.balancing_strategy.map(|strategy| strategy.as_str().to_owned()),
        group_status: group.status.map(|status| status.as_str().to_owned()),
        status_reason: group.status_reason,
        weights: definitions
            .into_iter()
            .filter_map(|definition| {
                let weight = weight(definition.weighted_capacity);
                Some((definition.instance_type?.as_str().to_owned(), weight))
            })
            .collect(),
    }
}

/// What an Auto Scaling group says, by its name.
pub(super) fn scaling(group: AutoScalingGroup) -> Option<(String, Scaling)> {
    let instances = group.instances.unwrap_or_default();
    let counted = instances.iter().filter(|instance| counts(instance));
    let suspended = group.suspended_processes.unwrap_or_default();
    let facts = ScalingFacts {
        // A size that is not said keeps nobody from anything.
        maximum: group.max_size.map_or(u32::MAX, |size| u32::try_from(size).unwrap_or(0)),
        weights: counted.map(weight).collect(),
        zones: group.availability_zones.unwrap_or_default().len(),
        rebalances_zones: suspended.iter().all(|process| process.process_name.as_deref() != Some(ZONES)),
    };
    let protected = |instance: Instance| Some((instance.instance_id?, instance.protected_from_scale_in?));
    let protected = instances.into_iter().filter_map(protected).collect();
    Some((group.auto_scaling_group_name?, Scaling { facts, protected }))
}

/// Whether an instance takes part of the group's size.
fn counts(instance: &Instance) -> bool {
    let state = instance.lifecycle_state.as_ref().map_or("", |state| state.as_str());
    !["Terminat", "Detach", "Warmed"].iter().any(|gone| state.starts_with(gone))
}

fn weight(instance: &Instance) -> u32 {
    instance.weighted_capacity.as_deref().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The newest first, as they come.
pub(super) fn activities(activities: Vec<aws_sdk_autoscaling::types::Activity>) -> Vec<Activity> {
    let read = |activity: aws_sdk_autoscaling::types::Activity| Activity {
        is_launch: activity.description.is_none_or(|description| !description.starts_with("Terminating")),
        ending: match activity.status_code {
            Some(ScalingActivityStatusCode::Successful) => ActivityEnding::Successful,
            Some(ScalingActivityStatusCode::Failed) => ActivityEnding::Failed,
            Some(_) | None => ActivityEnding::Other,
        },
        message: activity.status_message.or(activity.cause).unwrap_or_default(),
    };
    activities.into_iter().map(read).collect()
}

/// Whether a policy follows the share of utilized game servers.
pub(super) fn follows_utilization(policy: &ScalingPolicy) -> bool {
    let tracking = policy.target_tracking_configuration.as_ref();
    let metric = tracking.and_then(|tracking| tracking.customized_metric_specification.as_ref());
    metric.and_then(|metric| metric.metric_name.as_deref()) == Some(UTILIZATION)
}
