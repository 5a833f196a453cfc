//! A cluster with two nodes, as far as an API server alone can tell, and what belongs to each; and those who ask.

use std::path::PathBuf;

use berth_api::node_lease::HandOver;
use berth_dev::{ControlPlane, install, source_folder};
use berth_stories::resources::apply_definitions;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// A namespace, for paths.
pub(super) struct Namespace(String);

impl Namespace {
    pub(super) fn servers(&self) -> String {
        format!("/apis/agones.dev/v1/namespaces/{}/gameservers", self.0)
    }

    pub(super) fn server(&self, name: &str) -> String {
        format!("{}/{name}", self.servers())
    }

    pub(super) fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.0)
    }

    pub(super) fn pod(&self, name: &str) -> String {
        format!("{}/{name}", self.pods())
    }
}

/// Where games run.
pub(super) struct Games {
    /// With any account.
    pub(super) open: Namespace,
    /// With one account only.
    narrow: Namespace,
}

impl Games {
    pub(super) fn servers(&self) -> String {
        self.open.servers()
    }

    pub(super) fn server(&self, name: &str) -> String {
        self.open.server(name)
    }

    pub(super) fn pods(&self) -> String {
        self.open.pods()
    }

    pub(super) fn pod(&self, name: &str) -> String {
        self.open.pod(name)
    }

    /// The name of the open namespace.
    pub(super) fn open(&self) -> &str {
        &self.open.0
    }

    pub(super) fn narrow_pods(&self) -> String {
        self.narrow.pods()
    }
}

/// A pod as an agent makes it.
pub(super) fn game_pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "ownerReferences": [
            { "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": name, "uid": "1", "controller": true },
        ] },
        "spec": {
            "nodeName": node, "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "game", "image": "game" }],
        },
    })
}

/// A server that waits for a node.
pub(super) fn waiting(name: &str) -> Value {
    json!({
        "apiVersion": "agones.dev/v1",
        "kind": "GameServer",
        "metadata": { "name": name },
        "spec": { "template": { "spec": { "containers": [{ "name": "game", "image": "game" }] } } },
        "status": { "state": "Creating" },
    })
}

fn server(name: &str, annotations: Value, status: Value) -> Value {
    let mut server = waiting(name);
    server["metadata"]["finalizers"] = json!(["agones.dev/controller"]);
    server["metadata"]["annotations"] = annotations;
    server["status"] = status;
    server
}

fn daemon_pod() -> Value {
    let mut pod = game_pod("daemon-b", "node-b");
    pod["metadata"]["ownerReferences"][0] = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "daemon", "uid": "1", "controller": true });
    pod
}

fn own_pod(program: &str, node: char) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("{program}-{node}") },
        "spec": {
            "nodeName": format!("node-{node}"), "serviceAccountName": program,
            "containers": [{ "name": program, "image": program }],
        },
    })
}

fn machine(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": { "studio.example/role": "game" },
            "annotations": { "studio.example/rack": "4", "gamelift.status/old": "yes" },
        },
        "spec": { "taints": [{ "key": "studio.example/role", "value": "game", "effect": "NoSchedule" }] },
    })
}

pub(super) struct World {
    pub(super) games: Games,
    administrator: Client,
}

impl World {
    pub(super) async fn make(cluster: &ControlPlane) -> Self {
        let administrator = cluster.client();
        for file in
            ["namespace.yaml", "priority.yaml", "rbac.yaml", "systemd/tokens.yaml", "allocator/rbac.yaml"]
        {
            install::apply(&administrator, &manifest(file)).await.unwrap();
        }
        apply_definitions(&administrator).await.unwrap();
        for entry in std::fs::read_dir(manifest("policies")).unwrap() {
            install::apply(&administrator, &entry.unwrap().path()).await.unwrap();
        }
        let open = cluster.namespace("games").await.unwrap();
        let narrow = cluster.namespace("narrow").await.unwrap();
        for namespace in [&open, &narrow] {
            install::enable_namespace(&administrator, namespace).await.unwrap();
        }
        let games = Games { open: Namespace(open), narrow: Namespace(narrow) };
        let world = Self { games, administrator };
        world.fill().await;
        world
    }

