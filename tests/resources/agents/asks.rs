//! The questions: one request each, as a dry run, and the answer that is wanted.

use berth_api::node_lease::HandOver;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::world::{Games, Namespace, game_pod, waiting};

/// What the API server is to say.
#[derive(Clone, Debug)]
enum Verdict {
    Allowed,
    /// With all of these words.
    Refused(Vec<String>),
}

/// One request.
pub(super) struct Ask {
    pub(super) what: String,
    method: &'static str,
    path: String,
    body: Option<Value>,
    verdict: Verdict,
}

impl Ask {
    fn new(what: &str, method: &'static str, path: &str, body: Option<Value>) -> Self {
        let what = format!("{what} ({method} {path})");
        Self { what, method, path: path.to_owned(), body, verdict: Verdict::Allowed }
    }

    pub(super) fn patch(what: &str, path: &str, body: Value) -> Self {
        Self::new(what, "PATCH", path, Some(body))
    }

    pub(super) fn create(what: &str, path: &str, body: Value) -> Self {
        Self::new(what, "POST", path, Some(body))
    }

    pub(super) fn delete(path: &str) -> Self {
        Self::new("delete", "DELETE", path, None)
    }

    fn read(path: &str) -> Self {
        Self::new("read", "GET", path, None)
    }

    pub(super) fn allowed(self) -> Self {
        Self { verdict: Verdict::Allowed, ..self }
    }

    pub(super) fn refused<const N: usize>(self, words: [&str; N]) -> Self {
        Self { verdict: Verdict::Refused(words.map(str::to_owned).to_vec()), ..self }
    }

    /// Asks, and compares.
    pub(super) async fn put(&self, client: &Client) -> Result<(), String> {
        let kind = if self.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder()
            .method(self.method)
            .uri(format!("{}?dryRun=All", self.path))
            .header("content-type", kind)
            .body(self.body.as_ref().map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default())
            .unwrap();
        let answer = client.send(request.map(Body::from)).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer.into_body().collect_bytes().await.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text);
        let is_right = match &self.verdict {
            Verdict::Allowed => status.is_success(),
            Verdict::Refused(words) => {
                status.is_client_error() && words.iter().all(|word| text.contains(word.as_str()))
            }
        };
        let short: String = text.chars().take(600).collect();
        if is_right { Ok(()) } else { Err(format!("{status}: {short}; wanted {:?}", self.verdict)) }
    }
}

fn label() -> Value {
    json!({ "metadata": { "labels": { "touched": "yes" } } })
}

/// {update, delete, patch status} of everything that belongs to a node, and a pod that is made on it; with the policy
/// that has to do with it.
fn belongings(games: &Games, node: char) -> Vec<(&'static str, Ask)> {
    let of = |kind: &str| format!("{kind}-{node}");
    let server = games.server(&of("on"));
    let pod = games.pod(&of("on"));
    let machine = format!("/api/v1/nodes/{}", of("node"));
    let game_node = format!("/apis/berth.dev/v1/gamenodes/{}", of("node"));
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/berth-system/leases/{}", of("node"));
    let made = game_pod(&of("new"), &of("node"));
    vec![
        ("gameservers", Ask::patch("update", &server, label())),
        ("gameservers", Ask::patch("status", &server, json!({ "status": { "state": "Shutdown" } }))),
        ("gameservers", Ask::delete(&server)),
        ("pods", Ask::patch("update", &pod, label())),
        ("pods", Ask::delete(&pod)),
        ("pods", Ask::create("create", &games.pods(), made)),
        ("nodes", Ask::patch("cordon", &machine, json!({ "spec": { "unschedulable": true } }))),
        ("nodes", Ask::delete(&machine)),
        ("gamenodes", Ask::patch("update", &game_node, label())),
        (
            "gamenodes",
            Ask::patch("status", &format!("{game_node}/status"), json!({ "status": { "phase": "Active" } })),
        ),
        ("gamenodes", Ask::delete(&game_node)),
        ("leases", Ask::patch("update", &lease, json!({ "spec": { "leaseTransitions": 7 } }))),
        ("leases", Ask::delete(&lease)),
        ("tokens", token("berth-agent", "Node", &of("node"))),
    ]
}

