//! What the real API server makes of our CRDs: a table of good objects and of bad ones, each with the field that its
//! refusal must name.

use berth_dev::{ControlPlane, ControlPlaneOptions};
use berth_stories::resources::{apply_crds, apply_strictly, resource};
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

fn pod(container: Value) -> Value {
    json!({ "spec": { "containers": [container] } })
}

fn game() -> Value {
    pod(json!({ "name": "main", "image": "game" }))
}

fn game_server(name: &str, spec: Value) -> Value {
    let mut whole = json!({ "template": game() });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "agones.dev/v1",
        "kind": "GameServer",
        "metadata": { "name": name },
        "spec": whole,
    })
}

fn fleet(name: &str, fields: Value) -> Value {
    let mut spec = json!({ "template": { "spec": { "template": game() } } });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ "apiVersion": "agones.dev/v1", "kind": "Fleet", "metadata": { "name": name }, "spec": spec })
}

fn plural(object: &Value) -> (&str, &'static str) {
    match object["kind"].as_str().unwrap() {
        "GameServer" => ("GameServer", "gameservers"),
        "GameServerSet" => ("GameServerSet", "gameserversets"),
        "Fleet" => ("Fleet", "fleets"),
        "GameNode" => ("GameNode", "gamenodes"),
        other => panic!("no such kind: {other}"),
    }
}

fn api(client: &kube::Client, object: &Value) -> Api<DynamicObject> {
    let (kind, plural) = plural(object);
    let resource = resource(kind, plural);
    if kind == "GameNode" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), "default", &resource)
    }
}

