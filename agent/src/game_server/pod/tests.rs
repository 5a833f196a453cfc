//! The pod, field by field.

use berth_api::game_server::{
    Eviction, EvictionSafe, GameServer, GameServerSpec, GameServerStatus, PodTemplate, PortPolicy,
    PortProtocol, PortSpec,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Plan, PodError, build, ports_of_pod, sdk_ports_of, status_ports};
use crate::ports::ledger::slots_of_pod;

fn server(name: &str, template: Value) -> GameServer {
    let mut server = GameServer::new(
        name,
        GameServerSpec { template: PodTemplate(template), ..GameServerSpec::default() },
    );
    server.metadata.namespace = Some("games".to_owned());
    server.metadata.uid = Some("uid-1".to_owned());
    server
}

fn built(server: &GameServer, ports: &[PortSpec]) -> Value {
    build(Plan { service_account: Some("agones-sdk"), ..plan(server, ports) }).expect("builds")
}

fn plan<'a>(server: &'a GameServer, ports: &'a [PortSpec]) -> Plan<'a> {
    Plan {
        server,
        ports,
        node: "node-1",
        sdk_ports: (9357, 9358),
        allows_host_network: false,
        service_account: None,
    }
}

fn simple() -> Value {
    json!({ "spec": { "containers": [{ "name": "main", "image": "game:1" }] } })
}

#[test]
fn a_plain_template_becomes_a_pod_of_this_node() {
    let pod = built(&server("gs.one", simple()), &[]);
    assert_eq!(pod["metadata"]["name"], "gs.one");
    assert_eq!(pod["metadata"]["namespace"], "games");
    assert_eq!(pod["metadata"]["labels"]["agones.dev/role"], "gameserver");
    assert_eq!(pod["metadata"]["labels"]["agones.dev/gameserver"], "gs.one");
    assert_eq!(pod["metadata"]["labels"]["agones.dev/safe-to-evict"], "false");
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"], "false");
    assert_eq!(annotations["agones.dev/container"], "main");
    assert_eq!(
        pod["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": "gs.one", "uid": "uid-1",
            "controller": true, "blockOwnerDeletion": true
        }])
    );
    let spec = &pod["spec"];
    assert_eq!(spec["nodeName"], "node-1");
    assert_eq!(spec["hostname"], "gs-one");
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["serviceAccountName"], "agones-sdk");
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(
        spec["containers"][0]["env"],
        json!([
            { "name": "AGONES_SDK_GRPC_PORT", "value": "9357" },
            { "name": "AGONES_SDK_HTTP_PORT", "value": "9358" }
        ])
    );
    assert_eq!(
        spec["tolerations"],
        json!([
            { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute" },
            { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" },
            { "key": "gamelift.status/draining", "operator": "Exists" }
        ])
    );
    for absent in ["initContainers", "affinity", "volumes"] {
        assert!(spec.get(absent).is_none(), "{absent}");
    }
    assert!(spec["containers"][0].get("livenessProbe").is_none());
    serde_json::from_value::<Pod>(pod).expect("a pod");
}

#[test]
fn what_the_template_says_stays() {
    let template = json!({
        "metadata": { "labels": { "a": "b" }, "generateName": "x-", "annotations": null },
        "spec": {
            "hostname": "mine", "restartPolicy": "Always", "serviceAccountName": "game",
            "fieldOfTheFuture": { "deep": [1] },
            "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5 }],
            "initContainers": [{ "name": "init", "image": "i" }],
            "containers": [{
                "name": "main", "image": "game:1",
                "env": [{ "name": "AGONES_SDK_GRPC_PORT", "value": "1" }, { "name": "X", "value": "y" }]
            }]
        }
    });
    let pod = built(&server("gs", template), &[]);
    assert_eq!(pod["metadata"]["labels"]["a"], "b");
    assert!(pod["metadata"].get("generateName").is_none());
    let spec = &pod["spec"];
    assert_eq!((&spec["hostname"], &spec["restartPolicy"]), (&json!("mine"), &json!("Always")));
    assert_eq!(spec["serviceAccountName"], "game");
    assert!(spec.get("automountServiceAccountToken").is_none(), "its account decides");
    assert_eq!(spec["fieldOfTheFuture"]["deep"][0], 1);
    assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(3));
    assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 5);
    let names: Vec<_> = spec["containers"][0]["env"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["X", "AGONES_SDK_GRPC_PORT", "AGONES_SDK_HTTP_PORT"]);
    assert_eq!(spec["initContainers"][0]["env"].as_array().map(Vec::len), Some(2));
}

#[test]
fn eviction_marks_follow_the_status_and_give_way_to_the_template() {
    let annotated = json!({
        "metadata": { "annotations": { "cluster-autoscaler.kubernetes.io/safe-to-evict": "true" } },
        "spec": { "containers": [{ "name": "main" }] }
    });
    let table = [
        (simple(), Some(EvictionSafe::Always), "true", "true"),
        (simple(), Some(EvictionSafe::OnUpgrade), "true", "false"),
        (simple(), Some(EvictionSafe::Never), "false", "false"),
        (simple(), None, "false", "false"),
        (annotated.clone(), None, "true", "true"),
        (annotated, Some(EvictionSafe::Never), "false", "true"),
    ];
    for (template, safe, label, annotation) in table {
        let mut server = server("gs", template);
        server.status = Some(GameServerStatus {
            eviction: safe.map(|safe| Eviction { safe: Some(safe) }),
            ..GameServerStatus::default()
        });
        let metadata = &built(&server, &[])["metadata"];
        assert_eq!(metadata["labels"]["agones.dev/safe-to-evict"], label, "{safe:?}");
        let key = "cluster-autoscaler.kubernetes.io/safe-to-evict";
        assert_eq!(metadata["annotations"][key], annotation, "{safe:?}");
    }
}