fn token(account: &str, kind: &str, name: &str) -> Ask {
    let path = format!("/api/v1/namespaces/berth-system/serviceaccounts/{account}/token");
    let bound = json!({ "apiVersion": "v1", "kind": kind, "name": name });
    Ask::create("a token", &path, json!({ "spec": { "audiences": [], "boundObjectRef": bound } }))
}

/// Refused by this policy, which names the agent's own node.
pub(super) fn refused_to_b((policy, ask): (&str, Ask)) -> Ask {
    ask.refused([&format!("{policy}.agents.berth.dev"), "node-b"])
}

pub(super) fn of_another_node(games: &Games) -> Vec<Ask> {
    let mut asks: Vec<Ask> = belongings(games, 'a').into_iter().map(refused_to_b).collect();
    for path in [format!("{}/status", games.pod("on-a")), "/api/v1/nodes/node-a/status".to_owned()] {
        let body = json!({ "status": { "conditions": [] } });
        asks.push(Ask::patch("status", &path, body).refused(["agents.berth.dev"]));
    }
    asks
}

pub(super) fn of_its_own(games: &Games) -> Vec<Ask> {
    belongings(games, 'b').into_iter().map(|(_, ask)| ask.allowed()).collect()
}

/// What the agent of node B does, and needs rights for: all but the deletion of its Node, and what it does to that one.
pub(super) fn needed(games: &Games) -> Vec<Ask> {
    let mut asks = of_its_own(games);
    for ask in &mut asks {
        if ask.method == "DELETE" && ask.path == "/api/v1/nodes/node-b" {
            ask.verdict = Verdict::Refused(vec!["cannot delete resource".to_owned()]);
        }
    }
    let server = games.server("on-b");
    let wiped = json!({ "status": { "nodeName": "node-b", "state": "Ready" },
        "metadata": { "annotations": { "berth.dev/pod-uid": "pod-b" } } });
    asks.extend([
        Ask::patch("hand back", &server, json!({ "status": { "nodeName": "", "state": "Creating" } })),
        Ask::patch("remove the finalizer", &server, json!({ "metadata": { "finalizers": [] } })),
        Ask::patch("restore what lost all", &games.server("wiped"), wiped.clone()),
        Ask::patch("restore what lost its node", &games.server("nodeless"), wiped),
        Ask::patch(
            "restore what was moved on paper",
            &games.server("moved"),
            json!({ "status": { "nodeName": "node-b" } }),
        ),
        Ask::create("a pod of an account that may", &games.narrow_pods(), account("lobby")),
    ]);
    asks
}

/// What the two nodes have: a taint of the studio's, and the one that every new Node is given by the API server.
pub(super) fn foreign_taints() -> Vec<Value> {
    vec![
        json!({ "key": "studio.example/role", "value": "game", "effect": "NoSchedule" }),
        json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }),
    ]
}

/// A pod that holds room for a server that waits, as the brain makes it.
fn placeholder() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "waiting-room", "labels": { "berth.dev/placeholder-for": "uid" }, "ownerReferences": [{
            "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": "waiting", "uid": "1",
            "controller": true, "blockOwnerDeletion": false,
        }] },
        "spec": {
            "priorityClassName": "berth-placeholder", "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0, "containers": [{ "name": "room", "image": "pause" }],
        },
    })
}

fn account(name: &str) -> Value {
    let mut pod = game_pod("of-an-account", "node-b");
    pod["spec"]["serviceAccountName"] = json!(name);
    pod
}

