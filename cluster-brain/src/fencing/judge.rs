//! How each node stands, from how long its agent was not heard of. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_api::node_lease::MARGIN;

/// More than this part of the agents, in hundredths, and at least two of them: then nothing is taken back.
const TOGETHER: usize = 30;

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its agent renews its lease.
    Live,
    /// Not known: not renewed in time to be offered, and not silent for long enough to be sure.
    Unsure,
    /// Lapsed, with so many others that nothing is taken back.
    Held,
    /// Lapsed; nobody acts for it.
    Lapsed {
        /// So is the margin: no call of its agent can still be on its way.
        is_over: bool,
    },
    /// Silent for so long, and kubelet with it, that its sessions are given up.
    Expired,
    /// There is no such Node, and nobody acts for it.
    Gone,
}

/// What is seen of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// For how long no renewal was seen while we would have seen one.
    pub(crate) unheard: Duration,
    /// How long its lease lasts.
    pub(crate) duration: Duration,
    /// Somebody holds the lease and was seen to renew it in time.
    pub(crate) is_live: bool,
    /// The Node object exists.
    pub(crate) has_node: bool,
    /// Its kubelet is silent too, as the control plane says.
    pub(crate) is_kubelet_silent: bool,
}

impl Sight {
    /// For how long its lease has been over.
    fn lapsed(&self) -> Option<Duration> {
        if self.is_live { None } else { self.unheard.checked_sub(self.duration) }
    }

    /// Two renewals in a row are missing.
    fn is_overdue(&self) -> bool {
        self.unheard * 3 >= self.duration * 2
    }
}

/// How each node stands. `lost_after`: how long sessions of a silent node are kept.
pub(super) fn judge(sights: &BTreeMap<String, Sight>, lost_after: Duration) -> BTreeMap<String, Standing> {
    let all: Vec<&Sight> = sights.values().filter(|sight| sight.has_node).collect();
    let standing = |sight: &Sight| match sight.lapsed() {
        None if sight.is_live => Standing::Live,
        None => Standing::Unsure,
        Some(lapsed) if !sight.has_node && lapsed >= MARGIN => Standing::Gone,
        Some(_) if !sight.has_node => Standing::Unsure,
        Some(lapsed) if are_together(lapsed, sight.duration, &all) => Standing::Held,
        Some(lapsed) if lapsed >= lost_after && sight.is_kubelet_silent => Standing::Expired,
        Some(lapsed) => Standing::Lapsed { is_over: lapsed >= MARGIN },
    };
    sights.iter().map(|(name, sight)| (name.clone(), standing(sight))).collect()
}

