//! The pod that holds room for a server that waits. Pure.

use std::collections::BTreeMap;

use berth_api::game_server::GameServer;
use berth_api::names;
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    Pod, PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

use super::Needs;
use super::constraints::extended;
use crate::stores::Key;

/// The label by which affinities name a node.
const HOST_NAME: &str = "kubernetes.io/hostname";
/// Longest part of the server's name in that of its placeholder.
const LONGEST_BASE: usize = 200;
/// Nobody in particular.
const NOBODY: i64 = 65_535;

/// What all placeholders have in common.
#[derive(Clone, Debug)]
pub(crate) struct Placeholders {
    /// A program that does nothing.
    pub(crate) image: String,
    /// Labels of the nodes that games run on.
    pub(crate) node_labels: BTreeMap<String, String>,
}

/// A node that a placeholder keeps away from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trap {
    pub(super) node: String,
    /// What its label of that meaning says.
    pub(super) host_name: Option<String>,
}

/// The key of the placeholder of a server: one for each UID, so that asking twice makes one.
pub(super) fn key(server: &Key, uid: &str) -> Key {
    let base = server.name.get(..LONGEST_BASE).unwrap_or(&server.name);
    let uid = uid.get(..8).unwrap_or(uid);
    Key::new(&server.namespace, format!("{base}-room-{uid}"))
}

