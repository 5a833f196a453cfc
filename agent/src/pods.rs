//! The pods of this node: which belong to game servers, what they all take of the node's room, and the host ports that
//! they hold. Pure, but for the ledger it enters ports in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::game_node::Room;
use berth_api::game_server::GameServer;
use berth_api::link::ServerUid;
use berth_api::names;
use k8s_openapi::api::core::v1::{Pod, Taint};

use crate::node::room::{minus, plus, taken_by, takes_room};
use crate::node::tolerates;
use crate::ports::ledger::slots_of_pod;
use crate::ports::{Ports, Tenant};

/// The pod of a game server, as whoever empties the node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GamePod {
    /// UID of its server.
    pub owner: ServerUid,
    /// Namespace and name.
    pub name: String,
    /// Somebody has asked for its deletion.
    pub is_ending: bool,
    /// The taint of a node that is being emptied does not evict it.
    pub tolerates_draining: bool,
    /// The taint of a node that FleetIQ keeps does not evict it.
    pub tolerates_active: bool,
}

impl GamePod {
    fn new(owner: &ServerUid, pod: &Pod) -> Self {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            owner: owner.clone(),
            name: format!("{}/{}", part(&pod.metadata.namespace), part(&pod.metadata.name)),
            is_ending: pod.metadata.deletion_timestamp.is_some(),
            tolerates_draining: endures(pod, names::DRAINING_TAINT) == Endures::Forever,
            tolerates_active: endures(pod, names::ACTIVE_TAINT) == Endures::Forever,
        }
    }
}

/// The phase that kubelet has the pod in, or the API server until kubelet says so.
#[must_use]
pub fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// How long a pod stays on a node with a taint of ours that evicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endures {
    /// Not at all.
    #[default]
    No,
    /// For some time: a toleration has an end, and none without one helps against that.
    AWhile,
    /// As long as it likes.
    Forever,
}

/// How long a pod stays under the taint of this key.
#[must_use]
pub fn endures(pod: &Pod, key: &str) -> Endures {
    let taint = Taint {
        key: key.to_owned(),
        value: Some(names::TAINT_VALUE.to_owned()),
        effect: "NoExecute".to_owned(),
        time_added: None,
    };
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let mut fitting = tolerations.filter(|toleration| tolerates(toleration, &taint)).peekable();
    if fitting.peek().is_none() {
        return Endures::No;
    }
    if fitting.all(|toleration| toleration.toleration_seconds.is_none()) {
        Endures::Forever
    } else {
        Endures::AWhile
    }
}

/// All pods that the watch shows.
#[derive(Debug, Default)]
pub struct PodBook {
    pods: BTreeMap<String, Known>,
    by_owner: BTreeMap<ServerUid, Arc<Pod>>,
    listed: BTreeSet<String>,
    others: Room,
    games: Room,
}

#[derive(Debug)]
struct Known {
    owner: Option<ServerUid>,
    room: Room,
    game: Option<GamePod>,
}

impl PodBook {
    /// Notes a pod as it is now.
    pub fn note(&mut self, pod: &Arc<Pod>, ports: &Ports) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.listed.insert(uid.clone());
        let owner = owner(pod);
        let counts = takes_room(pod);
        let spec = pod.spec.clone().unwrap_or_default();
        let room = if counts { taken_by(&spec) } else { Room::default() };
        self.forget_room(&uid);
        let sum = if owner.is_some() { &mut self.games } else { &mut self.others };
        *sum = plus(*sum, room);
        let tenant = Tenant::Pod(uid.clone());
        if counts {
            ports.enter(&tenant, slots_of_pod(&spec));
        } else {
            // A pod that has ended holds no port.
            ports.release(&tenant);
        }
        if let Some(owner) = &owner {
            self.by_owner.insert(owner.clone(), Arc::clone(pod));
        }
        let game = owner.as_ref().map(|owner| GamePod::new(owner, pod));
        self.pods.insert(uid, Known { owner, room, game });
    }

    /// A pod that cannot be decoded is still there.
    pub fn keep(&mut self, uid: Option<&str>) {
        self.listed.extend(uid.map(str::to_owned));
    }

    /// A pod is gone; answers whose it was.
    pub fn remove(&mut self, uid: &str, ports: &Ports) -> Option<ServerUid> {
        self.forget_room(uid);
        ports.release(&Tenant::Pod(uid.to_owned()));
        let owner = self.pods.remove(uid)?.owner?;
        let is_this = |pod: &Arc<Pod>| pod.metadata.uid.as_deref() == Some(uid);
        if self.by_owner.get(&owner).is_some_and(is_this) {
            self.by_owner.remove(&owner);
        }
        Some(owner)
    }

    /// A new list begins.
    pub fn begin_list(&mut self) {
        self.listed.clear();
    }

    /// A list is complete: what it does not show is gone. Answers which, and whose.
    pub fn end_list(&mut self, ports: &Ports) -> Vec<(String, Option<ServerUid>)> {
        let gone: Vec<String> = self.pods.keys().filter(|uid| !self.listed.contains(*uid)).cloned().collect();
        gone.into_iter()
            .map(|uid| {
                let owner = self.remove(&uid, ports);
                (uid, owner)
            })
            .collect()
    }

    /// The pod of a game server.
    pub fn of(&self, owner: &ServerUid) -> Option<Arc<Pod>> {
        self.by_owner.get(owner).cloned()
    }

    /// Pods of game servers, by whose they are.
    pub fn of_servers(&self) -> impl Iterator<Item = (&ServerUid, &Arc<Pod>)> {
        self.by_owner.iter()
    }

    /// The pods of game servers, by UID, as whoever empties the node sees them.
    pub fn game_pods(&self) -> BTreeMap<String, GamePod> {
        let known = self.pods.iter().filter_map(|(uid, known)| Some((uid.clone(), known.game.clone()?)));
        known.collect()
    }

    /// What pods that are no game servers take.
    pub fn others(&self) -> Room {
        self.others
    }

    /// What game pods take.
    pub fn games(&self) -> Room {
        self.games
    }

    fn forget_room(&mut self, uid: &str) {
        let Some(known) = self.pods.get(uid) else { return };
        let sum = if known.owner.is_some() { &mut self.games } else { &mut self.others };
        *sum = minus(*sum, known.room);
    }
}

