//! Orders: what the person behind the curtain may do. The admin API takes them, and scenarios are made of them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::World;
use super::capacity::Launch;
use super::claims::Claim;
use super::log::EventKind;
use super::parameters::Parameters;
use super::refusal::Refusal;
use super::routines::Visitors;
use super::spot::Interruption;
use super::things::{Cause, Hook, InstanceDefinition, Maintenance, Stage};
use super::timers::Timer;
use super::words::{
    Balancing, GroupName, GroupStatus, InstanceId, InstanceStatus, Market, Milliseconds, Protection, ServerId,
};

/// What can be ordered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Order {
    /// Makes a group, active at once, or changes one.
    Group {
        group: GroupName,
        #[serde(default)]
        change: GroupChange,
    },
    /// Launches instances, and wants as many more from now on.
    Launch {
        group: GroupName,
        #[serde(default)]
        wanted: LaunchOrder,
    },
    Status {
        instance: InstanceId,
        status: InstanceStatus,
    },
    DrainType {
        group: GroupName,
        #[serde(rename = "type")]
        instance_type: String,
    },
    Spot {
        instance: InstanceId,
        #[serde(default)]
        interruption: Interruption,
    },
    Rebalance {
        instance: InstanceId,
    },
    /// Auto Scaling ends it, without a word of FleetIQ.
    Lifecycle {
        instance: InstanceId,
    },
    /// Or a warmed instance is wanted after all.
    StartWarmed {
        instance: InstanceId,
    },
    Maintenance {
        instance: InstanceId,
        event: Maintenance,
    },
    /// At once, or as EC2 does it when asked.
    Terminate {
        instance: InstanceId,
        #[serde(default)]
        hard: bool,
    },
    Reap {
        instance: InstanceId,
    },
    /// EC2's or a load balancer's check, as Auto Scaling shows it.
    Health {
        instance: InstanceId,
        healthy: bool,
    },
    Sessions {
        instance: InstanceId,
        live: u32,
    },
    EndSession {
        instance: InstanceId,
    },
    /// FleetIQ forgets a server.
    RemoveServer {
        server: ServerId,
    },
    /// Somebody else claims it.
    StealClaim {
        server: ServerId,
    },
    Stranger {
        every_ms: Option<Milliseconds>,
    },
    Visitors {
        visitors: Option<Visitors>,
    },
    Balancing {
        every_ms: Option<Milliseconds>,
    },
    Parameters {
        parameters: Box<Parameters>,
    },
    /// An order for later; again and again if it says so.
    Later {
        at_ms: Milliseconds,
        #[serde(default)]
        again: Option<Again>,
        then: Box<Order>,
    },
}

/// Repetition of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Again {
    pub(crate) every_ms: Milliseconds,
    pub(crate) times: u32,
}

/// What may be said of a group; what is not said stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GroupChange {
    pub(crate) protection: Option<Protection>,
    pub(crate) balancing: Option<Balancing>,
    pub(crate) types: Option<Vec<InstanceDefinition>>,
    pub(crate) minimum: Option<u32>,
    pub(crate) maximum: Option<u32>,
    pub(crate) desired: Option<u32>,
    pub(crate) status: Option<GroupStatus>,
    pub(crate) suspended: Option<bool>,
    pub(crate) hooks: Option<Vec<Hook>>,
    /// In percent; 0 for no scaling policy.
    pub(crate) utilization_target: Option<f64>,
}

/// What may be said of new instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LaunchOrder {
    pub(crate) count: u32,
    pub(crate) ids: Vec<InstanceId>,
    pub(crate) market: Option<Market>,
    pub(crate) zone: Option<String>,
    #[serde(rename = "type")]
    pub(crate) instance_type: Option<String>,
    /// In service at once; on unless it says otherwise.
    pub(crate) booted: bool,
    /// In the warm pool instead.
    pub(crate) warmed: bool,
}

impl Default for LaunchOrder {
    fn default() -> Self {
        Self {
            count: 1,
            ids: Vec::new(),
            market: None,
            zone: None,
            instance_type: None,
            booted: true,
            warmed: false,
        }
    }
}

/// Why an order was not carried out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("there is no {what} {name}")]
    Missing { what: &'static str, name: String },
    #[error("a DRAINING instance does not become ACTIVE again unless draining_may_return is set")]
    DrainingStays,
    #[error("the account refused it: {0}")]
    Refused(Refusal),
}

