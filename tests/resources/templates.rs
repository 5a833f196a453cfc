//! What an author may say of a game server, wherever it is said: at a GameServer, a set or a Fleet. Each row has
//! something bad and, next to it, something almost the same that is good.

use serde_json::{Value, json};

use crate::objects::pod;
use crate::values;

/// One rule, from both sides.
pub(crate) struct Row {
    /// What is tried.
    pub(crate) what: &'static str,
    /// Fields of a GameServer's spec that must be refused.
    pub(crate) bad: Value,
    /// What the refusal says; `{spec}` stands for the path of the GameServer's spec.
    pub(crate) says: Vec<&'static str>,
    /// Fields that must be taken.
    pub(crate) near: Value,
}

/// A rule by its two sides.
pub(crate) fn row<const N: usize>(
    what: &'static str,
    bad: Value,
    says: [&'static str; N],
    near: Value,
) -> Row {
    Row { what, bad, says: says.to_vec(), near }
}

fn port(port: Value) -> Value {
    json!({ "ports": [port] })
}

/// A spec whose pod template has these fields beside the game's container.
pub(crate) fn with_pod(fields: Value) -> Value {
    let mut template = pod(json!({ "name": "main", "image": "game" }));
    template["spec"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ "template": template })
}

fn named(count: usize) -> Vec<Value> {
    (0..count).map(|number| json!({ "name": format!("c{number}"), "image": "game" })).collect()
}

/// Two containers, a sidecar and an ordinary init container, and these fields of the spec.
fn several(fields: Value) -> Value {
    let mut spec = with_pod(json!({
        "containers": [{ "name": "main", "image": "game" }, { "name": "log", "image": "log" }],
        "initContainers": [
            { "name": "proxy", "image": "proxy", "restartPolicy": "Always" },
            { "name": "setup", "image": "setup" },
        ],
    }));
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    spec
}

/// Every rule that is the same for a GameServer and for a template.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = ports();
    rows.extend(containers());
    rows.extend(values::rows());
    rows
}

fn ports() -> Vec<Row> {
    vec![
        row(
            "port number too high",
            port(json!({ "containerPort": 70000 })),
            ["{spec}.ports[0].containerPort", "65535"],
            port(json!({ "containerPort": 65535 })),
        ),
        row(
            "port number zero",
            port(json!({ "containerPort": 0 })),
            ["{spec}.ports[0].containerPort", "greater than or equal to 1"],
            port(json!({ "containerPort": 1 })),
        ),
        row(
            "unknown policy",
            port(json!({ "portPolicy": "Random", "containerPort": 1 })),
            ["{spec}.ports[0].portPolicy", "Dynamic", "Static", "Passthrough", "None"],
            port(json!({ "portPolicy": "None", "containerPort": 1 })),
        ),
        row(
            "policy emptied",
            port(json!({ "portPolicy": "", "containerPort": 1 })),
            ["{spec}.ports[0].portPolicy", "Dynamic"],
            port(json!({ "containerPort": 1 })),
        ),
        row(
            "unknown protocol",
            port(json!({ "protocol": "SCTP", "containerPort": 1 })),
            ["{spec}.ports[0].protocol", "UDP", "TCP", "TCPUDP"],
            port(json!({ "protocol": "TCPUDP", "containerPort": 1 })),
        ),
        row(
            "Dynamic without containerPort",
            port(json!({ "name": "default" })),
            ["{spec}.ports[0].containerPort: required with portPolicy Dynamic, from 1 to 65535"],
            port(json!({ "name": "default", "portPolicy": "Passthrough" })),
        ),
        row(
            "Static without containerPort",
            port(json!({ "portPolicy": "Static", "hostPort": 7000 })),
            ["{spec}.ports[0].containerPort: required with portPolicy Static, from 1 to 65535"],
            // A Static port without a host port is on no host, as in `agones.dev/v1`.
            port(json!({ "portPolicy": "Static", "containerPort": 7000 })),
        ),
        row(
            "None without containerPort",
            json!({ "ports": [{ "containerPort": 1 }, { "portPolicy": "None" }] }),
            ["{spec}.ports[1].containerPort: required with portPolicy None, from 1 to 65535"],
            json!({ "ports": [{ "containerPort": 1 }, { "portPolicy": "None", "containerPort": 1 }] }),
        ),
        row(
            "Passthrough with containerPort",
            port(json!({ "portPolicy": "Passthrough", "containerPort": 5 })),
            ["{spec}.ports[0].containerPort: must be left out with portPolicy Passthrough"],
            port(json!({ "portPolicy": "Passthrough", "protocol": "TCPUDP" })),
        ),
        row(
            "Dynamic with hostPort",
            port(json!({ "containerPort": 5, "hostPort": 7000 })),
            ["{spec}.ports[0].hostPort: must be left out with portPolicy Dynamic", "Static"],
            port(json!({ "portPolicy": "Static", "containerPort": 5, "hostPort": 7000 })),
        ),
        row(
            "Passthrough with hostPort",
            port(json!({ "portPolicy": "Passthrough", "hostPort": 7000 })),
            ["{spec}.ports[0].hostPort: must be left out with portPolicy Passthrough", "Static"],
            // With None it is never put on the pod.
            port(json!({ "portPolicy": "None", "containerPort": 5, "hostPort": 7000 })),
        ),
        row(
            "both protocols without a host port",
            port(json!({ "portPolicy": "None", "containerPort": 5, "protocol": "TCPUDP" })),
            ["{spec}.ports[0].protocol: TCPUDP", "allowed: UDP, TCP"],
            port(json!({ "portPolicy": "None", "containerPort": 5, "protocol": "TCP" })),
        ),
        row(
            "two Static ports on one number",
            json!({ "ports": [
                { "portPolicy": "Static", "containerPort": 1, "hostPort": 7000, "protocol": "TCPUDP" },
                { "portPolicy": "Static", "containerPort": 2, "hostPort": 7000 },
            ] }),
            ["{spec}.ports[1].hostPort: 7000 is taken by a port above"],
            json!({ "ports": [
                { "name": "same", "portPolicy": "Static", "containerPort": 1, "hostPort": 7000, "protocol": "TCP" },
                { "name": "same", "portPolicy": "Static", "containerPort": 2, "hostPort": 7000, "protocol": "UDP" },
            ] }),
        ),
        row(
            "sixty-five ports",
            json!({ "ports": vec![json!({ "containerPort": 1 }); 65] }),
            ["{spec}.ports: at most 64 are allowed"],
            json!({ "ports": vec![json!({ "containerPort": 1 }); 64] }),
        ),
        row(
            "port of an unknown container",
            port(json!({ "containerPort": 5, "container": "q" })),
            ["{spec}.ports[0].container: \"q\"", "allowed: main"],
            port(json!({ "containerPort": 5, "container": "main" })),
        ),
        row(
            "port of an ordinary init container",
            several(json!({ "container": "main", "ports": [{ "containerPort": 5, "container": "setup" }] })),
            ["{spec}.ports[0].container: \"setup\"", "restartPolicy Always", "allowed: main, log, proxy"],
            several(json!({ "container": "main", "ports": [{ "containerPort": 5, "container": "proxy" }] })),
        ),
    ]
}