fn port(
    name: &str,
    policy: PortPolicy,
    numbers: (Option<u16>, Option<u16>),
    protocol: PortProtocol,
) -> PortSpec {
    PortSpec {
        name: Some(name.to_owned()),
        port_policy: Some(policy),
        host_port: numbers.0,
        container_port: numbers.1,
        protocol: Some(protocol),
        ..PortSpec::default()
    }
}

#[test]
fn ports_go_to_their_container_and_can_be_read_back() {
    let template = json!({ "spec": {
        "initContainers": [{ "name": "side", "restartPolicy": "Always" }, { "name": "once" }],
        "containers": [{ "name": "log" }, { "name": "main", "ports": [{ "containerPort": 80 }] }]
    }});
    let written = [
        port("p", PortPolicy::Passthrough, (None, None), PortProtocol::TcpUdp),
        PortSpec {
            container: Some("side".to_owned()),
            ..port("d", PortPolicy::Dynamic, (None, Some(5)), PortProtocol::Udp)
        },
        port("n", PortPolicy::None, (None, Some(9)), PortProtocol::Tcp),
    ];
    let mut server = server("gs", template);
    server.spec.container = Some("main".to_owned());
    server.spec.ports = Some(written.to_vec());
    let filled = [
        port("p-tcp", PortPolicy::Passthrough, (Some(30), Some(30)), PortProtocol::Tcp),
        PortSpec { host_port: Some(31), ..written[1].clone() },
        written[2].clone(),
        port("p-udp", PortPolicy::Passthrough, (Some(30), Some(30)), PortProtocol::Udp),
    ];
    let pod = built(&server, &filled);
    assert_eq!(
        pod["spec"]["containers"][1]["ports"],
        json!([
            { "containerPort": 80 },
            { "containerPort": 30, "hostPort": 30, "protocol": "TCP" },
            { "containerPort": 9, "protocol": "TCP" },
            { "containerPort": 30, "hostPort": 30, "protocol": "UDP" }
        ])
    );
    assert_eq!(
        pod["spec"]["initContainers"][0]["ports"],
        json!([{ "containerPort": 5, "hostPort": 31, "protocol": "UDP" }])
    );
    assert_eq!(
        pod["metadata"]["annotations"]["agones.dev/container-passthrough-port-assignment"],
        "{\"main\":[1,3]}"
    );
    let shown: Vec<_> = status_ports(&filled).into_iter().map(|port| port.port).collect();
    assert_eq!(shown, [30, 31, 9, 30]);
    let typed: Pod = serde_json::from_value(pod).expect("a pod");
    let back = ports_of_pod(&server, &typed.spec.expect("a spec")).expect("reads back");
    assert_eq!(back, filled);
}

#[test]
fn what_cannot_be_a_pod_is_refused_by_name() {
    let main = json!({ "name": "main" });
    let table = [
        (json!({ "spec": { "containers": [main, { "name": "b" }] } }), "spec.container must name"),
        (json!({ "spec": { "containers": "main" } }), "could not read spec.template"),
        (json!({ "spec": { "containers": [main], "hostNetwork": true } }), "spec.template.spec.hostNetwork"),
        (json!({ "spec": { "containers": [main], "nodeName": "other" } }), "spec.template.spec.nodeName"),
        (
            json!({ "spec": { "containers": [main], "runtimeClassName": "kata-qemu" } }),
            "spec.template.spec.runtimeClassName",
        ),
        (
            json!({ "spec": { "containers": [main], "schedulingGates": [{ "name": "a" }] } }),
            "spec.template.spec.schedulingGates",
        ),
    ];
    for (template, expected) in table {
        let server = server("gs", template);
        let error = build(plan(&server, &[])).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let server = server("gs", simple());
    let lost = [PortSpec { container: Some("zzz".to_owned()), ..PortSpec::default() }];
    assert!(matches!(build(plan(&server, &lost)), Err(PodError::NoContainer { .. })));
}

#[test]
fn a_pod_on_the_nodes_network_is_told_of_ports_of_its_own() {
    let on_host =
        json!({ "spec": { "hostNetwork": true, "containers": [{ "name": "main", "image": "game:1" }] } });
    let server = server("gs", on_host);
    let allowed = Plan { sdk_ports: (9500, 9501), allows_host_network: true, ..plan(&server, &[]) };
    let pod: Pod = serde_json::from_value(build(allowed).expect("builds")).expect("a pod");
    assert_eq!(sdk_ports_of(&server, &pod), (9500, 9501));
    let slots = slots_of_pod(&pod.spec.expect("a spec"));
    let ports: Vec<u16> = slots.iter().map(|slot| slot.port).collect();
    assert_eq!(ports, [9500, 9501], "they are taken as long as the pod is there");
}
