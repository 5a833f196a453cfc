//! A game that calls Ready first thing, and an init container whose first instruction calls Health: the SDK is there
//! before either, every time.

use berth_api::lifecycle::State;
use berth_stories::game::{game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{GAME, story};
use kube::api::{Api, DeleteParams};
use serde_json::json;

/// Fifty starts, as many at a time as keep both cores busy.
const ROUNDS: usize = 5;
const AT_ONCE: usize = 10;

#[test]
fn fifty_games_in_a_hurry_become_ready() {
    story(|world| async {
        let stage = world.stage("hurry").await?;
        let api =
            Api::namespaced_with(world.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        // One try and no second: a listener that comes late fails the init container, and with it the pod.
        let init = json!({
            "name": "init",
            "image": GAME,
            "imagePullPolicy": "Never",
            "args": ["--init-health", "--connect-limit", "0s"],
        });
        let game = game_container(&["--connect-limit", "0s"]);
        for round in 0..ROUNDS {
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
    });
}
