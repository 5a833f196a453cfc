//! Berth installed from its manifests, as a user does it: what its pods could do if somebody took them over, seen from
//! `/proc`; that it is enough for game servers; and that its endpoints say what `docs/metrics.md` says.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::install::enable_namespace;
use berth_dev::{Cluster, eventually, source_folder};
use berth_stories::admin::{documented, families, fetch};
use berth_stories::confinement::{Program, SETS, read};
use berth_stories::game::{address_of, ask, game_container, game_server, pod, spec};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::world::{STEP, delete_all, shipped_story};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

/// `CAP_NET_BIND_SERVICE`, `CAP_SYS_PTRACE` and `CAP_SYS_ADMIN`: to try low ports, and to enter a pod's network.
const AGENT_CAPABILITIES: u64 = 1 << 10 | 1 << 19 | 1 << 21;
/// Port of every admin endpoint, by the manifests.
const ADMIN_PORT: u16 = 9480;

#[test]
fn the_shipped_pods_have_the_least_privileges_and_do_their_work() {
    shipped_story(|cluster| async move {
        let node = cluster.node(0);
        sdk_has_nothing(&read(node, "/berth-sdk").await?);
        agent_has_what_it_needs(&read(node, "/berth-agent").await?);
        brain_has_a_token_and_nothing_else(&read(node, "/berth-brain").await?);
        games_run_where_they_are_let_in(cluster).await?;
        the_endpoints_say_what_is_documented(cluster).await
    });
}

fn sdk_has_nothing(sdk: &Program) {
    assert_eq!(sdk.capabilities(), BTreeMap::from(SETS.map(|set| (set, 0))), "capabilities of berth-sdk");
    assert_eq!((sdk.status("Uid"), sdk.status("NoNewPrivs"), sdk.status("Seccomp")), (65532, 1, 2));
    assert_eq!(sdk.shared_with_node(), BTreeSet::new(), "namespaces that berth-sdk shares with the node");
    let mounts = BTreeMap::from([("/run/berth/link", "ro"), ("/var/lib/berth/sdk", "rw"), ("/", "ro")]);
    assert_eq!(sdk.own_mounts(), mounts, "a token would be mounted");
    assert!(!sdk.sees_secrets, "/var/run/secrets is there");
}

fn agent_has_what_it_needs(agent: &Program) {
    let held = |set: &str| if ["CapInh", "CapAmb"].contains(&set) { 0 } else { AGENT_CAPABILITIES };
    let wanted = BTreeMap::from(SETS.map(|set| (set, held(set))));
    assert_eq!(agent.capabilities(), wanted, "capabilities of berth-agent");
    assert_eq!((agent.status("NoNewPrivs"), agent.status("Seccomp")), (1, 2));
    // The host's name comes with its network.
    let shared = BTreeSet::from(["net", "pid", "uts"]);
    assert_eq!(agent.shared_with_node(), shared, "namespaces that berth-agent shares with the node");
    let mounts = BTreeMap::from([
        ("/", "ro"),
        ("/run/berth", "rw"),
        ("/var/lib/berth", "rw"),
        ("/var/run/secrets/kubernetes.io/serviceaccount", "ro"),
        // Only here, where several nodes share one kernel.
        ("/boot_id", "ro"),
    ]);
    assert_eq!(agent.own_mounts(), mounts);
}

fn brain_has_a_token_and_nothing_else(brain: &Program) {
    assert_eq!(brain.capabilities(), BTreeMap::from(SETS.map(|set| (set, 0))), "capabilities of berth-brain");
    assert_eq!((brain.status("Uid"), brain.status("NoNewPrivs"), brain.status("Seccomp")), (65532, 1, 2));
    assert_eq!(brain.shared_with_node(), BTreeSet::new());
    let mounts = BTreeMap::from([("/", "ro"), ("/var/run/secrets/kubernetes.io/serviceaccount", "ro")]);
    assert_eq!(brain.own_mounts(), mounts);
}

