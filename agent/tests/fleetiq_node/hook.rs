//! An instance that Auto Scaling ends, whose lifecycle hook the program answers, and a death at each of its calls.

use std::time::Duration;

use berth_agent::effects::Effect;
use berth_dev::ControlPlane;
use berth_runtime::kill_point::{KillPoint, Side};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::stage::LIMIT;
use super::{PHASE, SIDE_BY_SIDE, Scene, prepare, says};

const HOOK: &str = "drain";
/// How long one heartbeat lasts, and all of them together.
const LASTS: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(3000);

/// A session, as far as the drain goes: a pod of a game server that ends when the test says so.
struct Session {
    pods: Api<Pod>,
    name: String,
}

impl Session {
    async fn begin(scene: &Scene) -> Self {
        let accounts: Api<ServiceAccount> = Api::namespaced(scene.client.clone(), "default");
        let account = json!({ "metadata": { "name": "default" } });
        let account = serde_json::from_value(account).expect("an account");
        // All scenes need the one, and the first of them makes it.
        let made = accounts.create(&PostParams::default(), &account).await;
        assert!(made.is_ok() || accounts.get("default").await.is_ok(), "{made:?}");
        let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "default");
        let name = format!("session-on-{}", scene.node);
        let pod = json!({
            "metadata": {
                "name": name,
                "finalizers": ["berth.dev/test"],
                "labels": { "agones.dev/role": "gameserver" },
                "ownerReferences": [{
                    "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": name, "uid": name, "controller": true
                }]
            },
            "spec": {
                "nodeName": scene.node,
                "restartPolicy": "Never",
                "tolerations": [{ "operator": "Exists" }],
                "containers": [{ "name": "main", "image": "game:1" }]
            }
        });
        let pod = serde_json::from_value(pod).expect("a pod");
        pods.create(&PostParams::default(), &pod).await.expect("a pod");
        Self { pods, name }
    }

    async fn end(self) {
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete(&self.name, &now).await.expect("deleted");
        let bare = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        self.pods.patch(&self.name, &PatchParams::default(), &bare).await.expect("gone");
    }
}

fn deadline(node: &Node) -> Option<Timestamp> {
    node.annotations().get("gamelift.status/deadline")?.parse().ok()
}

/// The end of an instance with a session on, and a death at one of its calls.
async fn end(control_plane: &ControlPlane, point: KillPoint) {
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut scene = Scene::set(control_plane, closed.port(), Some(point.clone())).await;
    scene.hook = Some(HOOK);
    scene.stage.hook(HOOK, LASTS);
    let session = Session::begin(&scene).await;
    scene.start();
    scene.until_kept().await;
    let since = Timestamp::now();
    scene.stage.order(json!({ "order": "lifecycle", "instance": scene.stage.instance }));
    scene
        .until("held", async |scene| {
            let (node, [beats]) =
                (scene.node().await?, scene.stage.attempts(["RecordLifecycleActionHeartbeat"]));
            let is_held = beats > 0 && says(&node, PHASE, "Terminating") && deadline(&node).is_some();
            if is_held { Ok(()) } else { Err(format!("{beats} {:?}", node.metadata.annotations)) }
        })
        .await;
    let said = deadline(&scene.node().await.expect("a node")).expect("a deadline");
    let after = Duration::try_from(said.duration_since(since)).expect("later");
    assert!((LONGEST..LONGEST + LIMIT).contains(&after), "{point}: {after:?}");
    assert!(scene.stage.scaling_stage()["waiting"].is_object(), "{}", scene.stage.scaling_stage());
    session.end().await;
    scene
        .until("on its way out", async |scene| {
            let node = scene.node().await?;
            let is_ending = scene.stage.scaling_stage()["ending"].is_object();
            if scene.deaths == 1 && is_ending && says(&node, PHASE, "Deregistered") {
                return Ok(());
            }
            Err(format!("{} {} {:?}", scene.deaths, scene.stage.scaling_stage(), node.metadata.annotations))
        })
        .await;
    let node = scene.node().await.expect("a node");
    assert_eq!(deadline(&node), Some(said), "{point}: what was said stands");
    scene.count_calls([("DescribeAutoScalingInstances", 1), ("CompleteLifecycleAction", 1)]);
    // The hook is looked at while the instance stays, and once more when it ends.
    let [described, beats] =
        scene.stage.attempts(["DescribeLifecycleHooks", "RecordLifecycleActionHeartbeat"]);
    assert!((1..=3).contains(&described), "{point}: {described}");
    let due = scene.began.elapsed().as_secs() / (LASTS.as_secs() / 3);
    assert!(beats <= usize::try_from(due).expect("few") + 2, "{point}: {beats} in {due} times ten seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_call_of_its_hook_the_agent_dies_at_its_successor_goes_on_with_at_most_one_call_more() {
    let control_plane = ControlPlane::shared().await.expect("an API server");
    prepare(control_plane).await;
    let points =
        Effect::OF_HOOK.iter().flat_map(|effect| Side::ALL.map(|side| KillPoint::new(*effect, side)));
    futures::stream::iter(points).for_each_concurrent(SIDE_BY_SIDE, |point| end(control_plane, point)).await;
}