/// Whether too many fell silent with one whose lease has been over for so long. Those that did long before it are another
/// matter, and so neither count as silent nor as agents.
fn are_together(lapsed: Duration, duration: Duration, all: &[&Sight]) -> bool {
    let is_earlier = |sight: &&&Sight| sight.lapsed().is_some_and(|other| other > lapsed + duration);
    let agents = all.iter().filter(|sight| !is_earlier(sight));
    let (silent, count) =
        agents.fold((0, 0), |(silent, count), sight| (silent + usize::from(sight.is_overdue()), count + 1));
    silent > 1 && silent * 100 > TOGETHER * count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const LOST_AFTER: Duration = Duration::from_secs(900);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn unheard(for_seconds: u64) -> Sight {
        Sight {
            unheard: seconds(for_seconds),
            duration: seconds(10),
            is_live: for_seconds < 10,
            has_node: true,
            is_kubelet_silent: false,
        }
    }

    fn judged(sights: &[Sight]) -> Vec<Standing> {
        let named = sights.iter().enumerate().map(|(index, sight)| (format!("n{index:03}"), *sight));
        judge(&named.collect(), LOST_AFTER).into_values().collect()
    }

    #[test]
    fn a_silent_node_goes_from_live_to_given_up() {
        let silent = |sight: Sight| Sight { is_kubelet_silent: true, ..sight };
        let gone = |sight: Sight| Sight { has_node: false, ..sight };
        let rows = [
            ("renewed", unheard(3), Standing::Live),
            ("two renewals missing", unheard(9), Standing::Live),
            ("given back", Sight { is_live: false, ..unheard(3) }, Standing::Unsure),
            ("lapsed", unheard(10), Standing::Lapsed { is_over: false }),
            ("within the margin", unheard(11), Standing::Lapsed { is_over: false }),
            ("and the margin over", unheard(12), Standing::Lapsed { is_over: true }),
            ("for long, but kubelet is there", unheard(2000), Standing::Lapsed { is_over: true }),
            ("kubelet is silent too", silent(unheard(909)), Standing::Lapsed { is_over: true }),
            ("for so long", silent(unheard(910)), Standing::Expired),
            ("its Node is gone, its agent is not", gone(unheard(3)), Standing::Live),
            ("its Node is gone, its lease is over", gone(unheard(11)), Standing::Unsure),
            ("all is gone", gone(unheard(12)), Standing::Gone),
        ];
        for (name, sight, expected) in rows {
            assert_eq!(judged(&[sight]), [expected], "{name}");
        }
    }

    #[test]
    fn when_many_fall_silent_together_nothing_is_taken_back() {
        let count = |sights: &[Sight], wanted: Standing| {
            judged(sights).into_iter().filter(|standing| *standing == wanted).count()
        };
        let over = Standing::Lapsed { is_over: true };
        let of = |silent: usize, live: usize, for_seconds: u64| -> Vec<Sight> {
            let silent = std::iter::repeat_n(unheard(for_seconds), silent);
            silent.chain(std::iter::repeat_n(unheard(1), live)).collect()
        };
        assert_eq!(count(&of(1, 1, 20), over), 1, "one alone is no togetherness");
        assert_eq!(count(&of(3, 7, 20), over), 3, "30 of 100 are not more than 30");
        assert_eq!(count(&of(4, 6, 20), Standing::Held), 4);
        assert_eq!(count(&of(2, 0, 20), Standing::Held), 2, "all of them");
        // The renewals of nodes do not fall together, so their leases do not end together.
        let mut staggered = of(1, 6, 10);
        staggered.extend([unheard(9), unheard(8), unheard(7)]);
        assert_eq!(count(&staggered, Standing::Held), 1, "others are about to lapse");
        // A node that was dead for an hour says nothing about the one that dies now.
        let mut later = of(2, 3, 3600);
        later.push(unheard(12));
        assert_eq!(judged(&later)[5], over);
        // Nodes that are known to be gone are gone, however many.
        let gone: Vec<Sight> =
            of(5, 0, 20).into_iter().map(|sight| Sight { has_node: false, ..sight }).collect();
        assert_eq!(count(&gone, Standing::Gone), 5);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn no_node_is_fenced_before_its_time_or_in_a_crowd(
            nodes in proptest::collection::vec((0..40_u64, any::<bool>()), 1..30),
        ) {
            let sights: Vec<Sight> = nodes.iter()
                .map(|(for_seconds, has_node)| Sight { has_node: *has_node, ..unheard(*for_seconds) })
                .collect();
            let standings = judged(&sights);
            for (sight, standing) in sights.iter().zip(&standings) {
                match standing {
                    Standing::Live => prop_assert!(sight.unheard < sight.duration),
                    Standing::Lapsed { is_over } => {
                        prop_assert!(sight.unheard >= sight.duration && sight.has_node);
                        prop_assert_eq!(*is_over, sight.unheard >= sight.duration + MARGIN);
                    }
                    Standing::Gone => prop_assert!(!sight.has_node && sight.unheard >= sight.duration + MARGIN),
                    Standing::Held => prop_assert!(sight.unheard >= sight.duration && sight.has_node),
                    Standing::Expired => prop_assert!(false, "kubelet is there"),
                    Standing::Unsure => prop_assert!(!sight.has_node),
                }
            }
            let with_node = sights.iter().filter(|sight| sight.has_node).count();
            let fenced = standings.iter().filter(|standing| matches!(standing, Standing::Lapsed { .. })).count();
            // The lapses lie within three durations of one another: no more than so many crowds, each below the limit.
            prop_assert!(fenced <= 1 + with_node * TOGETHER * 3 / 100 + 2, "{fenced} of {with_node}");
        }
    }
}
