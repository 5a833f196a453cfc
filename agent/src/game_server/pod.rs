//! The pod of a game server, built from its template. Pure.
//!
//! The template is copied as raw JSON and changed in place, so that fields newer than this program survive.

use berth_api::game_server::{EvictionSafe, GameServer, PortPolicy, PortSpec, StatusPort};
use berth_api::names;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};
use serde_json::{Map, Value, json};

/// What a pod is built from.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The server it belongs to.
    pub server: &'a GameServer,
    /// Its ports, split and with host ports.
    pub ports: &'a [PortSpec],
    /// The node it is for.
    pub node: &'a str,
    /// Where the SDK listens for it: gRPC, then REST.
    pub sdk_ports: (u16, u16),
    /// Whether pods may share the node's network here.
    pub allows_host_network: bool,
    /// Account to use where the template names none; none means the namespace's default.
    pub service_account: Option<&'a str>,
}

/// Why no pod can be made from a template.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// The template does not decode.
    #[error("could not read spec.template")]
    Template(#[source] serde_json::Error),
    /// The template is no object, or lacks one.
    #[error("spec.template{path} must be {kind}")]
    Shape {
        /// Where.
        path: &'static str,
        /// What it must be.
        kind: &'static str,
    },
    /// No container is the game's.
    #[error("spec.container must name one of the containers in spec.template")]
    NoGameContainer,
    /// A port names a container that is not there.
    #[error(
        "spec.ports: {container:?} is neither a container nor an init container that is always restarted"
    )]
    NoContainer {
        /// The name.
        container: String,
    },
    /// The template asks for what cannot be served.
    #[error("spec.template.spec.{field} {what}")]
    Refused {
        /// The field.
        field: &'static str,
        /// Why.
        what: &'static str,
    },
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the pod.
///
/// # Errors
/// What in the template makes that impossible.
pub fn build(plan: Plan<'_>) -> Result<Value, PodError> {
    let server = plan.server;
    let typed = server.spec.template.read().map_err(PodError::Template)?;
    let typed_spec = typed.spec.clone().unwrap_or_default();
    refuse(&typed_spec, plan)?;
    let game = server.spec.game_container(&typed_spec).ok_or(PodError::NoGameContainer)?.to_owned();

    let mut pod = server.spec.template.0.clone();
    let top = pod.as_object_mut().ok_or(PodError::Shape { path: "", kind: "an object" })?;
    top.insert("apiVersion".to_owned(), json!("v1"));
    top.insert("kind".to_owned(), json!("Pod"));
    top.remove("status");

    let spec = object(top, "spec", ".spec")?;
    let passthrough = add_ports(spec, plan.ports, &game)?;
    set_sdk_ports(spec, plan.sdk_ports);
    place(spec, plan);
    add_tolerations(spec)?;
    label(object(top, "metadata", ".metadata")?, plan, &typed, &Marks { game: &game, passthrough })?;
    Ok(pod)
}

/// Beginnings of the names that are given to runtimes with a network stack of their own. One that has another name is
/// known by its work: no process of the game is on the node's kernel then.
const OWN_STACKS: [&str; 3] = ["gvisor", "runsc", "kata"];

/// What does not go with a pod that is put on a node by its name, and whose SDK is on the node's kernel.
fn refuse(spec: &PodSpec, plan: Plan<'_>) -> Result<(), PodError> {
    let refused = |field, what| Err(PodError::Refused { field, what });
    if spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        return refused("schedulingGates", "cannot be used: no scheduler places this pod");
    }
    if spec.node_name.as_deref().is_some_and(|name| !name.is_empty() && name != plan.node) {
        return refused("nodeName", "names another node than the one the server was handed to");
    }
    if is_on_host(Some(spec)) && !plan.allows_host_network {
        return refused(
            "hostNetwork",
            "cannot be used: agents here are set to refuse pods on the node's network",
        );
    }
    let runtime = spec.runtime_class_name.as_deref().unwrap_or_default();
    if OWN_STACKS.iter().any(|name| runtime.starts_with(name)) {
        return refused(
            "runtimeClassName",
            "cannot be used: its network is not the node's kernel's, where the SDK is",
        );
    }
    Ok(())
}

fn place(spec: &mut Map<String, Value>, plan: Plan<'_>) {
    let name = plan.server.metadata.name.clone().unwrap_or_default();
    let is_empty = |value: Option<&Value>| value.and_then(Value::as_str).is_none_or(str::is_empty);
    spec.insert("nodeName".to_owned(), json!(plan.node));
    if is_empty(spec.get("hostname")) {
        spec.insert("hostname".to_owned(), json!(name.replace('.', "-")));
    }
    if is_empty(spec.get("restartPolicy")) {
        spec.insert("restartPolicy".to_owned(), json!("Never"));
    }
    if is_empty(spec.get("serviceAccountName")) && is_empty(spec.get("serviceAccount")) {
        if let Some(account) = plan.service_account {
            spec.insert("serviceAccountName".to_owned(), json!(account));
        }
        // A game needs no token. One that its author wants comes with an account, or when it is asked for.
        if spec.get("automountServiceAccountToken").is_none_or(Value::is_null) {
            spec.insert("automountServiceAccountToken".to_owned(), json!(false));
        }
    }
}