/// What is refused although it is on its node.
pub(super) fn beyond_its_business(games: &Games) -> Vec<Ask> {
    let node = "/api/v1/nodes/node-b";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/berth-system/leases";
    let claim = json!({ "status": { "nodeName": "node-b" }, "metadata": { "annotations": { "berth.dev/pod-uid": "x" } } });
    let leased = json!({
        "status": { "nodeName": "node-b" },
        "metadata": { "annotations": { "berth.dev/lease": HandOver::new("node-b", "u", "b").to_annotation() } },
    });
    let without_owner = {
        let mut pod = game_pod("orphan", "node-b");
        pod["metadata"]["ownerReferences"] = json!([]);
        pod
    };
    let of_another_name = {
        let mut pod = game_pod("one", "node-b");
        pod["metadata"]["ownerReferences"][0]["name"] = json!("other");
        pod
    };
    let of_another_kind = {
        let mut pod = game_pod("daemon", "node-b");
        pod["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
        pod
    };
    let taints = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut taints = foreign_taints();
        change(&mut taints);
        json!({ "spec": { "taints": taints } })
    };
    let (more, fewer, other) = (
        taints(&|taints| taints.push(json!({ "key": "x", "effect": "NoSchedule" }))),
        taints(&|taints| drop(taints.pop())),
        taints(&|taints| taints[0]["effect"] = json!("NoExecute")),
    );
    let server = |what: &str, name: &str, body: &Value, words: &str| {
        Ask::patch(what, &games.server(name), body.clone()).refused(["gameservers.agents.berth.dev", words])
    };
    let pod = |what: &str, path: &str, body: Value, words: &str| {
        Ask::create(what, path, body).refused(["pods.agents.berth.dev", words])
    };
    let machine = |what: &str, body: Value, words: &str| {
        Ask::patch(what, node, body).refused(["nodes.agents.berth.dev", words])
    };
    vec![
        server(
            "give to another node",
            "on-b",
            &json!({ "status": { "nodeName": "node-a" } }),
            "must stay node-b",
        ),
        server("take one that waits", "waiting", &claim, "must have been node-b"),
        server("take one of another pod", "nodeless", &claim, "must have been node-b"),
        server("take one by a lease of one's own", "moved", &leased, "must have been node-b"),
        server("take one that is leased to another", "on-a", &leased, "must have been node-b"),
        Ask::create("make a server", &games.servers(), waiting("made"))
            .refused(["gameservers.agents.berth.dev", "they make none"]),
        pod(
            "a pod in kube-system",
            "/api/v1/namespaces/kube-system/pods",
            game_pod("x", "node-b"),
            "kube-system",
        ),
        pod(
            "a pod in our own namespace",
            "/api/v1/namespaces/berth-system/pods",
            game_pod("x", "node-b"),
            "berth-system",
        ),
        pod(
            "a pod of a foreign account",
            &games.narrow_pods(),
            account("builder"),
            "berth.dev/service-accounts",
        ),
        pod("a pod of no account in particular", &games.narrow_pods(), game_pod("x", "node-b"), "lobby"),
        pod("a pod of nobody's", &games.pods(), without_owner, "must be a GameServer of the pod's name"),
        pod(
            "a pod of another server",
            &games.pods(),
            of_another_name,
            "must be a GameServer of the pod's name",
        ),
        pod("a pod of a DaemonSet", &games.pods(), of_another_kind, "must be a GameServer of the pod's name"),
        pod("a pod that waits for a scheduler", &games.pods(), game_pod("x", ""), "must be node-b"),
        Ask::patch("a daemon's pod", &games.pod("daemon-b"), label())
            .refused(["pods.agents.berth.dev", "GameServer"]),
        Ask::delete(&games.pod("daemon-b")).refused(["pods.agents.berth.dev", "GameServer"]),
        Ask::patch(
            "a pod's status",
            &format!("{}/status", games.pod("on-b")),
            json!({ "status": { "phase": "Failed" } }),
        )
        .refused(["pods.agents.berth.dev", "not pods/status"]),
        machine("a label", label(), "metadata.labels"),
        machine(
            "a foreign annotation",
            json!({ "metadata": { "annotations": { "berth.dev/address": "x" } } }),
            "gamelift.status/",
        ),
        machine(
            "an order to itself",
            json!({ "metadata": { "annotations": { "gamelift.status/drain": "requested" } } }),
            "metadata.annotations",
        ),
        machine(
            "who has closed what is open",
            json!({ "metadata": { "annotations": { "gamelift.status/cordoned-by": "agent" } } }),
            "spec.unschedulable",
        ),
        machine(
            "no foreign annotation",
            json!({ "metadata": { "annotations": { "studio.example/rack": null } } }),
            "gamelift.status/",
        ),
        machine("a foreign taint more", more, "spec.taints"),
        machine("a foreign taint less", fewer, "spec.taints"),
        machine("a foreign taint with another effect", other, "spec.taints"),
        machine(
            "another instance",
            json!({ "spec": { "providerID": "aws:///zone/i-0" } }),
            "unschedulable and taints alone",
        ),
        Ask::patch("a Node's status", &format!("{node}/status"), json!({ "status": { "phase": "Running" } }))
            .refused(["nodes.agents.berth.dev", "its status"]),
        Ask::create("a lease that is no node's", leases, json!({ "metadata": { "name": "berth-brain" } }))
            .refused(["leases.agents.berth.dev", "node-b"]),
        Ask::patch(
            "what is ordered",
            "/apis/berth.dev/v1/gamenodes/node-b",
            json!({ "spec": { "drain": { "by": "agent" } } }),
        )
        .refused(["gamenodes.agents.berth.dev", "spec of a GameNode"]),
        token("berth-brain", "Node", "node-b").refused(["tokens.agents.berth.dev", "berth-agent"]),
        token("berth-agent", "Pod", "berth-agent-b").refused(["tokens.agents.berth.dev", "the Node node-b"]),
    ]
}

