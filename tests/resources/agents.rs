//! What an agent may write, and what nobody but Berth may: the admission policies, asked by dry runs of real requests.
//!
//! The table is asked twice. With the shipped roles, what an agent needs is allowed. With all rights in the cluster on
//! top, only the policies are left to refuse, and it is theirs to name themselves.

#[path = "agents/asks.rs"]
mod asks;
#[path = "agents/drain.rs"]
mod drain;
#[path = "agents/world.rs"]
mod world;

use std::time::Duration;

use berth_dev::{ControlPlane, ControlPlaneOptions, eventually};
use kube::Client;
use serde_json::json;

use asks::Ask;
use drain::Site;
use world::{Games, World};

/// Time within which an API server takes policies, bindings and tokens into service, many times over.
const TAKEN: Duration = Duration::from_secs(60);

/// Asks everything as somebody; answers what went otherwise than wanted.
async fn ask_all(who: &str, client: &Client, asks: Vec<Ask>) -> Vec<String> {
    let mut wrong = Vec::new();
    for ask in asks {
        // The API server takes policies and rights into service in its own time, so that a wrong answer may be an early
        // one; a dry run can be repeated.
        let heard = eventually(TAKEN, &ask.what, async || ask.put(client).await).await;
        if let Err(error) = heard {
            wrong.push(format!("{who}: {}: {error}", ask.what));
        }
    }
    wrong
}

fn assert_nothing(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn start() -> (ControlPlane, World) {
    let cluster = ControlPlane::start(ControlPlaneOptions::default()).await.unwrap();
    let world = World::make(&cluster).await;
    (cluster, world)
}

pub(crate) async fn an_agent_is_held_to_its_node() {
    let (cluster, world) = start().await;
    let agents = world.agents_of_b(&cluster).await;

    let mut wrong = Vec::new();
    for (who, client) in &agents {
        wrong.extend(ask_all(who, client, asks::needed(&world.games)).await);
    }
    assert_nothing(&wrong);

    world.let_agents_do_everything().await;
    for (who, client) in &agents {
        wrong.extend(ask_all(who, client, asks::of_another_node(&world.games)).await);
        wrong.extend(ask_all(who, client, asks::of_its_own(&world.games)).await);
        wrong.extend(ask_all(who, client, asks::beyond_its_business(&world.games)).await);
    }
    // Whose credentials name no node has none.
    for (who, client) in world.agents_of_no_node(&cluster).await {
        let refused =
            asks::of_its_own(&world.games).into_iter().map(|ask| ask.refused(["must name its node"]));
        wrong.extend(ask_all(who, &client, refused.collect()).await);
    }
    // The policies are about agents: an administrator does all of it.
    let everything = asks::of_another_node(&world.games)
        .into_iter()
        .chain(asks::of_its_own(&world.games))
        .map(Ask::allowed);
    wrong.extend(ask_all("an administrator", &cluster.client(), everything.collect()).await);
    assert_nothing(&wrong);
}

/// Each effect of a drain, with the shipped roles: allowed to the node's own agent, and refused to another's.
pub(crate) async fn an_agent_empties_its_own_node_and_no_other() {
    let (cluster, world) = start().await;
    let agents = world.agents_of_b(&cluster).await;
    let allowed = |(_, ask): (&str, Ask)| ask.allowed();

    let mut wrong = Vec::new();
    for site in [Site::Open, Site::Emptied] {
        if site == Site::Emptied {
            world.have_nodes(drain::emptied()).await;
        }
        for (who, client) in &agents {
            let own = drain::steps(&world.games, 'b', site).into_iter().map(allowed);
            let foreign = drain::steps(&world.games, 'a', site).into_iter().map(asks::refused_to_b);
            wrong.extend(ask_all(who, client, own.chain(foreign).collect()).await);
        }
    }
    world.have_nodes(json!({ "metadata": { "annotations": { "gamelift.status/cordoned-by": null } } })).await;
    for (who, client) in &agents {
        wrong.extend(ask_all(who, client, drain::of_a_foreign_cordon()).await);
    }
    world.let_agents_do_everything().await;
    for (who, client) in &agents {
        wrong.extend(ask_all(who, client, drain::events_of_others(&world.games)).await);
    }
    assert_nothing(&wrong);
}

pub(crate) async fn only_berth_says_where_a_server_runs() {
    let (cluster, world) = start().await;
    let Games { open, .. } = &world.games;
    world.let_do_everything_with_games("studio").await;
    world.bind("allocator/bindings.yaml").await;
    let studio = cluster.client_for("studio", &[]).await.unwrap();
    let brain = cluster.client_for("berth-brain", &[]).await.unwrap();
    let allocator = cluster.client_for("berth-allocator", &[]).await.unwrap();

    let mut wrong = ask_all("a user", &studio, asks::of_a_user(open)).await;
    let allocated = json!({ "status": { "state": "Allocated" }, "metadata": { "labels": { "a": "b" } } });
    let allocation = vec![
        Ask::patch("a state", &world.games.server("on-a"), allocated).allowed(),
        Ask::patch("a node", &world.games.server("on-a"), json!({ "status": { "nodeName": "node-b" } }))
            .refused(["placement.berth.dev", "status.nodeName"]),
    ];
    wrong.extend(ask_all("the allocator", &allocator, allocation).await);
    wrong.extend(ask_all("the brain", &brain, asks::of_the_brain(open)).await);
    assert_nothing(&wrong);
}
