//! What comes again and again once an order has begun it: strangers who claim, players who come and go, and instance
//! types that stop being viable.

use std::time::Duration;

use rand::Rng as _;
use rand::seq::IteratorRandom as _;
use serde::{Deserialize, Serialize};

use super::claims::Claim;
use super::log::EventKind;
use super::timers::{Routine, Timer};
use super::words::{GroupName, InstanceId, InstanceStatus, Milliseconds};
use super::{Order, World};

/// Every how long, on average.
#[derive(Clone, Debug, Default)]
pub(super) struct Routines {
    stranger: Option<Milliseconds>,
    balance: Option<Milliseconds>,
    visitors: Option<Visitors>,
}

/// Players who come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Visitors {
    /// From one to the next, on average.
    pub(crate) every_ms: Milliseconds,
    /// How long each stays, on average.
    pub(crate) stay_ms: Milliseconds,
}

impl World {
    /// Somebody else claims without naming a server, at random, from now on; or no more.
    pub(super) fn set_stranger(&mut self, every: Option<Milliseconds>) {
        if self.routines.stranger.is_none() && every.is_some() {
            self.plan(Duration::ZERO, Timer::Routine(Routine::Stranger));
        }
        self.routines.stranger = every;
    }

    pub(super) fn set_visitors(&mut self, visitors: Option<Visitors>) {
        if self.routines.visitors.is_none() && visitors.is_some() {
            self.plan(Duration::ZERO, Timer::Routine(Routine::Visitor));
        }
        self.routines.visitors = visitors;
    }

    pub(super) fn set_balancing(&mut self, every: Option<Milliseconds>) {
        if self.routines.balance.is_none()
            && let Some(every) = every
        {
            self.plan(every.duration(), Timer::Routine(Routine::Balance));
        }
        self.routines.balance = every;
    }

    pub(super) fn routine(&mut self, routine: Routine) {
        let every = match routine {
            Routine::Stranger => self.routines.stranger.inspect(|_| self.claim_as_stranger()),
            Routine::Visitor => self.routines.visitors.map(|visitors| {
                self.visit(visitors);
                visitors.every_ms
            }),
            Routine::Balance => self.routines.balance.inspect(|_| self.balance()),
        };
        if let Some(every) = every {
            let wait = match routine {
                Routine::Balance => every.0,
                Routine::Stranger | Routine::Visitor => self.about(every),
            };
            self.plan(Duration::from_millis(wait.max(1)), Timer::Routine(routine));
        }
    }

    /// Between nothing and twice as long.
    fn about(&mut self, mean: Milliseconds) -> u64 {
        self.dice.random_range(0..=mean.0.saturating_mul(2))
    }

    fn claim_as_stranger(&mut self) {
        let Some(group) = self.groups.keys().choose(&mut self.dice).cloned() else { return };
        // Finding nothing to claim is what strangers mostly do.
        drop(self.claim(Claim { group, server: None, data: None, filter: None }, "by a stranger"));
    }

    fn visit(&mut self, visitors: Visitors) {
        let open = self.instances.values().filter(|one| {
            one.status == InstanceStatus::Active
                && !one.stage.is_ending()
                && self.servers.values().any(|server| server.instance == one.id && server.is_utilized())
        });
        let Some(id) = open.map(|one| one.id.clone()).choose(&mut self.dice) else { return };
        let live = self.instances.get(&id).map_or(0, |one| one.sessions);
        self.set_sessions(&id, live + 1);
        let stay = self.about(visitors.stay_ms);
        let leave = Order::EndSession { instance: id };
        self.plan(Duration::from_millis(stay), Timer::Order(Box::new(leave)));
    }

    pub(super) fn set_sessions(&mut self, id: &InstanceId, live: u32) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.sessions = live;
            self.tell_instance(EventKind::Sessions, id, live.to_string());
        }
    }

    /// One type of one group is found not viable, and the others are again.
    fn balance(&mut self) {
        let balanced = self.groups.values().filter(|group| {
            !group.suspended && group.types.len() > 1 && group.balancing != super::Balancing::OnDemandOnly
        });
        let Some(name) = balanced.map(|group| group.name.clone()).choose(&mut self.dice) else { return };
        let types = self.groups[&name].types.iter().map(|one| one.instance_type.clone());
        let Some(unlucky) = types.choose(&mut self.dice) else { return };
        if let Some(group) = self.groups.get_mut(&name) {
            group.not_viable.clear();
        }
        self.drain_type(&name, &unlucky);
    }

    /// A type stops being viable: its instances drain, and others take their place.
    pub(super) fn drain_type(&mut self, name: &GroupName, instance_type: &str) {
        if let Some(group) = self.groups.get_mut(name) {
            group.not_viable.insert(instance_type.to_owned());
        }
        self.tell_group(EventKind::TypeNotViable, name, instance_type);
        let drained = self.instances.values().filter(|one| {
            one.group == *name && one.instance_type == instance_type && one.status == InstanceStatus::Active
        });
        for id in drained.map(|one| one.id.clone()).collect::<Vec<_>>() {
            self.set_status(&id, InstanceStatus::Draining);
        }
    }
}
