//! Each limit that can bite yields its Event, by name, on a real API server.

use berth_api::game_node::GameNode;
use berth_api::game_server::GameServer;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::leadership::{count_events, in_cluster, plane, wait_for_event};
use crate::stage::{Running, Stage};

/// A publisher that tells of these groups by Events.
async fn watching(
    stage: &Stage,
    groups: &[&str],
    change: impl FnOnce(&mut berth_pubsub::Settings),
) -> Running {
    let mut settings = in_cluster(stage, "default/fleetiqconfig").await;
    settings.groups_file = stage.write_groups(groups);
    // The list is read from a file, which is this test's alone.
    change(&mut settings);
    stage.start(settings).await
}

fn limit(name: &str) -> String {
    format!("berth_pubsub_limits{{limit=\"{name}\"}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_and_quotas_of_a_group_are_named() {
    let stage = Stage::empty(Default::default()).await;
    for (group, change, instances) in [
        ("size-full", json!({"maximum": 2}), 2),
        (
            "size-weighted",
            json!({"maximum": 5, "types": [{"type": "c6i.xlarge", "weight": 2}, {"type": "c6i.2xlarge", "weight": 4}]}),
            2,
        ),
        ("size-roomy", json!({"maximum": 50}), 3),
    ] {
        stage.change(group, json!({"protection": "FULL_PROTECTION"}));
        stage.change(group, change);
        let wanted = json!({"order": "launch", "group": group, "wanted": {"count": instances}});
        stage.simulator.order(wanted).unwrap();
    }
    let groups = ["size-full", "size-weighted", "size-roomy"];
    let running = watching(&stage, &groups, |settings| settings.servers_per_group = 3).await;
    wait_for_event(
        "GroupMaximum",
        "game server group size-full: it has 2 of at most 2 instances; raise MaxSize",
    )
    .await;
    let weighted = "size-weighted: its 2 instances are 4 of at most 5 weight units, and the lightest needs 2";
    wait_for_event("WeightedMaximum", weighted).await;
    wait_for_event("ServersPerGroup", "size-roomy: it has 3 instances, and 3 game servers are allowed").await;
    for name in ["GroupMaximum", "WeightedMaximum", "ServersPerGroup"] {
        running.wait_for_metric(&limit(name), 1.0).await;
    }
    // Once it does not bite any more, the metric says so.
    stage.change("size-full", json!({"maximum": 10}));
    berth_dev::eventually(crate::stage::PATIENCE, "the limit to be gone", async || {
        let count = running.metric(&limit("GroupMaximum")).await;
        if count == 0.0 { Ok(()) } else { Err(format!("{count}")) }
    })
    .await
    .unwrap();
    running.stop().await;
}

/// Case 32: nodes went although their pods were not to be evicted; it was Auto Scaling that balanced zones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_32_zone_rebalancing_and_a_group_without_protection_are_named() {
    let stage = Stage::empty(Default::default()).await;
    stage.change(
        "care-free",
        json!({"protection": "NO_PROTECTION", "maximum": 9, "utilization_target": 80.0}),
    );
    stage.change("care-ill", json!({"protection": "FULL_PROTECTION", "maximum": 9, "status": "ERROR"}));
    stage.simulator.fault("zones", scaling_groups("care-free", "")).unwrap();
    let groups = ["care-free", "care-ill"];
    // An agent that never lets an idle instance go.
    let nodes = Api::<GameNode>::all(plane().await.client());
    let node: GameNode = serde_json::from_value(json!({"metadata": {"name": "keeps"}, "spec": {}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({"status": {"phase": "Starting", "group": "care-free", "releasesIdle": false}});
    nodes.patch_status("keeps", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let running = watching(&stage, &groups, |_| {}).await;
    wait_for_event("NoProtection", "care-free: its policy is NO_PROTECTION").await;
    wait_for_event(
        "UtilizationPolicy",
        "gamelift-gameservergroup-care-free follows PercentUtilizedGameServers",
    )
    .await;
    let status = json!({"status": {"releasesIdle": true}});
    nodes.patch_status("keeps", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    berth_dev::eventually(crate::stage::PATIENCE, "the policy to be of use", async || {
        let count = running.metric(&limit("UtilizationPolicy")).await;
        if count == 0.0 { Ok(()) } else { Err(format!("{count}")) }
    })
    .await
    .unwrap();
    wait_for_event("GroupNotActive", "care-ill: it is ERROR").await;
    running.wait_for_metric(&limit("NoProtection"), 1.0).await;
    wait_for_event("ZoneRebalancing", "gamelift-gameservergroup-care-free balances its 3 zones").await;
    running.wait_for_metric(&limit("ZoneRebalancing"), 1.0).await;
    let suspended = "<member><ProcessName>AZRebalance</ProcessName></member>";
    stage.simulator.fault("zones", scaling_groups("care-free", suspended)).unwrap();
    berth_dev::eventually(crate::stage::PATIENCE, "suspended processes to count", async || {
        let count = running.metric(&limit("ZoneRebalancing")).await;
        if count == 0.0 { Ok(()) } else { Err(format!("{count}")) }
    })
    .await
    .unwrap();
    running.stop().await;
}

/// One Auto Scaling group of three zones, as AWS writes it.
fn scaling_groups(group: &str, suspended: &str) -> Value {
    let zones: String =
        ["a", "b", "c"].iter().map(|zone| format!("<member>eu-central-1{zone}</member>")).collect();
    answer(
        "DescribeAutoScalingGroups",
        &format!(
            "<AutoScalingGroups><member>\
             <AutoScalingGroupName>gamelift-gameservergroup-{group}</AutoScalingGroupName>\
             <MinSize>0</MinSize><MaxSize>9</MaxSize><DesiredCapacity>0</DesiredCapacity>\
             <AvailabilityZones>{zones}</AvailabilityZones><SuspendedProcesses>{suspended}</SuspendedProcesses>\
             </member></AutoScalingGroups>"
        ),
    )
}

/// An answer of Auto Scaling, in place of the simulator's own.
fn answer(operation: &str, result: &str) -> Value {
    let body = format!(
        "<{operation}Response xmlns=\"http://autoscaling.amazonaws.com/doc/2011-01-01/\">\
         <{operation}Result>{result}</{operation}Result></{operation}Response>"
    );
    json!({
        "operations": [operation],
        "effects": [{"effect": "raw", "status": 200, "content_type": "text/xml", "body": body}],
    })
}

fn activity(number: u32, message: &str) -> String {
    format!(
        "<member><ActivityId>{number}</ActivityId><AutoScalingGroupName>x</AutoScalingGroupName>\
         <Cause>c</Cause><Description>Launching a new EC2 instance.  Status Reason: x</Description>\
         <StartTime>2026-09-21T10:00:00Z</StartTime><StatusCode>Failed</StatusCode>\
         <StatusMessage>{message}</StatusMessage></member>"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_scaling_activities_report_is_named() {
    let stage = Stage::empty(Default::default()).await;
    stage.change("launch-fails", json!({"protection": "FULL_PROTECTION", "maximum": 9}));
    let activities: String = [
        "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket that \
         the specified instance type belongs to. Launching EC2 instance failed.",
        "There are not enough free addresses in subnet 'subnet-0a1b' to satisfy the requested number of instances. \
         Launching EC2 instance failed.",
        "We currently do not have sufficient c6i.large capacity in the Availability Zone you requested. Launching EC2 \
         instance failed.",
        "The image id '[ami-0]' does not exist. Launching EC2 instance failed.",
    ]
    .iter()
    .zip(0..)
    .map(|(message, number)| activity(number, message))
    .collect();
    let told = answer("DescribeScalingActivities", &format!("<Activities>{activities}</Activities>"));
    stage.fault(told);
    let running = watching(&stage, &["launch-fails"], |_| {}).await;
    for (reason, words) in [
        ("VcpuQuota", "current vCPU limit of 32"),
        ("SubnetAddresses", "subnet-0a1b"),
        ("InstanceCapacity", "sufficient c6i.large capacity"),
        ("LaunchFailed", "ami-0"),
    ] {
        let event = wait_for_event(reason, words).await;
        let message = event.message.unwrap_or_default();
        assert!(message.starts_with("game server group launch-fails: "), "{message}");
        running.wait_for_metric(&limit(reason), 1.0).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_cluster_are_named() {
    let stage = Stage::empty(Default::default()).await;
    stage.change("cluster-full", json!({"protection": "FULL_PROTECTION", "maximum": 99}));
    let client = plane().await.client();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let status = "autoscalerStatus: Running\nnodeGroups:\n- name: gamelift-gameservergroup-cluster-full\n  health:\n    \
                  cloudProviderTarget: 7\n    minSize: 1\n    maxSize: 7\n";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-autoscaler-status"},
        "data": {"status": status},
    });
    let parameters = PatchParams::apply("test").force();
    maps.patch("cluster-autoscaler-status", &parameters, &Patch::Apply(&map)).await.unwrap();
    let namespace = plane().await.namespace("waiting").await.unwrap();
    let servers = Api::<GameServer>::namespaced(client.clone(), &namespace);
    let waiting: GameServer = serde_json::from_value(json!({
        "metadata": {"name": "waits"},
        "spec": {"template": {"spec": {"containers": [{"name": "game", "image": "game"}]}}},
        "status": {
            "state": "Creating",
            "conditions": [{
                "type": "Placed", "status": "False", "reason": "NoRoom", "message": "no node fits",
                "lastTransitionTime": "2026-09-21T10:00:00Z",
            }],
        },
    }))
    .unwrap();
    servers.create(&PostParams::default(), &waiting).await.unwrap();
    let nodes = Api::<GameNode>::all(client.clone());
    let node: GameNode = serde_json::from_value(json!({"metadata": {"name": "full"}, "spec": {}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({"status": {
        "phase": "Active", "nodeUid": "u", "bootId": "b", "epoch": 1, "agentVersion": "1",
        "free": {"milliCpu": 9000, "memoryBytes": 1, "pods": 0},
        "ports": {"default": {"total": 1000, "free": 12}, "voice": {"total": 2, "free": 0}},
    }});
    nodes.patch_status("full", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let running = watching(&stage, &["cluster-full"], |_| {}).await;
    let autoscaler = "cluster-autoscaler wants 7 nodes in gamelift-gameservergroup-cluster-full and may want no more than 7";
    wait_for_event("ClusterAutoscalerMaximum", autoscaler).await;
    wait_for_event("HostPorts", "1 game servers wait, and no game node has a free host port in range voice")
        .await;
    wait_for_event("PodsPerNode", "each of the 1 game nodes has as many pods as its kubelet takes").await;
    for name in ["ClusterAutoscalerMaximum", "HostPorts", "PodsPerNode"] {
        running.wait_for_metric(&limit(name), 1.0).await;
    }
    nodes.delete("full", &DeleteParams::default()).await.unwrap();
    running.stop().await;
}

/// What is not allowed hides its limits alone, and is told once for each call; without the list of instances nobody is
/// told anything, and that is told too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_is_named_and_hides_its_own_limits_alone() {
    let stage = Stage::empty(Default::default()).await;
    stage.change("hidden", json!({"protection": "NO_PROTECTION", "maximum": 9}));
    stage.fault(json!({
        "operations": ["DescribeAutoScalingGroups"],
        "effects": [{"effect": "error", "name": "AccessDenied", "status": 403, "message": "no"}],
    }));
    let running = watching(&stage, &["hidden"], |_| {}).await;
    wait_for_event("NotAllowed", "DescribeAutoScalingGroups: AccessDenied").await;
    wait_for_event("NoProtection", "hidden").await;
    stage
        .simulator
        .fault(
            "instances",
            json!({
                "operations": ["DescribeGameServerInstances"], "effects": [{"effect": "unauthorized"}],
            }),
        )
        .unwrap();
    let blind = "without it no node of game server group hidden is told anything";
    let event = wait_for_event("NotAllowed", blind).await;
    let message = event.message.unwrap_or_default();
    assert!(message.starts_with("DescribeGameServerInstances: AccessDeniedException"), "{message}");
    let denied = "berth_pubsub_aws_calls_total{operation=\"DescribeGameServerInstances\",outcome=\"denied\"}";
    running.wait_for_metric(denied, 3.0).await;
    assert_eq!(count_events("NotAllowed", blind).await, 1, "once, however often it is refused");
    running.stop().await;
}
