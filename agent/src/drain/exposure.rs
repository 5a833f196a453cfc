//! Which game pods the taint of a draining node would evict. Pure.

use std::collections::BTreeMap;

use berth_api::link::ServerUid;
use jiff::Timestamp;

use super::plan::Pods;
use crate::game_server::Line;
use crate::pods::GamePod;

/// What is remembered of the pods' tolerations: since when each is seen to have one. Who looks seldom may find one on a pod
/// that he has never seen without, so what is new counts from when it is seen, however it came to be.
#[derive(Clone, Debug, Default)]
pub struct Tolerations {
    since: BTreeMap<String, Timestamp>,
}

impl Tolerations {
    /// Looks at the pods as they are now.
    pub fn note(&mut self, pods: &BTreeMap<String, GamePod>, now: Timestamp) {
        let tolerating = pods.iter().filter(|(_, pod)| pod.tolerates_draining);
        let since = |uid: &String| self.since.get(uid).copied().unwrap_or(now);
        self.since = tolerating.map(|(uid, _)| (uid.clone(), since(uid))).collect();
    }
}

/// What a plan needs to know of the pods. What is on its way out is not exposed; what has no worker of ours is, since
/// nobody here gives it a toleration.
#[must_use]
pub fn expose(
    pods: &BTreeMap<String, GamePod>,
    lines: &BTreeMap<ServerUid, Line>,
    tolerations: &Tolerations,
    are_known: bool,
) -> Pods {
    let is_leaving = |pod: &GamePod| {
        let line = lines.get(&pod.owner);
        pod.is_ending || line.is_some_and(|line| line.deleting || line.state.is_terminal())
    };
    let first = |is_evicted: fn(&GamePod) -> bool| {
        pods.values().find(|pod| is_evicted(pod) && !is_leaving(pod)).map(|pod| pod.name.clone())
    };
    let staying = pods.iter().filter(|(_, pod)| !is_leaving(pod));
    Pods {
        are_known,
        left: pods.len(),
        servers: lines.values().filter(|line| !line.state.is_terminal()).count(),
        exposed_to_draining: first(|pod| !pod.tolerates_draining),
        exposed_to_active: first(|pod| !pod.tolerates_active),
        tolerated_at: staying.filter_map(|(uid, _)| tolerations.since.get(uid)).max().copied(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_api::lifecycle::State;
    use berth_api::link::ServerUid;
    use jiff::Timestamp;

    use super::{Tolerations, expose};
    use crate::game_server::Line;
    use crate::pods::GamePod;

    fn pod(owner: &str) -> GamePod {
        GamePod {
            owner: ServerUid(owner.into()),
            name: format!("games/{owner}"),
            is_ending: false,
            tolerates_draining: false,
            tolerates_active: true,
        }
    }

    fn line(state: State, deleting: bool) -> Line {
        Line {
            namespace: "games".into(),
            name: "a".into(),
            uid: "a".into(),
            state,
            since: String::new(),
            deleting,
            address: String::new(),
            ports: Vec::new(),
            pod: None,
            sdk: String::new(),
            reason: None,
            players: None,
            amounts: BTreeMap::new(),
            history: Vec::new(),
        }
    }

    #[test]
    fn what_does_not_tolerate_is_exposed_until_it_is_on_its_way_out() {
        let table = [
            ("a session", pod("a"), Some(line(State::Allocated, false)), true),
            ("one that is not yet deleted", pod("a"), Some(line(State::Ready, false)), true),
            ("one that nobody here serves", pod("a"), None, true),
            ("one that tolerates", GamePod { tolerates_draining: true, ..pod("a") }, None, false),
            ("one that is deleted", pod("a"), Some(line(State::Ready, true)), false),
            ("one that has failed", pod("a"), Some(line(State::Unhealthy, false)), false),
            ("a pod that ends", GamePod { is_ending: true, ..pod("a") }, None, false),
        ];
        for (name, pod, line, expected) in table {
            let pods = BTreeMap::from([("p".to_owned(), pod)]);
            let lines = line.map(|line| (ServerUid("a".into()), line)).into_iter().collect();
            let seen = expose(&pods, &lines, &Tolerations::default(), true);
            assert_eq!(seen.exposed_to_draining.is_some(), expected, "{name}");
            assert_eq!((seen.left, seen.exposed_to_active), (1, None), "{name}");
        }
    }

    #[test]
    fn a_toleration_counts_from_when_it_is_first_seen() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let tolerating = || GamePod { tolerates_draining: true, ..pod("a") };
        let pods = |pod| BTreeMap::from([("p".to_owned(), pod)]);
        let table = [
            ("it had none before", vec![pods(pod("a")), pods(tolerating()), pods(tolerating())], Some(2)),
            ("nobody has seen it without", vec![pods(tolerating()), pods(tolerating())], Some(1)),
            ("nobody has seen it at all", vec![BTreeMap::new(), pods(tolerating())], Some(2)),
            ("it is gone", vec![pods(tolerating()), BTreeMap::new()], None),
            ("it ends", vec![pods(GamePod { is_ending: true, ..tolerating() })], None),
            ("it has none", vec![pods(pod("a"))], None),
        ];
        for (name, looks, expected) in table {
            let mut tolerations = Tolerations::default();
            let mut seen = None;
            for (second, pods) in (1..).zip(&looks) {
                tolerations.note(pods, at(second));
                seen = expose(pods, &BTreeMap::new(), &tolerations, true).tolerated_at;
            }
            assert_eq!(seen, expected.map(at), "{name}");
        }
    }
}
