//! Which pod of `berth-sdk` is replaced next. Pure.

/// One pod of `berth-sdk` and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// It is of another revision than the newest.
    pub(super) is_old: bool,
    pub(super) is_ready: bool,
    pub(super) is_ending: bool,
    /// Servers that its node has, or is about to get.
    pub(super) servers: usize,
}

/// The index of the pod that goes now.
pub(super) fn next(pods: &[Seen]) -> Option<usize> {
    // One at a time, and a new revision has to show that it comes up.
    let is_unproven = |pod: &Seen| pod.is_ending || (!pod.is_old && !pod.is_ready);
    if pods.iter().any(is_unproven) {
        return None;
    }
    pods.iter().position(|pod| pod.is_old && pod.servers == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, proptest};

    use super::*;

    fn old(servers: usize) -> Seen {
        Seen { is_old: true, is_ready: true, is_ending: false, servers }
    }

    #[test]
    fn an_old_pod_goes_when_its_node_is_empty_and_nothing_else_is_under_way() {
        let new = Seen { is_old: false, ..old(0) };
        let coming = Seen { is_ready: false, ..new.clone() };
        let going = Seen { is_ending: true, ..old(0) };
        let broken = Seen { is_ready: false, ..old(0) };
        let rows: [(&str, Vec<Seen>, Option<usize>); 7] = [
            ("none there", vec![], None),
            ("all new", vec![new.clone(), new.clone()], None),
            ("servers everywhere", vec![old(1), old(2)], None),
            ("the second is empty", vec![old(1), old(0), old(0)], Some(1)),
            ("one is going", vec![going, old(0)], None),
            ("the new revision does not come up", vec![coming, old(0)], None),
            ("an old one that is broken is no reason to wait", vec![broken, old(0)], Some(0)),
        ];
        for (name, pods, expected) in rows {
            assert_eq!(next(&pods), expected, "{name}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn no_pod_goes_under_a_server(
            pods in proptest::collection::vec(
                (any::<bool>(), any::<bool>(), any::<bool>(), 0..3_usize).prop_map(
                    |(is_old, is_ready, is_ending, servers)| Seen { is_old, is_ready, is_ending, servers },
                ),
                0..8,
            ),
        ) {
            if let Some(index) = next(&pods) {
                prop_assert!(pods[index].servers == 0 && pods[index].is_old);
            }
        }
    }
}