/// The game server that a pod of the role belongs to.
fn owner(pod: &Pod) -> Option<ServerUid> {
    let labels = pod.metadata.labels.as_ref()?;
    if labels.get(names::ROLE_LABEL).map(String::as_str) != Some(names::ROLE_GAME_SERVER) {
        return None;
    }
    owner_uid(pod).map(|uid| ServerUid(uid.to_owned()))
}

/// UID of the GameServer that controls a pod.
pub(crate) fn owner_uid(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == "GameServer")
        .map(|owner| owner.uid.as_str())
}

/// Whether a server controls a pod.
pub(crate) fn is_pod_of(pod: &Pod, server: &GameServer) -> bool {
    let owner = owner_uid(pod);
    owner.is_some() && owner == server.metadata.uid.as_deref()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use berth_api::link::ServerUid;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::{Endures, PodBook, endures};
    use crate::ports::ledger::Ledger;
    use crate::ports::{PortMetrics, PortRange, Ports};

    fn pod(uid: &str, owner: Option<&str>, phase: &str) -> Arc<Pod> {
        let owners: Vec<Value> = owner
            .map(|uid| {
                json!({
                    "apiVersion": "agones.dev/v1", "kind": "GameServer", "name": "gs", "uid": uid,
                    "controller": true
                })
            })
            .into_iter()
            .collect();
        let role = if owner.is_some() { "gameserver" } else { "other" };
        let pod = json!({
            "metadata": { "uid": uid, "labels": { "agones.dev/role": role }, "ownerReferences": owners },
            "spec": { "containers": [{
                "name": "main",
                "ports": [{ "containerPort": 80, "hostPort": 7000, "protocol": "TCP" }],
                "resources": { "requests": { "cpu": "100m" } }
            }] },
            "status": { "phase": phase }
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn pods_take_room_and_ports_until_they_have_ended() {
        let range = PortRange::new(7000, 7001).expect("a range");
        let ports = Ports::new(
            Ledger::new(BTreeMap::from([("default".to_owned(), range)]), 0),
            PortMetrics::default(),
        );
        let free = || ports.counts().borrow()["default"].free;
        let mut book = PodBook::default();
        book.note(&pod("a", None, "Running"), &ports);
        book.note(&pod("b", Some("gs-1"), "Running"), &ports);
        assert_eq!((book.others().milli_cpu, book.games().milli_cpu, free()), (100, 100, 1));
        assert!(book.of(&ServerUid("gs-1".into())).is_some());
        book.note(&pod("a", None, "Succeeded"), &ports);
        assert_eq!((book.others().milli_cpu, free()), (0, 1), "the other pod still has the port");
        assert_eq!(book.remove("b", &ports), Some(ServerUid("gs-1".into())));
        assert_eq!((book.games().milli_cpu, free()), (0, 2));
        assert!(book.of(&ServerUid("gs-1".into())).is_none());
    }

    #[test]
    fn case_31_a_toleration_with_an_end_is_none_that_lasts() {
        let lasting = || json!({ "key": "gamelift.status/draining", "operator": "Exists" });
        let ending = || {
            json!({
                "key": "gamelift.status/draining", "operator": "Equal", "value": "true", "effect": "NoExecute",
                "tolerationSeconds": 60
            })
        };
        let other = || json!({ "key": "gpu", "operator": "Exists" });
        let table = [
            ("no list", Value::Null, Endures::No),
            ("another's", json!([other()]), Endures::No),
            ("a lasting one", json!([other(), lasting()]), Endures::Forever),
            ("one of everything", json!([{ "operator": "Exists" }]), Endures::Forever),
            ("one with an end", json!([ending()]), Endures::AWhile),
            // Which of the two the evicting controller goes by is its own business.
            ("both", json!([lasting(), ending()]), Endures::AWhile),
        ];
        for (name, tolerations, expected) in table {
            let pod = json!({ "metadata": {}, "spec": { "containers": [], "tolerations": tolerations } });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(endures(&pod, "gamelift.status/draining"), expected, "{name}");
        }
    }

    #[test]
    fn what_a_new_list_does_not_show_is_gone() {
        let ports = Ports::new(Ledger::new(BTreeMap::new(), 0), PortMetrics::default());
        let mut book = PodBook::default();
        for uid in ["a", "b", "c"] {
            book.note(&pod(uid, Some(uid), "Running"), &ports);
        }
        book.begin_list();
        book.note(&pod("a", Some("a"), "Running"), &ports);
        book.keep(Some("b"));
        let gone = book.end_list(&ports);
        assert_eq!(gone, [("c".to_owned(), Some(ServerUid("c".into())))]);
        assert_eq!(book.games().pods, 2);
    }
}
