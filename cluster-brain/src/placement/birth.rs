//! The first state of a server, whoever created it: what is filled in, and how it is handed to a node. Pure.

use std::collections::BTreeMap;

use berth_api::conditions::{ConditionKind, Trouble, told};
use berth_api::game_server::{
    Eviction, EvictionSafe, GameServer, GameServerSpec, GameServerStatus, NodeAddress, PlayersStatus,
    StatusPort,
};
use berth_api::lifecycle::State;
use berth_api::names;
use berth_api::node_lease::HandOver;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::stores::Server;
use crate::writes::{difference, under_version};

/// The version that our objects say they were made by.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The node that a server is handed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub(crate) node: String,
    pub(crate) hand_over: HandOver,
}

/// The status that a server begins with.
pub(crate) fn first_status(spec: &GameServerSpec, node: Option<&Birth>) -> GameServerStatus {
    let counters = spec.counters.as_ref().map(|counters| {
        counters.iter().map(|(name, counter)| (name.clone(), counter.filled())).collect::<BTreeMap<_, _>>()
    });
    let lists = spec.lists.as_ref().map(|lists| {
        lists.iter().map(|(name, list)| (name.clone(), list.filled())).collect::<BTreeMap<_, _>>()
    });
    let players = spec.players.as_ref().map(|players| PlayersStatus {
        count: 0,
        capacity: players.initial_capacity.unwrap_or(0),
        ids: Some(Vec::new()),
    });
    GameServerStatus {
        state: Some(State::Creating),
        node_name: node.map(|birth| birth.node.clone()).unwrap_or_default(),
        eviction: Some(Eviction { safe: Some(eviction_in_force(spec)) }),
        counters,
        lists,
        players,
        ..GameServerStatus::default()
    }
}

/// A template that already tells cluster-autoscaler that eviction is fine is believed.
pub(crate) fn eviction_in_force(spec: &GameServerSpec) -> EvictionSafe {
    let said = &spec.template.0["metadata"]["annotations"][names::AUTOSCALER_SAFE_TO_EVICT_ANNOTATION];
    if said.as_str() == Some("true") { EvictionSafe::Always } else { spec.eviction_safe() }
}

/// The container that is the game, filled in where the spec may leave it out.
pub(crate) fn with_container(mut spec: GameServerSpec) -> GameServerSpec {
    let pod = spec.template.read().ok().and_then(|template| template.spec);
    if let Some(name) = pod.as_ref().and_then(|pod| spec.game_container(pod)).map(str::to_owned) {
        spec.container = Some(name);
    }
    spec
}

/// Annotations that a hand-over sets.
pub(crate) fn hand_over_annotations(node: Option<&Birth>) -> BTreeMap<String, String> {
    node.map(|birth| (names::LEASE_ANNOTATION.to_owned(), birth.hand_over.to_annotation()))
        .into_iter()
        .collect()
}

/// The one write that takes on a server that somebody created directly.
pub(crate) fn adoption(
    server: &GameServer,
    node: Option<&Birth>,
    no_node: Option<&Trouble>,
    now: Timestamp,
) -> Value {
    let mut adopted = server.clone();
    adopted.spec = with_container(adopted.spec);
    adopted.spec.scheduling = Some(server.spec.scheduling());
    adopted.status = Some(match server.dev_address() {
        Some(address) => development_status(&adopted, address),
        None => begun(server.status.as_ref(), first_status(&adopted.spec, node)),
    });
    if let (Some(trouble), Some(status)) = (no_node, &mut adopted.status) {
        status.conditions = told(status.conditions.as_deref(), ConditionKind::Placed, Some(trouble), now);
    }
    let annotations = adopted.metadata.annotations.get_or_insert_default();
    annotations.insert(names::SDK_VERSION_ANNOTATION.to_owned(), VERSION.to_owned());
    annotations.extend(hand_over_annotations(node));
    let finalizers = adopted.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == names::FINALIZER) {
        finalizers.push(names::FINALIZER.to_owned());
    }
    let change = difference(&json!(server), &json!(adopted)).unwrap_or_else(|| json!({}));
    under_version(change, server.metadata.resource_version.as_deref().unwrap_or_default())
}

