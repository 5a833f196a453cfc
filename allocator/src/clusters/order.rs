//! In which order clusters are asked. Pure, but for the chance that the caller hands in.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::allocation_policy::{ConnectionInfo, GameServerAllocationPolicySpec};
use rand::Rng;

/// Clusters that are still to be asked.
#[derive(Debug)]
pub(super) struct Order {
    /// The policies of each priority, in the order of their names.
    by_priority: BTreeMap<i32, Vec<GameServerAllocationPolicySpec>>,
    asked: BTreeSet<String>,
}

impl Order {
    /// The order that these policies make, which are sorted by name.
    pub(super) fn new(policies: impl IntoIterator<Item = GameServerAllocationPolicySpec>) -> Self {
        let mut by_priority: BTreeMap<i32, Vec<_>> = BTreeMap::new();
        for policy in policies {
            by_priority.entry(policy.priority).or_default().push(policy);
        }
        Self { by_priority, asked: BTreeSet::new() }
    }

    /// The next cluster: one of the lowest priority that has a share and was not asked yet, by chance and share.
    pub(super) fn next(&mut self, random: &mut impl Rng) -> Option<ConnectionInfo> {
        let chosen = self.by_priority.values().find_map(|policies| {
            let shares = shares(policies, &self.asked);
            let total: u64 = shares.iter().map(|(_, share)| share).sum();
            let mut ticket = (total > 0).then(|| random.random_range(0..total))?;
            let winner = shares.into_iter().find(|(_, share)| {
                let wins = ticket < *share;
                ticket = ticket.saturating_sub(*share);
                wins
            });
            winner.map(|(connection, _)| connection.clone())
        })?;
        self.asked.insert(chosen.cluster_name.clone());
        Some(chosen)
    }
}

/// The clusters that were not asked yet, each reached as its first policy says, with the mean of its weights in whole
/// numbers.
fn shares<'a>(
    policies: &'a [GameServerAllocationPolicySpec],
    asked: &BTreeSet<String>,
) -> Vec<(&'a ConnectionInfo, u64)> {
    let mut clusters: Vec<(&ConnectionInfo, Vec<u64>)> = Vec::new();
    for policy in policies.iter().filter(|policy| !asked.contains(&policy.connection_info.cluster_name)) {
        // A schema keeps weights from being negative, and from being so large that their sum would not do.
        let weight = u64::from(u32::try_from(policy.weight.max(0)).unwrap_or(u32::MAX));
        let known =
            clusters.iter_mut().find(|(one, _)| one.cluster_name == policy.connection_info.cluster_name);
        match known {
            Some((_, weights)) => weights.push(weight),
            None => clusters.push((&policy.connection_info, vec![weight])),
        }
    }
    let mean = |weights: Vec<u64>| weights.iter().sum::<u64>() / u64::try_from(weights.len()).unwrap_or(1);
    clusters.into_iter().map(|(connection, weights)| (connection, mean(weights))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    fn policy(cluster: &str, priority: i32, weight: i64) -> GameServerAllocationPolicySpec {
        let connection_info = ConnectionInfo {
            cluster_name: cluster.to_owned(),
            allocation_endpoints: vec![format!("{cluster}-{priority}")],
            ..ConnectionInfo::default()
        };
        GameServerAllocationPolicySpec { priority, weight, connection_info }
    }

    fn asked(policies: &[GameServerAllocationPolicySpec], random: &mut StdRng) -> Vec<String> {
        let mut order = Order::new(policies.iter().cloned());
        std::iter::from_fn(|| order.next(random)).map(|one| one.allocation_endpoints[0].clone()).collect()
    }

    #[test]
    fn priorities_come_first_and_weights_are_shares() {
        let policies = [policy("a", 1, 1), policy("b", 1, 3), policy("c", 2, 9)];
        let mut random = StdRng::seed_from_u64(7);
        let mut first_a = 0;
        for _ in 0..4000 {
            let order = asked(&policies, &mut random);
            assert_eq!(order.len(), 3, "{order:?}");
            assert_eq!(order[2], "c-2");
            first_a += i32::from(order[0] == "a-1");
        }
        // A quarter, give or take five standard deviations.
        assert!((860..=1140).contains(&first_a), "{first_a} of 4000");
    }

    #[test]
    fn a_cluster_is_asked_once_though_several_policies_name_it() {
        let mut random = StdRng::seed_from_u64(1);
        assert_eq!(asked(&[policy("a", 1, 1), policy("a", 2, 1), policy("a", 1, 1)], &mut random), ["a-1"]);
    }

    #[test]
    fn no_share_is_never_asked() {
        let mut random = StdRng::seed_from_u64(1);
        assert_eq!(asked(&[policy("a", 1, 0), policy("b", 2, 1)], &mut random), ["b-2"]);
        // The mean of 0 and 1 in whole numbers is 0, and so the later priority comes first.
        let halves = [policy("a", 1, 0), policy("a", 1, 1), policy("b", 2, 1), policy("a", 3, 1)];
        assert_eq!(asked(&halves, &mut random), ["b-2", "a-3"]);
        assert_eq!(asked(&[policy("a", 1, -4)], &mut random), [""; 0]);
    }

    proptest! {
        #[test]
        fn every_cluster_with_a_share_is_asked_once(
            weights in proptest::collection::vec((0_i32..4, 1_i64..=i64::MAX), 0..12),
            seed in any::<u64>(),
        ) {
            let policies: Vec<_> = weights
                .iter()
                .enumerate()
                .map(|(index, (priority, weight))| policy(&format!("c{index}"), *priority, *weight))
                .collect();
            let mut order = asked(&policies, &mut StdRng::seed_from_u64(seed));
            order.sort();
            order.dedup();
            prop_assert_eq!(order.len(), policies.len());
        }
    }
}
