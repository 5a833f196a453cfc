//! `docs/allocation.md`, tried line by line: its commands as they stand there, in the order in which somebody needs them,
//! and its table of answers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use berth_api::allocation::proto::{AllocationRequest, MetaPatch, MultiClusterSetting};
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_dev::{Binaries, ControlPlane, eventually, install, source_folder};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::accounts::{permit, token};
use super::api::{path, post};
use super::cluster::{Allocator, Cluster, LIMIT, PLAIN, allocate_if_let_in, manifests, start_plane};
use super::service::rest_with;

/// A control plane of its own: what is installed here stands beside nothing else.
static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
/// What stands for the page's NAMESPACE, as in those of its lines that speak of one.
const NAMESPACE: &str = "games";
/// What stands for its NAME.
const AUDIENCE: &str = "matchmakers";
const OUR_NAMESPACE: &str = "berth-system";

fn page() -> String {
    fs::read_to_string(source_folder().join("docs/allocation.md")).expect("the page")
}

/// Everything on the page between fences, by the word after the language.
fn blocks(page: &str) -> BTreeMap<String, String> {
    let mut blocks = BTreeMap::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(label) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            let name = label.split(' ').nth(1).unwrap_or_else(|| panic!("a block without a name: {block:?}"));
            let earlier = blocks.insert(name.to_owned(), block.join("\n"));
            assert_eq!(earlier, None, "two blocks are called {name}");
        }
    }
    blocks
}

/// Somebody who follows the page.
struct Reader {
    blocks: BTreeMap<String, String>,
    /// Where they are: `manifests` is here.
    folder: PathBuf,
    search: String,
    kubeconfig: PathBuf,
}

impl Reader {
    async fn new(cluster: &Cluster) -> Self {
        let find = || Binaries::ensure(&mut |line| println!("{line}")).expect("kubectl").kubectl().to_owned();
        let kubectl = tokio::task::spawn_blocking(find).await.expect("kubectl");
        let program = Path::new(env!("CARGO_BIN_EXE_berth-allocator"));
        let folders =
            [&kubectl, program].map(|file: &Path| file.parent().expect("a folder").display().to_string());
        let folder = cluster.subfolder("reader");
        std::os::unix::fs::symlink(source_folder().join("manifests"), folder.join("manifests"))
            .expect("a link");
        let search = format!("{}:{}", folders.join(":"), std::env::var("PATH").unwrap_or_default());
        let kubeconfig = cluster.plane.kubeconfig_path().to_owned();
        Self { blocks: blocks(&page()), folder, search, kubeconfig }
    }

    /// Runs commands, and answers what they print.
    async fn run(&self, commands: &str) -> String {
        let commands = commands.replace("NAMESPACE", NAMESPACE).replace("NAME", AUDIENCE);
        let output = Command::new("sh")
            .args(["-ec", &commands])
            .current_dir(&self.folder)
            .env("PATH", &self.search)
            .env("KUBECONFIG", &self.kubeconfig)
            // `.curlrc` is there.
            .env("HOME", &self.folder)
            .output()
            .await
            .expect("a shell");
        assert!(output.status.success(), "{commands}\n{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a block of the page, which nobody needs again.
    async fn follow(&mut self, name: &str) -> String {
        let block = self.blocks.remove(name).unwrap_or_else(|| panic!("the page has no block {name}"));
        self.run(&block).await
    }

    /// Has the page's host name lead to this allocator.
    fn resolve(&self, allocator: &Allocator) {
        let line = format!("connect-to = \"allocator.example.com:443:127.0.0.1:{}\"\n", allocator.port);
        fs::write(self.folder.join(".curlrc"), format!("silent\nshow-error\nmax-time = 120\n{line}"))
            .expect("a file");
    }
}

/// Writes the Secrets that the allocator's pods mount into a folder, as kubelet does.
async fn mount(cluster: &Cluster) -> PathBuf {
    let folder = cluster.subfolder("mounted");
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), OUR_NAMESPACE);
    let mounts = [
        ("allocator-tls", "tls"),
        ("allocator-client-ca", "client-ca"),
        ("berth-allocation-api-tls", "api-tls"),
    ];
    for (secret, mounted) in mounts {
        let data = secrets.get(secret).await.expect("a Secret").data.expect("data");
        fs::create_dir_all(folder.join(mounted)).expect("a folder");
        for (name, ByteString(bytes)) in data {
            fs::write(folder.join(mounted).join(name), bytes).expect("a file");
        }
    }
    folder
}

