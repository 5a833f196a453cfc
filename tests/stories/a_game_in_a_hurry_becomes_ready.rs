//! A game that calls Ready first thing, and an init container whose first instruction calls Health: the SDK is there
//! before either, every time, also where both cores are busy with something else.
//!
//! `BERTH_STARTS` is how many times.

use berth_api::lifecycle::State;
use berth_dev::Launch;
use berth_stories::game::{game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::scale;
use berth_stories::world::{GAME, Stage, story};
use kube::api::{Api, DeleteParams};
use serde_json::json;

const STARTS: usize = 100;
const AT_ONCE: usize = 10;

#[test]
fn games_in_a_hurry_become_ready_while_every_core_is_busy() {
    story(|world| async {
        let stage = world.stage("hurry").await?;
        let mut busy = Vec::new();
        for number in 0..std::thread::available_parallelism()?.get() {
            let launch =
                Launch::new(format!("busy-{number}"), "/bin/sh").arguments(["-c", "while :; do :; done"]);
            busy.push(world.cluster.spawn(launch)?);
        }
        let told = tell(&stage, scale::of("BERTH_STARTS", STARTS)).await;
        for one in busy {
            one.kill().await?;
        }
        told
    });
}

async fn tell(stage: &Stage, starts: usize) -> anyhow::Result<()> {
    let api = Api::namespaced_with(stage.client(), &stage.namespace, &resource("GameServer", "gameservers"));
    // One try and no second: a listener that comes late fails the init container, and with it the pod.
    let init = json!({
        "name": "init",
        "image": GAME,
        "imagePullPolicy": "Never",
        "args": ["--init-health", "--connect-limit", "0s"],
    });
    let game = game_container(&["--connect-limit", "0s"]);
    for round in 0..starts.div_ceil(AT_ONCE) {
        let names: Vec<String> = (0..AT_ONCE).map(|one| format!("hurry-{round}-{one}")).collect();
        for (number, name) in names.iter().enumerate() {
            // Every other one has no init container: its game itself is what comes first.
            let inits = if number % 2 == 0 { json!([init]) } else { json!([]) };
            let template = pod(&json!([game]), &inits);
            apply_strictly(&api, &game_server(name, &spec(&template))).await?;
        }
        for name in &names {
            stage.until_state(name, State::Ready).await?;
        }
        for name in &names {
            api.delete(name, &DeleteParams::default()).await?;
        }
    }
    stage.strike().await
}
