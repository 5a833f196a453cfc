//! The group's own scaling policy: it holds the share of utilized game servers at a target.
//!
//! With one server on each instance that is always utilized the share is always 100 percent, and the policy drives the
//! group to its maximum and holds it there.

use super::World;
use super::timers::Timer;
use super::words::GroupName;

impl World {
    /// Begins to follow the target of a group, if it has one that nobody follows yet.
    pub(super) fn follow_target(&mut self, name: &GroupName) {
        let Some(group) = self.groups.get_mut(name) else { return };
        if group.utilization_target.is_some() && !group.is_followed {
            group.is_followed = true;
            self.plan(self.parameters.scale_every_ms.duration(), Timer::Scale { group: name.clone() });
        }
    }

    /// How many percent of a group's game servers are utilized; nothing where there are none.
    pub(crate) fn utilized_percent(&self, name: &GroupName) -> Option<f64> {
        let servers = || self.servers.values().filter(|server| server.group == *name);
        let (all, utilized) = (servers().count(), servers().filter(|server| server.is_utilized()).count());
        (all > 0).then(|| utilized as f64 * 100.0 / all as f64)
    }

    pub(super) fn scale(&mut self, name: &GroupName) {
        let percent = self.utilized_percent(name);
        let viable = self.viable_weight(name);
        let Some(group) = self.groups.get_mut(name) else { return };
        group.is_followed = false;
        if let (Some(target), Some(percent)) = (group.utilization_target, percent) {
            // Between nothing and a thousand times what there is, so that it fits.
            let wanted = (f64::from(viable) * percent / target).ceil().clamp(0.0, f64::from(u32::MAX)) as u32;
            group.desired = wanted.max(group.minimum).min(group.maximum);
        }
        self.settle(name);
        self.follow_target(name);
    }
}
