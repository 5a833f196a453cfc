//! Claims: sixty seconds in which a server is somebody's.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::World;
use super::log::EventKind;
use super::refusal::{Refusal, RefusalKind};
use super::things::{CLAIM, Server};
use super::timers::Timer;
use super::words::{GroupName, InstanceId, InstanceStatus, ServerId};

/// What `ClaimGameServer` asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) group: GroupName,
    pub(crate) server: Option<ServerId>,
    pub(crate) data: Option<String>,
    pub(crate) filter: Option<Filter>,
}

/// Instances that a claim may land on; ACTIVE ones are always among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) allows_draining: bool,
}

impl World {
    pub(crate) fn claim(&mut self, wanted: Claim, by: &str) -> Result<Server, Refusal> {
        self.group(&wanted.group)?;
        let id = match &wanted.server {
            Some(id) => self.claimable(&wanted, id)?,
            None => self.any_claimable(&wanted)?,
        };
        self.remember();
        let now = self.now;
        let Some(server) = self.servers.get_mut(&id) else {
            return Err(Refusal::not_found("game server", id));
        };
        server.last_claim = Some(now);
        server.claim_open = true;
        if wanted.data.is_some() {
            server.data = wanted.data;
        }
        let server = server.clone();
        let ends = Timer::ClaimEnds { server: server.id.clone(), serial: server.serial };
        self.plan(CLAIM, ends);
        self.tell_server(EventKind::Claimed, &server, by);
        self.note_kept(&server.instance);
        Ok(server)
    }

    /// Whether this very server may be claimed now.
    fn claimable(&self, wanted: &Claim, id: &ServerId) -> Result<ServerId, Refusal> {
        let server = self.server(&wanted.group, id)?;
        if server.is_utilized() {
            return Err(Refusal::conflict(format!("{id} is utilized")));
        }
        if server.is_claimed(self.now) {
            return Err(Refusal::conflict(format!("{id} is claimed already")));
        }
        let filtered_out = wanted.filter.is_some_and(|filter| !filter.allows_draining);
        match self.status_of(&server.instance) {
            Some(InstanceStatus::Draining) if filtered_out => {
                let message = format!("{id} is on an instance that the filter leaves out");
                return Err(Refusal::new(self.parameters.claim_filtered_out, message));
            }
            Some(InstanceStatus::SpotTerminating) => {
                return Err(Refusal::conflict(format!("{id} is on an instance that is interrupted")));
            }
            Some(InstanceStatus::Active | InstanceStatus::Draining) | None => {}
        }
        if server.unhealthy_since.is_some() {
            return Err(Refusal::conflict(format!("{id} is not healthy")));
        }
        Ok(id.clone())
    }

    /// The server that FleetIQ would choose: on the instance that is busiest, and on one that is DRAINING only if there
    /// is no other.
    fn any_claimable(&self, wanted: &Claim) -> Result<ServerId, Refusal> {
        let mut utilized = BTreeMap::<&InstanceId, usize>::new();
        for server in self.servers.values().filter(|server| server.is_utilized()) {
            *utilized.entry(&server.instance).or_default() += 1;
        }
        let allows_draining = wanted.filter.is_none_or(|filter| filter.allows_draining);
        self.servers
            .values()
            .filter(|server| server.group == wanted.group && self.is_visible(server))
            .filter(|server| !server.is_utilized() && !server.is_claimed(self.now))
            .filter(|server| server.unhealthy_since.is_none())
            .filter_map(|server| {
                let is_last_resort = match self.status_of(&server.instance)? {
                    InstanceStatus::Active => false,
                    InstanceStatus::Draining if allows_draining => true,
                    InstanceStatus::Draining | InstanceStatus::SpotTerminating => return None,
                };
                let busy = utilized.get(&server.instance).copied().unwrap_or(0);
                Some((is_last_resort, Reverse(busy), &server.id))
            })
            .min()
            .map(|(_, _, id)| id.clone())
            .ok_or_else(|| {
                let message = format!("{} has no game server to claim", wanted.group);
                Refusal::new(RefusalKind::OutOfCapacity, message)
            })
    }

    fn status_of(&self, instance: &InstanceId) -> Option<InstanceStatus> {
        self.instances.get(instance).map(|instance| instance.status)
    }

    pub(super) fn end_claim(&mut self, id: &ServerId, serial: u64) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(id).filter(|server| server.serial == serial) else { return };
        if !server.claim_open || server.is_claimed(now) {
            return;
        }
        server.claim_open = false;
        let server = server.clone();
        self.tell_server(EventKind::ClaimExpired, &server, "");
        self.note_kept(&server.instance);
        self.settle(&server.group);
    }
}