/// Appends each port to its container; answers where those went that the container must be told of.
fn add_ports(
    spec: &mut Map<String, Value>,
    ports: &[PortSpec],
    game: &str,
) -> Result<Map<String, Value>, PodError> {
    let mut passthrough: Map<String, Value> = Map::new();
    for port in ports {
        let name = port.container.as_deref().unwrap_or(game);
        let container =
            port_container(spec, name).ok_or_else(|| PodError::NoContainer { container: name.to_owned() })?;
        let listed = list(container, "ports", ".spec.containers[].ports")?;
        if port.policy() == PortPolicy::Passthrough {
            let indices = passthrough.entry(name.to_owned()).or_insert_with(|| json!([]));
            if let Some(indices) = indices.as_array_mut() {
                indices.push(json!(listed.len()));
            }
        }
        listed.push(container_port(port));
    }
    Ok(passthrough)
}

fn container_port(port: &PortSpec) -> Value {
    let mut entry = json!({
        "containerPort": port.container_port.unwrap_or_default(),
        "protocol": port.protocol().as_str(),
    });
    let on_host = port.host_port.filter(|number| *number > 0 && port.policy() != PortPolicy::None);
    if let (Some(number), Some(entry)) = (on_host, entry.as_object_mut()) {
        entry.insert("hostPort".to_owned(), json!(number));
    }
    entry
}

/// The container that may carry a port: a regular one, or an init container that is always restarted.
fn port_container<'a>(spec: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    let is_named = |one: &Value| one.get("name").and_then(Value::as_str) == Some(name);
    let is_sidecar = |one: &Value| one.get("restartPolicy").and_then(Value::as_str) == Some("Always");
    let has_regular =
        spec.get("containers").and_then(Value::as_array).is_some_and(|list| list.iter().any(is_named));
    let (key, any) = if has_regular { ("containers", true) } else { ("initContainers", false) };
    spec.get_mut(key)?
        .as_array_mut()?
        .iter_mut()
        .find(|one| is_named(one) && (any || is_sidecar(one)))?
        .as_object_mut()
}

/// Tells every container where the SDK listens, whatever the template says.
fn set_sdk_ports(spec: &mut Map<String, Value>, (grpc, http): (u16, u16)) {
    let ours = [(names::SDK_GRPC_PORT_ENV, grpc), (names::SDK_HTTP_PORT_ENV, http)];
    for key in ["containers", "initContainers"] {
        let containers = spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let env = container.entry("env").or_insert_with(|| json!([]));
            if env.is_null() {
                *env = json!([]);
            }
            let Some(env) = env.as_array_mut() else { continue };
            let is_ours = |one: &Value| {
                ours.iter().any(|(name, _)| one.get("name").and_then(Value::as_str) == Some(*name))
            };
            env.retain(|one| !is_ours(one));
            env.extend(ours.iter().map(|(name, port)| json!({ "name": name, "value": port.to_string() })));
        }
    }
}

/// Fencing decides what becomes of a game on a silent node, not the taint controller; and a node that is being emptied
/// keeps its sessions.
fn add_tolerations(spec: &mut Map<String, Value>) -> Result<(), PodError> {
    let tolerations = list(spec, "tolerations", ".spec.tolerations")?;
    for (key, effect) in [
        (names::NOT_READY_TAINT, Some("NoExecute")),
        (names::UNREACHABLE_TAINT, Some("NoExecute")),
        (names::DRAINING_TAINT, None),
    ] {
        if tolerations.iter().any(|one| one.get("key").and_then(Value::as_str) == Some(key)) {
            continue;
        }
        tolerations.push(match effect {
            Some(effect) => json!({ "key": key, "operator": "Exists", "effect": effect }),
            None => json!({ "key": key, "operator": "Exists" }),
        });
    }
    Ok(())
}

struct Marks<'a> {
    game: &'a str,
    passthrough: Map<String, Value>,
}

