//! What a server needs of a node, read from its pod template with the scheduler's arithmetic. Pure.

use std::collections::BTreeMap;

use berth_api::game_node::Room;
use berth_api::game_server::{GameServerSpec, PortPolicy, PortProtocol, split_both_protocols};
use berth_api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, NodeSelector, PodSpec, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;

use super::constraints::{bound_to_its_pod, left_to_scheduler};

/// What a server needs of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Needs {
    /// Why no node will ever do; nothing else is known then.
    pub(crate) hopeless: Option<String>,
    /// What the scheduler alone understands of what the template asks for.
    pub(crate) left_to_scheduler: Option<String>,
    pub(crate) room: Room,
    pub(crate) node_selector: BTreeMap<String, String>,
    /// The required part of the node affinity.
    pub(crate) affinity: Option<NodeSelector>,
    pub(crate) tolerations: Vec<Toleration>,
    /// How many host ports the agent has to find, by range.
    pub(crate) dynamic_ports: BTreeMap<String, i64>,
    /// Host ports that the author chose.
    pub(crate) static_ports: Vec<(u16, PortProtocol)>,
}

impl Needs {
    /// The needs of one server of this spec.
    pub(crate) fn of(spec: &GameServerSpec) -> Self {
        let pod = match spec.template.read() {
            Ok(template) => template.spec.unwrap_or_default(),
            Err(error) => return Self::hopeless(format!("the pod template cannot be read: {error}")),
        };
        if let Some(bound) = bound_to_its_pod(&pod) {
            return Self::hopeless(bound);
        }
        let room = match room(&pod) {
            Ok(room) => room,
            Err(amount) => {
                return Self::hopeless(format!(
                    "the pod template cannot be read: {amount:?} is not a quantity"
                ));
            }
        };
        let left_to_scheduler = left_to_scheduler(&pod);
        let mut dynamic_ports = BTreeMap::new();
        // One number serves both protocols of a port that speaks both.
        for port in spec.ports() {
            match port.policy() {
                PortPolicy::Dynamic | PortPolicy::Passthrough => {
                    *dynamic_ports.entry(port.range().to_owned()).or_insert(0) += 1;
                }
                PortPolicy::Static | PortPolicy::None => {}
            }
        }
        let chosen =
            split_both_protocols(spec.ports()).into_iter().filter(|port| port.policy() == PortPolicy::Static);
        let static_ports = chosen
            .filter_map(|port| {
                port.host_port.filter(|number| *number != 0).map(|number| (number, port.protocol()))
            })
            .collect();
        let affinity = pod.affinity.and_then(|affinity| affinity.node_affinity);
        Self {
            hopeless: None,
            left_to_scheduler,
            room,
            node_selector: pod.node_selector.unwrap_or_default(),
            affinity: affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution),
            tolerations: pod.tolerations.unwrap_or_default(),
            dynamic_ports,
            static_ports,
        }
    }

    fn hopeless(why: String) -> Self {
        Self { hopeless: Some(why), ..Self::default() }
    }
}

