//! What a game can reach: its own SDK, and nothing of Berth's beside it.

use anyhow::Context;
use berth_api::lifecycle::State;
use berth_stories::game::{game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{BUSYBOX, Stage, story};
use kube::api::Api;
use serde_json::json;

#[test]
fn a_pod_has_no_token_and_reaches_only_its_own_sdk() {
    story(|world| async {
        let stage = world.stage("confined").await?;
        let api =
            Api::namespaced_with(world.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        let shell = json!({
            "name": "shell",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "args": ["sleep", "86400"],
        });
        let mut two = spec(&pod(&json!([game_container(&[]), shell]), &json!([])));
        two["container"] = json!("game");
        for name in ["here", "neighbour"] {
            apply_strictly(&api, &game_server(name, &two)).await?;
        }
        let here = stage.until_state("here", State::Ready).await?;
        let neighbour = stage.until_state("neighbour", State::Ready).await?.status.unwrap_or_default();
        let neighbour = neighbour.addresses.into_iter().flatten().find(|address| address.kind == "PodIP");
        let neighbour = neighbour.context("the neighbour's own address")?.address;
        let node = here.status.context("a status")?.address;
        stage.until_running("here").await?;

        assert!(reaches(&stage, "127.0.0.1", 9357).await?, "its own gRPC");
        assert!(reaches(&stage, "127.0.0.1", 9358).await?, "its own REST");
        for address in [neighbour.as_str(), node.as_str()] {
            for port in [9357, 9358] {
                assert!(!reaches(&stage, address, port).await?, "{address}:{port} can be reached");
            }
        }
        for path in ["/var/run/secrets/kubernetes.io", "/run/berth", "/var/lib/berth"] {
            assert!(
                !succeeds(&stage, &format!("/busybox ls {path} >/dev/null 2>&1")).await?,
                "{path} can be seen"
            );
        }
        let pod = stage.pods().get("here").await?.spec.context("a spec")?;
        assert_eq!(pod.automount_service_account_token, Some(false));
        stage.strike().await
    });
}

/// Whether something listens there: busybox's nc has no flag for that, but says so where it cannot connect.
async fn reaches(stage: &Stage, address: &str, port: u16) -> anyhow::Result<bool> {
    let refusal = format!(
        "/busybox timeout 5 /busybox nc -w 2 {address} {port} </dev/null 2>&1 | /busybox grep -q \"can't connect\""
    );
    Ok(!succeeds(stage, &refusal).await?)
}

/// Runs a command in the shell container; another code than 0 is an answer, a broken `kubectl exec` is not.
async fn succeeds(stage: &Stage, command: &str) -> anyhow::Result<bool> {
    let script = format!("if {command}; then echo yes; else echo no; fi");
    let exec = ["--namespace", &stage.namespace, "exec", "here", "--container", "shell", "--"];
    let words = [&exec[..], &["/busybox", "sh", "-c", &script]].concat();
    match stage.kubectl(&words).await?.trim() {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => anyhow::bail!("the shell said {other:?}"),
    }
}
