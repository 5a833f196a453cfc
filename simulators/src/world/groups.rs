//! Game server groups: made, changed, deleted.

use std::collections::BTreeSet;

use super::World;
use super::log::EventKind;
use super::refusal::Refusal;
use super::things::{Cause, Group, InstanceDefinition};
use super::timers::Timer;
use super::words::{Balancing, DeleteOption, GroupName, GroupStatus, Protection};

/// What `CreateGameServerGroup` asks for.
#[derive(Clone, Debug)]
pub(crate) struct CreateGroup {
    pub(crate) name: GroupName,
    pub(crate) role: String,
    pub(crate) types: Vec<InstanceDefinition>,
    pub(crate) minimum: u32,
    pub(crate) maximum: u32,
    pub(crate) balancing: Option<Balancing>,
    pub(crate) protection: Option<Protection>,
    pub(crate) utilization_target: Option<f64>,
}

/// What `UpdateGameServerGroup` asks for.
#[derive(Clone, Debug)]
pub(crate) struct UpdateGroup {
    pub(crate) name: GroupName,
    pub(crate) role: Option<String>,
    pub(crate) types: Option<Vec<InstanceDefinition>>,
    pub(crate) balancing: Option<Balancing>,
    pub(crate) protection: Option<Protection>,
}

impl World {
    pub(crate) fn create_group(&mut self, wanted: CreateGroup) -> Result<Group, Refusal> {
        if self.groups.contains_key(&wanted.name) {
            return Err(Refusal::conflict(format!("there is a group {} already", wanted.name)));
        }
        if wanted.minimum > wanted.maximum {
            return Err(Refusal::invalid("MinSize must not be above MaxSize"));
        }
        let mut group = self.blank_group(&wanted.name);
        group.role = wanted.role;
        group.types = wanted.types;
        group.minimum = wanted.minimum;
        group.maximum = wanted.maximum;
        group.desired = wanted.minimum;
        group.balancing = wanted.balancing.unwrap_or(group.balancing);
        group.protection = wanted.protection.unwrap_or(group.protection);
        group.utilization_target = wanted.utilization_target;
        self.add_group(group.clone());
        self.follow_target(&wanted.name);
        self.plan(self.parameters.step_ms.duration(), Timer::GroupStep { group: wanted.name });
        Ok(group)
    }

    /// A group as the service makes it when nothing is said.
    pub(super) fn blank_group(&self, name: &GroupName) -> Group {
        let zones = ["a", "b", "c"].map(|zone| format!("{}{zone}", self.place.region)).to_vec();
        Group {
            name: name.clone(),
            role: format!("arn:aws:iam::{}:role/fleetiq", self.place.account),
            balancing: Balancing::SpotPreferred,
            protection: Protection::Off,
            suspended: false,
            types: vec![
                InstanceDefinition { instance_type: "c6i.large".to_owned(), weight: 1 },
                InstanceDefinition { instance_type: "m6i.large".to_owned(), weight: 1 },
            ],
            not_viable: BTreeSet::new(),
            zones,
            minimum: 0,
            maximum: 1000,
            desired: 0,
            hooks: Vec::new(),
            status: GroupStatus::New,
            status_reason: String::new(),
            created: self.now,
            updated: self.now,
            utilization_target: None,
            is_followed: false,
            ceiling: None,
        }
    }

    pub(super) fn add_group(&mut self, group: Group) {
        let name = group.name.clone();
        self.groups.insert(name.clone(), group);
        self.tell_group(EventKind::GroupCreated, &name, "");
    }

