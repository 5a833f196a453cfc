//! The end of an instance: hooks are asked, it shuts down, it is gone, and whoever was on it is accounted for.

use std::time::Duration;

use super::World;
use super::log::EventKind;
use super::things::{Cause, Hook, Stage};
use super::timers::Timer;
use super::words::{GroupName, HookResult, InstanceId};

/// No hook holds an instance for longer, nor for more than a hundred heartbeats.
const LONGEST_WAIT: Duration = Duration::from_secs(48 * 60 * 60);

impl World {
    /// Begins to end an instance; one that is ending already goes on as it was.
    pub(super) fn begin_ending(&mut self, id: &InstanceId, cause: Cause) {
        let Some(instance) = self.instances.get(id).filter(|one| !one.stage.is_ending()) else { return };
        let hook = self.groups.get(&instance.group).and_then(|group| group.hooks.first().cloned());
        let words = cause.words();
        match hook {
            Some(hook) => {
                let until = self.after(hook.heartbeat_timeout_ms.duration());
                let since = self.now;
                self.tell_instance(EventKind::HookWaits, id, format!("{}: {words}", hook.name));
                self.set_stage(id, Stage::Waiting { hook: hook.name, cause, since, until });
                self.timers.plan(until, Timer::EndingStep { instance: id.clone() });
            }
            None => self.shut_down(id, cause),
        }
    }

    fn shut_down(&mut self, id: &InstanceId, cause: Cause) {
        self.tell_instance(EventKind::Terminating, id, cause.words());
        self.set_stage(id, Stage::Ending { cause });
        self.plan(self.parameters.step_ms.duration(), Timer::EndingStep { instance: id.clone() });
    }

    fn set_stage(&mut self, id: &InstanceId, stage: Stage) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.stage = stage;
        }
    }

    pub(super) fn step_ending(&mut self, id: &InstanceId) {
        let Some(instance) = self.instances.get(id) else { return };
        match instance.stage.clone() {
            Stage::Pending | Stage::InService | Stage::Warmed => {}
            // A heartbeat has moved the end of the wait.
            Stage::Waiting { until, .. } if self.now < until => {
                self.timers.plan(until, Timer::EndingStep { instance: id.clone() });
            }
            Stage::Waiting { hook, cause, .. } => {
                self.tell_instance(EventKind::HookExpired, id, hook);
                self.shut_down(id, cause);
            }
            Stage::Ending { cause } => self.power_off(id, cause),
        }
    }

    fn hook(&self, group: &GroupName, name: &str) -> Option<&Hook> {
        self.groups.get(group)?.hooks.iter().find(|hook| hook.name == name)
    }

    /// Gives a waiting hook more time. False when this instance does not wait for it.
    pub(super) fn beat_hook(&mut self, id: &InstanceId, name: &str) -> bool {
        let Some(instance) = self.instances.get(id) else { return false };
        let Some(timeout) = self.hook(&instance.group, name).map(|hook| hook.heartbeat_timeout_ms.duration())
        else {
            return false;
        };
        let next = self.after(timeout);
        match self.instances.get_mut(id).map(|one| &mut one.stage) {
            Some(Stage::Waiting { hook, since, until, .. }) if hook == name => {
                *until = next.min(*since + LONGEST_WAIT.min(timeout * 100));
                true
            }
            Some(_) | None => false,
        }
    }

    /// Ends a hook's wait. Continue and abandon both end the instance, since it is on its way out. False when this
    /// instance does not wait for it.
    pub(super) fn complete_hook(&mut self, id: &InstanceId, name: &str, result: HookResult) -> bool {
        let cause = match self.instances.get(id).map(|one| &one.stage) {
            Some(Stage::Waiting { hook, cause, .. }) if hook == name => cause.clone(),
            Some(_) | None => return false,
        };
        self.tell_instance(EventKind::HookWaits, id, format!("{name}: {}", result.as_str()));
        self.shut_down(id, cause);
        true
    }

    /// The instance is gone, with everything on it.
    pub(super) fn power_off(&mut self, id: &InstanceId, cause: Cause) {
        self.remember();
        let Some(instance) = self.instances.get(id) else { return };
        let (group, sessions) = (instance.group.clone(), instance.sessions);
        self.tell_instance(EventKind::Terminated, id, cause.words());
        if sessions > 0 {
            self.lose_sessions(id, &cause, sessions);
        }
        self.instances.remove(id);
        let servers = self.servers.values().filter(|server| server.instance == *id);
        for server in servers.map(|server| server.id.clone()).collect::<Vec<_>>() {
            let reason = if cause == Cause::Spot { "interrupted" } else { "instance terminated" };
            self.remove_server(&server, reason);
        }
        self.settle(&group);
    }
}
