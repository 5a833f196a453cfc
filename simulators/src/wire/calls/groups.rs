//! Groups on the wire.

use super::fields::Fields;
use super::{Answer, whole_number};
use crate::wire::value::{Members, Value};
use crate::world::{
    Balancing, CreateGroup, Group, GroupName, InstanceDefinition, Protection, Refusal, UpdateGroup, World,
    known,
};

pub(super) fn read_create(fields: &Fields<'_>) -> Result<CreateGroup, Refusal> {
    let required = |name: &str| Refusal::invalid(format!("{name} is required"));
    Ok(CreateGroup {
        name: fields.required("GameServerGroupName", GroupName::parse)?,
        role: fields.required("RoleArn", role)?,
        types: definitions(fields)?.ok_or_else(|| required("InstanceDefinitions"))?,
        minimum: fields.number("MinSize")?.ok_or_else(|| required("MinSize"))?,
        maximum: fields.number("MaxSize")?.ok_or_else(|| required("MaxSize"))?,
        balancing: balancing(fields)?,
        protection: protection(fields)?,
        utilization_target: utilization_target(fields)?,
    })
}

pub(super) fn read_update(fields: &Fields<'_>) -> Result<UpdateGroup, Refusal> {
    Ok(UpdateGroup {
        name: fields.required("GameServerGroupName", GroupName::parse)?,
        role: fields.optional("RoleArn", role)?,
        types: definitions(fields)?,
        balancing: balancing(fields)?,
        protection: protection(fields)?,
    })
}

/// The one thing that can be suspended.
pub(super) fn check_actions(fields: &Fields<'_>) -> Result<(), Refusal> {
    match fields.texts("SuspendActions")?.or(fields.texts("ResumeActions")?) {
        Some(actions) if actions == ["REPLACE_INSTANCE_TYPES"] => Ok(()),
        Some(_) => Err(Refusal::invalid("the only action is REPLACE_INSTANCE_TYPES")),
        None => Err(Refusal::invalid("SuspendActions or ResumeActions is required")),
    }
}

fn role(text: &str) -> Result<String, Refusal> {
    let is_role = text.starts_with("arn:") && text.contains(":role/") && text.len() <= 256;
    if is_role { Ok(text.to_owned()) } else { Err(Refusal::invalid("RoleArn must be the ARN of a role")) }
}

fn balancing(fields: &Fields<'_>) -> Result<Option<Balancing>, Refusal> {
    fields.optional("BalancingStrategy", |text| known("BalancingStrategy", text))
}

fn protection(fields: &Fields<'_>) -> Result<Option<Protection>, Refusal> {
    const FIELD: &str = "GameServerProtectionPolicy";
    fields.optional(FIELD, |text| known(FIELD, text))
}

/// What the group's own scaling policy aims at, in percent.
fn utilization_target(fields: &Fields<'_>) -> Result<Option<f64>, Refusal> {
    let Some(policy) = fields.map("AutoScalingPolicy")? else { return Ok(None) };
    let Some(configuration) = policy.map("TargetTrackingConfiguration")? else { return Ok(None) };
    match configuration.real("TargetValue")? {
        Some(target) if target > 0.0 => Ok(Some(target)),
        Some(_) | None => Err(Refusal::invalid("TargetValue must be above 0")),
    }
}

fn definitions(fields: &Fields<'_>) -> Result<Option<Vec<InstanceDefinition>>, Refusal> {
    let Some(items) = fields.list("InstanceDefinitions")? else { return Ok(None) };
    if !(2..=20).contains(&items.len()) {
        return Err(Refusal::invalid("InstanceDefinitions must have 2 to 20 types"));
    }
    let definition = |item: &Value| {
        let fields = Fields::of(item)?;
        Ok(InstanceDefinition {
            instance_type: fields.required("InstanceType", |text| Ok(text.to_owned()))?,
            weight: fields
                .optional("WeightedCapacity", |text| whole_number("WeightedCapacity", text))?
                .unwrap_or(1),
        })
    };
    items.iter().map(definition).collect::<Result<Vec<_>, Refusal>>().map(Some)
}

pub(super) fn answer(world: &World, group: &Group) -> Answer {
    Answer::Message(Members::new().with("GameServerGroup", value(world, group)).into())
}

pub(super) fn value(world: &World, group: &Group) -> Value {
    let definition = |definition: &InstanceDefinition| {
        Members::new()
            .with("InstanceType", definition.instance_type.as_str())
            .with("WeightedCapacity", definition.weight.to_string())
            .into()
    };
    let suspended = if group.suspended { vec![Value::from("REPLACE_INSTANCE_TYPES")] } else { Vec::new() };
    Members::new()
        .with("GameServerGroupName", group.name.as_str())
        .with("GameServerGroupArn", world.group_arn(&group.name))
        .with("RoleArn", group.role.as_str())
        .with("InstanceDefinitions", group.types.iter().map(definition).collect::<Vec<_>>())
        .with("BalancingStrategy", group.balancing.as_str())
        .with("GameServerProtectionPolicy", group.protection.as_str())
        .with("AutoScalingGroupArn", world.scaling_group_arn(&group.name))
        .with("Status", group.status.as_str())
        .with_some("StatusReason", Some(&group.status_reason).filter(|reason| !reason.is_empty()).cloned())
        .with("SuspendedActions", suspended)
        .with("CreationTime", group.created)
        .with("LastUpdatedTime", group.updated)
        .into()
}
