//! Every port policy, both protocols, a range by name, on each of two nodes: whoever is told an address is answered there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::Context;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_stories::game::{ask, ask_tcp, game_container, game_server, pod};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{GAME, VOICE_PORTS, story};
use kube::api::Api;
use serde_json::{Value, json};

/// A number outside of all ranges. Nobody else is on the nodes, which are made for the stories.
const STATIC: u16 = 25_565;

#[test]
fn every_port_answers_on_two_nodes() {
    story(|world| async {
        let stage = world.stage("ports").await?;
        let api =
            Api::namespaced_with(world.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        let nodes = world.cluster.nodes();
        for node in nodes {
            apply_strictly(&api, &game_server(&format!("on-{}", node.name()), &every_port(node.name())))
                .await?;
        }
        for node in nodes {
            let name = format!("on-{}", node.name());
            let server = stage.until_state(&name, State::Ready).await?;
            assert_eq!(server.node_name(), Some(node.name()));
            stage.until_running(&name).await?;
            each_answers(&server).await.with_context(|| name.clone())?;
        }
        a_development_server_is_where_its_author_says(&stage).await?;
        stage.strike().await
    });
}

fn every_port(node: &str) -> Value {
    // The first port of the server is the one that it listens on itself.
    let through = json!({
        "name": "through",
        "image": GAME,
        "imagePullPolicy": "Never",
        "args": ["--passthrough", "--ready=false"],
    });
    let mut template = pod(&json!([game_container(&[]), through]), &json!([]));
    template["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    json!({
        "container": "game",
        "ports": [
            { "name": "through", "portPolicy": "Passthrough", "container": "through", "protocol": "TCPUDP" },
            { "name": "dynamic", "portPolicy": "Dynamic", "containerPort": 7654 },
            { "name": "both", "portPolicy": "Dynamic", "containerPort": 7654, "protocol": "TCPUDP" },
            { "name": "static", "portPolicy": "Static", "containerPort": 7654, "hostPort": STATIC, "protocol": "TCPUDP" },
            { "name": "none", "portPolicy": "None", "containerPort": 7654 },
            { "name": "voice", "portPolicy": "Dynamic", "containerPort": 7654, "range": "voice", "protocol": "TCP" },
        ],
        "template": template,
    })
}

async fn each_answers(server: &GameServer) -> anyhow::Result<()> {
    let status = server.status.clone().context("a status")?;
    let ports: BTreeMap<String, u16> =
        status.ports.into_iter().flatten().map(|one| (one.name.unwrap_or_default(), one.port)).collect();
    let names: BTreeSet<&str> = ports.keys().map(String::as_str).collect();
    let expected = [
        "through-tcp",
        "through-udp",
        "dynamic",
        "both-tcp",
        "both-udp",
        "static-tcp",
        "static-udp",
        "none",
        "voice",
    ];
    assert_eq!(names, BTreeSet::from(expected));
    for both in ["through", "both", "static"] {
        assert_eq!(ports[&format!("{both}-tcp")], ports[&format!("{both}-udp")], "{both}");
    }
    assert_eq!((ports["static-udp"], ports["none"]), (STATIC, 7654));
    assert!(VOICE_PORTS.contains(&ports["voice"]), "{ports:?}");

    let of_pod = status.addresses.into_iter().flatten().find(|address| address.kind == "PodIP");
    let of_pod = of_pod.context("the pod's own address")?.address;
    for (name, port) in &ports {
        let host = if name == "none" { &of_pod } else { &status.address };
        let to = SocketAddr::new(host.parse()?, *port);
        let answer = if name == "voice" || name.ends_with("-tcp") {
            ask_tcp(to, name).await
        } else {
            ask(to, name).await
        };
        let answer = answer.with_context(|| format!("port {name}"))?;
        assert_eq!(answer.trim_end(), format!("ACK: {name}"));
    }
    Ok(())
}

/// No pod, no node, no agent: an address that its author gave, and Ready.
async fn a_development_server_is_where_its_author_says(
    stage: &berth_stories::world::Stage,
) -> anyhow::Result<()> {
    let client = stage.client();
    let api = Api::namespaced_with(client, &stage.namespace, &resource("GameServer", "gameservers"));
    let port =
        json!({ "name": "default", "portPolicy": "Static", "hostPort": STATIC, "containerPort": 7654 });
    let spec = json!({ "ports": [port], "template": pod(&json!([game_container(&[])]), &json!([])) });
    let mut laptop = game_server("laptop", &spec);
    laptop["metadata"]["annotations"] = json!({ "agones.dev/dev-address": "192.168.1.5" });
    apply_strictly(&api, &laptop).await?;
    let status = stage.until_state("laptop", State::Ready).await?.status.context("a status")?;
    assert_eq!((status.address.as_str(), status.node_name.as_str()), ("192.168.1.5", "192.168.1.5"));
    assert_eq!(json!(status.ports), json!([{ "name": "default", "port": STATIC }]));
    assert_eq!(json!(status.addresses), json!([{ "type": "InternalIP", "address": "192.168.1.5" }]));
    assert!(stage.pods().get_opt("laptop").await?.is_none(), "a pod was made");
    Ok(())
}
