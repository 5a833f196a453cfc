//! What an agent does to empty its node, and to take that back: one request for each of its effects, and its Events.

use berth_agent::drain::Course;
use berth_agent::drain::marks::{Marks, Phase};
use berth_agent::drain::notice::{Notice, Severity, Source};
use berth_agent::effects::Effect;
use berth_agent::events::build::{self, Stamp};
use berth_agent::identity::Identity;
use berth_api::game_server::{GameServer, GameServerSpec};
use berth_api::names;
use berth_runtime::clock;
use serde_json::{Map, Value, json};

use super::asks::{Ask, foreign_taints};
use super::world::Games;

/// What a Node is like when a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// As an operator has made it.
    Open,
    /// Closed, marked and tainted by its agent.
    Emptied,
}

fn taint(key: &str, effect: &str) -> Value {
    json!({ "key": key, "value": names::TAINT_VALUE, "effect": effect })
}

/// The taints of others, and these besides.
fn with(ours: &[Value]) -> Value {
    let mut taints = foreign_taints();
    taints.extend_from_slice(ours);
    json!({ "spec": { "taints": taints } })
}

/// Every mark that there is, with what `say` makes of it.
fn marks(say: impl Fn(Option<String>) -> Option<String>) -> Value {
    let now = clock::now();
    let marks = Marks {
        phase: Some(Phase::Draining),
        phase_since: Some(now),
        instance: Some("i-0".to_owned()),
        group: Some("group".to_owned()),
        reason: Some("ordered".to_owned()),
        deadline: Some(now),
        boot_id: Some("boot".to_owned()),
        notices: vec![notice()],
    };
    let all: Map<String, Value> =
        marks.annotations().into_iter().map(|(name, value)| (name.to_owned(), json!(say(value)))).collect();
    json!({ "metadata": { "annotations": all } })
}

fn notice() -> Notice {
    Notice {
        source: Source::Socket,
        severity: Severity::Ordered,
        reason: "ordered".to_owned(),
        deadline: None,
    }
}

/// Closed by its agent, with all that a drain leaves on a Node.
pub(super) fn emptied() -> Value {
    let mut node = with(&[taint(names::DRAINING_TAINT, "NoExecute")]);
    node["metadata"] = marks(|value| value)["metadata"].take();
    node["metadata"]["annotations"][names::NODE_CORDONED_BY_ANNOTATION] = json!(names::CORDONED_BY_AGENT);
    node["spec"]["unschedulable"] = json!(true);
    node
}

/// The steps of a drain on a node that is so, with the policy that has to do with each.
pub(super) fn steps(games: &Games, node: char, site: Site) -> Vec<(&'static str, Ask)> {
    let all = Effect::OF_DRAIN.into_iter().flat_map(|effect| requests(effect, games, node));
    let mut steps: Vec<_> =
        all.filter(|(at, ..)| *at == site).map(|(_, policy, ask)| (policy, ask)).collect();
    if site == Site::Open {
        steps.extend(events(games, node).into_iter().map(|ask| ("events", ask)));
    }
    steps
}

