//! Another image for a Fleet of twenty: never fewer servers to allocate than its author allows, and in the end the new
//! ones and nothing else.

use std::collections::BTreeMap;

use anyhow::Context;
use berth_api::game_server::GameServer;
use berth_api::game_server_set::GameServerSet;
use berth_api::lifecycle::State;
use berth_dev::{Image, eventually, program_folder};
use berth_stories::game::{fleet, game_container, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, Stage, story};
use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde_json::json;

const SERVERS: usize = 20;
/// A quarter of them may be missing, and a quarter more may be there meanwhile.
const ALLOWED: std::ops::RangeInclusive<usize> = 15..=25;
const NEXT: &str = "localhost/simple-udp:next";
/// Longer than an update takes, shorter than an API server lets a watch live.
const WATCH: u32 = 290;

#[test]
fn an_update_never_leaves_fewer_servers_than_allowed() {
    story(|world| async {
        let stage = world.stage("update").await?;
        let program = program_folder().join("simple-udp");
        let image = tokio::task::spawn_blocking(move || Image::of_program(&program, NEXT)).await??;
        world.cluster.import(&image).await?;
        let fleets = Api::namespaced_with(world.client(), &stage.namespace, &resource("Fleet", "fleets"));
        let mut container = game_container(&[]);
        let whole = |container: &serde_json::Value| {
            let template = pod(&json!([container]), &json!([]));
            fleet("lobby", i32::try_from(SERVERS).unwrap_or_default(), &spec(&template))
        };
        apply_strictly(&fleets, &whole(&container)).await?;
        settle(&stage, "localhost/simple-udp:dev").await?;

        let listed = stage.game_servers().list(&ListParams::default()).await?;
        let version = listed.metadata.resource_version.clone().context("a version")?;
        let events = stage.game_servers().watch(&WatchParams::default().timeout(WATCH), &version).await?;
        container["image"] = json!(NEXT);
        apply_strictly(&fleets, &whole(&container)).await?;
        every_step_is_allowed(listed.items, events.boxed()).await?;
        settle(&stage, NEXT).await?;
        stage.strike().await
    });
}

/// What players could be given, by name; and what is there at all.
#[derive(Default)]
struct Counted(BTreeMap<String, GameServer>);

impl Counted {
    fn allocatable(&self) -> usize {
        let could = |server: &&GameServer| server.state() == Some(State::Ready) && !server.is_being_deleted();
        self.0.values().filter(could).count()
    }

    fn living(&self) -> usize {
        self.0.values().filter(|server| !server.is_being_deleted()).count()
    }

    fn of_image(&self, image: &str) -> usize {
        let is = |server: &&GameServer| {
            server.spec.template.0.pointer("/spec/containers/0/image") == Some(&json!(image))
                && server.state() == Some(State::Ready)
        };
        self.0.values().filter(is).count()
    }
}

/// Follows every change until only new servers are left. The API server tells them in the order in which they happened.
async fn every_step_is_allowed(
    at_first: Vec<GameServer>,
    mut events: futures::stream::BoxStream<'_, kube::Result<WatchEvent<GameServer>>>,
) -> anyhow::Result<()> {
    let mut counted = Counted(at_first.into_iter().map(|server| (server.name_any(), server)).collect());
    let (mut fewest, mut most) = (counted.allocatable(), counted.living());
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(server) | WatchEvent::Modified(server) => {
                counted.0.insert(server.name_any(), server);
            }
            WatchEvent::Deleted(server) => {
                counted.0.remove(&server.name_any());
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => anyhow::bail!("the watch broke: {error:?}"),
        }
        fewest = fewest.min(counted.allocatable());
        most = most.max(counted.living());
        assert!(ALLOWED.contains(&fewest), "only {fewest} could be allocated");
        assert!(ALLOWED.contains(&most), "{most} servers at a time");
        if counted.0.len() == SERVERS && counted.of_image(NEXT) == SERVERS {
            println!("never fewer than {fewest} to allocate, never more than {most} in all");
            return Ok(());
        }
    }
    anyhow::bail!(
        "the watch ended with {} servers, {} of them new and Ready",
        counted.0.len(),
        counted.of_image(NEXT)
    )
}

/// Twenty Ready servers of one set, each with one pod of this image, and nothing else.
async fn settle(stage: &Stage, image: &str) -> anyhow::Result<()> {
    let sets = Api::<GameServerSet>::namespaced(stage.client(), &stage.namespace);
    eventually(STEP, format!("{SERVERS} Ready servers of {image}"), async || {
        let failed = |error: kube::Error| error.to_string();
        let status = stage.fleets().get("lobby").await.map_err(failed)?.status.unwrap_or_default();
        let pods = stage.pods().list(&ListParams::default()).await.map_err(failed)?.items;
        let of_image = pods.iter().filter(|pod| {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            containers.into_iter().all(|container| container.image.as_deref() == Some(image))
        });
        let seen = [
            sets.list(&ListParams::default()).await.map_err(failed)?.items.len(),
            stage.all_servers().await?.len(),
            pods.len(),
            of_image.count(),
            usize::try_from(status.ready_replicas).unwrap_or_default(),
        ];
        if seen == [1, SERVERS, SERVERS, SERVERS, SERVERS] {
            Ok(())
        } else {
            Err(format!("sets, servers, pods, pods of the image and Ready ones are {seen:?}"))
        }
    })
    .await?;
    Ok(())
}
