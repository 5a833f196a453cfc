//! The official clients from their registries, unmodified, each in the network namespace of a real pod, from the first
//! call to Shutdown: Node.js over gRPC, Python over REST, and `curl`.

use anyhow::Context;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::{eventually, python, source_folder};
use berth_stories::game::{game_server, pod};
use berth_stories::resources::{apply_strictly, resource};
use berth_stories::sdk_client::{Language, SdkClient};
use berth_stories::world::{IDLE, STEP, Stage, story};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

/// A pod that does nothing, for a client to stand in for its game.
async fn idle(stage: &Stage, name: &str) -> anyhow::Result<Pod> {
    let idle = json!([{
        "name": "game",
        "image": IDLE,
        "imagePullPolicy": "Never",
        "args": ["sleep", "86400"],
    }]);
    let spec = json!({
        "health": { "initialDelaySeconds": 120, "periodSeconds": 2, "failureThreshold": 5 },
        "counters": { "rooms": { "count": 1, "capacity": 10 } },
        "lists": { "maps": { "capacity": 10, "values": ["one", "two"] } },
        "template": pod(&idle, &json!([])),
    });
    let client = stage.client();
    let api = Api::namespaced_with(client, &stage.namespace, &resource("GameServer", "gameservers"));
    apply_strictly(&api, &game_server(name, &spec)).await?;
    stage.until_state(name, State::Scheduled).await?;
    stage.until_running(name).await
}

/// Runs a program in a pod's network namespace to its end, and gives back what it printed.
async fn inside(stage: &Stage, pod: &Pod, program: &[&str]) -> anyhow::Result<String> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("a pod on a node")?;
    let nodes = stage.cluster.nodes();
    let node = nodes.iter().find(|one| one.name() == node).context("one of our nodes")?;
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("an address")?;
    // Namespaces that CNI made are files here; the one with the pod's address is the pod's.
    let enter = format!(
        "for one in /run/netns/* /var/run/netns/*; do nsenter --net=$one ip -o addr | grep -qF ' {address}/' \
         && exec nsenter --net=$one \"$@\"; done; exit 1"
    );
    let arguments: Vec<&str> = ["-c", &enter, "sh"].into_iter().chain(program.iter().copied()).collect();
    Ok(node.execute("sh", &arguments).await?)
}