/// The placeholder of a server; `None` where its template cannot be read.
pub(super) fn build(server: &GameServer, common: &Placeholders, traps: &[Trap]) -> Option<Pod> {
    let template = server.spec.template.read().ok()?;
    let wanted = template.spec.unwrap_or_default();
    let needs = Needs::of(&server.spec);
    let uid = server.metadata.uid.clone()?;
    let key = key(&Key::of(&server.metadata), &uid);
    // What selects game pods selects it too, so that affinities and spreads count it.
    let mut labels = template.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
    labels.remove(names::SAFE_TO_EVICT_LABEL);
    labels.insert(names::ROLE_LABEL.to_owned(), names::ROLE_GAME_SERVER.to_owned());
    labels.insert(names::PLACEHOLDER_LABEL.to_owned(), uid.clone());
    let annotations =
        BTreeMap::from([(names::AUTOSCALER_SAFE_TO_EVICT_ANNOTATION.to_owned(), "true".to_owned())]);
    let owner = OwnerReference {
        api_version: "agones.dev/v1".to_owned(),
        kind: "GameServer".to_owned(),
        name: server.metadata.name.clone()?,
        uid,
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some(key.name),
        namespace: Some(key.namespace),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let mut node_selector = wanted.node_selector.clone().unwrap_or_default();
    for (name, value) in &common.node_labels {
        node_selector.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let claims = |volume: &&k8s_openapi::api::core::v1::Volume| volume.persistent_volume_claim.is_some();
    let volumes: Vec<_> = wanted.volumes.iter().flatten().filter(claims).cloned().collect();
    let spec = PodSpec {
        containers: vec![container(&common.image, &needs, &wanted)],
        node_selector: Some(node_selector).filter(|labels| !labels.is_empty()),
        affinity: apart_from(wanted.affinity.clone(), traps),
        tolerations: wanted.tolerations,
        topology_spread_constraints: wanted.topology_spread_constraints,
        scheduler_name: wanted.scheduler_name,
        runtime_class_name: wanted.runtime_class_name,
        overhead: wanted.overhead,
        os: wanted.os,
        resource_claims: wanted.resource_claims,
        volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
        priority_class_name: Some(names::PLACEHOLDER_PRIORITY.to_owned()),
        termination_grace_period_seconds: Some(0),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NOBODY),
            run_as_group: Some(NOBODY),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    };
    Some(Pod { metadata, spec: Some(spec), status: None })
}

/// One container that asks for what all of the template's ask for together.
fn container(image: &str, needs: &Needs, wanted: &PodSpec) -> Container {
    let overhead = |name: &str| {
        let amount = wanted.overhead.as_ref().and_then(|overhead| overhead.get(name));
        amount.and_then(|amount| berth_api::quantity::Quantity::parse(&amount.0)).unwrap_or_default()
    };
    // The overhead is added to it again.
    let milli_cpu = needs.room.milli_cpu - overhead("cpu").as_milli();
    let memory = needs.room.memory_bytes - overhead("memory").as_whole();
    let mut requests = BTreeMap::new();
    if milli_cpu > 0 {
        requests.insert("cpu".to_owned(), Written(format!("{milli_cpu}m")));
    }
    if memory > 0 {
        requests.insert("memory".to_owned(), Written(memory.to_string()));
    }
    let devices: BTreeMap<String, Written> = extended(wanted)
        .into_iter()
        .map(|(name, amount)| (name, Written(amount.as_whole().to_string())))
        .collect();
    requests.extend(devices.clone());
    Container {
        name: "room".to_owned(),
        image: Some(image.to_owned()),
        resources: Some(ResourceRequirements {
            requests: Some(requests),
            limits: Some(devices).filter(|devices| !devices.is_empty()),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// The affinity, and besides on none of these nodes.
fn apart_from(affinity: Option<Affinity>, traps: &[Trap]) -> Option<Affinity> {
    if traps.is_empty() {
        return affinity;
    }
    let (named, nameless): (Vec<_>, Vec<_>) = traps.iter().partition(|trap| trap.host_name.is_some());
    let not_in = |key: &str, values: Vec<String>| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(values),
    };
    let host_names: Vec<String> = named.into_iter().filter_map(|trap| trap.host_name.clone()).collect();
    let expression = (!host_names.is_empty()).then(|| not_in(HOST_NAME, host_names));
    // A field takes one value at a time.
    let fields: Vec<_> =
        nameless.into_iter().map(|trap| not_in("metadata.name", vec![trap.node.clone()])).collect();
    let mut affinity = affinity.unwrap_or_default();
    let of_nodes: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    let required = &mut of_nodes.required_during_scheduling_ignored_during_execution;
    match required {
        None => {
            let term = NodeSelectorTerm {
                match_expressions: expression.map(|one| vec![one]),
                match_fields: Some(fields).filter(|fields| !fields.is_empty()),
            };
            *required = Some(NodeSelector { node_selector_terms: vec![term] });
        }
        Some(selector) => {
            // A term that says nothing allows nothing, and must go on saying nothing.
            for term in selector.node_selector_terms.iter_mut().filter(|term| says_something(term)) {
                term.match_expressions.get_or_insert_default().extend(expression.clone());
                term.match_fields.get_or_insert_default().extend(fields.clone());
            }
        }
    }
    Some(affinity)
}

fn says_something(term: &NodeSelectorTerm) -> bool {
    [&term.match_expressions, &term.match_fields].into_iter().flatten().any(|rules| !rules.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn server(pod: &Value) -> GameServer {
        serde_json::from_value(json!({
            "metadata": {"name": "lone", "namespace": "games", "uid": "0123456789"},
            "spec": {"template": {"metadata": {"labels": {"app": "duel", names::SAFE_TO_EVICT_LABEL: "false"}}, "spec": pod}},
        }))
        .expect("a GameServer")
    }

    fn built(pod: &Value, traps: &[Trap]) -> Value {
        let node_labels = BTreeMap::from([("pool".to_owned(), "games".to_owned())]);
        let common = Placeholders { image: "pause".to_owned(), node_labels };
        json!(build(&server(pod), &common, traps).expect("a placeholder"))
    }

    #[test]
    fn a_placeholder_asks_for_what_its_server_asks_for_and_does_nothing() {
        let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
        let tolerations = json!([{"key": "games", "operator": "Exists"}]);
        let pod = json!({
            "containers": [
                {"name": "game", "image": "game", "env": [{"name": "A", "value": "b"}],
                 "resources": {"requests": {"cpu": "500m", "memory": "1Ki"}, "limits": {"a.b/c": "2"}}},
                {"name": "log", "image": "log", "resources": {"requests": {"cpu": "0.25"}}},
            ],
            "overhead": {"cpu": "50m"},
            "nodeSelector": {"zone": "a"},
            "tolerations": tolerations,
            "topologySpreadConstraints": spread,
            "schedulerName": "volcano",
            "volumes": [{"name": "maps", "persistentVolumeClaim": {"claimName": "maps"}}, {"name": "x", "emptyDir": {}}],
        });
        let made = built(&pod, &[]);
        let spec = &made["spec"];
        assert_eq!(made["metadata"]["name"], "lone-room-01234567");
        assert_eq!(
            made["metadata"]["labels"],
            json!({
                "app": "duel", names::ROLE_LABEL: "gameserver", names::PLACEHOLDER_LABEL: "0123456789",
            })
        );
        assert_eq!(
            made["metadata"]["ownerReferences"],
            json!([
                {"apiVersion": "agones.dev/v1", "kind": "GameServer", "name": "lone", "uid": "0123456789"},
            ])
        );
        let requests = json!({"cpu": "750m", "memory": "1024", "a.b/c": "2"});
        assert_eq!(spec["containers"].as_array().map(Vec::len), Some(1));
        assert_eq!(
            spec["containers"][0]["resources"],
            json!({"requests": requests, "limits": {"a.b/c": "2"}})
        );
        assert_eq!(
            (&spec["containers"][0]["image"], &spec["containers"][0]["env"]),
            (&json!("pause"), &Value::Null)
        );
        assert_eq!(spec["nodeSelector"], json!({"zone": "a", "pool": "games"}));
        assert_eq!((&spec["tolerations"], &spec["topologySpreadConstraints"]), (&tolerations, &spread));
        assert_eq!(spec["schedulerName"], "volcano");
        assert_eq!(spec["overhead"], json!({"cpu": "50m"}));
        assert_eq!(
            spec["volumes"],
            json!([{"name": "maps", "persistentVolumeClaim": {"claimName": "maps"}}])
        );
        assert_eq!(
            (&spec["terminationGracePeriodSeconds"], &spec["priorityClassName"]),
            (&json!(0), &json!("berth-placeholder"))
        );
        assert_eq!(spec.get("affinity"), None);
    }

    #[test]
    fn nodes_that_would_not_do_are_kept_away_from_in_each_term() {
        let trap = |node: &str, host_name: Option<&str>| Trap {
            node: node.to_owned(),
            host_name: host_name.map(str::to_owned),
        };
        let traps = [trap("n1", Some("host-1")), trap("n2", None), trap("n3", Some("host-3"))];
        let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
        let hosts = json!({"key": HOST_NAME, "operator": "NotIn", "values": ["host-1", "host-3"]});
        let field = json!({"key": "metadata.name", "operator": "NotIn", "values": ["n2"]});
        let terms = |pod: Value| {
            let required = "requiredDuringSchedulingIgnoredDuringExecution";
            built(&pod, &traps)["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"].clone()
        };
        let plain = json!({"containers": [{"name": "c"}]});
        assert_eq!(terms(plain), json!([{"matchExpressions": [hosts], "matchFields": [field]}]));
        let chosen = json!({"containers": [{"name": "c"}], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchFields": []}]},
        }}});
        assert_eq!(
            terms(chosen),
            json!([
                {"matchExpressions": [zone, hosts], "matchFields": [field]},
                {"matchFields": []},
            ])
        );
    }
}
