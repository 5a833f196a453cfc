//! Three containers, an init container and a sidecar: the one that is chosen decides over the server, and no other.

use anyhow::Context;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_dev::eventually;
use berth_stories::game::{address_of, ask, game_container, game_server, pod};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{BUSYBOX, GAME, STEP, Stage, story};
use k8s_openapi::api::core::v1::ContainerStatus;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

#[test]
fn the_chosen_container_is_the_game_and_its_end_is_the_server_s() {
    story(|world| async {
        let stage = world.stage("several").await?;
        let api =
            Api::namespaced_with(world.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        for name in ["crashes", "ends"] {
            apply_strictly(&api, &game_server(name, &several())).await?;
        }
        let crashing = stage.until_state("crashes", State::Ready).await?;
        let ending = stage.until_state("ends", State::Ready).await?;
        for server in [&crashing, &ending] {
            let to_game = address_of(server).context("an address")?;
            assert_eq!(ask(to_game, "GAMESERVER").await?.trim_end(), "NAME: ".to_owned() + name_of(server));
            // The second port is another container's.
            let ports = server.status.as_ref().and_then(|status| status.ports.clone()).unwrap_or_default();
            let mut to_other = to_game;
            to_other.set_port(ports.get(1).context("the other container's port")?.port);
            assert_eq!(ask(to_other, "aboard").await?.trim_end(), "ACK: aboard");
        }

        // What ends beside the game is nobody's end, whatever its exit code.
        for name in ["crashes", "ends"] {
            until_ended(&stage, name, "failing", 3).await?;
            let beside = stage.until_state(name, State::Ready).await?;
            assert_eq!(beside.annotation(names::REASON_ANNOTATION), None);
        }

        // A session, and with the third container alive, so that the pod as a whole has neither failed nor succeeded.
        ask(address_of(&crashing).context("an address")?, "ALLOCATE").await?;
        stage.until_state("crashes", State::Allocated).await?;
        let told = ask(address_of(&crashing).context("an address")?, "CRASH 7").await?;
        assert!(told.starts_with("ACK"), "{told}");
        let crashed = stage.until_state("crashes", State::Unhealthy).await?;
        let reason = crashed.annotation(names::REASON_ANNOTATION).unwrap_or_default();
        assert!(reason.contains("container game ended with exit code 7"), "{reason}");

        let told = ask(address_of(&ending).context("an address")?, "CRASH 0").await?;
        assert!(told.starts_with("ACK"), "{told}");
        stage.until_gone("ends").await?;
        // Nobody takes a server of no set away but its author.
        stage.until_state("crashes", State::Unhealthy).await?;
        api.delete("crashes", &DeleteParams::default()).await?;
        stage.strike().await
    });
}

fn several() -> Value {
    let init = json!({
        "name": "first",
        "image": GAME,
        "imagePullPolicy": "Never",
        "args": ["--init-health", "--connect-limit", "0s"],
    });
    let sidecar = json!({
        "name": "sidecar",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "restartPolicy": "Always",
        "args": ["sleep", "86400"],
    });
    let failing = json!({
        "name": "failing",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "args": ["sh", "-c", "exit 3"],
    });
    let mut other = game_container(&["--port", "7700", "--ready=false"]);
    other["name"] = json!("other");
    let containers = json!([failing, game_container(&[]), other]);
    json!({
        "container": "game",
        "ports": [
            { "name": "game", "containerPort": 7654 },
            { "name": "aside", "containerPort": 7700, "container": "other" },
        ],
        "template": pod(&containers, &json!([init, sidecar])),
    })
}

fn name_of(server: &berth_api::game_server::GameServer) -> &str {
    server.metadata.name.as_deref().unwrap_or_default()
}

async fn until_ended(stage: &Stage, pod: &str, container: &str, code: i32) -> anyhow::Result<()> {
    eventually(STEP, format!("{container} of {pod} to end"), async || {
        let status =
            stage.pods().get(pod).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let ended = |one: &ContainerStatus| {
            one.name == container
                && one.state.as_ref().and_then(|state| state.terminated.as_ref()).map(|end| end.exit_code)
                    == Some(code)
        };
        if status.container_statuses.iter().flatten().any(ended) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await?;
    Ok(())
}
