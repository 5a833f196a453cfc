//! Counter and List: so much room left over all servers of a Fleet. Pure.
//!
//! Servers are removed in the order in which the Fleet's sets would remove them, so that what is counted away here is what
//! will be gone.

use berth_api::fleet::CounterSum;
use berth_api::fleet_autoscaler::AmountPolicy;

use super::buffer::Size;
use super::{Desired, Limit, NoAnswer};
use crate::stores::Amount;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Counter,
    List,
}

impl Counted {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::List => "list",
        }
    }
}

/// What is seen of a Fleet, as to one counter or list.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) counted: Counted,
    /// Servers it has.
    pub(super) replicas: i32,
    /// What a new server starts with.
    pub(super) fresh: Amount,
    /// Over all servers.
    pub(super) sum: CounterSum,
    /// Those of each server that may go, first to go first; `None` for one without this counter or list.
    pub(super) servers: Vec<Option<Amount>>,
}

/// The number for a Fleet.
pub(super) fn decide(policy: &AmountPolicy, seen: &Seen) -> Result<Desired, NoAnswer> {
    let buffer = match Size::read(&policy.buffer_size)? {
        Size::Number(number) => number,
        Size::Percent(_) if seen.sum.allocated_count <= 0 && seen.fresh.capacity >= policy.min_capacity => {
            return Ok(Desired::limited(1, Limit::OneServer));
        }
        share @ Size::Percent(_) => {
            let used = seen.sum.allocated_count.max(0);
            share.whole(used) - used
        }
    };
    let room = seen.sum.capacity.saturating_sub(seen.sum.count);
    if seen.sum.capacity < policy.min_capacity {
        return up_to_least(policy, seen);
    }
    if seen.sum.capacity > policy.max_capacity && room <= buffer {
        return Ok(down_to_most(policy, seen));
    }
    match room.cmp(&buffer) {
        std::cmp::Ordering::Less => up(policy, seen, buffer - room),
        std::cmp::Ordering::Equal => Ok(Desired::free(seen.replicas)),
        std::cmp::Ordering::Greater => Ok(down(policy, seen, buffer)),
    }
}

fn no_gain(policy: &AmountPolicy, seen: &Seen) -> NoAnswer {
    NoAnswer::NoGain { kind: seen.counted.as_str(), key: policy.key.clone() }
}

fn more(replicas: i32, servers: i64) -> i32 {
    replicas.saturating_add(i32::try_from(servers).unwrap_or(i32::MAX))
}

/// Whole servers of so much each.
fn servers_for(amount: i64, each: i64) -> i64 {
    amount / each + i64::from(amount % each > 0)
}

/// Fewer than the least: as many more as it takes.
fn up_to_least(policy: &AmountPolicy, seen: &Seen) -> Result<Desired, NoAnswer> {
    if seen.fresh.capacity <= 0 {
        return Err(no_gain(policy, seen));
    }
    let missing = policy.min_capacity.saturating_sub(seen.sum.capacity);
    let replicas = more(seen.replicas, servers_for(missing, seen.fresh.capacity));
    Ok(Desired::limited(replicas, Limit::MinCapacity(policy.min_capacity)))
}

/// More than the most: as many fewer as it takes, but for one.
fn down_to_most(policy: &AmountPolicy, seen: &Seen) -> Desired {
    let (mut replicas, mut capacity) = (seen.replicas, seen.sum.capacity);
    for server in &seen.servers {
        if capacity <= policy.max_capacity {
            break;
        }
        replicas -= 1;
        capacity -= server.map_or(0, |amount| amount.capacity);
    }
    Desired::limited(replicas.max(1), Limit::MaxCapacity(policy.max_capacity))
}

fn up(policy: &AmountPolicy, seen: &Seen, missing: i64) -> Result<Desired, NoAnswer> {
    let gain = seen.fresh.capacity.saturating_sub(seen.fresh.count);
    if gain <= 0 {
        return Err(no_gain(policy, seen));
    }
    let wanted = servers_for(missing, gain);
    let capacity = seen.sum.capacity.saturating_add(wanted.saturating_mul(seen.fresh.capacity));
    if capacity <= policy.max_capacity {
        return Ok(Desired::free(more(seen.replicas, wanted)));
    }
    // What fits is never negative: a Fleet above the most has been dealt with.
    let fits = (policy.max_capacity - seen.sum.capacity) / seen.fresh.capacity;
    Ok(Desired::limited(more(seen.replicas, fits), Limit::MaxCapacity(policy.max_capacity)))
}

