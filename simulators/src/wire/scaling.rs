//! Auto Scaling on the wire: the few actions that live beside a game server group.

use super::value::{Members, Value};
use crate::world::{Activity, Group, Hook, HookResult, ScalingError, ScalingInstance, World, known};

/// Carries out an action, and gives its result.
pub(super) fn perform(
    world: &mut World,
    action: &str,
    form: &[(String, String)],
    by: &str,
) -> Result<Value, ScalingError> {
    let form = Form(form);
    Ok(match action {
        "DescribeAutoScalingInstances" => {
            let instances = world.scaling_instances(&form.list("InstanceIds"))?;
            let instances = instances.iter().map(|one| instance_value(one, true)).collect::<Vec<_>>();
            Members::new().with("AutoScalingInstances", instances).into()
        }
        "DescribeAutoScalingGroups" => {
            let groups = world.scaling_groups(&form.list("AutoScalingGroupNames"));
            let groups = groups.iter().map(|(group, instances)| group_value(world, group, instances));
            Members::new().with("AutoScalingGroups", groups.collect::<Vec<_>>()).into()
        }
        "DescribeScalingActivities" => {
            let activities = world.scaling_activities(form.get("AutoScalingGroupName"));
            let activities = activities.iter().map(activity_value).collect::<Vec<_>>();
            Members::new().with("Activities", activities).into()
        }
        "DescribePolicies" => {
            let name = form.get("AutoScalingGroupName");
            let groups =
                world.groups().filter(|group| name.is_none_or(|name| group.name.scaling_group() == name));
            let policies = groups.filter_map(policy_value).collect::<Vec<_>>();
            Members::new().with("ScalingPolicies", policies).into()
        }
        "DescribeLifecycleHooks" => {
            let group = world.scaling_group(form.required("AutoScalingGroupName")?)?;
            let names = form.list("LifecycleHookNames");
            let hooks = group.hooks.iter().filter(|hook| names.is_empty() || names.contains(&hook.name));
            let hooks = hooks.map(|hook| hook_value(group, hook)).collect::<Vec<_>>();
            Members::new().with("LifecycleHooks", hooks).into()
        }
        "CompleteLifecycleAction" => {
            let result =
                known::<HookResult>("LifecycleActionResult", form.required("LifecycleActionResult")?)
                    .map_err(|refusal| ScalingError::validation(refusal.message))?;
            answer_hook(world, &form, Some(result))?
        }
        "RecordLifecycleActionHeartbeat" => answer_hook(world, &form, None)?,
        "TerminateInstanceInAutoScalingGroup" => {
            let decrements = form.flag("ShouldDecrementDesiredCapacity")?;
            let id = world.terminate_by_call(form.required("InstanceId")?, decrements, by)?;
            let activity = Members::new()
                .with("ActivityId", format!("terminate-{id}"))
                .with("Description", format!("Terminating EC2 instance: {id}"))
                .with("StatusCode", "InProgress")
                .with("StartTime", world.now());
            Members::new().with("Activity", activity).into()
        }
        "SetInstanceProtection" => {
            world.scaling_group(form.required("AutoScalingGroupName")?)?;
            world.protect_by_call(&form.list("InstanceIds"), form.flag("ProtectedFromScaleIn")?)?;
            Members::new().into()
        }
        unknown => {
            let message = format!("Could not find operation {unknown} for version 2011-01-01");
            return Err(ScalingError { code: "InvalidAction", message });
        }
    })
}

fn answer_hook(
    world: &mut World,
    form: &Form<'_>,
    result: Option<HookResult>,
) -> Result<Value, ScalingError> {
    let group = form.required("AutoScalingGroupName")?;
    let hook = form.required("LifecycleHookName")?;
    world.answer_hook(group, hook, form.required("InstanceId")?, result)?;
    Ok(Members::new().into())
}

/// The pairs of a form, asked for by name.
struct Form<'a>(&'a [(String, String)]);

impl<'a> Form<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    fn required(&self, name: &str) -> Result<&'a str, ScalingError> {
        self.get(name).ok_or_else(|| ScalingError::validation(format!("{name} is required")))
    }

    fn flag(&self, name: &str) -> Result<bool, ScalingError> {
        match self.required(name)? {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(ScalingError::validation(format!("{name} is true or false, not {other}"))),
        }
    }

    /// `Name.member.1`, `Name.member.2` and so on, in the order in which they came.
    fn list(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}.member.");
        let members = self.0.iter().filter(|(given, _)| given.starts_with(&prefix));
        members.map(|(_, value)| value.clone()).collect()
    }
}