/// What a creator has written of the status stays.
fn begun(written: Option<&GameServerStatus>, first: GameServerStatus) -> GameServerStatus {
    let Some(written) = written.filter(|written| written.state.is_some()).cloned() else { return first };
    GameServerStatus {
        node_name: first.node_name,
        eviction: written.eviction.or(first.eviction),
        counters: written.counters.or(first.counters),
        lists: written.lists.or(first.lists),
        players: written.players.or(first.players),
        ..written
    }
}

/// The write that makes a development server Ready.
pub(crate) fn development(server: &GameServer, address: &str) -> Value {
    let mut ready = server.clone();
    ready.status = Some(development_status(server, address));
    let change = difference(&json!(server), &json!(ready)).unwrap_or_else(|| json!({}));
    under_version(change, server.metadata.resource_version.as_deref().unwrap_or_default())
}

fn development_status(server: &GameServer, address: &str) -> GameServerStatus {
    let ports = server
        .spec
        .ports()
        .iter()
        .map(|port| StatusPort { name: port.name.clone(), port: port.host_port.unwrap_or(0) });
    let base = match &server.status {
        Some(status) if status.state.is_some() => status.clone(),
        Some(_) | None => first_status(&server.spec, None),
    };
    GameServerStatus {
        state: Some(State::Ready),
        ports: Some(ports.collect()),
        address: address.to_owned(),
        addresses: Some(vec![NodeAddress { kind: "InternalIP".to_owned(), address: address.to_owned() }]),
        node_name: address.to_owned(),
        ..base
    }
}

/// The one write that hands a waiting server to a node, and says that it waits no more.
pub(crate) fn hand_over(server: &Server, birth: &Birth, now: Timestamp) -> Value {
    let mut change = json!({
        "metadata": { "annotations": hand_over_annotations(Some(birth)) },
        "status": { "nodeName": birth.node },
    });
    // What an agent wrote that fell silent before it could hand the server back.
    if server.annotations.contains_key(names::REFUSED_ANNOTATION) {
        change["metadata"]["annotations"][names::REFUSED_ANNOTATION] = Value::Null;
    }
    if let Some(conditions) = told(Some(&server.conditions), ConditionKind::Placed, None, now) {
        change["status"]["conditions"] = json!(conditions);
    }
    under_version(change, &server.resource_version)
}

