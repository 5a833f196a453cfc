//! Room for pods, by the scheduler's arithmetic. Pure.

use std::collections::BTreeMap;

use berth_api::game_node::Room;
use berth_api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;

use crate::pods::phase;

type Amounts = BTreeMap<String, Written>;

#[derive(Clone, Copy, Default)]
struct Need {
    cpu: Quantity,
    memory: Quantity,
}

impl Need {
    fn of(amounts: Option<&Amounts>) -> Self {
        let read = |name: &str| {
            amounts.and_then(|amounts| Quantity::parse(&amounts.get(name)?.0)).unwrap_or(Quantity::ZERO)
        };
        Self { cpu: read("cpu"), memory: read("memory") }
    }

    fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu.plus(other.cpu), memory: self.memory.plus(other.memory) }
    }

    fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

/// What pods may use of a node.
pub fn allocatable(amounts: &Amounts) -> Room {
    let need = Need::of(Some(amounts));
    let pods = amounts.get("pods").and_then(|pods| Quantity::parse(&pods.0)).unwrap_or(Quantity::ZERO);
    Room { milli_cpu: need.cpu.as_milli(), memory_bytes: need.memory.as_whole(), pods: pods.as_whole() }
}

/// What a pod takes: its containers together, or its init containers at their peak, and its overhead. Init containers
/// that are always restarted run beside all that comes after them.
pub fn taken_by(spec: &PodSpec) -> Room {
    let requests = |container: &Container| {
        let resources = container.resources.as_ref();
        let limits = Need::of(resources.and_then(|resources| resources.limits.as_ref()));
        let asked = resources.and_then(|resources| resources.requests.as_ref());
        let need = Need::of(asked);
        let has = |name: &str| asked.is_some_and(|asked| asked.contains_key(name));
        // A limit without a request is a request.
        Need {
            cpu: if has("cpu") { need.cpu } else { limits.cpu },
            memory: if has("memory") { need.memory } else { limits.memory },
        }
    };
    let mut beside = Need::default();
    let mut peak = Need::default();
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            beside = beside.plus(requests(init));
            peak = peak.max(beside);
        } else {
            peak = peak.max(beside.plus(requests(init)));
        }
    }
    let running = spec.containers.iter().map(requests).fold(beside, Need::plus);
    let whole = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut need = running.max(peak);
    // A pod may state its needs as a whole, for each resource.
    if whole.is_some_and(|whole| whole.contains_key("cpu")) {
        need.cpu = Need::of(whole).cpu;
    }
    if whole.is_some_and(|whole| whole.contains_key("memory")) {
        need.memory = Need::of(whole).memory;
    }
    let need = need.plus(Need::of(spec.overhead.as_ref()));
    Room { milli_cpu: need.cpu.as_milli(), memory_bytes: need.memory.as_whole(), pods: 1 }
}

/// Whether a pod takes room: one that has ended does not, one that is being deleted does.
pub fn takes_room(pod: &Pod) -> bool {
    !matches!(phase(pod), Some("Succeeded" | "Failed"))
}

/// The sum of two rooms.
pub fn plus(one: Room, other: Room) -> Room {
    Room {
        milli_cpu: one.milli_cpu.saturating_add(other.milli_cpu),
        memory_bytes: one.memory_bytes.saturating_add(other.memory_bytes),
        pods: one.pods.saturating_add(other.pods),
    }
}

/// What is left, at least nothing.
pub fn minus(one: Room, other: Room) -> Room {
    Room {
        milli_cpu: one.milli_cpu.saturating_sub(other.milli_cpu).max(0),
        memory_bytes: one.memory_bytes.saturating_sub(other.memory_bytes).max(0),
        pods: one.pods.saturating_sub(other.pods).max(0),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{Value, json};

    use super::taken_by;

    fn container(cpu: &str, restart: Option<&str>) -> Value {
        json!({ "name": "c", "restartPolicy": restart, "resources": { "requests": { "cpu": cpu, "memory": "1Mi" } } })
    }

    #[test]
    fn a_pod_takes_what_the_scheduler_counts() {
        let always = Some("Always");
        let limit_only = json!({ "name": "c", "resources": { "limits": { "cpu": "2" } } });
        let table: [(&str, Value, i64); 7] = [
            (
                "containers add up",
                json!({ "containers": [container("100m", None), container("1", None)] }),
                1100,
            ),
            (
                "an init container at its peak",
                json!({ "initContainers": [container("2", None)], "containers": [container("1", None)] }),
                2000,
            ),
            (
                "a sidecar runs beside the containers",
                json!({ "initContainers": [container("2", always)], "containers": [container("1", None)] }),
                3000,
            ),
            (
                "a sidecar runs beside later init containers",
                json!({
                    "initContainers": [container("1", always), container("3", None)],
                    "containers": [container("1", None)]
                }),
                4000,
            ),
            (
                "a sidecar does not run beside earlier ones",
                json!({
                    "initContainers": [container("3", None), container("1", always)],
                    "containers": [container("1", None)]
                }),
                3000,
            ),
            (
                "overhead comes on top",
                json!({ "containers": [container("1", None)], "overhead": { "cpu": "50m" } }),
                1050,
            ),
            ("a limit is a request", json!({ "containers": [limit_only] }), 2000),
        ];
        for (name, spec, milli_cpu) in table {
            let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
            assert_eq!(taken_by(&spec).milli_cpu, milli_cpu, "{name}");
        }
    }
}
