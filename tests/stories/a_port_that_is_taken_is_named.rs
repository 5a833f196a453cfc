//! A Static port that is taken on one node is had on the other; taken on both, its server waits and says so by name.

use berth_api::conditions::{ConditionKind, trouble};
use berth_api::lifecycle::State;
use berth_dev::eventually;
use berth_stories::game::{address_of, ask, game_container, game_server, pod};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, story};
use kube::api::{Api, DeleteParams};
use serde_json::json;

/// A number outside of all ranges. Nobody else is on the nodes, which are made for the stories.
const STATIC: u16 = 26_000;

#[test]
fn a_static_port_goes_where_it_is_free_and_names_the_nodes_where_it_is_not() {
    story(|world| async {
        let stage = world.stage("taken").await?;
        let api =
            Api::namespaced_with(world.client(), &stage.namespace, &resource("GameServer", "gameservers"));
        let port = json!({ "portPolicy": "Static", "containerPort": 7654, "hostPort": STATIC });
        let spec = json!({ "ports": [port], "template": pod(&json!([game_container(&[])]), &json!([])) });

        let mut nodes = Vec::new();
        for name in ["first", "second"] {
            apply_strictly(&api, &game_server(name, &spec)).await?;
            let server = stage.until_state(name, State::Ready).await?;
            let address = address_of(&server).ok_or_else(|| anyhow::anyhow!("no address: {server:?}"))?;
            assert_eq!(address.port(), STATIC);
            assert_eq!(ask(address, "GAMESERVER").await?.trim_end(), format!("NAME: {name}"));
            nodes.push(server.node_name().unwrap_or_default().to_owned());
        }
        assert_ne!(nodes[0], nodes[1], "two servers on one port");

        apply_strictly(&api, &game_server("third", &spec)).await?;
        nodes.sort();
        let expected = format!("port {STATIC}/UDP is taken on {} and {}", nodes[0], nodes[1]);
        eventually(STEP, format!("{expected:?} on the server"), async || {
            let third = stage.game_servers().get("third").await.map_err(|error| error.to_string())?;
            let conditions = third.status.clone().unwrap_or_default().conditions.unwrap_or_default();
            let is_told = trouble(&conditions, ConditionKind::Placed)
                .is_some_and(|condition| condition.message.contains(&expected));
            if is_told {
                Ok(())
            } else {
                Err(format!("{:?}; {:?}", third.status, third.metadata.annotations))
            }
        })
        .await?;
        assert_eq!(stage.game_servers().get("third").await?.node_name(), None, "it waits");

        // It waited for nothing else.
        api.delete("first", &DeleteParams::default()).await?;
        stage.until_state("third", State::Ready).await?;
        stage.strike().await
    });
}