/// The write that says why a server waits; `leaves` where it is taken from its node by it.
pub(crate) fn no_node(server: &Server, trouble: &Trouble, leaves: bool, now: Timestamp) -> Value {
    let conditions = told(Some(&server.conditions), ConditionKind::Placed, Some(trouble), now);
    let mut change = json!({ "status": { "conditions": conditions } });
    if leaves {
        change["status"]["nodeName"] = json!("");
        change["metadata"] = json!({ "annotations": { names::LEASE_ANNOTATION: null } });
    }
    under_version(change, &server.resource_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server;

    fn game_server(value: Value) -> GameServer {
        serde_json::from_value(value).expect("a GameServer")
    }

    fn direct() -> GameServer {
        game_server(json!({
            "metadata": {"name": "lone", "namespace": "games", "resourceVersion": "7",
                         "finalizers": ["other/one"], "annotations": {"mine": "1"}},
            "spec": {
                "counters": {"rooms": {"count": 3}},
                "lists": {"players": {}},
                "eviction": {"safe": "OnUpgrade"},
                "template": {"spec": {"containers": [{"name": "game", "image": "i"}], "newField": 1}},
            },
        }))
    }

    fn adopted(server: &GameServer, node: Option<&Birth>) -> Value {
        adoption(server, node, None, Timestamp::UNIX_EPOCH)
    }

    fn birth() -> Birth {
        Birth { node: "n1".to_owned(), hand_over: HandOver::new("n1", "u", "b") }
    }

    #[test]
    fn a_directly_created_server_is_taken_on_in_one_write() {
        let change = adopted(&direct(), Some(&birth()));
        assert_eq!(change["metadata"]["resourceVersion"], "7");
        assert_eq!(change["metadata"]["finalizers"], json!(["other/one", names::FINALIZER]));
        assert_eq!(
            change["metadata"]["annotations"][names::LEASE_ANNOTATION],
            birth().hand_over.to_annotation()
        );
        assert_eq!(change["metadata"]["annotations"][names::SDK_VERSION_ANNOTATION], VERSION);
        assert_eq!(change["metadata"]["annotations"].get("mine"), None, "what stays is not written");
        assert_eq!(change["spec"], json!({"container": "game", "scheduling": "Packed"}));
        let status = &change["status"];
        assert_eq!(status["state"], "Creating");
        assert_eq!(status["nodeName"], "n1");
        assert_eq!(status["eviction"]["safe"], "OnUpgrade");
        assert_eq!(status["counters"]["rooms"], json!({"count": 3, "capacity": 1000}));
        assert_eq!(status["lists"]["players"], json!({"values": [], "capacity": 1000}));
    }

    #[test]
    fn without_a_node_there_is_no_hand_over() {
        let change = adopted(&direct(), None);
        assert_eq!(change["status"]["nodeName"], "");
        assert_eq!(change["metadata"]["annotations"].get(names::LEASE_ANNOTATION), None);
    }

    #[test]
    fn what_its_creator_wrote_of_the_status_stays() {
        let mut server = direct();
        server.status = serde_json::from_value(json!({
            "state": "PortAllocation", "counters": {"rooms": {"count": 9, "capacity": 10}},
        }))
        .ok();
        let change = adopted(&server, Some(&birth()));
        assert_eq!(change["status"].get("state"), None);
        assert_eq!(change["status"].get("counters"), None);
        assert_eq!(change["status"]["eviction"]["safe"], "OnUpgrade");
        assert_eq!(change["status"]["nodeName"], "n1");
    }

    #[test]
    fn a_template_that_allows_eviction_is_believed() {
        let mut server = direct();
        server.spec.template.0["metadata"]["annotations"][names::AUTOSCALER_SAFE_TO_EVICT_ANNOTATION] =
            json!("true");
        assert_eq!(adopted(&server, None)["status"]["eviction"]["safe"], "Always");
    }

    #[test]
    fn a_development_server_is_ready_at_its_address() {
        let mut server = direct();
        server
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(names::DEV_ADDRESS_ANNOTATION.to_owned(), "10.1.1.2".to_owned());
        server.spec.ports = serde_json::from_value(json!([
            {"name": "game", "portPolicy": "Static", "hostPort": 7001, "containerPort": 7000}
        ]))
        .expect("ports");
        let status = adopted(&server, None)["status"].clone();
        assert_eq!(status["state"], "Ready");
        assert_eq!(status["address"], "10.1.1.2");
        assert_eq!(status["nodeName"], "10.1.1.2");
        assert_eq!(status["addresses"], json!([{"type": "InternalIP", "address": "10.1.1.2"}]));
        assert_eq!(status["ports"], json!([{"name": "game", "port": 7001}]));
    }

    #[test]
    fn a_hand_over_writes_nothing_else() {
        let change = hand_over(&server("a").build(), &birth(), Timestamp::UNIX_EPOCH);
        assert_eq!(change["status"], json!({"nodeName": "n1"}));
        assert_eq!(change["metadata"]["resourceVersion"], "1");
    }

    #[test]
    fn a_server_that_waited_says_so_and_then_that_it_is_placed() {
        let trouble = Trouble { reason: "NoRoom", message: "no node fits: 2 nodes draining".to_owned() };
        let waiting = no_node(&server("a").build(), &trouble, true, Timestamp::UNIX_EPOCH);
        assert_eq!(waiting["status"]["nodeName"], "");
        assert_eq!(waiting["metadata"]["annotations"], json!({names::LEASE_ANNOTATION: null}));
        let said = &waiting["status"]["conditions"][0];
        assert_eq!(
            (&said["type"], &said["status"], &said["reason"]),
            (&json!("Placed"), &json!("False"), &json!("NoRoom"))
        );
        let conditions = serde_json::from_value(waiting["status"]["conditions"].clone()).expect("conditions");
        let told = Server { conditions, ..server("a").build() };
        let placed = hand_over(&told, &birth(), Timestamp::UNIX_EPOCH);
        assert_eq!(placed["status"]["conditions"][0]["status"], "True");
        assert_eq!(placed["status"]["nodeName"], "n1");
        assert_eq!(placed["metadata"]["annotations"].get(names::REFUSED_ANNOTATION), None);
        let refused = server("a").annotation(names::REFUSED_ANNOTATION, "OutOfcpu").build();
        let placed = hand_over(&refused, &birth(), Timestamp::UNIX_EPOCH);
        assert_eq!(placed["metadata"]["annotations"][names::REFUSED_ANNOTATION], Value::Null);
        let still = no_node(&told, &trouble, false, Timestamp::UNIX_EPOCH);
        assert_eq!(still["status"].get("nodeName"), None);
    }
}