/// The Events of a server, until these are among them.
async fn until_told(stage: &Stage, name: &str, reasons: &[&str]) -> anyhow::Result<()> {
    let events: Api<Event> = Api::namespaced(stage.client(), &stage.namespace);
    let selected = ListParams::default().fields(&format!("involvedObject.name={name}"));
    eventually(STEP, format!("Events of {name}: {reasons:?}"), async || {
        let list = events.list(&selected).await.map_err(|error| error.to_string())?;
        let seen: Vec<String> = list.items.into_iter().filter_map(|event| event.reason).collect();
        let has_all = reasons.iter().all(|reason| seen.iter().any(|seen| seen == reason));
        if has_all { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await?;
    Ok(())
}

fn sdk_metadata(server: &GameServer) -> (Option<String>, Option<String>) {
    let label = server.metadata.labels.as_ref().and_then(|labels| labels.get("agones.dev/sdk-life").cloned());
    (label, server.annotation("agones.dev/sdk-life").map(str::to_owned))
}

/// A life ends in Shutdown, and the server goes. What it was is kept while it lasts.
async fn until_over(stage: &Stage, name: &str) -> anyhow::Result<()> {
    until_told(stage, name, &["Scheduled", "Ready", "Reserved", "Allocated", "Shutdown"]).await?;
    stage.until_gone(name).await
}

#[test]
fn node_js_over_grpc() {
    story(|world| async {
        let stage = world.stage("life-node").await?;
        let pod = idle(&stage, "lobby").await?;
        // Installs the packages, and shows that a client that is there before is no trouble.
        let other = SdkClient::start(&stage, &pod, Language::NodeJs).await?;
        let watched = stage.game_servers();
        let script = source_folder().join("tests/clients/node/life.js").display().to_string();
        let told = inside(&stage, &pod, &["node", &script]).await?;
        let seen: Value = serde_json::from_str(&told).with_context(|| told.clone())?;
        assert_eq!(seen["name"], json!("lobby"));
        assert_eq!((&seen["healthErrors"], &seen["watchErrors"]), (&json!([]), &json!([])), "{seen}");
        let states = seen["states"].as_array().context("states")?;
        let tail = &states[states.len().saturating_sub(4)..];
        assert_eq!(tail, [json!("Ready"), json!("Reserved"), json!("Ready"), json!("Allocated")], "{seen}");
        assert_eq!((&seen["rooms"], &seen["tooMany"]), (&json!([4, 12]), &json!(2)), "{seen}");
        assert_eq!((&seen["maps"], &seen["twice"]), (&json!(["two", "harbour"]), &json!(2)), "{seen}");
        // This client's setListCapacity sends an empty mask, which names nothing.
        assert_eq!(seen["mapsCapacity"], json!(10));
        assert_eq!((&seen["connected"], &seen["players"]), (&json!([true, false]), &json!(["u1"])), "{seen}");
        if let Some(server) = watched.get_opt("lobby").await? {
            let life = (Some("node".to_owned()), Some("of a game on Node.js".to_owned()));
            assert_eq!(sdk_metadata(&server), life);
        }
        until_told(&stage, "lobby", &["UpdateCounter", "UpdateList", "PlayerCount", "PlayerCapacity"])
            .await?;
        until_over(&stage, "lobby").await?;
        other.end().await?;
        stage.strike().await
    });
}

#[test]
fn python_over_rest() {
    story(|world| async {
        let stage = world.stage("life-python").await?;
        let pod = idle(&stage, "lobby").await?;
        let folder = source_folder().join("tests/clients/python");
        let requirements = folder.join("requirements.txt");
        let packages = tokio::task::spawn_blocking(move || python::packages(&requirements)).await??;
        let path = format!("PYTHONPATH={}", packages.display());
        let script = folder.join("life.py").display().to_string();
        let told = inside(&stage, &pod, &["env", &path, "python3", &script]).await?;
        let seen: Value = serde_json::from_str(&told).with_context(|| told.clone())?;
        let states = json!(["Ready", "Reserved", "Ready", "Allocated"]);
        assert_eq!((&seen["name"], &seen["states"]), (&json!("lobby"), &states));
        assert_eq!(seen["watched"], json!("Allocated"));
        until_over(&stage, "lobby").await?;
        stage.strike().await
    });
}

#[test]
fn curl_over_rest() {
    story(|world| async {
        let stage = world.stage("life-curl").await?;
        let pod = idle(&stage, "lobby").await?;
        let call = async |method: &str, path: &str, body: &str| -> anyhow::Result<Value> {
            let address = format!("http://localhost:9358{path}");
            let program =
                ["curl", "-sS", "-X", method, "-d", body, "-w", "\n%{http_code}", "-m", "20", &address];
            let told = inside(&stage, &pod, &program).await?;
            let (body, status) = told.rsplit_once('\n').context("a status")?;
            assert_eq!(status, "200", "{method} {path}: {body}");
            Ok(serde_json::from_str(body)?)
        };
        call("POST", "/health", "{}").await?;
        call("PUT", "/metadata/label", r#"{"key":"life","value":"curl"}"#).await?;
        call("PUT", "/metadata/annotation", r#"{"key":"life","value":"of curl"}"#).await?;
        call("POST", "/ready", "{}").await?;
        let server = stage.until_state("lobby", State::Ready).await?;
        assert_eq!(sdk_metadata(&server), (Some("curl".to_owned()), Some("of curl".to_owned())));
        call("POST", "/reserve", r#"{"seconds":"1"}"#).await?;
        until_told(&stage, "lobby", &["Reserved"]).await?;
        stage.until_state("lobby", State::Ready).await?;
        call("POST", "/allocate", "{}").await?;
        let server = stage.until_state("lobby", State::Allocated).await?;
        assert!(server.annotation("agones.dev/last-allocated").is_some());
        let rooms = call("PATCH", "/v1beta1/counters/rooms", r#"{"countDiff":"2"}"#).await?;
        assert_eq!(rooms, json!({"name": "rooms", "count": "3", "capacity": "10"}));
        let maps = call("POST", "/v1beta1/lists/maps:addValue", r#"{"value":"harbour"}"#).await?;
        assert_eq!(maps["values"], json!(["one", "two", "harbour"]));
        eventually(STEP, "what was counted on the object", async || {
            let server = stage.game_servers().get("lobby").await.map_err(|error| error.to_string())?;
            let status = server.status.unwrap_or_default();
            let count = status.counters.as_ref().and_then(|counters| counters.get("rooms")?.count);
            let maps =
                status.lists.as_ref().and_then(|lists| lists.get("maps")?.values.as_ref().map(Vec::len));
            if (count, maps) == (Some(3), Some(3)) { Ok(()) } else { Err(format!("{count:?} {maps:?}")) }
        })
        .await?;
        assert_eq!(call("GET", "/gameserver", "").await?["status"]["state"], json!("Allocated"));
        call("POST", "/shutdown", "{}").await?;
        until_over(&stage, "lobby").await?;
        stage.strike().await
    });
}
