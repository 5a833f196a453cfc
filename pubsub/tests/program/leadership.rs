//! Two publishers in a cluster: one polls, the other takes over. Both have the rights that ship, and no others.

use berth_api::names::SYSTEM_NAMESPACE;
use berth_api::notice::instance_key;
use berth_dev::{ControlPlane, ControlPlaneOptions, eventually, install};
use berth_pubsub::{Events, GroupsFrom, LeaderElection, Settings};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::redis::Subscriber;
use crate::stage::{GROUP, PATIENCE, Stage, manifests};

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// A control plane with Berth's resources and the publisher's rights.
pub(crate) async fn plane() -> &'static ControlPlane {
    PLANE
        .get_or_init(async || {
            let plane = ControlPlane::start(ControlPlaneOptions::default()).await.expect("a control plane");
            let crds = std::fs::read_dir(manifests().join("crds")).expect("the folder of the definitions");
            let crds = crds.map(|file| file.expect("a file").path());
            let rights = ["namespace.yaml", "fleetiq/rbac.yaml"].map(|file| manifests().join(file));
            for file in crds.chain(rights) {
                install::apply(&plane.client(), &file).await.expect("an applied manifest");
            }
            plane
        })
        .await
}

/// Settings of a publisher that uses the cluster with the rights that ship.
pub(crate) async fn in_cluster(stage: &Stage, config_map: &str) -> Settings {
    let kubeconfig = stage.folder.join("kubeconfig");
    let kubeconfig = plane().await.kubeconfig_for("berth-pubsub", &[], &kubeconfig).expect("a kubeconfig");
    let mut settings = stage.settings();
    settings.kube.kubeconfig = Some(kubeconfig);
    settings.events = Events::On;
    settings.groups_config_map = config_map.parse().expect("a name");
    settings
}

pub(crate) async fn write_config_map(text: &str) {
    let maps = Api::<ConfigMap>::namespaced(plane().await.client(), "default");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "fleetiqconfig"},
        "data": {"fleetiq.conf": text},
    });
    let parameters = PatchParams::apply("test").force();
    maps.patch("fleetiqconfig", &parameters, &Patch::Apply(&map)).await.expect("a ConfigMap");
}

/// Waits for an Event of this reason about the list of groups, whose message has these words.
pub(crate) async fn wait_for_event(reason: &str, words: &str) -> Event {
    let events = Api::<Event>::namespaced(plane().await.client(), "default");
    eventually(PATIENCE, format!("an Event {reason} with {words:?}"), async || {
        let listed = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let told: Vec<_> =
            listed.items.iter().map(|event| (event.reason.clone(), event.message.clone())).collect();
        let found = listed.items.into_iter().find(|event| {
            event.reason.as_deref() == Some(reason)
                && event.message.as_ref().is_some_and(|message| message.contains(words))
        });
        found.ok_or_else(|| format!("{told:?}"))
    })
    .await
    .expect("an Event")
}

/// How many Events of this reason have these words.
pub(crate) async fn count_events(reason: &str, words: &str) -> usize {
    let events = Api::<Event>::namespaced(plane().await.client(), "default");
    let listed = events.list(&ListParams::default()).await.expect("Events");
    let told = listed.items.iter().filter(|event| event.reason.as_deref() == Some(reason));
    told.filter(|event| event.message.as_ref().is_some_and(|message| message.contains(words))).count()
}

async fn holder() -> Option<String> {
    let leases = Api::<Lease>::namespaced(plane().await.client(), SYSTEM_NAMESPACE);
    let lease = leases.get_opt("berth-pubsub").await.expect("an answer")?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_polls_and_the_other_takes_over() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    write_config_map(r#"{"GameServerGroups": [ "pvp-eu" ]}"#).await;
    let mut settings = in_cluster(&stage, "default/fleetiqconfig").await;
    settings.groups_from = GroupsFrom::ConfigMap;
    settings.leader_election = LeaderElection::On;
    let mut subscriber = Subscriber::of(&stage, &[&instance]).await;
    let first = stage.start(settings.clone()).await;
    first.wait_for_metric("berth_leader_leading", 1.0).await;
    let second = stage.start(settings).await;
    second.wait_for_metric("berth_pubsub_redis_connected", 1.0).await;
    second.wait_for_metric("berth_pubsub_groups", 1.0).await;
    subscriber.wait_for("ACTIVE").await;
    eventually(PATIENCE, "the standby to be ready", async || {
        let (code, unmet) = second.ask("/readyz").await;
        if code == 200 { Ok(()) } else { Err(unmet) }
    })
    .await
    .unwrap();
    let asked = "berth_pubsub_aws_calls_total{operation=\"DescribeGameServerInstances\",outcome=\"done\"}";
    first.wait_for_metric(asked, first.metric(asked).await + 2.0).await;
    assert_eq!(second.metric(asked).await, 0.0, "one polls");
    assert_eq!(second.metric("berth_pubsub_messages_total{kind=\"change\"}").await, 0.0, "and one speaks");
    let was = holder().await.expect("a holder");

    first.stop().await;
    second.wait_for_metric("berth_leader_leading", 1.0).await;
    assert_ne!(holder().await.expect("a holder"), was);
    stage.set_status(&instance, "DRAINING");
    subscriber.wait_for("DRAINING").await;
    let mut asker = crate::redis::Asker::of(&stage).await;
    asker
        .wait_for(&instance_key(&instance), "DRAINING", |kept| {
            kept.is_some_and(|kept| kept.contains("DRAINING"))
        })
        .await;

    // A list of no use is told once, at the list, and the one before stays.
    write_config_map(r#"{"GameServerGroups": "pvp-eu"}"#).await;
    let event = wait_for_event("GroupsUnreadable", "the last list stays").await;
    assert_eq!(event.involved_object.name.as_deref(), Some("fleetiqconfig"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(second.metric("berth_pubsub_groups").await, 1.0);
    write_config_map(&json!({"GameServerGroups": [GROUP, "nobody"]}).to_string()).await;
    wait_for_event("GroupMissing", "nobody").await;
    second.stop().await;
    assert_eq!(holder().await, None, "given back");
}