fn label(
    metadata: &mut Map<String, Value>,
    plan: Plan<'_>,
    typed: &PodTemplateSpec,
    marks: &Marks<'_>,
) -> Result<(), PodError> {
    let own = &plan.server.metadata;
    let name = own.name.clone().unwrap_or_default();
    for gone in [
        "generateName",
        "resourceVersion",
        "uid",
        "creationTimestamp",
        "managedFields",
        "selfLink",
        "generation",
    ] {
        metadata.remove(gone);
    }
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), json!(own.namespace));
    list(metadata, "ownerReferences", ".metadata.ownerReferences")?.push(json!({
        "apiVersion": "agones.dev/v1",
        "kind": "GameServer",
        "name": name,
        "uid": own.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }));

    let eviction = eviction(plan.server, typed);
    let labels = object(metadata, "labels", ".metadata.labels")?;
    labels.insert(names::ROLE_LABEL.to_owned(), json!(names::ROLE_GAME_SERVER));
    labels.insert(names::GAME_SERVER_LABEL.to_owned(), json!(name));
    let upgrades = matches!(eviction, EvictionSafe::Always | EvictionSafe::OnUpgrade);
    labels.entry(names::SAFE_TO_EVICT_LABEL).or_insert_with(|| json!(upgrades.to_string()));

    let annotations = object(metadata, "annotations", ".metadata.annotations")?;
    annotations.insert(names::CONTAINER_ANNOTATION.to_owned(), json!(marks.game));
    annotations.insert(names::SDK_VERSION_ANNOTATION.to_owned(), json!(VERSION));
    let always = eviction == EvictionSafe::Always;
    annotations
        .entry(names::AUTOSCALER_SAFE_TO_EVICT_ANNOTATION)
        .or_insert_with(|| json!(always.to_string()));
    if !marks.passthrough.is_empty() {
        let text = Value::Object(marks.passthrough.clone()).to_string();
        annotations.insert(names::PASSTHROUGH_ANNOTATION.to_owned(), json!(text));
    }
    Ok(())
}

/// The eviction rule in force: the status's, or what the spec and an older annotation of the template make of it.
pub fn eviction(server: &GameServer, template: &PodTemplateSpec) -> EvictionSafe {
    let in_status = server.status.as_ref().and_then(|status| status.eviction.as_ref()?.safe);
    let annotated = template
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.annotations.as_ref()?.get(names::AUTOSCALER_SAFE_TO_EVICT_ANNOTATION))
        .is_some_and(|value| value == "true");
    in_status.unwrap_or(if annotated { EvictionSafe::Always } else { server.spec.eviction_safe() })
}

/// The ports as the status shows them: one per port of the spec, in its order.
pub fn status_ports(ports: &[PortSpec]) -> Vec<StatusPort> {
    ports
        .iter()
        .map(|port| StatusPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            port: match port.policy() {
                PortPolicy::None => port.container_port,
                PortPolicy::Dynamic | PortPolicy::Static | PortPolicy::Passthrough => port.host_port,
            }
            .unwrap_or_default(),
        })
        .collect()
}

/// The ports that a pod of ours was made with, read back from it: for a server whose spec does not show them yet.
///
/// None where the pod does not look as [`build`] makes it.
pub fn ports_of_pod(server: &GameServer, pod: &PodSpec) -> Option<Vec<PortSpec>> {
    let template = server.spec.template.read().ok()?.spec?;
    let game = server.spec.game_container(&template)?.to_owned();
    let mut ports = berth_api::game_server::split_both_protocols(server.spec.ports());
    let mut taken: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for port in &mut ports {
        let name = port.container.clone().unwrap_or_else(|| game.clone());
        let listed = |spec: &PodSpec| {
            let init = spec.init_containers.iter().flatten();
            spec.containers
                .iter()
                .chain(init)
                .find(|one| one.name == name)
                .map(|one| one.ports.clone().unwrap_or_default())
        };
        let before = listed(&template)?.len();
        let index = taken.entry(name.clone()).or_default();
        let entry = listed(pod)?.into_iter().nth(before + *index)?;
        *index += 1;
        if entry.protocol.as_deref().unwrap_or("TCP") != port.protocol().as_str() {
            return None;
        }
        match port.policy() {
            PortPolicy::None => {}
            PortPolicy::Passthrough => {
                port.host_port = entry.host_port.and_then(|number| u16::try_from(number).ok());
                port.container_port = port.host_port;
            }
            PortPolicy::Dynamic | PortPolicy::Static => {
                port.host_port = entry.host_port.and_then(|number| u16::try_from(number).ok());
            }
        }
    }
    Some(ports)
}

/// Whether a pod shares the host's network.
pub(super) fn is_on_host(spec: Option<&PodSpec>) -> bool {
    spec.is_some_and(|spec| spec.host_network == Some(true))
}

/// The ports of the SDK that the containers of a pod were told of: gRPC, then REST.
pub(super) fn sdk_ports_of(server: &GameServer, pod: &Pod) -> (u16, u16) {
    let (grpc, http) = server.spec.sdk_ports();
    let told = |name: &str| -> Option<u16> {
        let env = pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|one| one.env.as_ref());
        env.flatten().find(|one| one.name == name)?.value.as_ref()?.parse().ok()
    };
    (told(names::SDK_GRPC_PORT_ENV).unwrap_or(grpc), told(names::SDK_HTTP_PORT_ENV).unwrap_or(http))
}

fn object<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
    path: &'static str,
) -> Result<&'a mut Map<String, Value>, PodError> {
    let value = parent.entry(key).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut().ok_or(PodError::Shape { path, kind: "an object" })
}

fn list<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
    path: &'static str,
) -> Result<&'a mut Vec<Value>, PodError> {
    let value = parent.entry(key).or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or(PodError::Shape { path, kind: "a list" })
}

#[cfg(test)]
mod tests;
