//! Real nodes: pods run on them, answer from the machine, and nothing is left when they are gone.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and its helpers are no tests to clippy"
)]

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use berth_dev::{Cluster, ClusterOptions, Image, Launch, Node, eventually};
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

async fn one_node() -> Cluster {
    Cluster::start(ClusterOptions { nodes: 1, ..ClusterOptions::default() }).await.unwrap()
}

#[tokio::test]
async fn a_node_that_lost_power_boots_anew() {
    let mut cluster = one_node().await;
    let node = cluster.node(0);
    let first_boot = node.boot_id().unwrap();
    let seen =
        node.execute("cat", &["/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname"]).await.unwrap();
    assert_eq!(seen, format!("{first_boot}\n{}\n", node.name()));
    node.cut_power().await.unwrap();
    let has_containerd = node.containerd().is_some_and(berth_dev::Daemon::is_alive);
    assert!(!node.is_on() && !node.kubelet().is_alive() && !has_containerd);
    cluster.power_on(0).await.unwrap();
    assert!(cluster.node(0).is_on());
    assert_ne!(cluster.node(0).boot_id().unwrap(), first_boot);
}

#[tokio::test]
async fn a_partitioned_node_is_out_of_reach_until_it_heals() {
    let cluster = one_node().await;
    let kubelet = SocketAddr::from((cluster.node(0).address(), 10250));
    let reach = || TcpStream::connect_timeout(&kubelet, Duration::from_millis(300));
    eventually(LIMIT, "the kubelet to listen", async || reach().map(drop)).await.unwrap();
    cluster.node(0).partition().unwrap();
    assert!(reach().is_err());
    assert!(cluster.node(0).kubelet().is_alive());
    cluster.node(0).heal().unwrap();
    eventually(LIMIT, "the kubelet to be in reach", async || reach().map(drop)).await.unwrap();
}

#[tokio::test]
async fn a_program_on_a_node_sees_the_node_and_leaves_its_log_on_the_machine() {
    let cluster = one_node().await;
    let node = cluster.node(0);
    // Held at a pipe until it is known: one that ends at once is told as such, which is another matter.
    node.execute("mkfifo", &["/run/hold"]).await.unwrap();
    let script = "ip -o address show eth0; read -r word </run/hold; exit 7";
    let look = node.spawn(Launch::new("look", "/bin/sh").arguments(["-c", script])).unwrap();
    node.execute("sh", &["-c", "echo go >/run/hold"]).await.unwrap();
    let status = look.wait(LIMIT).await.unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(7));
    let log = std::fs::read_to_string(look.log()).unwrap();
    assert!(log.contains(&node.address().to_string()), "{log}");
    node.execute("touch", &["/run/berth-was-here"]).await.unwrap();
    assert!(node.machine_path("/run/berth-was-here").exists() && !Path::new("/run/berth-was-here").exists());
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
