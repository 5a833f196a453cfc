//! What a pod template asks for that only the scheduler understands. Pure.

use std::collections::BTreeMap;

use berth_api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Affinity, Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;

/// The scheduler that pods get that name none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The first thing that the scheduler alone understands.
pub(super) fn left_to_scheduler(pod: &PodSpec) -> Option<String> {
    if let Some(name) =
        pod.scheduler_name.as_ref().filter(|name| !name.is_empty() && *name != DEFAULT_SCHEDULER)
    {
        return Some(format!("scheduler {name}"));
    }
    if let Some(word) = pod.affinity.as_ref().and_then(affinity) {
        return Some(word.to_owned());
    }
    if pod.topology_spread_constraints.as_ref().is_some_and(|all| !all.is_empty()) {
        return Some("topology spread".to_owned());
    }
    let claims = |volume: &k8s_openapi::api::core::v1::Volume| volume.persistent_volume_claim.is_some();
    if let Some(volume) = pod.volumes.iter().flatten().find(|volume| claims(volume)) {
        return Some(format!("volume {}", volume.name));
    }
    if let Some(claim) = pod.resource_claims.iter().flatten().next() {
        return Some(format!("resource claim {}", claim.name));
    }
    extended(pod).into_keys().next().map(|name| format!("resource {name}"))
}

fn affinity(affinity: &Affinity) -> Option<&'static str> {
    let of_nodes = affinity.node_affinity.as_ref();
    let of_nodes = of_nodes.and_then(|all| all.preferred_during_scheduling_ignored_during_execution.as_ref());
    if affinity.pod_affinity.is_some() {
        Some("pod affinity")
    } else if affinity.pod_anti_affinity.is_some() {
        Some("pod anti-affinity")
    } else if of_nodes.is_some_and(|all| !all.is_empty()) {
        Some("preferred node affinity")
    } else {
        None
    }
}

/// What is made together with its pod and bound to a place by the scheduler: the scheduler never sees a game pod, so it
/// would be waited for for ever.
pub(super) fn bound_to_its_pod(pod: &PodSpec) -> Option<String> {
    let volume = pod.volumes.iter().flatten().find(|volume| volume.ephemeral.is_some());
    if let Some(volume) = volume {
        let name = &volume.name;
        return Some(format!(
            "volume {name} would be made with its pod; use a PersistentVolumeClaim by name"
        ));
    }
    let claims = pod.resource_claims.iter().flatten();
    let claim = claims.into_iter().find(|claim| claim.resource_claim_template_name.is_some())?;
    Some(format!("resource claim {} would be made with its pod; use a ResourceClaim by name", claim.name))
}

/// Amounts of resources beside processor time and memory that nodes have so many of: devices and huge pages.
pub(super) fn extended(pod: &PodSpec) -> BTreeMap<String, Quantity> {
    let mut amounts: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in &pod.containers {
        for (name, amount) in extended_of(container) {
            let sum = amounts.entry(name).or_default();
            *sum = sum.plus(amount);
        }
    }
    for container in pod.init_containers.iter().flatten() {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        for (name, amount) in extended_of(container) {
            let sum = amounts.entry(name).or_default();
            *sum = if is_sidecar { sum.plus(amount) } else { (*sum).max(amount) };
        }
    }
    amounts
}

fn extended_of(container: &Container) -> BTreeMap<String, Quantity> {
    let is_extended = |name: &str| name.contains('/') || name.starts_with("hugepages-");
    let resources = container.resources.clone().unwrap_or_default();
    // What is asked for is the limit too; who writes one of both means both.
    let written = resources.limits.into_iter().flatten().chain(resources.requests.into_iter().flatten());
    let read = |(name, amount): (String, Written)| Some((name, Quantity::parse(&amount.0)?));
    written.filter(|(name, _)| is_extended(name)).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(fields: Value) -> PodSpec {
        let mut pod = json!({"containers": [{"name": "game"}]});
        for (field, value) in fields.as_object().expect("an object") {
            pod[field] = value.clone();
        }
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn what_the_brain_understands_it_decides_itself() {
        let selecting =
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]});
        let rows = [
            json!({}),
            json!({"schedulerName": "default-scheduler", "nodeSelector": {"a": "b"}}),
            json!({"tolerations": [{"operator": "Exists"}], "topologySpreadConstraints": []}),
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selecting}}}),
            json!({"volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}]}),
            json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}}]}),
        ];
        for row in rows {
            assert_eq!(
                (left_to_scheduler(&pod(row.clone())), bound_to_its_pod(&pod(row.clone()))),
                (None, None),
                "{row}"
            );
        }
    }

    #[test]
    fn what_the_scheduler_alone_understands_is_left_to_it() {
        let term = json!([{"topologyKey": "kubernetes.io/hostname"}]);
        let preferred = json!([{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]);
        let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
        let device = json!({"limits": {"nvidia.com/gpu": 1}});
        let rows = [
            (json!({"schedulerName": "volcano"}), "scheduler volcano"),
            (
                json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}),
                "pod affinity",
            ),
            (
                json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}),
                "pod anti-affinity",
            ),
            (
                json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
                ]}}}),
                "preferred node affinity",
            ),
            (json!({ "topologySpreadConstraints": spread }), "topology spread"),
            (
                json!({"volumes": [{"name": "maps", "persistentVolumeClaim": {"claimName": "maps"}}]}),
                "volume maps",
            ),
            (
                json!({"resourceClaims": [{"name": "card", "resourceClaimName": "card-1"}]}),
                "resource claim card",
            ),
            (json!({"containers": [{"name": "c", "resources": device}]}), "resource nvidia.com/gpu"),
        ];
        for (row, word) in rows {
            assert_eq!(left_to_scheduler(&pod(row.clone())).as_deref(), Some(word), "{row}");
        }
    }

    #[test]
    fn what_nobody_would_bind_to_a_place_is_refused_by_name() {
        let rows = [
            json!({"volumes": [{"name": "scratch", "ephemeral": {}}]}),
            json!({"resourceClaims": [{"name": "scratch", "resourceClaimTemplateName": "t"}]}),
        ];
        for row in rows {
            let said = bound_to_its_pod(&pod(row.clone())).unwrap_or_default();
            assert!(said.contains("scratch"), "{row}: {said}");
        }
    }

    #[test]
    fn devices_add_up_as_they_are_used_together() {
        let using = |count: u32| json!({"requests": {"a.b/c": count.to_string()}, "limits": {"a.b/c": count.to_string()}});
        let amounts = extended(&pod(json!({
            "containers": [{"name": "a", "resources": using(1)}, {"name": "b", "resources": using(2)}],
            "initContainers": [{"name": "i", "resources": using(2)}, {"name": "s", "restartPolicy": "Always", "resources": using(1)}],
        })));
        assert_eq!(amounts, BTreeMap::from([("a.b/c".to_owned(), Quantity::whole(4))]));
    }
}