fn containers() -> Vec<Row> {
    vec![
        row(
            "no container chosen among several",
            several(json!({})),
            ["{spec}.container: required", "allowed: main, log"],
            several(json!({ "container": "log" })),
        ),
        row(
            "unknown container among several",
            several(json!({ "container": "zzz" })),
            ["{spec}.container: \"zzz\" is not a container of the template", "allowed: main, log"],
            // The only container is the game, whatever the spec says.
            json!({ "container": "zzz" }),
        ),
        row(
            "a sidecar as the game",
            several(json!({ "container": "proxy" })),
            ["{spec}.container: \"proxy\" is not a container of the template", "allowed: main, log"],
            several(json!({ "container": "main" })),
        ),
        row(
            "container name in capitals",
            json!({ "container": "Main" }),
            ["{spec}.container", "[a-z0-9]"],
            json!({ "container": "main" }),
        ),
        row(
            "name of a container in capitals",
            with_pod(json!({ "initContainers": [{ "name": "Set_Up", "image": "a" }] })),
            ["{spec}.template.spec.initContainers[0].name: \"Set_Up\"", "lower case"],
            with_pod(json!({ "initContainers": [{ "name": "set-up", "image": "a" }] })),
        ),
        row(
            "name of a container too long",
            json!({ "template": pod(json!({ "name": "x".repeat(64), "image": "a" })) }),
            ["{spec}.template.spec.containers[0].name", "63"],
            json!({ "template": pod(json!({ "name": "x".repeat(63), "image": "a" })) }),
        ),
        row(
            "two containers of one name",
            with_pod(json!({ "containers": [{ "name": "a" }, { "name": "a" }] })),
            ["{spec}.template.spec.containers: duplicate entries", "name=\"a\""],
            several(json!({ "container": "main" })),
        ),
        row(
            "no container",
            json!({ "template": { "spec": { "containers": [] } } }),
            ["{spec}.template.spec.containers: at least one container is required"],
            json!({ "template": { "spec": { "containers": [{ "name": "any" }] } } }),
        ),
        row(
            "no pod",
            json!({ "template": {} }),
            ["{spec}.template.spec.containers: at least one container is required"],
            json!({ "template": { "metadata": {}, "spec": { "containers": [{ "name": "any" }] } } }),
        ),
        row(
            "sixty-five containers",
            json!({ "container": "c0", "template": { "spec": { "containers": named(65) } } }),
            ["{spec}.template.spec.containers: at most 64 are allowed"],
            json!({ "container": "c0", "template": { "spec": { "containers": named(64) } } }),
        ),
        row(
            "a node chosen by the author",
            with_pod(json!({ "nodeName": "node-a" })),
            ["{spec}.template.spec.nodeName: must be left out", "nodeSelector"],
            with_pod(json!({ "nodeSelector": { "kubernetes.io/hostname": "node-a" } })),
        ),
        row(
            "scheduling gates",
            with_pod(json!({ "schedulingGates": [{ "name": "wait" }] })),
            ["{spec}.template.spec.schedulingGates: must be empty"],
            with_pod(json!({ "schedulingGates": [], "readinessGates": [{ "conditionType": "wait" }] })),
        ),
        row(
            "ephemeral containers",
            with_pod(json!({ "ephemeralContainers": [{ "name": "debug", "image": "a" }] })),
            ["{spec}.template.spec.ephemeralContainers: must be empty"],
            // Host ports of a container's own are its author's business.
            json!({ "template": pod(json!({
                "name": "main",
                "image": "game",
                "ports": [{ "containerPort": 80, "hostPort": 80 }],
            })) }),
        ),
    ]
}
