//! Capacity: instances are launched, replaced, scaled in and reaped, as the group's sizes and protection have it.

use std::net::Ipv4Addr;

use rand::Rng as _;

use super::World;
use super::log::EventKind;
use super::refusal::Refusal;
use super::scaling::Activity;
use super::things::{Cause, Instance, Kept, Notices, Stage};
use super::timers::Timer;
use super::words::{Balancing, GroupName, GroupStatus, InstanceId, InstanceStatus, Market, Protection};

/// What a new instance shall be; what is not said is chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Launch {
    pub(super) id: Option<InstanceId>,
    pub(super) instance_type: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) market: Option<Market>,
    /// In service at once: the instance had booted before the story began.
    pub(super) is_booted: bool,
    pub(super) is_warmed: bool,
}

impl World {
    /// Launches one instance, if the group's maximum lets it.
    pub(super) fn launch(&mut self, name: &GroupName, wanted: Launch) -> Result<InstanceId, Refusal> {
        let group = self.group(name)?;
        let instance_type = wanted
            .instance_type
            .or_else(|| group.viable_type().map(|definition| definition.instance_type.clone()))
            .ok_or_else(|| Refusal::conflict(format!("no instance type of {name} is viable")))?;
        let weight = group.weight_of(&instance_type);
        let (total, maximum) = (self.total_weight(name), group.maximum);
        if total + weight > maximum {
            return Err(Refusal::conflict(format!(
                "group size maximum: {total} of {maximum} weight units are in use and {instance_type} needs {weight}"
            )));
        }
        let number = self.number();
        let zones = &self.group(name)?.zones;
        let zone = match wanted.zone {
            Some(zone) => zone,
            None => zones[usize::try_from(number).unwrap_or(0) % zones.len()].clone(),
        };
        let market = wanted.market.unwrap_or(match self.group(name)?.balancing {
            Balancing::SpotOnly | Balancing::SpotPreferred => Market::Spot,
            Balancing::OnDemandOnly => Market::OnDemand,
        });
        let id = match wanted.id {
            Some(id) => id,
            None => InstanceId::of(self.dice.random()),
        };
        if self.instances.contains_key(&id) {
            return Err(Refusal::conflict(format!("there is an instance {id} already")));
        }
        let stage = match (wanted.is_warmed, wanted.is_booted) {
            (true, _) => Stage::Warmed,
            (false, true) => Stage::InService,
            (false, false) => Stage::Pending,
        };
        let [_, second, third, fourth] = u32::try_from(number % (1 << 24)).unwrap_or(0).to_be_bytes();
        let instance = Instance {
            id: id.clone(),
            group: name.clone(),
            instance_type,
            zone,
            market,
            launched: self.now,
            order: number,
            address: Ipv4Addr::new(10, second, third, fourth),
            status: InstanceStatus::Active,
            status_since: self.now,
            stage,
            healthy: true,
            protected_by_call: false,
            kept: Kept { is_kept: false, since: self.now },
            sessions: 0,
            notices: Notices::default(),
            reap_planned: false,
        };
        self.remember();
        let boots = instance.stage == Stage::Pending;
        self.instances.insert(id.clone(), instance);
        self.tell_instance(EventKind::Launched, &id, "");
        if boots {
            self.plan(self.parameters.boot_ms.duration(), Timer::InService { instance: id.clone() });
        }
        Ok(id)
    }

    pub(super) fn bring_into_service(&mut self, id: &InstanceId) {
        let Some(instance) = self.instances.get_mut(id).filter(|one| one.stage == Stage::Pending) else {
            return;
        };
        instance.stage = Stage::InService;
        let group = instance.group.clone();
        self.tell_instance(EventKind::InService, id, "");
        let draining = self.instances.values().filter(|one| one.group == group);
        for id in draining.map(|one| one.id.clone()).collect::<Vec<_>>() {
            self.consider_reaping(&id);
        }
    }

    fn weigh(&self, name: &GroupName, counts: impl Fn(&Instance) -> bool) -> u32 {
        let Some(group) = self.groups.get(name) else { return 0 };
        let instances = self.instances.values().filter(|one| one.group == *name && counts(one));
        instances.map(|one| group.weight_of(&one.instance_type)).sum()
    }

    /// Weight units that count towards the maximum: whatever has not ended, DRAINING or not.
    fn total_weight(&self, name: &GroupName) -> u32 {
        self.weigh(name, |one| !one.stage.is_ending() && one.stage != Stage::Warmed)
    }

    /// Weight units that will stay.
    pub(super) fn viable_weight(&self, name: &GroupName) -> u32 {
        self.weigh(name, |one| {
            one.status == InstanceStatus::Active && matches!(one.stage, Stage::Pending | Stage::InService)
        })
    }