fn instance_value(instance: &ScalingInstance, is_alone: bool) -> Value {
    // The same fact is written one way in a list of instances, and the other way within a group.
    let health = match (is_alone, instance.is_healthy) {
        (true, true) => "HEALTHY",
        (true, false) => "UNHEALTHY",
        (false, true) => "Healthy",
        (false, false) => "Unhealthy",
    };
    Members::new()
        .with("InstanceId", instance.id.as_str())
        .with("InstanceType", instance.instance_type.as_str())
        .with_some("AutoScalingGroupName", is_alone.then(|| instance.group.scaling_group()))
        .with("AvailabilityZone", instance.zone.as_str())
        .with("LifecycleState", instance.lifecycle)
        .with("HealthStatus", health)
        .with("ProtectedFromScaleIn", Value::Bool(instance.is_protected))
        .with("WeightedCapacity", instance.weight.to_string())
        .into()
}

fn group_value(world: &World, group: &Group, instances: &[ScalingInstance]) -> Value {
    Members::new()
        .with("AutoScalingGroupName", group.name.scaling_group())
        .with("AutoScalingGroupARN", world.scaling_group_arn(&group.name))
        .with("MinSize", Value::Integer(i64::from(group.minimum)))
        .with("MaxSize", Value::Integer(i64::from(group.maximum)))
        .with("DesiredCapacity", Value::Integer(i64::from(group.desired)))
        .with("DefaultCooldown", Value::Integer(300))
        .with(
            "AvailabilityZones",
            group.zones.iter().map(|zone| Value::from(zone.as_str())).collect::<Vec<_>>(),
        )
        .with("HealthCheckType", "EC2")
        .with("HealthCheckGracePeriod", Value::Integer(300))
        .with("Instances", instances.iter().map(|one| instance_value(one, false)).collect::<Vec<_>>())
        .with("CreatedTime", group.created)
        .with("NewInstancesProtectedFromScaleIn", Value::Bool(false))
        .into()
}

fn activity_value(activity: &Activity) -> Value {
    Members::new()
        .with("ActivityId", format!("activity-{}", activity.number))
        .with("AutoScalingGroupName", activity.group.scaling_group())
        .with("Description", "Launching a new EC2 instance")
        .with("Cause", "a difference between desired and actual capacity")
        .with("StartTime", activity.time)
        .with("StatusCode", "Failed")
        .with("StatusMessage", activity.message.as_str())
        .with("Progress", Value::Integer(100))
        .into()
}

/// The policy that FleetIQ makes for a group that has a target.
fn policy_value(group: &Group) -> Option<Value> {
    let metric = Members::new()
        .with("MetricName", "PercentUtilizedGameServers")
        .with("Namespace", "AWS/GameLift")
        .with("Statistic", "Average");
    let tracking = Members::new()
        .with("CustomizedMetricSpecification", metric)
        .with("TargetValue", Value::Float(group.utilization_target?));
    let policy = Members::new()
        .with("AutoScalingGroupName", group.name.scaling_group())
        .with("PolicyName", format!("{}-policy", group.name.scaling_group()))
        .with("PolicyType", "TargetTrackingScaling")
        .with("TargetTrackingConfiguration", tracking);
    Some(policy.into())
}

fn hook_value(group: &Group, hook: &Hook) -> Value {
    let seconds = i64::try_from(hook.heartbeat_timeout_ms.0 / 1000).unwrap_or(i64::MAX);
    Members::new()
        .with("LifecycleHookName", hook.name.as_str())
        .with("AutoScalingGroupName", group.name.scaling_group())
        .with("LifecycleTransition", "autoscaling:EC2_INSTANCE_TERMINATING")
        .with("HeartbeatTimeout", Value::Integer(seconds))
        .with("GlobalTimeout", Value::Integer(seconds.saturating_mul(100).min(48 * 60 * 60)))
        .with("DefaultResult", hook.default_result.as_str())
        .into()
}