/// A good object, and what must be stored at each path.
fn good() -> Vec<(Value, Vec<(&'static str, Value)>)> {
    vec![
        (
            game_server("minimal", json!({ "ports": [{ "name": "default", "containerPort": 7654 }] })),
            vec![
                ("/spec/ports/0/portPolicy", json!("Dynamic")),
                ("/spec/ports/0/range", json!("default")),
                ("/spec/ports/0/protocol", json!("UDP")),
                ("/spec/health/periodSeconds", json!(5)),
                ("/spec/health/failureThreshold", json!(3)),
                ("/spec/health/initialDelaySeconds", json!(5)),
                ("/spec/health/disabled", json!(false)),
                ("/spec/scheduling", json!("Packed")),
                ("/spec/sdkServer/logLevel", json!("Info")),
                ("/spec/sdkServer/grpcPort", json!(9357)),
                ("/spec/sdkServer/httpPort", json!(9358)),
                ("/spec/eviction/safe", json!("Never")),
                ("/spec/immutableReplicas", json!(1)),
            ],
        ),
        (
            game_server("counted", json!({ "counters": { "rooms": {} }, "lists": { "players": {} } })),
            vec![
                ("/spec/counters/rooms/count", json!(0)),
                ("/spec/counters/rooms/capacity", json!(1000)),
                ("/spec/lists/players/capacity", json!(1000)),
                ("/spec/lists/players/values", json!([])),
            ],
        ),
        (game_server("no-ports", json!({ "ports": null })), vec![]),
        (
            game_server(
                "port-without-protocol",
                json!({ "template": pod(json!({ "name": "main", "image": "game", "ports": [{ "containerPort": 1 }] })) }),
            ),
            vec![("/spec/template/spec/containers/0/ports/0/protocol", json!("TCP"))],
        ),
        (
            fleet("bare", json!({})),
            vec![
                ("/spec/replicas", json!(0)),
                ("/spec/scheduling", json!("Packed")),
                ("/spec/strategy/type", json!("RollingUpdate")),
                ("/spec/strategy/rollingUpdate/maxSurge", json!("25%")),
                ("/spec/strategy/rollingUpdate/maxUnavailable", json!("25%")),
                ("/spec/template/spec/health", Value::Null),
                ("/spec/template/spec/scheduling", Value::Null),
                ("/spec/template/spec/template/spec/containers/0/name", json!("main")),
            ],
        ),
        (
            fleet("recreate", json!({ "replicas": 3, "strategy": { "type": "Recreate" } })),
            vec![("/spec/strategy/rollingUpdate", Value::Null)],
        ),
        (
            fleet(
                "steps",
                json!({ "strategy": { "rollingUpdate": { "maxSurge": "99%", "maxUnavailable": 500 } } }),
            ),
            vec![
                ("/spec/strategy/rollingUpdate/maxSurge", json!("99%")),
                ("/spec/strategy/rollingUpdate/maxUnavailable", json!(500)),
            ],
        ),
        (
            fleet("no-sign", json!({ "strategy": { "rollingUpdate": { "maxSurge": "5" } } })),
            vec![("/spec/strategy/rollingUpdate/maxUnavailable", json!("25%"))],
        ),
        (
            fleet("ordered", json!({ "priorities": [{ "type": "Counter", "key": "rooms" }] })),
            vec![("/spec/priorities/0/order", json!("Ascending"))],
        ),
        (
            fleet(
                "as-written",
                json!({ "template": { "spec": {
                    "counters": { "rooms": {} },
                    "template": pod(json!({
                        "name": "main",
                        "image": "game",
                        "resources": { "requests": { "cpu": "1000m", "memory": "0.5Gi" } },
                    })),
                } } }),
            ),
            vec![
                ("/spec/template/spec/template/spec/containers/0/resources/requests/cpu", json!("1000m")),
                ("/spec/template/spec/counters/rooms", json!({})),
            ],
        ),
        (
            json!({ "apiVersion": "berth.dev/v1", "kind": "GameNode", "metadata": { "name": "node" }, "spec": {} }),
            vec![],
        ),
    ]
}

/// A bad object, and words that its refusal must contain.
fn bad() -> Vec<(Value, Vec<&'static str>)> {
    let long = "x".repeat(64);
    let port = |port: Value| game_server("bad", json!({ "ports": [port] }));
    let step = |step: Value| fleet("bad", json!({ "strategy": { "rollingUpdate": { "maxSurge": step } } }));
    let misspelled = pod(json!({ "name": "main", "image": "game", "resuorces": {} }));
    vec![
        (
            json!({ "apiVersion": "agones.dev/v1", "kind": "GameServer", "metadata": { "name": "bad" }, "spec": {} }),
            vec!["spec.template", "Required"],
        ),
        (
            json!({ "apiVersion": "agones.dev/v1", "kind": "GameServer", "metadata": { "name": "bad" } }),
            vec!["spec", "Required"],
        ),
        (game_server(&long, json!({})), vec!["metadata.name", "63"]),
        (fleet(&long, json!({})), vec!["metadata.name", "63"]),
        (port(json!({ "containerPort": 70000 })), vec!["spec.ports[0].containerPort", "65535"]),
        (port(json!({ "containerPort": 0 })), vec!["spec.ports[0].containerPort", "1"]),
        (port(json!({ "hostPort": 65536 })), vec!["spec.ports[0].hostPort", "65535"]),
        (port(json!({ "portPolicy": "Random" })), vec!["spec.ports[0].portPolicy", "Dynamic", "Passthrough"]),
        (port(json!({ "protocol": "SCTP" })), vec!["spec.ports[0].protocol", "TCPUDP"]),
        (game_server("bad", json!({ "container": "Main" })), vec!["spec.container"]),
        (game_server("bad", json!({ "health": { "periodSeconds": -1 } })), vec!["spec.health.periodSeconds"]),
        (
            game_server("bad", json!({ "health": { "failureThreshold": 0 } })),
            vec!["spec.health.failureThreshold"],
        ),
        (game_server("bad", json!({ "scheduling": "Random" })), vec!["spec.scheduling", "Packed"]),
        (game_server("bad", json!({ "sdkServer": { "grpcPort": 0 } })), vec!["spec.sdkServer.grpcPort"]),
        (
            game_server("bad", json!({ "sdkServer": { "logLevel": "Loud" } })),
            vec!["spec.sdkServer.logLevel", "Trace"],
        ),
        (
            game_server("bad", json!({ "eviction": { "safe": "Maybe" } })),
            vec!["spec.eviction.safe", "OnUpgrade"],
        ),
        (game_server("bad", json!({ "counters": { "a": { "count": -1 } } })), vec!["spec.counters.a.count"]),
        (
            game_server("bad", json!({ "lists": { "a": { "capacity": 1001 } } })),
            vec!["spec.lists.a.capacity", "1000"],
        ),
        (
            game_server("bad", json!({ "lists": { "a": { "values": ["b", "b"] } } })),
            vec!["spec.lists.a.values", "duplicate entries"],
        ),
        (game_server("bad", json!({ "immutableReplicas": 2 })), vec!["spec.immutableReplicas"]),
        (
            game_server("bad", json!({ "players": { "initialCapacity": -1 } })),
            vec!["spec.players.initialCapacity"],
        ),
        (
            game_server("bad", json!({ "template": misspelled })),
            vec![".spec.template.spec.containers", ".resuorces: field not declared"],
        ),
        (fleet("bad", json!({ "replicas": -1 })), vec!["spec.replicas"]),
        (fleet("bad", json!({ "strategy": { "type": "Blue" } })), vec!["spec.strategy.type", "Recreate"]),
        (step(json!("100%")), vec!["spec.strategy.rollingUpdate.maxSurge"]),
        (step(json!("0%")), vec!["spec.strategy.rollingUpdate.maxSurge"]),
        (step(json!("abc")), vec!["spec.strategy.rollingUpdate.maxSurge"]),
        (step(json!(0)), vec!["spec.strategy.rollingUpdate.maxSurge"]),
        (
            fleet("bad", json!({ "priorities": [{ "type": "John", "key": "a" }] })),
            vec!["spec.priorities[0].type"],
        ),
        (
            fleet(
                "bad",
                json!({ "template": { "spec": { "ports": [{ "containerPort": 70000 }], "template": game() } } }),
            ),
            vec!["spec.template.spec.ports[0].containerPort", "65535"],
        ),
        (
            fleet("bad", json!({ "template": { "spec": { "template": misspelled } } })),
            vec![".spec.template.spec.template.spec.containers", ".resuorces: field not declared"],
        ),
        (
            json!({
                "apiVersion": "agones.dev/v1",
                "kind": "GameServerSet",
                "metadata": { "name": "bad" },
                "spec": { "template": { "spec": { "template": game() } } },
            }),
            vec!["spec.replicas", "Required"],
        ),
        (
            json!({
                "apiVersion": "berth.dev/v1",
                "kind": "GameNode",
                "metadata": { "name": "bad" },
                "spec": { "drain": { "reason": "upgrade" } },
            }),
            vec!["spec.drain.by", "Required"],
        ),
    ]
}

#[tokio::test]
async fn the_api_server_takes_what_is_good_and_names_what_is_bad() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let client = cluster.client();
    apply_crds(&client).await.unwrap();
    let mut wrong = Vec::new();
    for (object, expected) in good() {
        let name = &object["metadata"]["name"];
        match apply_strictly(&api(&client, &object), &object).await {
            Ok(stored) => {
                let stored = serde_json::to_value(stored).unwrap();
                for (path, value) in expected {
                    let found = stored.pointer(path).cloned().unwrap_or(Value::Null);
                    if found != value {
                        wrong.push(format!("{name}: {path} is {found}, not {value}"));
                    }
                }
            }
            Err(error) => wrong.push(format!("{name} was refused: {error}")),
        }
    }
    for (object, words) in bad() {
        match apply_strictly(&api(&client, &object), &object).await {
            Ok(_) => wrong.push(format!("was taken: {object}")),
            Err(error) => {
                let said = error.to_string();
                let missing: Vec<_> = words.iter().filter(|word| !said.contains(**word)).collect();
                if !missing.is_empty() {
                    wrong.push(format!("does not say {missing:?}: {said}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_node_s_game_servers_can_be_selected_and_a_fleet_can_be_scaled() {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let client = cluster.client();
    apply_crds(&client).await.unwrap();
    let mut here = game_server("here", json!({}));
    here["status"] = json!({ "state": "Creating", "nodeName": "node-a" });
    let servers = api(&client, &here);
    apply_strictly(&servers, &here).await.unwrap();
    apply_strictly(&servers, &game_server("elsewhere", json!({}))).await.unwrap();
    let selected =
        servers.list(&kube::api::ListParams::default().fields("status.nodeName=node-a")).await.unwrap();
    let names: Vec<_> =
        selected.items.iter().map(|one| one.metadata.name.clone().unwrap_or_default()).collect();
    assert_eq!(names, ["here"]);

    let lobby = fleet("lobby", json!({}));
    let fleets = api(&client, &lobby);
    apply_strictly(&fleets, &lobby).await.unwrap();
    let scaled = kube::api::Patch::Merge(json!({ "spec": { "replicas": 7 } }));
    let scale = fleets.patch_scale("lobby", &kube::api::PatchParams::default(), &scaled).await.unwrap();
    assert_eq!(scale.spec.unwrap_or_default().replicas, Some(7));
}