    /// Brings the group to its desired size: launches what is missing and scales in what is too much.
    pub(super) fn settle(&mut self, name: &GroupName) {
        let Some(group) = self.groups.get(name) else { return };
        let desired = group.desired;
        if group.status == GroupStatus::Active {
            while self.viable_weight(name) < desired {
                if let Err(refusal) = self.launch(name, Launch::default()) {
                    self.note_ceiling(name, Some(refusal.message));
                    break;
                }
                self.note_ceiling(name, None);
            }
        }
        while let Some(victim) = self.scale_in_victim(name, desired) {
            self.begin_ending(&victim, Cause::ScaledIn);
        }
    }

    fn note_ceiling(&mut self, name: &GroupName, ceiling: Option<String>) {
        let Some(group) = self.groups.get_mut(name) else { return };
        if group.ceiling == ceiling {
            return;
        }
        group.ceiling.clone_from(&ceiling);
        if let Some(message) = ceiling {
            let activity = Activity {
                number: self.number(),
                group: name.clone(),
                time: self.now,
                message: message.clone(),
            };
            self.activities.push(activity);
            self.tell_group(EventKind::CeilingReached, name, message);
        }
    }

    /// The instance that Auto Scaling would end first: nobody's before somebody's, the youngest first; a kept one never.
    fn scale_in_victim(&self, name: &GroupName, desired: u32) -> Option<InstanceId> {
        let group = self.groups.get(name)?;
        let viable = self.viable_weight(name);
        self.instances
            .values()
            .filter(|one| one.group == *name && one.status == InstanceStatus::Active)
            .filter(|one| matches!(one.stage, Stage::Pending | Stage::InService))
            .filter(|one| viable.saturating_sub(group.weight_of(&one.instance_type)) >= desired)
            .filter(|one| !self.is_kept_now(one) && !one.protected_by_call)
            .min_by_key(|one| {
                (self.servers_on(&one.id).any(|server| server.is_utilized()), u64::MAX - one.order)
            })
            .map(|one| one.id.clone())
    }

    /// Whether FleetIQ keeps the instance, apart from how long Auto Scaling takes to show it.
    pub(super) fn is_kept_now(&self, instance: &Instance) -> bool {
        let is_protected =
            self.groups.get(&instance.group).is_some_and(|group| group.protection == Protection::Full);
        is_protected
            && self.servers_on(&instance.id).any(|server| {
                server.is_utilized() || (self.parameters.claim_protects && server.is_claimed(self.now))
            })
    }

    /// Notes when FleetIQ began, or ceased, to keep an instance.
    pub(super) fn note_kept(&mut self, id: &InstanceId) {
        let Some(instance) = self.instances.get(id) else { return };
        let is_kept = self.is_kept_now(instance);
        let now = self.now;
        if let Some(instance) = self.instances.get_mut(id).filter(|one| one.kept.is_kept != is_kept) {
            instance.kept = Kept { is_kept, since: now };
        }
    }

    pub(super) fn set_status(&mut self, id: &InstanceId, status: InstanceStatus) {
        self.remember();
        let now = self.now;
        let Some(instance) = self.instances.get_mut(id).filter(|one| one.status != status) else { return };
        instance.status = status;
        instance.status_since = now;
        let name = instance.group.clone();
        let instance_type = instance.instance_type.clone();
        self.tell_instance(EventKind::Status, id, status.as_str());
        if let Some(group) = self.groups.get_mut(&name)
            && status == InstanceStatus::Draining
            && group.balancing == Balancing::SpotOnly
        {
            // Replaces nothing: the group gets smaller instead.
            let weight = group.weight_of(&instance_type);
            group.desired = group.desired.saturating_sub(weight).max(group.minimum);
        }
        self.settle(&name);
        self.consider_reaping(id);
    }

    /// Whether nothing keeps a DRAINING instance: no players who are protected, and its replacement is there.
    fn may_reap(&self, id: &InstanceId) -> bool {
        let Some(instance) = self.instances.get(id) else { return false };
        let Some(group) = self.groups.get(&instance.group) else { return false };
        let has_players = self.servers_on(id).any(|server| server.is_utilized());
        let is_replaced = group.balancing == Balancing::SpotOnly
            || self.weigh(&group.name, |one| {
                one.status == InstanceStatus::Active && one.stage == Stage::InService
            }) >= group.desired;
        instance.status == InstanceStatus::Draining
            && !instance.stage.is_ending()
            && is_replaced
            && (group.protection == Protection::Off || !has_players)
    }

    pub(super) fn consider_reaping(&mut self, id: &InstanceId) {
        if !self.may_reap(id) {
            return;
        }
        let Some(instance) = self.instances.get_mut(id).filter(|one| !one.reap_planned) else { return };
        instance.reap_planned = true;
        self.plan(self.parameters.reap_after_ms.duration(), Timer::Reap { instance: id.clone() });
    }

    pub(super) fn reap(&mut self, id: &InstanceId) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.reap_planned = false;
        }
        if self.may_reap(id) {
            self.begin_ending(id, Cause::Reaped);
        }
    }
}
