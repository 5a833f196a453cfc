//! The account as Auto Scaling sees it.

use jiff::Timestamp;
use serde::Serialize;

use super::World;
use super::parameters::DrainingShown;
use super::things::{Cause, Group, Instance, Stage};
use super::words::{GroupName, HookResult, InstanceId, InstanceStatus};

/// Ids that one call may name.
const MOST_INSTANCES: usize = 50;

/// Something that Auto Scaling did, or could not do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Activity {
    pub(crate) number: u64,
    pub(crate) group: GroupName,
    pub(crate) time: Timestamp,
    pub(crate) message: String,
}

/// An instance as Auto Scaling shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalingInstance {
    pub(crate) id: InstanceId,
    pub(crate) group: GroupName,
    pub(crate) zone: String,
    pub(crate) instance_type: String,
    pub(crate) weight: u32,
    pub(crate) is_healthy: bool,
    pub(crate) lifecycle: &'static str,
    pub(crate) is_protected: bool,
}

/// What Auto Scaling says no with: its code and its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub(crate) struct ScalingError {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl ScalingError {
    pub(crate) fn validation(message: impl Into<String>) -> Self {
        Self { code: "ValidationError", message: message.into() }
    }
}

impl World {
    /// How an instance is shown; nothing when Auto Scaling does not know it.
    fn shown(&self, instance: &Instance) -> Option<ScalingInstance> {
        let is_draining = instance.status == InstanceStatus::Draining && instance.stage == Stage::InService;
        let lifecycle = match (is_draining, self.parameters.draining_shown_as) {
            (true, DrainingShown::Missing) => return None,
            (true, DrainingShown::Standby) => "Standby",
            (true, DrainingShown::Detached) => "Detached",
            (true, DrainingShown::InService) | (false, _) => instance.stage.as_str(),
        };
        Some(ScalingInstance {
            id: instance.id.clone(),
            group: instance.group.clone(),
            zone: instance.zone.clone(),
            instance_type: instance.instance_type.clone(),
            weight: self
                .groups
                .get(&instance.group)
                .map_or(1, |group| group.weight_of(&instance.instance_type)),
            is_healthy: instance.healthy,
            lifecycle,
            is_protected: instance.protected_by_call || self.shows_kept(instance),
        })
    }

    /// Protection by FleetIQ, as late as Auto Scaling shows it.
    fn shows_kept(&self, instance: &Instance) -> bool {
        let lag = self.parameters.protection_lag_ms.duration();
        let is_settled = self.now >= instance.kept.since + lag;
        instance.kept.is_kept == is_settled
    }

    /// Instances by id; ids that nobody knows are left out.
    pub(crate) fn scaling_instances(&self, ids: &[String]) -> Result<Vec<ScalingInstance>, ScalingError> {
        if ids.len() > MOST_INSTANCES {
            return Err(ScalingError::validation(format!("at most {MOST_INSTANCES} instance ids")));
        }
        let wanted = |one: &&Instance| ids.is_empty() || ids.iter().any(|id| id == one.id.as_str());
        Ok(self.instances.values().filter(wanted).filter_map(|one| self.shown(one)).collect())
    }

    /// Groups by their Auto Scaling name, each with its instances.
    pub(crate) fn scaling_groups(&self, names: &[String]) -> Vec<(Group, Vec<ScalingInstance>)> {
        self.groups
            .values()
            .filter(|group| names.is_empty() || names.contains(&group.name.scaling_group()))
            .map(|group| {
                let instances = self.instances.values().filter(|one| one.group == group.name);
                (group.clone(), instances.filter_map(|one| self.shown(one)).collect())
            })
            .collect()
    }

    /// What was tried for a group, the last first.
    pub(crate) fn scaling_activities(&self, name: Option<&str>) -> Vec<Activity> {
        let of_group = |activity: &&Activity| name.is_none_or(|name| activity.group.scaling_group() == name);
        self.activities.iter().rev().filter(of_group).cloned().collect()
    }

    pub(crate) fn scaling_group(&self, name: &str) -> Result<&Group, ScalingError> {
        GroupName::of_scaling_group(name)
            .and_then(|group| self.groups.get(&group))
            .ok_or_else(|| ScalingError::validation(format!("AutoScalingGroup name not found - {name}")))
    }

    fn scaling_instance(&self, id: &str) -> Result<&Instance, ScalingError> {
        self.instances.get(id).ok_or_else(|| {
            ScalingError::validation(format!(
                "Instance Id not found - No managed instance found for instance ID {id}"
            ))
        })
    }

    /// Ends an instance whoever is on it; protection does not count here.
    pub(crate) fn terminate_by_call(
        &mut self,
        id: &str,
        decrements: bool,
        by: &str,
    ) -> Result<InstanceId, ScalingError> {
        let instance = self.scaling_instance(id)?;
        let (id, name) = (instance.id.clone(), instance.group.clone());
        let instance_type = instance.instance_type.clone();
        if let Some(group) = self.groups.get_mut(&name).filter(|_| decrements) {
            let weight = group.weight_of(&instance_type);
            group.desired = group.desired.saturating_sub(weight);
        }
        self.begin_ending(&id, Cause::TerminateCall { by: by.to_owned() });
        self.settle(&name);
        Ok(id)
    }

    pub(crate) fn protect_by_call(&mut self, ids: &[String], protects: bool) -> Result<(), ScalingError> {
        for id in ids {
            let instance = self.scaling_instance(id)?;
            if instance.stage != Stage::InService {
                let stage = instance.stage.as_str();
                return Err(ScalingError::validation(format!(
                    "The instance {id} is in {stage}, not in InService"
                )));
            }
        }
        for id in ids {
            let Some(instance) = self.instances.get_mut(id.as_str()) else { continue };
            instance.protected_by_call = protects;
            let group = instance.group.clone();
            self.settle(&group);
        }
        Ok(())
    }

    /// A heartbeat for a hook, or its completion when there is a result.
    pub(crate) fn answer_hook(
        &mut self,
        scaling_group: &str,
        hook: &str,
        id: &str,
        result: Option<HookResult>,
    ) -> Result<(), ScalingError> {
        let group = self.scaling_group(scaling_group)?.name.clone();
        let instance = self.scaling_instance(id)?;
        let id = instance.id.clone();
        let is_waiting = instance.group == group
            && match result {
                Some(result) => self.complete_hook(&id, hook, result),
                None => self.beat_hook(&id, hook),
            };
        if is_waiting {
            return Ok(());
        }
        Err(ScalingError::validation(format!("No active Lifecycle Action found with instance ID {id}")))
    }
}