/// More room than wanted: servers go as long as enough is left.
fn down(policy: &AmountPolicy, seen: &Seen, buffer: i64) -> Desired {
    let least = Limit::MinCapacity(policy.min_capacity);
    if seen.sum.capacity == policy.min_capacity {
        return Desired::limited(seen.replicas, least);
    }
    let mut left = Desired::free(seen.replicas);
    let (mut count, mut capacity) = (seen.sum.count, seen.sum.capacity);
    for server in &seen.servers {
        let own = server.unwrap_or_default();
        count -= own.count;
        capacity -= own.capacity;
        if capacity - count < buffer {
            break;
        }
        if capacity < policy.min_capacity {
            left.limit = Some(least);
            break;
        }
        left.replicas -= 1;
        if capacity - count == buffer {
            break;
        }
        if capacity == policy.min_capacity {
            left.limit = Some(least);
            break;
        }
    }
    Desired { replicas: left.replicas.max(1), ..left }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use proptest::prelude::*;

    use super::*;

    fn seen(servers: &[(i64, i64)], allocated: i64, fresh: (i64, i64)) -> Seen {
        let amounts: Vec<_> = servers.iter().map(|(count, capacity)| amount((*count, *capacity))).collect();
        let sum = CounterSum {
            allocated_count: allocated,
            allocated_capacity: 0,
            count: amounts.iter().map(|amount| amount.count).sum(),
            capacity: amounts.iter().map(|amount| amount.capacity).sum(),
        };
        Seen {
            counted: Counted::Counter,
            replicas: i32::try_from(servers.len()).expect("a small number"),
            fresh: amount(fresh),
            sum,
            servers: amounts.into_iter().map(Some).collect(),
        }
    }

    fn amount((count, capacity): (i64, i64)) -> Amount {
        Amount { count, capacity }
    }

    fn policy(size: IntOrString, min_capacity: i64, max_capacity: i64) -> AmountPolicy {
        AmountPolicy { key: "rooms".to_owned(), buffer_size: size, min_capacity, max_capacity }
    }

    fn number(size: i32, least: i64, most: i64) -> AmountPolicy {
        policy(IntOrString::Int(size), least, most)
    }

    fn share(size: &str, least: i64, most: i64) -> AmountPolicy {
        policy(IntOrString::String(size.to_owned()), least, most)
    }

    #[test]
    fn the_vectors_of_counters_hold() {
        let (three_used, six_idle) = ([(8, 10); 3], [(2, 10); 6]);
        let rows = [
            ("26 more room is wanted", number(20, 0, 1000), &three_used[..], 5, None),
            ("27 there is as much as wanted", number(6, 0, 1000), &three_used[..], 3, None),
            ("28 there is more than wanted", number(20, 0, 1000), &six_idle[..], 3, None),
            ("29 up to the most", number(50, 0, 45), &three_used[..], 4, Some(Limit::MaxCapacity(45))),
            ("30 below the least", number(5, 100, 1000), &[(0, 10); 3], 10, Some(Limit::MinCapacity(100))),
            ("31 above the most", number(50, 0, 25), &three_used[..], 2, Some(Limit::MaxCapacity(25))),
            ("32 a share of nothing", share("20%", 1, 1000), &[(0, 10); 3], 1, Some(Limit::OneServer)),
            (
                "32 a share of nothing, from 25",
                share("20%", 25, 1000),
                &[(0, 10); 3],
                3,
                Some(Limit::MinCapacity(25)),
            ),
        ];
        for (what, policy, servers, replicas, limit) in rows {
            let desired = decide(&policy, &seen(servers, 0, (0, 10))).expect(what);
            assert_eq!(desired, Desired { replicas, limit }, "{what}");
        }
    }

    #[test]
    fn servers_that_start_full_bring_no_room() {
        let full = seen(&[(8, 10); 3], 0, (10, 10));
        assert!(matches!(decide(&number(20, 0, 1000), &full), Err(NoAnswer::NoGain { .. })));
        let empty = seen(&[], 0, (0, 0));
        assert!(matches!(decide(&number(5, 10, 1000), &empty), Err(NoAnswer::NoGain { .. })));
    }

    #[test]
    fn a_server_without_the_counter_goes_for_nothing() {
        let mut some = seen(&[(2, 10); 4], 0, (0, 10));
        some.servers.insert(0, None);
        some.replicas = 5;
        // 32 free: the one without goes, and one more leaves 24, another would leave 16.
        let desired = decide(&number(20, 0, 1000), &some).expect("an answer");
        assert_eq!(desired, Desired::free(3));
    }

    #[test]
    fn a_share_follows_what_is_in_use() {
        // A quarter of 40 shall be free: 30 in use want 10 more than they have.
        let desired = decide(&share("25%", 1, 1000), &seen(&[(10, 10); 3], 30, (0, 10))).expect("an answer");
        assert_eq!(desired, Desired::free(4));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn a_counter_settles_and_keeps_its_limits(
            servers in prop::collection::vec((0..10_i64, 10..11_i64), 1..40),
            size in 1..200_i32,
            least in 0..20_i64,
            more in 0..40_i64,
        ) {
            // Limits hold a buffer, as the schema demands, and whole servers: between others it would swing.
            let holds_buffer = i64::from(size + 9) / 10 * 10;
            let least = if least == 0 { 0 } else { (least * 10).max(holds_buffer) };
            let policy = number(size, least, least.max(holds_buffer) + more * 10);
            let mut fleet = servers;
            let mut before = None;
            for look in 0..6 {
                let desired = decide(&policy, &seen(&fleet, 0, (0, 10))).expect("an answer");
                prop_assert!(desired.replicas >= 1);
                let count = fleet.len();
                let wanted = usize::try_from(desired.replicas).expect("a small number");
                // The fleet does as it is told: first to go first, and new servers start empty.
                fleet.drain(..count.saturating_sub(wanted));
                fleet.resize(wanted, (0, 10));
                if look >= 4 {
                    prop_assert_eq!(before, Some(desired.replicas), "still going after {} looks", look);
                }
                before = Some(desired.replicas);
            }
            let capacity: i64 = fleet.iter().map(|one| one.1).sum();
            let room: i64 = fleet.iter().map(|one| one.1 - one.0).sum();
            let no_more_fits = capacity + 10 > policy.max_capacity;
            prop_assert!(room >= i64::from(size) || no_more_fits, "{room} of {capacity}");
            prop_assert!(capacity >= policy.min_capacity);
        }
    }
}