/// Has the API server find a process where it would find a pod: the Service and its port, and nothing of the certificates.
async fn lead_to(cluster: &Cluster, allocator: &Allocator) {
    let services = Api::<Service>::namespaced(cluster.client.clone(), OUR_NAMESPACE);
    let local = Patch::Merge(json!({ "spec": {
        "type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null, "ipFamilies": null,
        "ipFamilyPolicy": null, "internalTrafficPolicy": null, "selector": null,
    } }));
    services.patch("berth-allocation-api", &PatchParams::default(), &local).await.expect("a patched Service");
    let resource = ApiResource {
        group: "apiregistration.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiregistration.k8s.io/v1".into(),
        kind: "APIService".into(),
        plural: "apiservices".into(),
    };
    let api_services = Api::<DynamicObject>::all_with(cluster.client.clone(), &resource);
    let port = Patch::Merge(json!({ "spec": { "service": { "port": allocator.api_port } } }));
    let name = "v1.allocation.agones.dev";
    api_services.patch(name, &PatchParams::default(), &port).await.expect("a patched APIService");
    eventually(LIMIT, "the aggregated API to be available", async || {
        let request = http::Request::get("/apis/allocation.agones.dev/v1").body(Vec::new());
        let request = request.map_err(|error| error.to_string())?;
        cluster.client.request_text(request).await.map(drop).map_err(|error| error.to_string())
    })
    .await
    .expect("the aggregated API");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_s_commands_do_what_it_says() {
    let plane = PLANE.get_or_init(|| start_plane(&["priority.yaml"])).await;
    let mut cluster = Cluster::on(plane, PLAIN, "page").await;
    let mut reader = Reader::new(&cluster).await;
    reader.run("kubectl create namespace NAMESPACE").await;
    cluster.namespace = NAMESPACE.to_owned();

    reader.follow("install").await;
    let certificates = mount(&cluster).await;
    let allocator = cluster.allocator_with(&certificates, "allocator", &["--token-audience", AUDIENCE]).await;
    reader.resolve(&allocator);
    lead_to(&cluster, &allocator).await;
    let allocated = |answer: &str| -> String {
        let answer: Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        answer["gameServerName"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };

    // With a certificate.
    cluster.create("gs1", State::Ready, json!({})).await;
    assert_eq!(allocated(&reader.follow("client").await), "gs1");

    // With a token, once the API server knows of the account's rights.
    reader.follow("account").await;
    eventually(LIMIT, "the rights of the account and of the allocator", async || {
        let asked = "kubectl auth can-i create gameserverallocations.allocation.agones.dev --namespace games \
             --as system:serviceaccount:games:matchmaker || true; \
             kubectl auth can-i create tokenreviews.authentication.k8s.io --as berth-allocator || true";
        let told = reader.run(asked).await;
        if told.split_whitespace().eq(["yes", "yes"]) { Ok(()) } else { Err(told) }
    })
    .await
    .expect("rights");
    cluster.create("gs2", State::Ready, json!({})).await;
    assert_eq!(allocated(&reader.follow("token").await), "gs2");

    // As a user of the API server.
    cluster.create("gs3", State::Ready, json!({})).await;
    let told = reader.follow("user").await;
    assert!(told.contains("gameServerName: gs3") && told.contains("state: Allocated"), "{told}");
    let state =
        async |name: &str| cluster.servers().get(name).await.ok().as_ref().and_then(GameServer::state);
    assert_eq!(state("gs3").await, Some(State::Allocated));

    // Other clusters.
    reader.follow("clusters").await;
    let policy = reader.blocks.remove("policy").expect("a policy");
    fs::write(reader.folder.join("policy.yaml"), policy).expect("a file");
    reader.run("kubectl apply --filename policy.yaml").await;
    let weight = "kubectl get gameserverallocationpolicy frankfurt --namespace games --output jsonpath='{.spec.weight}'";
    assert_eq!(reader.run(weight).await, "100");

    reader.follow("uninstall").await;
    let left = reader.run("kubectl get deployments,services --namespace berth-system --output name").await;
    assert_eq!(left, "");
    // Instead of it.
    reader.follow("familiar").await;
    let there = reader.run("kubectl get deployments --namespace agones-system --output name").await;
    assert_eq!(there.trim(), "deployment.apps/agones-allocator");
    assert_eq!(reader.blocks, BTreeMap::new(), "blocks that nobody has tried");
}

/// The table of answers: what happens, and the answers of the aggregated API, gRPC and REST.
fn answers() -> BTreeMap<String, [String; 3]> {
    let page = page();
    let (_, rest) = page.split_once("\n## Answers\n").expect("the table");
    let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        let mut next = || cells.next().unwrap_or_else(|| panic!("a row with four cells: {line}"));
        (next(), [next(), next(), next()])
    };
    rows.map(row).collect()
}

/// What was answered.
struct Told {
    aggregated: Option<u16>,
    grpc: Option<tonic::Code>,
    rest: Option<u16>,
}

impl Told {
    fn is_as_in(&self, row: &[String; 3]) -> bool {
        let number = |code: Option<u16>| code.map(|code| code.to_string()).unwrap_or_default();
        let word = match self.grpc {
            Some(tonic::Code::Ok) => "OK".to_owned(),
            Some(code) => format!("`{code:?}`"),
            None => String::new(),
        };
        let first = |cell: &str| cell.split([',', ' ']).next().unwrap_or_default().to_owned();
        let told = [number(self.aggregated), word, number(self.rest)];
        row.iter().map(|cell| first(cell)).eq(told)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_is_the_one_that_the_page_names() {
    // Nobody else installs the aggregated API there, or lets the allocator ask about tokens.
    let cluster = Cluster::elsewhere("answers").await;
    let allocator = cluster.allocator("allocator", &["--token-audience", AUDIENCE]).await;
    cluster.serve_api(&allocator).await;
    let stranger = token(&cluster, "stranger", AUDIENCE).await;
    permit(&cluster, "matchmaker").await;
    let user = async |account: &str| {
        let name = format!("system:serviceaccount:{}:{account}", cluster.namespace);
        cluster.plane.client_for(&name, &[]).await.expect("a client")
    };
    let (matchmaker, nobody) = (user("matchmaker").await, user("stranger").await);
    let signed = cluster.client_certificate();
    let channel = cluster.channel(&allocator, Some(&signed)).await.expect("a connection");

    let namespace = || cluster.namespace.clone();
    let plain = || AllocationRequest { namespace: namespace(), ..AllocationRequest::default() };
    let grpc = async |request: AllocationRequest| match allocate_if_let_in(channel.clone(), request).await {
        Ok(_) => tonic::Code::Ok,
        Err(status) => status.code(),
    };
    let rest = async |body: String| {
        rest_with(&allocator, Some(&signed), None, "POST", "/gameserverallocation", body.as_bytes()).await.0
    };
    let aggregated = async |spec: Value| {
        let body =
            json!({ "apiVersion": "allocation.agones.dev/v1", "kind": "GameServerAllocation", "spec": spec });
        post(&cluster.client, &path(&cluster), "application/json", body.to_string()).await.code.as_u16()
    };
    let asked = |more: Value| {
        let mut body = json!({ "namespace": namespace() });
        for (key, value) in more.as_object().expect("an object") {
            body[key] = value.clone();
        }
        body.to_string()
    };
    let long = "x".repeat(1 << 20);
    let labels = |value: &str| [("a".to_owned(), value.to_owned())].into();
    let patch = |value: &str| Some(MetaPatch { labels: labels(value), ..MetaPatch::default() });

    let mut table = answers();
    let mut check = |name: &str, told: Told| {
        let (name, row) = table.remove_entry(name).unwrap_or_else(|| panic!("the table has no row {name}"));
        let Told { aggregated, grpc, rest } = &told;
        assert!(told.is_as_in(&row), "{name}: {row:?}, and told was {aggregated:?} {grpc:?} {rest:?}");
    };
    for server in ["gs1", "gs2", "gs3"] {
        cluster.create(server, State::Ready, json!({})).await;
    }
    let told = Told {
        aggregated: Some(aggregated(json!({})).await),
        grpc: Some(grpc(plain()).await),
        rest: Some(rest(asked(json!({}))).await),
    };
    check("a server", told);
    let told = Told {
        aggregated: Some(aggregated(json!({})).await),
        grpc: Some(grpc(plain()).await),
        rest: Some(rest(asked(json!({}))).await),
    };
    check("none that fits", told);
    let bad = json!({ "metadata": { "labels": { "a": "not valid!" } } });
    let told = Told {
        aggregated: Some(aggregated(bad.clone()).await),
        grpc: Some(grpc(AllocationRequest { metadata: patch("not valid!"), ..plain() }).await),
        rest: Some(rest(asked(bad)).await),
    };
    check("something wrong with the request", told);
    let unread = post(&cluster.client, &path(&cluster), "application/json", "{").await.code.as_u16();
    check(
        "a body that cannot be read",
        Told { aggregated: Some(unread), grpc: None, rest: Some(rest("{".to_owned()).await) },
    );
    let told = Told {
        aggregated: Some(aggregated(json!({ "metadata": { "annotations": { "a": long.repeat(3) } } })).await),
        grpc: Some(grpc(AllocationRequest { metadata: patch(&long), ..plain() }).await),
        rest: Some(rest(asked(json!({ "metadata": { "annotations": { "a": long } } }))).await),
    };
    check("a request of more than 1 MiB (aggregated API: 3 MiB)", told);
    let everywhere = json!({ "multiClusterSetting": { "enabled": true } });
    let setting = Some(MultiClusterSetting { enabled: true, ..MultiClusterSetting::default() });
    let told = Told {
        aggregated: Some(aggregated(everywhere.clone()).await),
        grpc: Some(grpc(AllocationRequest { multi_cluster_setting: setting, ..plain() }).await),
        rest: Some(rest(asked(everywhere)).await),
    };
    check("`multiClusterSetting.enabled` and no cluster could be asked", told);

    // Without a certificate.
    let alone = cluster.channel(&allocator, None).await.expect("a connection");
    let by_token = async |token: Option<&str>| {
        let mut request = tonic::Request::new(plain());
        if let Some(token) = token {
            let header = format!("Bearer {token}").parse().expect("a header");
            request.metadata_mut().insert("authorization", header);
        }
        let code = match allocate_if_let_in(alone.clone(), request).await {
            Ok(_) => tonic::Code::Ok,
            Err(status) => status.code(),
        };
        let body = asked(json!({}));
        let rest =
            rest_with(&allocator, None, token, "POST", "/gameserverallocation", body.as_bytes()).await.0;
        (code, rest)
    };
    // It may ask neither about tokens, until it is let, nor about users any more.
    let by_user = async |user: &Client| {
        let body =
            json!({ "apiVersion": "allocation.agones.dev/v1", "kind": "GameServerAllocation", "spec": {} });
        post(user, &path(&cluster), "application/json", body.to_string()).await.code.as_u16()
    };
    let roles = Api::<ClusterRole>::all(cluster.client.clone());
    let mut role = roles.get("berth-allocator").await.expect("a ClusterRole");
    let asks = |rule: &PolicyRule| rule.resources.iter().flatten().any(|one| one == "subjectaccessreviews");
    role.rules.iter_mut().for_each(|rules| rules.retain(|rule| !asks(rule)));
    roles.replace("berth-allocator", &PostParams::default(), &role).await.expect("fewer rights");
    eventually(LIMIT, "no right to ask", async || match by_user(&matchmaker).await {
        500 => Ok(()),
        code => Err(code.to_string()),
    })
    .await
    .expect("fewer rights");
    let (grpc, rest) = by_token(Some(&stranger)).await;
    check(
        "whether it may could not be asked",
        Told { aggregated: Some(by_user(&matchmaker).await), grpc: Some(grpc), rest: Some(rest) },
    );
    for file in ["allocator/rbac.yaml", "allocator/service-account-tokens.yaml"] {
        install::apply(&cluster.client, &manifests().join(file)).await.expect("applied rights");
    }
    eventually(LIMIT, "rights to ask", async || {
        match (by_user(&matchmaker).await, by_token(Some(&stranger)).await.0) {
            (500, _) | (_, tonic::Code::Unavailable) => Err("it could not ask"),
            _ => Ok(()),
        }
    })
    .await
    .expect("rights");
    let (grpc, rest) = by_token(Some("nonsense")).await;
    check(
        "no certificate, and no token or a wrong one, where tokens are taken",
        Told { aggregated: None, grpc: Some(grpc), rest: Some(rest) },
    );
    let (grpc, rest) = by_token(Some(&stranger)).await;
    check(
        "a token of an account that may not allocate in this namespace",
        Told { aggregated: Some(by_user(&nobody).await), grpc: Some(grpc), rest: Some(rest) },
    );
    // What is left needs an API server that fails: `faults`.
    let left: Vec<String> = table.into_keys().collect();
    assert_eq!(left, ["the API server fails for as long as there is time"]);
}