    async fn fill(&self) {
        let Games { open, narrow } = &self.games;
        let named = |name: &str| json!({ "metadata": { "name": name } });
        let account = |namespace: &str| format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        for (namespace, name) in [
            ("kube-system", "default"),
            ("berth-system", "default"),
            (&narrow.0, "lobby"),
            (&narrow.0, "builder"),
        ] {
            self.create(&account(namespace), named(name)).await;
        }
        let only = json!({ "metadata": { "annotations": { "berth.dev/service-accounts": "lobby, arena" } } });
        self.send("PATCH", &format!("/api/v1/namespaces/{}", narrow.0), &only).await;
        for node in ["a", "b"] {
            let (name, on) = (format!("node-{node}"), format!("on-{node}"));
            self.create("/api/v1/nodes", machine(&name)).await;
            let game_node = json!({ "apiVersion": "berth.dev/v1", "kind": "GameNode", "metadata": { "name": name }, "spec": {} });
            self.create("/apis/berth.dev/v1/gamenodes", game_node).await;
            self.create("/apis/coordination.k8s.io/v1/namespaces/berth-system/leases", named(&name)).await;
            self.create(&open.pods(), game_pod(&on, &name)).await;
            let marks = json!({ "berth.dev/lease": "as the brain wrote it" });
            let placed = json!({ "state": "Ready", "nodeName": name });
            self.create(&open.servers(), server(&on, marks, placed)).await;
        }
        self.create(&open.pods(), daemon_pod()).await;
        for pod in [own_pod("berth-agent", 'b'), own_pod("berth-sdk", 'a')] {
            self.create("/api/v1/namespaces/berth-system/pods", pod).await;
        }
        let pod = json!({ "berth.dev/pod-uid": "pod-b" });
        let lease = json!({ "berth.dev/lease": HandOver::new("node-b", "uid-b", "boot-b").to_annotation() });
        for server in [
            server("waiting", json!({}), json!({ "state": "Creating" })),
            server("wiped", json!({}), json!({})),
            server("nodeless", pod, json!({ "state": "Ready", "nodeName": "" })),
            server("moved", lease, json!({ "state": "Ready", "nodeName": "elsewhere" })),
        ] {
            self.create(&open.servers(), server).await;
        }
    }

    /// Makes both Nodes so.
    pub(super) async fn have_nodes(&self, like: Value) {
        for node in ["node-a", "node-b"] {
            self.send("PATCH", &format!("/api/v1/nodes/{node}"), &like).await;
        }
    }

    /// Agents of node B, by every identity that an agent can have.
    pub(super) async fn agents_of_b(&self, cluster: &ControlPlane) -> Vec<(&'static str, Client)> {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "name": "berth-agent-b" });
        let node = json!({ "apiVersion": "v1", "kind": "Node", "name": "node-b" });
        vec![
            ("an agent by its pod's token", self.by_token(cluster, Some(pod)).await),
            ("an agent by its node's token", self.by_token(cluster, Some(node)).await),
            (
                "an agent by its name",
                cluster.client_for("berth:agent:node-b", &["berth:agents"]).await.unwrap(),
            ),
        ]
    }

    pub(super) async fn agents_of_no_node(&self, cluster: &ControlPlane) -> Vec<(&'static str, Client)> {
        vec![
            ("a token of no node", self.by_token(cluster, None).await),
            ("an agent of another name", cluster.client_for("node-b", &["berth:agents"]).await.unwrap()),
        ]
    }

    /// The ServiceAccount of the agents, by a token that the API server made.
    async fn by_token(&self, cluster: &ControlPlane, bound: Option<Value>) -> Client {
        let wanted: TokenRequest =
            serde_json::from_value(json!({ "spec": { "audiences": [], "boundObjectRef": bound } })).unwrap();
        let accounts = Api::<ServiceAccount>::namespaced(self.administrator.clone(), "berth-system");
        let made =
            accounts.create_token_request("berth-agent", &PostParams::default(), &wanted).await.unwrap();
        let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
        let token = Some(made.status.unwrap().token.into());
        kubeconfig.auth_infos[0].auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    pub(super) async fn let_agents_do_everything(&self) {
        let subjects = json!([
            { "kind": "ServiceAccount", "name": "berth-agent", "namespace": "berth-system" },
            { "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "berth:agents" },
        ]);
        self.bind_role("everything", "cluster-admin", subjects).await;
    }

    pub(super) async fn let_do_everything_with_games(&self, user: &str) {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "games" },
            "rules": [{ "apiGroups": ["agones.dev"], "resources": ["*"], "verbs": ["*"] }],
        });
        self.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
        let subjects = json!([{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user }]);
        self.bind_role("games", "games", subjects).await;
    }

    async fn bind_role(&self, name: &str, role: &str, subjects: Value) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": subjects,
        });
        self.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    }

    /// Applies a manifest of bindings in the open namespace.
    pub(super) async fn bind(&self, file: &str) {
        let text = std::fs::read_to_string(manifest(file)).unwrap();
        let path =
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings", self.games.open.0);
        self.create(&path, serde_yaml_ng::from_str(&text).unwrap()).await;
    }

    async fn create(&self, path: &str, object: Value) {
        self.send("POST", path, &object).await;
    }

    async fn send(&self, method: &str, path: &str, body: &Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(serde_json::to_vec(body).unwrap())
            .unwrap();
        self.administrator.request::<Value>(request).await.unwrap();
    }
}

fn manifest(file: &str) -> PathBuf {
    source_folder().join("manifests").join(file)
}