/// Whoever may do everything with `agones.dev`.
pub(super) fn of_a_user(games: &Namespace) -> Vec<Ask> {
    let words = ["placement.berth.dev", "by the brain and the agents alone"];
    let placed = games.server("on-a");
    let node = |name: &str| json!({ "status": { "nodeName": name } });
    let lease = |text: &str| json!({ "metadata": { "annotations": { "berth.dev/lease": text } } });
    let mut made_on_a = waiting("made");
    made_on_a["status"]["nodeName"] = json!("node-a");
    let mut made_with_a_lease = waiting("made");
    made_with_a_lease["metadata"]["annotations"] = json!({ "berth.dev/lease": "{}" });
    vec![
        Ask::patch("another node", &placed, node("node-b")).refused(words),
        Ask::patch("a node where none was", &games.server("waiting"), node("node-a")).refused(words),
        Ask::patch("another lease", &placed, lease("{}")).refused(words),
        Ask::create("a server on a node", &games.servers(), made_on_a).refused(words),
        Ask::create("a server with a lease", &games.servers(), made_with_a_lease).refused(words),
        Ask::create("a server", &games.servers(), waiting("made")).allowed(),
        Ask::patch("the same once more", &placed, node("node-a")).allowed(),
        Ask::patch("a label", &placed, label()).allowed(),
        Ask::patch("no status", &placed, json!({ "status": null })).allowed(),
        // As `kubectl replace` does with what the author has on disk.
        Ask::patch("what it was at first", &placed, {
            json!({ "metadata": { "annotations": null, "finalizers": null }, "status": null })
        })
        .allowed(),
        Ask::delete(&placed).allowed(),
    ]
}

pub(super) fn of_the_brain(games: &Namespace) -> Vec<Ask> {
    let own = "/api/v1/namespaces/berth-system/pods";
    let lease = json!({ "annotations": { "berth.dev/lease": "{}" } });
    let mut made = waiting("made");
    made["metadata"]["annotations"] = lease["annotations"].clone();
    made["status"]["nodeName"] = json!("node-a");
    vec![
        Ask::create("a server on a node", &games.servers(), made),
        Ask::patch(
            "hand over",
            &games.server("waiting"),
            json!({ "metadata": lease, "status": { "nodeName": "node-b" } }),
        ),
        Ask::patch("remove a finalizer", &games.server("on-a"), json!({ "metadata": { "finalizers": [] } })),
        Ask::delete(&games.server("on-a")),
        // Room for a server that waits, and a pod whose node is gone.
        Ask::create("a placeholder", &games.pods(), placeholder()),
        Ask::delete(&games.pod("on-a")),
        // An older pod of berth-sdk on an empty node.
        Ask::read("/apis/apps/v1/namespaces/berth-system/controllerrevisions"),
        Ask::delete(&format!("{own}/berth-sdk-a")),
        Ask::create("a pod in our own namespace", own, placeholder()).refused(["cannot create resource"]),
        Ask::patch("a pod of a game", &games.pod("on-a"), label()).refused(["cannot patch resource"]),
        Ask::patch("cordon", "/api/v1/nodes/node-a", json!({ "spec": { "unschedulable": true } }))
            .refused(["cannot patch resource"]),
    ]
}
