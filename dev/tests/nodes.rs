//! Real nodes: pods run on them, answer from the machine, and nothing is left when they are gone.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use berth_dev::{Cluster, ClusterOptions, Image, Node, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(120);

fn echo_pod(name: &str, node: &Node, image: &Image) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node.name(),
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "echo",
                "image": image.reference(),
                "imagePullPolicy": "Never",
                "ports": [{"containerPort": 7654, "hostPort": 7000, "protocol": "UDP"}],
            }],
        },
    }))
    .unwrap()
}

/// One datagram there and back, on a socket of its own.
fn ask(server: SocketAddr, question: &str) -> Result<String, String> {
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(Duration::from_millis(200))).map_err(|error| error.to_string())?;
    socket.send_to(question.as_bytes(), server).map_err(|error| error.to_string())?;
    let mut buffer = [0; 1500];
    let length = socket.recv(&mut buffer).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

async fn expect_echo(node: &Node) {
    let server = SocketAddr::from((node.address(), 7000));
    let what = format!("an echo from {server}");
    let answer = eventually(LIMIT, what, async || {
        tokio::task::spawn_blocking(move || ask(server, "ahoy")).await.unwrap()
    });
    assert_eq!(answer.await.unwrap(), "ahoy");
}

#[tokio::test]
async fn pods_on_two_nodes_answer_on_the_same_host_port() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let image =
        Image::of_program(Path::new(env!("CARGO_BIN_EXE_berth-dev-udp-echo")), "berth.local/udp-echo:test")
            .unwrap();
    cluster.import(&image).await.unwrap();
    let pods = Api::<Pod>::namespaced(cluster.client(), "default");
    eventually(LIMIT, "the namespace's service account", async || {
        pods.create(&PostParams::default(), &echo_pod("a", cluster.node(0), &image)).await
    })
    .await
    .unwrap();
    pods.create(&PostParams::default(), &echo_pod("b", cluster.node(1), &image)).await.unwrap();
    expect_echo(cluster.node(0)).await;
    expect_echo(cluster.node(1)).await;
}