/// A Dynamic port, and a Static one that only a capability lets anybody try.
async fn games_run_where_they_are_let_in(cluster: &Cluster) -> anyhow::Result<()> {
    let client = cluster.client();
    let agent = "system:serviceaccount:berth-system:berth-agent";
    assert!(!may(&client, agent, "create", ("", "pods"), "default").await?, "not let in yet");
    enable_namespace(&client, "default").await?;
    // The API server takes a new binding into service in its own time.
    eventually(STEP, format!("{agent} to be let in"), async || {
        match may(&client, agent, "create", ("", "pods"), "default").await {
            Ok(true) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    for (verb, kind, namespace) in [
        ("create", ("", "pods"), "kube-system"),
        ("create", ("", "pods"), "berth-system"),
        ("get", ("", "secrets"), "default"),
        ("update", ("agones.dev", "fleets"), "default"),
        ("update", ("", "nodes"), ""),
        ("delete", ("", "nodes"), ""),
    ] {
        assert!(!may(&client, agent, verb, kind, namespace).await?, "{agent} may {verb} {kind:?}");
    }

    let api = Api::default_namespaced_with(client.clone(), &resource("GameServer", "gameservers"));
    let mut low = spec(&pod(&json!([game_container(&[])]), &json!([])));
    apply_strictly(&api, &game_server("dynamic", &low)).await?;
    low["ports"][0]["portPolicy"] = json!("Static");
    low["ports"][0]["hostPort"] = json!(443);
    apply_strictly(&api, &game_server("low", &low)).await?;
    let servers = Api::<GameServer>::default_namespaced(client);
    for name in ["dynamic", "low"] {
        let ready = eventually(STEP, format!("{name} to be Ready"), async || {
            let server = servers.get(name).await.map_err(|error| error.to_string())?;
            if server.state() == Some(State::Ready) {
                Ok(server)
            } else {
                Err(format!("{:?}", server.status))
            }
        })
        .await?;
        let answer = ask(address_of(&ready).context("an address")?, "ahoy").await?;
        assert!(answer.contains("ahoy"), "{answer}");
    }
    delete_all(&servers, &DeleteParams::default()).await?;
    eventually(STEP, "the games to be gone", async || {
        let left = servers.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        if left.is_empty() { Ok(()) } else { Err(format!("{} are left", left.len())) }
    })
    .await?;
    Ok(())
}

async fn may(
    client: &kube::Client,
    user: &str,
    verb: &str,
    (group, plural): (&str, &str),
    namespace: &str,
) -> anyhow::Result<bool> {
    let review: SubjectAccessReview = serde_json::from_value(json!({
        "spec": {
            "user": user,
            "resourceAttributes": { "verb": verb, "group": group, "resource": plural, "namespace": namespace },
        },
    }))?;
    let answer =
        Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Every metric of the three programs is in the document, and every one in the document is some program's.
async fn the_endpoints_say_what_is_documented(cluster: &Cluster) -> anyhow::Result<()> {
    let pods = Api::<Pod>::namespaced(cluster.client(), "berth-system");
    let text = std::fs::read_to_string(source_folder().join("docs/metrics.md"))?;
    let mut registered = BTreeSet::new();
    for program in ["berth-agent", "berth-brain", "berth-sdk"] {
        let ours = ListParams::default().labels(&format!("app.kubernetes.io/name={program}"));
        let found = pods.list(&ours).await?.items;
        let address = found.into_iter().find_map(|pod| pod.status?.pod_ip).context("a pod's address")?;
        let address = format!("{address}:{ADMIN_PORT}");
        assert!(fetch(&address, "/livez").await?.contains("200 OK"), "{program} lives");
        assert!(fetch(&address, "/readyz").await?.contains("200 OK"), "{program} is ready");
        for path in ["/", "/v1/status", "/debug/pprof"] {
            assert!(fetch(&address, path).await?.contains("404 Not Found"), "{program} shows {path}");
        }
        registered.extend(families(&fetch(&address, "/metrics").await?));
    }
    // The allocator is not among these pods: its own tests hold its section.
    let (text, _) = text.split_once("## berth-allocator").context("the allocator's section")?;
    let documented = documented(text);
    let missing: Vec<_> = registered.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&registered).collect();
    assert!(missing.is_empty(), "not in docs/metrics.md: {missing:?}");
    assert!(stale.is_empty(), "in docs/metrics.md, and of no program: {stale:?}");
    assert!(registered.len() > 40, "{registered:?}");
    Ok(())
}