impl World {
    /// Carries out an order, and says what came of it.
    pub(crate) fn perform(&mut self, order: Order) -> Result<Value, OrderError> {
        match order {
            Order::Group { group, change } => self.change_group(&group, change),
            Order::Launch { group, wanted } => return self.launch_ordered(&group, wanted),
            Order::Status { instance, status } => {
                let was = self.present(&instance)?.status;
                if was == InstanceStatus::Draining
                    && status == InstanceStatus::Active
                    && !self.parameters.draining_may_return
                {
                    return Err(OrderError::DrainingStays);
                }
                self.set_status(&instance, status);
            }
            Order::DrainType { group, instance_type } => {
                self.present_group(&group)?;
                self.drain_type(&group, &instance_type);
            }
            Order::Spot { instance, interruption } => {
                self.present(&instance)?;
                self.plan_interruption(&instance, interruption);
            }
            Order::Rebalance { instance } => {
                self.present(&instance)?;
                self.recommend_rebalance(&instance);
            }
            Order::Lifecycle { instance } => {
                self.present(&instance)?;
                self.begin_ending(&instance, Cause::AutoScaling);
            }
            Order::StartWarmed { instance } => {
                self.present(&instance)?;
                self.start_warmed(&instance);
            }
            Order::Maintenance { instance, event } => {
                self.present(&instance)?;
                self.schedule_maintenance(&instance, event);
            }
            Order::Terminate { instance, hard } => {
                self.present(&instance)?;
                if hard {
                    self.power_off(&instance, Cause::PowerOff);
                } else {
                    self.begin_ending(&instance, Cause::PowerOff);
                }
            }
            Order::Reap { instance } => {
                self.present(&instance)?;
                self.begin_ending(&instance, Cause::Reaped);
            }
            Order::Health { instance, healthy } => {
                self.present(&instance)?;
                if let Some(instance) = self.instances.get_mut(&instance) {
                    instance.healthy = healthy;
                }
            }
            Order::Sessions { instance, live } => {
                self.present(&instance)?;
                self.set_sessions(&instance, live);
            }
            Order::EndSession { instance } => {
                let live = self.present(&instance)?.sessions;
                self.set_sessions(&instance, live.saturating_sub(1));
            }
            Order::RemoveServer { server } => {
                self.present_server(&server)?;
                self.remove_server(&server, "by FleetIQ");
            }
            Order::StealClaim { server } => {
                let group = self.present_server(&server)?;
                let claim = Claim { group, server: Some(server), data: None, filter: None };
                self.claim(claim, "by somebody else").map_err(OrderError::Refused)?;
            }
            Order::Stranger { every_ms } => self.set_stranger(every_ms),
            Order::Visitors { visitors } => self.set_visitors(visitors),
            Order::Balancing { every_ms } => self.set_balancing(every_ms),
            Order::Parameters { parameters } => self.parameters = *parameters,
            Order::Later { at_ms, again, then } => self.order_later(at_ms, again, *then),
        }
        Ok(json!({}))
    }

    fn order_later(&mut self, at: Milliseconds, again: Option<Again>, then: Order) {
        let Some(Again { every_ms, times }) = again else {
            return self.plan(at.duration(), Timer::Order(Box::new(then)));
        };
        for turn in 0..u64::from(times) {
            let wait = Milliseconds(at.0 + every_ms.0 * turn).duration();
            self.plan(wait, Timer::Order(Box::new(then.clone())));
        }
    }

    fn present(&self, id: &InstanceId) -> Result<&super::Instance, OrderError> {
        let missing = || OrderError::Missing { what: "instance", name: id.to_string() };
        self.instances.get(id).ok_or_else(missing)
    }

    fn present_group(&self, name: &GroupName) -> Result<(), OrderError> {
        let missing = || OrderError::Missing { what: "group", name: name.to_string() };
        self.groups.get(name).map(drop).ok_or_else(missing)
    }

    fn present_server(&self, id: &ServerId) -> Result<GroupName, OrderError> {
        let missing = || OrderError::Missing { what: "game server", name: id.to_string() };
        self.servers.get(id).map(|server| server.group.clone()).ok_or_else(missing)
    }

    fn change_group(&mut self, name: &GroupName, change: GroupChange) {
        if !self.groups.contains_key(name) {
            let mut group = self.blank_group(name);
            group.status = GroupStatus::Active;
            self.add_group(group);
        }
        let updated = self.now;
        let Some(group) = self.groups.get_mut(name) else { return };
        group.protection = change.protection.unwrap_or(group.protection);
        group.balancing = change.balancing.unwrap_or(group.balancing);
        group.types = change.types.unwrap_or_else(|| group.types.clone());
        group.minimum = change.minimum.unwrap_or(group.minimum);
        group.maximum = change.maximum.unwrap_or(group.maximum);
        group.desired = change.desired.unwrap_or(group.desired).max(group.minimum).min(group.maximum);
        group.status = change.status.unwrap_or(group.status);
        group.suspended = change.suspended.unwrap_or(group.suspended);
        group.hooks = change.hooks.unwrap_or_else(|| group.hooks.clone());
        if let Some(target) = change.utilization_target {
            group.utilization_target = Some(target).filter(|target| *target > 0.0);
        }
        group.updated = updated;
        self.group_changed(name);
    }

    fn launch_ordered(&mut self, name: &GroupName, wanted: LaunchOrder) -> Result<Value, OrderError> {
        self.present_group(name)?;
        let ids = if wanted.ids.is_empty() {
            vec![None; usize::try_from(wanted.count).unwrap_or(usize::MAX)]
        } else {
            wanted.ids.into_iter().map(Some).collect()
        };
        let mut launched = Vec::new();
        for id in ids {
            let launch = Launch {
                id,
                instance_type: wanted.instance_type.clone(),
                zone: wanted.zone.clone(),
                market: wanted.market,
                is_booted: wanted.booted,
                is_warmed: wanted.warmed,
            };
            launched.push(self.launch(name, launch).map_err(OrderError::Refused)?);
        }
        let viable = self.viable_weight(name);
        if let Some(group) = self.groups.get_mut(name) {
            group.desired = group.desired.max(viable);
        }
        Ok(json!({ "instances": launched }))
    }

    fn start_warmed(&mut self, id: &InstanceId) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        if instance.stage == Stage::Warmed {
            instance.stage = Stage::Pending;
            self.plan(self.parameters.boot_ms.duration(), Timer::InService { instance: id.clone() });
        }
    }

    /// A scheduled event, or news of one that is known by its id.
    fn schedule_maintenance(&mut self, id: &InstanceId, event: Maintenance) {
        self.tell_instance(EventKind::Maintenance, id, format!("{} {}", event.code, event.state));
        let Some(instance) = self.instances.get_mut(id) else { return };
        instance.notices.maintenance.retain(|known| known.id != event.id);
        instance.notices.maintenance.push(event);
    }
}