fn requests(effect: Effect, games: &Games, node: char) -> Vec<(Site, &'static str, Ask)> {
    let machine = format!("/api/v1/nodes/node-{node}");
    let (server, pod) = (games.server(&format!("on-{node}")), games.pod(&format!("on-{node}")));
    let closed_by = |unschedulable: Value, by: Value| {
        json!({ "spec": { "unschedulable": unschedulable },
            "metadata": { "annotations": { names::NODE_CORDONED_BY_ANNOTATION: by } } })
    };
    let told = json!({ "metadata": {
        "labels": { names::DRAINING_LABEL: "true" },
        "annotations": { names::DRAIN_REASON_ANNOTATION: "ordered", names::TERMINATING_AT_ANNOTATION: "soon" }
    }});
    let tolerations = json!([
        { "operator": "Exists" },
        { "key": names::DRAINING_TAINT, "operator": "Equal", "value": names::TAINT_VALUE, "effect": "NoExecute" },
    ]);
    let to_machine = |site: Site, what: &str, body: Value| (site, "nodes", Ask::patch(what, &machine, body));
    match effect {
        Effect::Withdraw => vec![(Site::Open, "gameservers", Ask::delete(&server))],
        Effect::TellDrain => vec![(Site::Open, "gameservers", Ask::patch("tell a session", &server, told))],
        Effect::Tolerate => {
            let body = json!({ "spec": { "tolerations": tolerations } });
            vec![(Site::Open, "pods", Ask::patch("tolerate", &pod, body))]
        }
        Effect::EndSession => vec![(Site::Open, "pods", Ask::delete(&pod))],
        // A file of the node's.
        Effect::KeepMarks => Vec::new(),
        Effect::MarkNode => vec![
            to_machine(Site::Open, "mark", marks(|value| value)),
            to_machine(Site::Emptied, "unmark", marks(|_| None)),
        ],
        Effect::CordonNode => vec![to_machine(Site::Open, "cordon", closed_by(json!(true), json!("agent")))],
        Effect::UncordonNode => {
            vec![to_machine(Site::Emptied, "uncordon", closed_by(Value::Null, Value::Null))]
        }
        Effect::TaintNode => vec![
            to_machine(Site::Open, "taint", with(&[taint(names::DRAINING_TAINT, "NoExecute")])),
            to_machine(Site::Open, "taint", with(&[taint(names::ACTIVE_TAINT, "NoExecute")])),
        ],
        Effect::UntaintNode => vec![to_machine(Site::Emptied, "untaint", with(&[]))],
        other => panic!("no request is known for {other:?}"),
    }
}

/// An Event of the agent on a node, about a node, and about a server.
fn events_from(games: &Games, from: char, about: char) -> [Ask; 2] {
    let (from, about) = (format!("node-{from}"), format!("node-{about}"));
    let identity = Identity {
        node: about,
        node_uid: "uid".to_owned(),
        boot_id: "boot".to_owned(),
        process_id: "process".to_owned(),
    };
    let stamp = Stamp { node: &from, now: clock::now(), number: 1 };
    let mut server = GameServer::new("on-b", GameServerSpec::default());
    server.metadata.namespace = Some(games.open().to_owned());
    let of_node = build::node_course(&identity, &Course::Draining { notice: notice() }, stamp);
    let of_server = build::drain_told(&server, "ordered", None, stamp);
    [("default", of_node), (games.open(), of_server)].map(|(namespace, event)| {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        Ask::create("an Event", &path, serde_json::to_value(event).unwrap())
    })
}

fn events(games: &Games, node: char) -> Vec<Ask> {
    events_from(games, node, node).into()
}

/// Events that the agent of node B does not write.
pub(super) fn events_of_others(games: &Games) -> Vec<Ask> {
    let policy = "events.agents.berth.dev";
    let [of_node, _] = events_from(games, 'b', 'a');
    let newer = json!({
        "metadata": { "name": "on-a.1" }, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "berth-agent", "reportingInstance": "node-a",
        "action": "Draining", "reason": "NodeDraining", "type": "Normal", "note": "x",
        "regarding": { "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": "on-a", "namespace": games.open() },
    });
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", games.open());
    vec![
        of_node.refused([policy, "about the Node node-b"]),
        Ask::create("an Event by the newer way", &path, newer).refused([policy, "must come from node-b"]),
    ]
}

/// What is refused on its own node, once somebody else has closed that.
pub(super) fn of_a_foreign_cordon() -> Vec<Ask> {
    let open = json!({ "spec": { "unschedulable": null } });
    let claim = |more: Value| {
        let mut body = more;
        body["metadata"] = json!({ "annotations": { names::NODE_CORDONED_BY_ANNOTATION: "agent" } });
        body
    };
    let closed = json!({ "spec": { "unschedulable": true } });
    let ask = |what: &str, body: Value, words: &str| {
        Ask::patch(what, "/api/v1/nodes/node-b", body).refused(["nodes.agents.berth.dev", words])
    };
    vec![
        ask("open", open.clone(), "somebody else"),
        ask("claim and open", claim(open), "somebody else"),
        ask("claim", claim(json!({})), "cordoned-by"),
        ask("close again, and claim", claim(closed), "cordoned-by"),
    ]
}
