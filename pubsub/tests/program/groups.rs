//! The list of groups: a mounted file that is swapped, and a list that cannot be used.

use std::os::unix::fs::symlink;
use std::path::Path;

use berth_api::notice::{group_key, instance_key};

use crate::redis::Asker;
use crate::stage::{GROUP, Stage, manifests};

/// Swaps what a mount shows, as kubelet does: a link to a folder is replaced by another in one step.
fn swap(mount: &Path, version: u32, text: &str) {
    let folder = mount.join(format!("..{version}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("fleetiq.conf"), text).expect("a list");
    symlink(&folder, mount.join("..next")).expect("a link");
    std::fs::rename(mount.join("..next"), mount.join("..data")).expect("a swap");
    if version > 0 {
        std::fs::remove_dir_all(mount.join(format!("..{}", version - 1))).expect("the folder before");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_swapped_is_followed_and_one_of_no_use_is_not() {
    let stage = Stage::new(1).await;
    let first = stage.instances()[0].clone();
    let second = stage.group("pve-eu", 1).into_iter().next().unwrap();
    let mount = stage.folder.join("mount");
    std::fs::create_dir_all(&mount).unwrap();
    swap(&mount, 0, r#"{"GameServerGroups": [ "pvp-eu" ]}"#);
    symlink("..data/fleetiq.conf", mount.join("fleetiq.conf")).unwrap();
    let mut settings = stage.settings();
    settings.groups_file = mount.join("fleetiq.conf");
    let running = stage.start(settings).await;
    let mut asker = Asker::of(&stage).await;
    asker.wait_for(&instance_key(&first), "a status", |kept| kept.is_some()).await;
    assert_eq!(asker.get(&instance_key(&second)).await, None);

    swap(&mount, 1, r#"{"GameServerGroups": [ "pvp-eu", "pve-eu", "pve-eu" ]}"#);
    asker.wait_for(&instance_key(&second), "a status", |kept| kept.is_some()).await;
    assert_eq!(running.metric("berth_pubsub_groups").await, 2.0);

    for (version, text) in [(2, ""), (3, "{}"), (4, r#"{"GameServerGroups": []}"#), (5, "pvp-eu")] {
        let failures = running.metric("berth_pubsub_group_failures_total").await;
        swap(&mount, version, text);
        running.wait_for_metric("berth_pubsub_group_failures_total", failures + 2.0).await;
        assert_eq!(running.metric("berth_pubsub_groups").await, 2.0, "{text}");
        for instance in [&first, &second] {
            assert!(asker.get(&instance_key(instance)).await.is_some(), "{text}");
        }
        assert_eq!(running.ask("/readyz").await.0, 200, "{text}");
    }

    swap(&mount, 6, r#"{"GameServerGroups": [ "pve-eu" ]}"#);
    asker.wait_for(&instance_key(&first), "nothing", |kept| kept.is_none()).await;
    asker.wait_for(&group_key(GROUP), "nothing", |kept| kept.is_none()).await;
    assert!(asker.get(&instance_key(&second)).await.is_some());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn started_before_the_list_is_there_it_is_not_ready_and_stays() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    let mut settings = stage.settings();
    std::fs::remove_file(stage.folder.join("fleetiq.conf")).unwrap();
    settings.groups_file = stage.folder.join("fleetiq.conf");
    let running = stage.start(settings).await;
    running.wait_for_metric("berth_pubsub_group_failures_total", 2.0).await;
    running.wait_for_metric("berth_pubsub_redis_connected", 1.0).await;
    let (code, unmet) = running.ask("/readyz").await;
    assert_eq!((code, unmet.as_str()), (503, "not ready: groups, polls\n"));
    stage.write_groups(&[GROUP]);
    let mut asker = Asker::of(&stage).await;
    asker.wait_for(&instance_key(&instance), "a status", |kept| kept.is_some()).await;
    berth_dev::eventually(crate::stage::PATIENCE, "readiness", async || {
        let (code, unmet) = running.ask("/readyz").await;
        if code == 200 { Ok(()) } else { Err(unmet) }
    })
    .await
    .unwrap();
    running.stop().await;
}

/// Defect 30: the ConfigMap had one name where it was made and another where it was read.
#[test]
fn defect_30_the_list_has_one_name_everywhere() {
    use clap::Parser as _;
    let name = berth_pubsub::Settings::parse_from(["berth-pubsub"]).groups_config_map;
    assert_eq!(name.to_string(), "default/fleetiqconfig");
    let text = |path: &str| std::fs::read_to_string(manifests().join(path)).unwrap();
    let settings = text("fleetiq/kustomization.yaml");
    assert!(settings.contains(&format!("- BERTH_GROUPS_CONFIG_MAP={name}\n")), "{settings}");
    let rights = text("fleetiq/rbac.yaml");
    assert!(rights.contains(&format!("resourceNames: [{}]\n", name.name)), "{rights}");
    assert!(!rights.contains("fleetiqconfig.") && !settings.contains("fleetiqconfig."));
    let page = text("../docs/fleetiq.md");
    assert!(
        page.contains(&format!("--namespace {} create configmap {} ", name.namespace, name.name)),
        "{page}"
    );
    assert!(page.contains("fleetiq.conf="), "its key");
}
