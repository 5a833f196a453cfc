//! The account in time: every vector of the service that needs no wire, and every open question both ways.

mod capacity;
mod grid;
mod listing;
mod scaling;
mod servers;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::words::GroupStatus;
use super::*;

/// A group `pvp-eu` with full protection and three instances, and a hand that moves time.
pub(super) struct Harbour {
    pub(super) world: World,
    pub(super) instances: Vec<InstanceId>,
}

pub(super) fn start() -> Timestamp {
    "2026-09-21T12:00:00Z".parse().unwrap()
}

pub(super) fn place() -> Place {
    Place { region: "eu-central-1".to_owned(), account: "111122223333".to_owned() }
}

pub(super) fn group(name: &str) -> GroupName {
    GroupName::parse(name).unwrap()
}

pub(super) fn server(name: &str) -> ServerId {
    ServerId::parse(name).unwrap()
}

impl Harbour {
    pub(super) fn new() -> Self {
        Self::with(Parameters::default())
    }

    pub(super) fn with(parameters: Parameters) -> Self {
        let mut harbour = Self { world: World::new(place(), parameters, 7, start()), instances: Vec::new() };
        harbour
            .order(json!({"order": "group", "group": "pvp-eu", "change": {"protection": "FULL_PROTECTION"}}));
        harbour.instances = harbour.launch("pvp-eu", 3);
        harbour
    }

    pub(super) fn try_order(&mut self, order: Value) -> Result<Value, OrderError> {
        let order = serde_json::from_value(order).expect("an order");
        self.world.perform(order)
    }

    pub(super) fn order(&mut self, order: Value) -> Value {
        let words = order.to_string();
        self.try_order(order).unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    pub(super) fn launch(&mut self, group: &str, count: u32) -> Vec<InstanceId> {
        let answer = self.order(json!({"order": "launch", "group": group, "wanted": {"count": count}}));
        serde_json::from_value(answer["instances"].clone()).unwrap()
    }

    pub(super) fn status(&mut self, instance: &InstanceId, status: &str) {
        self.order(json!({"order": "status", "instance": instance, "status": status}));
    }

    pub(super) fn sessions(&mut self, instance: &InstanceId, live: u32) {
        self.order(json!({"order": "sessions", "instance": instance, "live": live}));
    }

    pub(super) fn advance(&mut self, wait: Duration) {
        let now = self.world.now() + wait;
        self.world.advance(now);
    }

    pub(super) fn seconds(&mut self, seconds: u64) {
        self.advance(Duration::from_secs(seconds));
    }

    /// Time passes, and these servers say every minute that they are well.
    pub(super) fn seconds_healthy(&mut self, seconds: u64, servers: &[&str]) {
        for _ in 0..seconds / 60 {
            self.seconds(60);
            for server in servers {
                self.update(server, None, true).unwrap();
            }
        }
        self.seconds(seconds % 60);
    }

    pub(super) fn register(&mut self, name: &str, instance: &InstanceId) -> Result<Server, Refusal> {
        self.world.register(Register {
            group: group("pvp-eu"),
            server: server(name),
            instance: instance.clone(),
            connection: None,
            data: None,
        })
    }

    pub(super) fn claim(&mut self, name: Option<&str>, filter: Option<Filter>) -> Result<Server, Refusal> {
        let claim = Claim { group: group("pvp-eu"), server: name.map(server), data: None, filter };
        self.world.claim(claim, "by the test")
    }

    pub(super) fn update(
        &mut self,
        name: &str,
        utilization: Option<Utilization>,
        is_healthy: bool,
    ) -> Result<Server, Refusal> {
        self.world.update(Update {
            group: group("pvp-eu"),
            server: server(name),
            data: None,
            utilization,
            is_healthy,
        })
    }

    /// Registered, claimed and utilized, as the agent does it.
    pub(super) fn utilized(&mut self, name: &str, instance: &InstanceId) {
        self.register(name, instance).unwrap();
        self.claim(Some(name), None).unwrap();
        self.update(name, Some(Utilization::Utilized), true).unwrap();
    }

    pub(super) fn describe(&mut self, name: &str) -> Result<Server, Refusal> {
        self.world.describe_server(&group("pvp-eu"), &server(name))
    }

    pub(super) fn is_there(&self, instance: &InstanceId) -> bool {
        self.world.instance(instance.as_str()).is_some()
    }

    pub(super) fn kinds_of(&self, instance: &InstanceId) -> Vec<EventKind> {
        let of_instance = |event: &&Event| event.instance.as_ref() == Some(instance);
        self.world.events_since(0).iter().filter(of_instance).map(|event| event.kind).collect()
    }
}

pub(super) fn kind<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> RefusalKind {
    answer.expect_err("a refusal").kind
}
