//! Whether a kubelet runs a pod that was bound to its node: its own arithmetic, in its own words. Pure.
//!
//! A kubelet asks again what a scheduler has asked, since not every pod comes through one; it does not ask about
//! cordons and `NoSchedule` taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec};

use super::quantity::milli;

/// Amounts in thousandths, by resource.
pub(super) type Amounts = BTreeMap<String, i128>;

/// A refusal as it stands in the pod's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) message: String,
}

/// What a pod holds of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) amounts: Amounts,
    pub(super) ports: Vec<(i32, String)>,
}

/// The node as an admission sees it.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) capacity: Amounts,
}

/// Why the node does not run this pod beside what it holds already.
pub(super) fn refusal<'a>(
    pod: &Pod,
    node: &NodeFacts,
    held: impl Iterator<Item = &'a Holding> + Clone,
) -> Option<Refusal> {
    let spec = pod.spec.clone().unwrap_or_default();
    let wanted = holding(&spec);
    for (resource, asked) in &wanted.amounts {
        let limit = node.capacity.get(resource).copied().unwrap_or(0);
        let used: i128 = held.clone().filter_map(|one| one.amounts.get(resource)).sum();
        if *asked > 0 && used + asked > limit {
            return Some(out_of(resource, *asked, used, limit));
        }
    }
    if !matches(&spec, node) {
        let message = "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node \
                       affinity/selector";
        return Some(Refusal { reason: "NodeAffinity".to_owned(), message: message.to_owned() });
    }
    let taken = |port: &(i32, String)| held.clone().any(|one| one.ports.contains(port));
    if wanted.ports.iter().any(taken) {
        let message = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the \
                       requested pod ports";
        return Some(Refusal { reason: "NodePorts".to_owned(), message: message.to_owned() });
    }
    None
}

/// A refusal for a reason that somebody chose.
pub(super) fn ordered(reason: &str) -> Refusal {
    let message = match reason.strip_prefix("OutOf") {
        Some(resource) => return out_of(resource, 1000, 0, 0),
        None if reason.starts_with("Node") => format!("Pod was rejected: Predicate {reason} failed"),
        None => {
            "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy \
                 devices, which is unexpected"
                .to_owned()
        }
    };
    Refusal { reason: reason.to_owned(), message }
}

fn out_of(resource: &str, asked: i128, used: i128, limit: i128) -> Refusal {
    // Processor time is told in thousandths, everything else in its unit.
    let unit = if resource == "cpu" { 1 } else { 1000 };
    Refusal {
        reason: format!("OutOf{resource}"),
        message: format!(
            "Pod was rejected: Node didn't have enough resource: {resource}, requested: {}, used: {}, capacity: {}",
            asked / unit,
            used / unit,
            limit / unit
        ),
    }
}

/// What a pod takes of the node it runs on.
pub(super) fn holding(spec: &PodSpec) -> Holding {
    let mut amounts = Amounts::from([("pods".to_owned(), 1000)]);
    let (mut beside, mut peak) = (Amounts::new(), Amounts::new());
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            beside = sum(&beside, &requests(init));
            peak = most(&peak, &beside);
        } else {
            peak = most(&peak, &sum(&beside, &requests(init)));
        }
    }
    let running = spec.containers.iter().fold(beside, |total, one| sum(&total, &requests(one)));
    let overhead = read(spec.overhead.as_ref());
    amounts.extend(sum(&most(&running, &peak), &overhead));
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ports = all
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            Some((number, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())))
        })
        .collect();
    Holding { amounts, ports }
}

fn requests(container: &Container) -> Amounts {
    let resources = container.resources.clone().unwrap_or_default();
    // A limit without a request is a request.
    let mut amounts = read(resources.limits.as_ref());
    amounts.extend(read(resources.requests.as_ref()));
    amounts
}

fn read(
    written: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> Amounts {
    written
        .into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), milli(&amount.0)?)))
        .collect()
}

fn sum(one: &Amounts, other: &Amounts) -> Amounts {
    fold(one, other, |one, other| one + other)
}

fn most(one: &Amounts, other: &Amounts) -> Amounts {
    fold(one, other, i128::max)
}

fn fold(one: &Amounts, other: &Amounts, join: impl Fn(i128, i128) -> i128) -> Amounts {
    let mut folded = one.clone();
    for (name, amount) in other {
        let entry = folded.entry(name.clone()).or_insert(0);
        *entry = join(*entry, *amount);
    }
    folded
}

