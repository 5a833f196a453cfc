//! Game servers: registered, kept healthy, let go.

use jiff::Timestamp;

use super::World;
use super::log::EventKind;
use super::refusal::{Refusal, RefusalKind};
use super::things::Server;
use super::timers::Timer;
use super::words::{GroupName, GroupStatus, InstanceId, InstanceStatus, ServerId, Utilization};

/// What `RegisterGameServer` asks for.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    pub(crate) group: GroupName,
    pub(crate) server: ServerId,
    pub(crate) instance: InstanceId,
    pub(crate) connection: Option<String>,
    pub(crate) data: Option<String>,
}

/// What `UpdateGameServer` asks for.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    pub(crate) group: GroupName,
    pub(crate) server: ServerId,
    pub(crate) data: Option<String>,
    pub(crate) utilization: Option<Utilization>,
    pub(crate) is_healthy: bool,
}

impl World {
    pub(crate) fn register(&mut self, wanted: Register) -> Result<Server, Refusal> {
        let foreign = self.parameters.register_foreign;
        let leaving = self.parameters.register_on_leaving;
        match self.groups.get(&wanted.group) {
            Some(group) if group.status == GroupStatus::Active => {}
            Some(_) => return Err(Refusal::new(foreign, format!("{} is not active", wanted.group))),
            None => return Err(Refusal::new(foreign, format!("there is no group {}", wanted.group))),
        }
        let Some(instance) = self.instances.get(&wanted.instance).filter(|i| i.group == wanted.group) else {
            let message = format!("{} is no instance of {}", wanted.instance, wanted.group);
            return Err(Refusal::new(foreign, message));
        };
        let is_leaving = instance.stage.is_ending()
            || match instance.status {
                InstanceStatus::Active => false,
                InstanceStatus::Draining => !self.parameters.register_on_draining,
                InstanceStatus::SpotTerminating => true,
            };
        if is_leaving {
            return Err(Refusal::new(leaving, format!("{} is going away", wanted.instance)));
        }
        if self.servers.contains_key(&wanted.server) {
            return Err(Refusal::conflict(format!("{} is registered already", wanted.server)));
        }
        let most = self.parameters.servers_per_group;
        if self.servers.values().filter(|server| server.group == wanted.group).count() >= most {
            let message = format!("{} has the {most} game servers that a group may have", wanted.group);
            return Err(Refusal::new(RefusalKind::LimitExceeded, message));
        }
        let server = Server {
            id: wanted.server,
            serial: self.number(),
            group: wanted.group,
            instance: wanted.instance,
            connection: wanted.connection,
            data: wanted.data,
            utilization: Utilization::Available,
            last_claim: None,
            claim_open: false,
            registered: self.now,
            last_health: self.now,
            unhealthy_since: None,
        };
        self.remember();
        self.watch_silence(&server, self.now);
        self.tell_server(EventKind::Registered, &server, "");
        self.servers.insert(server.id.clone(), server.clone());
        Ok(server)
    }

    pub(crate) fn update(&mut self, wanted: Update) -> Result<Server, Refusal> {
        let now = self.now;
        let mut server = self.server(&wanted.group, &wanted.server)?.clone();
        let was_utilized = server.is_utilized();
        match wanted.utilization {
            Some(Utilization::Available) if server.is_utilized() => {
                return Err(Refusal::invalid("UtilizationStatus cannot go back to AVAILABLE"));
            }
            Some(Utilization::Utilized)
                if !self.parameters.utilize_unclaimed && !server.is_utilized() && !server.is_claimed(now) =>
            {
                return Err(Refusal::invalid("UtilizationStatus cannot be UTILIZED without a claim"));
            }
            Some(Utilization::Utilized) if !server.is_utilized() => {
                server.utilization = Utilization::Utilized;
                server.claim_open = false;
                self.tell_server(EventKind::Utilized, &server, "");
            }
            Some(Utilization::Utilized | Utilization::Available) | None => {}
        }
        if wanted.data.is_some() {
            server.data = wanted.data;
        }
        if wanted.is_healthy {
            server.last_health = now;
            if server.unhealthy_since.take().is_some() {
                self.watch_silence(&server, now);
                self.tell_server(EventKind::Healed, &server, "");
            }
        }
        self.remember();
        self.servers.insert(server.id.clone(), server.clone());
        // Most updates are signs of life of thousands of servers: they must cost nothing more.
        if server.is_utilized() != was_utilized {
            self.note_kept(&server.instance);
        }
        Ok(server)
    }

    pub(crate) fn deregister(&mut self, group: &GroupName, server: &ServerId) -> Result<(), Refusal> {
        let id = self.server(group, server)?.id.clone();
        self.remove_server(&id, "by a call");
        Ok(())
    }

    /// FleetIQ's record of a server, if it shows it yet.
    pub(crate) fn server(&self, group: &GroupName, id: &ServerId) -> Result<&Server, Refusal> {
        self.group(group)?;
        self.servers
            .get(id)
            .filter(|server| server.group == *group && self.is_visible(server))
            .ok_or_else(|| Refusal::not_found("game server", id))
    }

    pub(super) fn is_visible(&self, server: &Server) -> bool {
        self.now >= server.registered + self.parameters.visible_after_ms.duration()
    }

    /// Takes a server off the record, for whatever reason.
    pub(super) fn remove_server(&mut self, id: &ServerId, reason: &str) {
        self.remember();
        let Some(server) = self.servers.remove(id) else { return };
        self.tell_server(EventKind::Deregistered, &server, reason);
        self.note_kept(&server.instance);
        self.consider_reaping(&server.instance);
        self.settle(&server.group);
        self.finish_deletion(&server.group);
    }

    pub(super) fn servers_on(&self, instance: &InstanceId) -> impl Iterator<Item = &Server> {
        self.servers.values().filter(move |server| server.instance == *instance)
    }

    fn watch_silence(&mut self, server: &Server, from: Timestamp) {
        let due = from + self.parameters.unhealthy_after_ms.duration();
        self.timers.plan(due, Timer::Silence { server: server.id.clone(), serial: server.serial });
    }

    pub(super) fn notice_silence(&mut self, id: &ServerId, serial: u64) {
        let Some(server) = self.servers.get(id).filter(|server| server.serial == serial) else { return };
        let server = server.clone();
        if server.unhealthy_since.is_some() {
            return;
        }
        if server.last_health + self.parameters.unhealthy_after_ms.duration() > self.now {
            return self.watch_silence(&server, server.last_health);
        }
        self.remember();
        let now = self.now;
        if let Some(server) = self.servers.get_mut(id) {
            server.unhealthy_since = Some(now);
        }
        self.tell_server(EventKind::Unhealthy, &server, format!("silent since {}", server.last_health));
        let removal = Timer::Removal { server: id.clone(), serial };
        self.plan(self.parameters.removed_after_ms.duration(), removal);
    }

    pub(super) fn remove_unhealthy(&mut self, id: &ServerId, serial: u64) {
        let patience = self.parameters.removed_after_ms.duration();
        let is_over = self.servers.get(id).is_some_and(|server| {
            server.serial == serial
                && server.unhealthy_since.is_some_and(|since| since + patience <= self.now)
        });
        if is_over {
            self.remove_server(id, "unhealthy");
        }
    }
}