    pub(crate) fn update_group(&mut self, wanted: UpdateGroup) -> Result<Group, Refusal> {
        self.group(&wanted.name)?;
        let updated = self.now;
        let Some(group) = self.groups.get_mut(&wanted.name) else {
            return Err(Refusal::not_found("game server group", wanted.name));
        };
        group.role = wanted.role.unwrap_or_else(|| group.role.clone());
        group.types = wanted.types.unwrap_or_else(|| group.types.clone());
        group.balancing = wanted.balancing.unwrap_or(group.balancing);
        group.protection = wanted.protection.unwrap_or(group.protection);
        group.updated = updated;
        self.group_changed(&wanted.name);
        self.describe_group(&wanted.name)
    }

    /// Tells of a change, and lets capacity follow it.
    pub(super) fn group_changed(&mut self, name: &GroupName) {
        self.tell_group(EventKind::GroupChanged, name, "");
        let instances = self.instances.values().filter(|one| one.group == *name);
        for id in instances.map(|one| one.id.clone()).collect::<Vec<_>>() {
            self.note_kept(&id);
        }
        self.follow_target(name);
        self.settle(name);
    }

    pub(crate) fn suspend_group(&mut self, name: &GroupName, suspended: bool) -> Result<Group, Refusal> {
        let updated = self.now;
        let group = self.groups.get_mut(name).ok_or_else(|| Refusal::not_found("game server group", name))?;
        group.suspended = suspended;
        group.updated = updated;
        Ok(group.clone())
    }

    pub(crate) fn delete_group(&mut self, name: &GroupName, how: DeleteOption) -> Result<Group, Refusal> {
        self.group(name)?;
        self.set_group_status(name, GroupStatus::DeleteScheduled);
        match how {
            DeleteOption::Safe => self.finish_deletion(name),
            DeleteOption::Force | DeleteOption::Retain => self.begin_deletion(name),
        }
        self.describe_group(name)
    }

    /// A safe deletion waits until nobody plays.
    pub(super) fn finish_deletion(&mut self, name: &GroupName) {
        let is_waiting =
            self.groups.get(name).is_some_and(|group| group.status == GroupStatus::DeleteScheduled);
        let has_players = self.servers.values().any(|server| server.group == *name && server.is_utilized());
        if is_waiting && !has_players {
            self.begin_deletion(name);
        }
    }

    fn begin_deletion(&mut self, name: &GroupName) {
        self.set_group_status(name, GroupStatus::Deleting);
        if let Some(group) = self.groups.get_mut(name) {
            group.minimum = 0;
            group.desired = 0;
        }
        let instances = self.instances.values().filter(|one| one.group == *name);
        for id in instances.map(|one| one.id.clone()).collect::<Vec<_>>() {
            self.begin_ending(&id, Cause::GroupDeleted);
        }
        self.plan(self.parameters.step_ms.duration(), Timer::GroupStep { group: name.clone() });
    }

    pub(super) fn set_group_status(&mut self, name: &GroupName, status: GroupStatus) {
        let updated = self.now;
        if let Some(group) = self.groups.get_mut(name) {
            group.status = status;
            group.updated = updated;
            self.tell_group(EventKind::GroupStatus, name, status.as_str());
        }
    }

    pub(super) fn step_group(&mut self, name: &GroupName) {
        let Some(status) = self.groups.get(name).map(|group| group.status) else { return };
        let again = Timer::GroupStep { group: name.clone() };
        match status {
            GroupStatus::New => {
                self.set_group_status(name, GroupStatus::Activating);
                self.plan(self.parameters.step_ms.duration(), again);
            }
            GroupStatus::Activating => {
                self.set_group_status(name, GroupStatus::Active);
                self.settle(name);
            }
            GroupStatus::Deleting if self.instances.values().any(|one| one.group == *name) => {
                self.plan(self.parameters.step_ms.duration(), again);
            }
            GroupStatus::Deleting => {
                self.set_group_status(name, GroupStatus::Deleted);
                self.plan(self.parameters.step_ms.duration(), again);
            }
            GroupStatus::Deleted => drop(self.groups.remove(name)),
            GroupStatus::Active | GroupStatus::DeleteScheduled | GroupStatus::Error => {}
        }
    }
}
