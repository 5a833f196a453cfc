//! Fixtures of the unit tests.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use berth_api::game_node::{GameNodeStatus, NodePhase, PortCount, Room};
use berth_api::game_server::Scheduling;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::{FORMAT_VERSION, HandOver};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::placement::{Needs, NodeView};
use crate::stores::{Amount, Key, NodeRecord, Server};

/// A server in the making.
#[derive(Clone)]
pub(crate) struct Build(Server);

/// A server in state Creating, on no node, of no set.
pub(crate) fn server(name: &str) -> Build {
    Build(Server {
        key: Key::new("games", name),
        uid: format!("uid-{name}"),
        resource_version: "1".to_owned(),
        set: None,
        set_name: None,
        state: Some(State::Creating),
        was_ready: false,
        node: None,
        created: Timestamp::UNIX_EPOCH,
        is_ending: false,
        finalizers: vec![names::FINALIZER.to_owned()],
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        counters: BTreeMap::new(),
        lists: BTreeMap::new(),
        players: None,
        scheduling: Scheduling::Packed,
        needs: Arc::new(Needs::default()),
        conditions: Vec::new(),
        host_ports: Vec::new(),
    })
}

impl Build {
    pub(crate) fn build(self) -> Server {
        self.0
    }

    pub(crate) fn state(mut self, state: State) -> Self {
        self.0.state = Some(state);
        self
    }

    pub(crate) fn stateless(mut self) -> Self {
        self.0.state = None;
        self
    }

    pub(crate) fn ready(self) -> Self {
        self.state(State::Ready)
    }

    pub(crate) fn on(mut self, node: &str) -> Self {
        self.0.node = Some(node.to_owned());
        self
    }

    pub(crate) fn of(mut self, set: &str) -> Self {
        self.0.set = Some(format!("uid-{set}"));
        self.0.set_name = Some(set.to_owned());
        self
    }

    pub(crate) fn ending(mut self) -> Self {
        self.0.is_ending = true;
        self
    }

    pub(crate) fn without_finalizer(mut self) -> Self {
        self.0.finalizers.clear();
        self
    }

    pub(crate) fn scheduling(mut self, scheduling: Scheduling) -> Self {
        self.0.scheduling = scheduling;
        self
    }

    pub(crate) fn born(mut self, second: i64) -> Self {
        self.0.created = Timestamp::from_second(second).expect("a time");
        self
    }

    pub(crate) fn label(mut self, name: &str, value: &str) -> Self {
        self.0.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn annotation(mut self, name: &str, value: &str) -> Self {
        self.0.annotations.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn counter(mut self, name: &str, count: i64, capacity: i64) -> Self {
        self.0.counters.insert(name.to_owned(), Amount { count, capacity });
        self
    }
}

/// A Node that is open.
pub(crate) fn node(name: &str) -> NodeRecord {
    NodeRecord { uid: format!("uid-{name}"), ..NodeRecord::default() }
}

/// What the agent of an open node says.
pub(crate) fn agent(name: &str) -> GameNodeStatus {
    GameNodeStatus {
        phase: NodePhase::Active,
        node_uid: format!("uid-{name}"),
        boot_id: format!("boot-{name}"),
        format_versions: vec![FORMAT_VERSION],
        allocatable: Room { milli_cpu: 4000, memory_bytes: 4000, pods: 110 },
        ports: BTreeMap::from([("default".to_owned(), PortCount { total: 100, free: 100 })]),
        ..GameNodeStatus::default()
    }
}

/// The lease of that agent.
pub(crate) fn lease(name: &str) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(format!("{name}/boot-{name}/process")),
        lease_duration_seconds: Some(10),
        ..LeaseSpec::default()
    };
    Lease { spec: Some(spec), ..Lease::default() }
}

/// The same lease, renewed at another time.
pub(crate) fn lease_renewed(name: &str, second: i64) -> Lease {
    let mut lease = lease(name);
    let time = Timestamp::from_second(second).ok().map(MicroTime);
    lease.spec = lease.spec.map(|spec| LeaseSpec { renew_time: time, ..spec });
    lease
}

/// An open node with this many servers.
pub(crate) fn view(name: &str, servers: usize) -> NodeView {
    NodeView {
        name: name.to_owned(),
        offer: Ok(HandOver::new(name, format!("uid-{name}"), format!("boot-{name}"))),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        free: Room { milli_cpu: 4000, memory_bytes: 4000, pods: 110 },
        free_ports: BTreeMap::from([("default".to_owned(), 100)]),
        taken_ports: HashSet::new(),
        servers,
        is_due: false,
    }
}
