//! The imitated account: game server groups, their instances and game servers, and what happens to them in time.
//!
//! Everything here is a pure state machine. [`World::advance`] brings it to a time and lets happen, in order, what was
//! due until then; calls and orders act at that time. All chance comes from one seed.

mod audit;
mod capacity;
mod claims;
mod ending;
mod groups;
mod listing;
mod log;
mod orders;
mod parameters;
mod policy;
mod refusal;
mod routines;
mod scaling;
mod servers;
mod spot;
#[cfg(test)]
mod tests;
mod things;
mod timers;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub(crate) use claims::{Claim, Filter};
pub(crate) use groups::{CreateGroup, UpdateGroup};
pub(crate) use listing::{ListInstances, ListServers, Page, Paging};
pub(crate) use log::{Event, EventKind};
pub(crate) use orders::{Order, OrderError};
pub(crate) use parameters::Parameters;
pub(crate) use refusal::{Refusal, RefusalKind};
pub(crate) use scaling::{Activity, ScalingError, ScalingInstance};
pub(crate) use servers::{Register, Update};
pub(crate) use things::{Group, Hook, Instance, InstanceDefinition, Maintenance, Server, Stage};
pub(crate) use words::{
    Balancing, DeleteOption, GroupName, HookResult, InstanceId, InstanceStatus, Milliseconds, Protection,
    ServerId, SortOrder, Utilization, known, readable,
};

use audit::Loss;
use log::{About, EventLog};
use routines::Routines;
use timers::{Timer, Timers};

/// Who the account is, and where.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) region: String,
    pub(crate) account: String,
}

/// The account.
#[derive(Debug)]
pub(crate) struct World {
    place: Place,
    parameters: Parameters,
    now: Timestamp,
    dice: StdRng,
    groups: BTreeMap<GroupName, Group>,
    instances: BTreeMap<InstanceId, Instance>,
    servers: BTreeMap<ServerId, Server>,
    timers: Timers,
    routines: Routines,
    log: EventLog,
    losses: Vec<Loss>,
    activities: Vec<Activity>,
    past: VecDeque<Past>,
    numbers: u64,
}

/// How things were at a time, for stale reads.
#[derive(Debug)]
struct Past {
    time: Timestamp,
    instances: BTreeMap<InstanceId, (GroupName, InstanceStatus)>,
    servers: BTreeMap<ServerId, Server>,
}

impl World {
    /// An empty account at `now`.
    pub(crate) fn new(place: Place, parameters: Parameters, seed: u64, now: Timestamp) -> Self {
        Self {
            place,
            parameters,
            now,
            dice: StdRng::seed_from_u64(seed),
            groups: BTreeMap::new(),
            instances: BTreeMap::new(),
            servers: BTreeMap::new(),
            timers: Timers::default(),
            routines: Routines::default(),
            log: EventLog::default(),
            losses: Vec::new(),
            activities: Vec::new(),
            past: VecDeque::new(),
            numbers: 0,
        }
    }

    /// Lets everything happen that is due at `now` or before. Time that goes back is taken for time that stands.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some((due, timer)) = self.timers.pop_due(now) {
            self.now = self.now.max(due);
            self.fire(timer);
        }
        self.now = self.now.max(now);
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::ClaimEnds { server, serial } => self.end_claim(&server, serial),
            Timer::Silence { server, serial } => self.notice_silence(&server, serial),
            Timer::Removal { server, serial } => self.remove_unhealthy(&server, serial),
            Timer::InService { instance } => self.bring_into_service(&instance),
            Timer::Reap { instance } => self.reap(&instance),
            Timer::EndingStep { instance } => self.step_ending(&instance),
            Timer::Spot { instance, part } => self.interrupt(&instance, part),
            Timer::GroupStep { group } => self.step_group(&group),
            Timer::Scale { group } => self.scale(&group),
            // An order of a scenario that no longer fits, such as one for an instance that is gone, changes nothing.
            Timer::Order(order) => drop(self.perform(*order)),
            Timer::Routine(routine) => self.routine(routine),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.timers.next_due()
    }

    pub(crate) fn events_since(&self, seq: u64) -> &[Event] {
        self.log.since(seq)
    }

    pub(crate) fn instance(&self, id: &str) -> Option<&Instance> {
        self.instances.get(id)
    }

    pub(crate) fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.values()
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    pub(crate) fn group_arn(&self, group: &GroupName) -> String {
        let Place { region, account } = &self.place;
        format!("arn:aws:gamelift:{region}:{account}:gameservergroup/{group}")
    }

    pub(crate) fn scaling_group_arn(&self, group: &GroupName) -> String {
        let Place { region, account } = &self.place;
        let name = group.scaling_group();
        format!("arn:aws:autoscaling:{region}:{account}:autoScalingGroup:0:autoScalingGroupName/{name}")
    }

    fn group(&self, name: &GroupName) -> Result<&Group, Refusal> {
        self.groups.get(name).ok_or_else(|| Refusal::not_found("game server group", name))
    }

    fn after(&self, wait: Duration) -> Timestamp {
        // The end of time is as good as never.
        self.now.saturating_add(wait).unwrap_or(Timestamp::MAX)
    }

    fn plan(&mut self, wait: Duration, timer: Timer) {
        let due = self.after(wait);
        self.timers.plan(due, timer);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn tell(&mut self, kind: EventKind, about: About, detail: impl Into<String>) {
        self.log.add(self.now, kind, about, detail);
    }

    fn tell_group(&mut self, kind: EventKind, group: &GroupName, detail: impl Into<String>) {
        self.tell(kind, About { group: Some(group.clone()), ..About::default() }, detail);
    }

    fn tell_instance(&mut self, kind: EventKind, instance: &InstanceId, detail: impl Into<String>) {
        let group = self.instances.get(instance).map(|instance| instance.group.clone());
        self.tell(kind, About { group, instance: Some(instance.clone()), server: None }, detail);
    }

    fn tell_server(&mut self, kind: EventKind, server: &Server, detail: impl Into<String>) {
        let about = About {
            group: Some(server.group.clone()),
            instance: Some(server.instance.clone()),
            server: Some(server.id.clone()),
        };
        self.tell(kind, about, detail);
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.dice.random_bool(probability.min(1.0))
    }
}