#[derive(Clone, Copy, Default)]
struct Sum {
    cpu: Quantity,
    memory: Quantity,
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu.plus(other.cpu), memory: self.memory.plus(other.memory) }
    }

    fn or_more(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

/// Containers and sidecars run together; each other init container runs beside the sidecars that were started before
/// it. The pod needs the most of these, and its overhead on top.
fn room(pod: &PodSpec) -> Result<Room, String> {
    let mut sidecars = Sum::default();
    let mut starting = Sum::default();
    for container in pod.init_containers.iter().flatten() {
        let own = requests_of(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.plus(own);
            starting = starting.or_more(sidecars);
        } else {
            starting = starting.or_more(sidecars.plus(own));
        }
    }
    let mut running = sidecars;
    for container in &pod.containers {
        running = running.plus(requests_of(container)?);
    }
    let mut total = running.or_more(starting);
    // Requests of the pod as a whole replace what its containers add up to.
    if let Some(whole) = &pod.resources {
        let empty = BTreeMap::new();
        let requests = whole.requests.as_ref().unwrap_or(&empty);
        let limits = whole.limits.as_ref().unwrap_or(&empty);
        total.cpu = requested(requests, limits, "cpu")?.unwrap_or(total.cpu);
        total.memory = requested(requests, limits, "memory")?.unwrap_or(total.memory);
    }
    let overhead = pod.overhead.clone().unwrap_or_default();
    let of_overhead = |name| requested(&overhead, &overhead, name).map(Option::unwrap_or_default);
    let total = total.plus(Sum { cpu: of_overhead("cpu")?, memory: of_overhead("memory")? });
    Ok(Room { milli_cpu: total.cpu.as_milli(), memory_bytes: total.memory.as_whole(), pods: 1 })
}

fn requests_of(container: &Container) -> Result<Sum, String> {
    let resources = container.resources.clone().unwrap_or_default();
    let (requests, limits) = (resources.requests.unwrap_or_default(), resources.limits.unwrap_or_default());
    let of = |name| requested(&requests, &limits, name).map(Option::unwrap_or_default);
    Ok(Sum { cpu: of("cpu")?, memory: of("memory")? })
}

/// A request that is not written is its limit, where there is one.
fn requested(
    requests: &BTreeMap<String, Written>,
    limits: &BTreeMap<String, Written>,
    name: &str,
) -> Result<Option<Quantity>, String> {
    let written = requests.get(name).or_else(|| limits.get(name));
    written.map(|written| Quantity::parse(&written.0).ok_or_else(|| written.0.clone())).transpose()
}

#[cfg(test)]
mod tests {
    use berth_api::game_server::{PodTemplate, PortSpec};
    use serde_json::{Value, json};

    use super::*;

    fn needs(pod: Value) -> Needs {
        Needs::of(&GameServerSpec {
            template: PodTemplate(json!({ "spec": pod })),
            ..GameServerSpec::default()
        })
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn room_is_what_the_scheduler_would_count() {
        let rows: [(&str, Value, i64); 8] = [
            ("containers add up", json!({"containers": [container("1"), container("250m")]}), 1250),
            (
                "an init container runs alone",
                json!({"containers": [container("1")], "initContainers": [container("3"), container("2")]}),
                3000,
            ),
            (
                "a sidecar runs beside the containers",
                json!({"containers": [container("1")], "initContainers": [sidecar("500m")]}),
                1500,
            ),
            (
                "an init container runs beside earlier sidecars only",
                json!({"containers": [container("1")],
                    "initContainers": [sidecar("1"), container("3"), sidecar("1")]}),
                4000,
            ),
            (
                "overhead comes on top",
                json!({"containers": [container("1")], "overhead": {"cpu": "100m"}}),
                1100,
            ),
            (
                "a limit stands for a missing request",
                json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": 2}}}]}),
                2000,
            ),
            (
                "requests of the whole pod replace the sum",
                json!({"containers": [container("1")], "resources": {"requests": {"cpu": "3"}}}),
                3000,
            ),
            ("nothing asked for", json!({"containers": [{"name": "c"}]}), 0),
        ];
        for (name, pod, milli) in rows {
            let room = needs(pod).room;
            assert_eq!((room.milli_cpu, room.pods), (milli, 1), "{name}");
        }
    }

    #[test]
    fn ports_are_counted_by_who_chooses_them() {
        let port = |policy, number: u16, protocol| PortSpec {
            port_policy: Some(policy),
            host_port: (number > 0).then_some(number),
            protocol: Some(protocol),
            ..PortSpec::default()
        };
        let spec = GameServerSpec {
            ports: Some(vec![
                port(PortPolicy::Dynamic, 0, PortProtocol::TcpUdp),
                port(PortPolicy::Passthrough, 0, PortProtocol::Udp),
                port(PortPolicy::Static, 7000, PortProtocol::TcpUdp),
                port(PortPolicy::None, 0, PortProtocol::Tcp),
            ]),
            template: PodTemplate(json!({"spec": {"containers": []}})),
            ..GameServerSpec::default()
        };
        let needs = Needs::of(&spec);
        assert_eq!(needs.dynamic_ports, BTreeMap::from([("default".to_owned(), 2)]));
        assert_eq!(needs.static_ports, [(7000, PortProtocol::Tcp), (7000, PortProtocol::Udp)]);
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        assert!(needs(json!({"containers": "none"})).hopeless.is_some());
        assert!(needs(json!({"containers": [container("lots")]})).hopeless.is_some());
    }
}
