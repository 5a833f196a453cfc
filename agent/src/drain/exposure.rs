//! Which game pods the taint of a draining node would evict. Pure.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::link::ServerUid;
use jiff::Timestamp;

use super::plan::Pods;
use crate::game_server::Line;
use crate::pods::GamePod;

/// What is remembered of the pods' tolerations.
#[derive(Clone, Debug, Default)]
pub struct Tolerations {
    tolerating: BTreeSet<String>,
    lacking: BTreeSet<String>,
    last: Option<Timestamp>,
}

impl Tolerations {
    /// Looks at the pods as they are now.
    pub fn note(&mut self, pods: &BTreeMap<String, GamePod>, now: Timestamp) {
        let (tolerating, lacking): (Vec<_>, Vec<_>) =
            pods.iter().partition(|(_, pod)| pod.tolerates_draining);
        let uids = |pods: Vec<(&String, &GamePod)>| pods.into_iter().map(|(uid, _)| uid.clone()).collect();
        let tolerating: BTreeSet<String> = uids(tolerating);
        if tolerating.intersection(&self.lacking).next().is_some() {
            self.last = Some(now);
        }
        (self.tolerating, self.lacking) = (tolerating, uids(lacking));
    }

    /// A new agent cannot know when its predecessor has written the last one.
    pub fn doubt(&mut self, now: Timestamp) {
        self.last = Some(now);
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
    Pods {
        are_known,
        left: pods.len(),
        exposed_to_draining: first(|pod| !pod.tolerates_draining),
        exposed_to_active: first(|pod| !pod.tolerates_active),
        tolerated_at: tolerations.last,
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
    fn the_time_of_a_new_toleration_is_noted_and_no_other() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let pods = |tolerates_draining| {
            BTreeMap::from([("p".to_owned(), GamePod { tolerates_draining, ..pod("a") })])
        };
        let mut tolerations = Tolerations::default();
        tolerations.note(&pods(true), at(1));
        assert_eq!(tolerations.last, None, "it was made with one");
        let mut tolerations = Tolerations::default();
        for (tolerates, second, expected) in
            [(false, 1, None), (true, 2, Some(at(2))), (true, 3, Some(at(2)))]
        {
            tolerations.note(&pods(tolerates), at(second));
            assert_eq!(tolerations.last, expected);
        }
    }
}