fn matches(spec: &PodSpec, node: &NodeFacts) -> bool {
    let selected =
        spec.node_selector.iter().flatten().all(|(name, value)| node.labels.get(name) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|one| one.node_selector_terms.iter().any(|term| satisfies(term, node)))
}

fn satisfies(term: &NodeSelectorTerm, node: &NodeFacts) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term without a word matches nothing.
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|one| holds(one, node.labels.get(&one.key).map(String::as_str)))
        && fields
            .iter()
            .all(|one| holds(one, Some(node.name.as_str()).filter(|_| one.key == "metadata.name")))
}

fn holds(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_in = found.is_some_and(|found| values.iter().any(|value| value == found));
    let compare = |wanted: std::cmp::Ordering| {
        let bound = values.first().and_then(|value| value.parse::<i64>().ok());
        let found = found.and_then(|found| found.parse::<i64>().ok());
        found.zip(bound).is_some_and(|(found, bound)| found.cmp(&bound) == wanted)
    };
    match requirement.operator.as_str() {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compare(std::cmp::Ordering::Greater),
        "Lt" => compare(std::cmp::Ordering::Less),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> NodeFacts {
        NodeFacts {
            name: "node-1".to_owned(),
            labels: BTreeMap::from([
                ("zone".to_owned(), "a".to_owned()),
                ("size".to_owned(), "4".to_owned()),
            ]),
            capacity: Amounts::from([
                ("cpu".to_owned(), 4000),
                ("memory".to_owned(), 8000),
                ("pods".to_owned(), 2000),
            ]),
        }
    }

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({ "spec": spec })).unwrap()
    }

    fn container(cpu: &str, port: i32) -> Value {
        json!({ "name": "c", "resources": { "requests": { "cpu": cpu } },
                "ports": [{ "containerPort": 1, "hostPort": port, "protocol": "UDP" }] })
    }

    fn required(key: &str, operator: &str, value: &str) -> Value {
        json!({ "containers": [], "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": key, "operator": operator, "values": [value] }] }
            ] }
        } } })
    }

    #[test]
    fn a_pod_is_refused_in_kubelets_ways() {
        let held = [holding(pod(&json!({ "containers": [container("3", 7000)] })).spec.as_ref().unwrap())];
        let full = [held[0].clone(), Holding { amounts: held[0].amounts.clone(), ports: Vec::new() }];
        let limit_only = json!({ "name": "c", "resources": { "limits": { "cpu": "2" } } });
        let sidecar = json!({ "name": "s", "restartPolicy": "Always",
                              "resources": { "requests": { "cpu": "500m" } } });
        let table: [(&str, Value, &[Holding], Option<&str>); 13] = [
            ("it fits", json!({ "containers": [container("1", 7001)] }), &held, None),
            ("a core too many", json!({ "containers": [container("1001m", 7001)] }), &held, Some("OutOfcpu")),
            ("a limit is a request", json!({ "containers": [limit_only] }), &held, Some("OutOfcpu")),
            (
                "a sidecar counts",
                json!({ "containers": [container("600m", 1)], "initContainers": [sidecar] }),
                &held,
                Some("OutOfcpu"),
            ),
            ("a third pod", json!({ "containers": [] }), &full, Some("OutOfpods")),
            ("a taken port", json!({ "containers": [container("1", 7000)] }), &held, Some("NodePorts")),
            (
                "an unknown resource",
                json!({ "containers": [{ "name": "c", "resources": { "requests": { "gpu": "1" } } }] }),
                &held,
                Some("OutOfgpu"),
            ),
            ("its zone", json!({ "containers": [], "nodeSelector": { "zone": "a" } }), &held, None),
            (
                "another zone",
                json!({ "containers": [], "nodeSelector": { "zone": "b" } }),
                &held,
                Some("NodeAffinity"),
            ),
            ("in", required("zone", "In", "a"), &held, None),
            ("not in", required("zone", "NotIn", "a"), &held, Some("NodeAffinity")),
            ("greater", required("size", "Gt", "3"), &held, None),
            ("less", required("size", "Lt", "4"), &held, Some("NodeAffinity")),
        ];
        for (name, spec, held, expected) in table {
            let refused = refusal(&pod(&spec), &node(), held.iter());
            assert_eq!(refused.as_ref().map(|one| one.reason.as_str()), expected, "{name}: {refused:?}");
        }
    }

    #[test]
    fn a_refusal_says_how_much_was_asked() {
        let refused = refusal(&pod(&json!({ "containers": [container("5", 1)] })), &node(), [].iter());
        let message = refused.unwrap().message;
        assert!(message.ends_with("resource: cpu, requested: 5000, used: 0, capacity: 4000"), "{message}");
    }
}
