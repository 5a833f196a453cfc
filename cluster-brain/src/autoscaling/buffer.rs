//! Buffer: so many servers beside the allocated ones. Pure.

use berth_api::fleet_autoscaler::BufferPolicy;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Desired, Limit, NoAnswer};

/// How much shall be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Number(i64),
    /// A share of all, not of what is in use.
    Percent(i64),
}

impl Size {
    /// Reads what is written.
    pub(super) fn read(written: &IntOrString) -> Result<Self, NoAnswer> {
        match written {
            IntOrString::Int(number) if *number >= 1 => Ok(Self::Number(i64::from(*number))),
            IntOrString::Int(number) => Err(NoAnswer::BadBuffer(number.to_string())),
            IntOrString::String(text) => {
                let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok());
                let percent = percent.filter(|percent| (1..=99).contains(percent));
                percent.map(Self::Percent).ok_or_else(|| NoAnswer::BadBuffer(text.clone()))
            }
        }
    }

    /// What there must be in all, where so much is in use.
    pub(super) fn whole(self, used: i64) -> i64 {
        let used = used.max(0);
        match self {
            Self::Number(number) => used.saturating_add(number),
            Self::Percent(percent) => {
                let rest = i128::from(100 - percent);
                let whole = (i128::from(used) * 100 + rest - 1) / rest;
                i64::try_from(whole).unwrap_or(i64::MAX)
            }
        }
    }
}

/// The number for a Fleet with so many allocated servers. Ready and Reserved ones make no difference.
pub(super) fn decide(policy: &BufferPolicy, allocated: i32) -> Result<Desired, NoAnswer> {
    let whole = Size::read(&policy.buffer_size)?.whole(i64::from(allocated));
    let mut desired = Desired::free(i32::try_from(whole).unwrap_or(i32::MAX));
    if desired.replicas < policy.min_replicas {
        desired = Desired::limited(policy.min_replicas, Limit::MinReplicas(policy.min_replicas));
    }
    if desired.replicas > policy.max_replicas {
        desired = Desired::limited(policy.max_replicas, Limit::MaxReplicas(policy.max_replicas));
    }
    Ok(desired)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn percent(text: &str) -> IntOrString {
        IntOrString::String(text.to_owned())
    }

    fn policy(buffer_size: IntOrString, min_replicas: i32, max_replicas: i32) -> BufferPolicy {
        BufferPolicy { max_replicas, min_replicas, buffer_size }
    }

    #[test]
    fn the_vectors_of_the_buffer_hold() {
        let fifth = policy(percent("20%"), 1, 100);
        let third = policy(percent("30%"), 1, 100);
        let five = policy(IntOrString::Int(5), 0, 10);
        let least = Some(Limit::MinReplicas(1));
        let most = Some(Limit::MaxReplicas(10));
        let rows = [
            ("20 %, none", &fifth, 0, 1, least),
            ("20 %, one", &fifth, 1, 2, None),
            ("20 %, three", &fifth, 3, 4, None),
            ("20 %, seven", &fifth, 7, 9, None),
            ("20 %, ten", &fifth, 10, 13, None),
            ("20 %, fifty", &fifth, 50, 63, None),
            ("30 %, eight", &third, 8, 12, None),
            ("five, none", &five, 0, 5, None),
            ("five, six", &five, 6, 10, most),
        ];
        for (what, policy, allocated, replicas, limit) in rows {
            let desired = decide(policy, allocated).expect(what);
            assert_eq!(desired, Desired { replicas, limit }, "{what}");
        }
    }

    #[test]
    fn a_buffer_that_makes_no_sense_has_no_answer() {
        for size in [IntOrString::Int(0), IntOrString::Int(-1), percent("0%"), percent("100%"), percent("5")]
        {
            assert!(decide(&policy(size.clone(), 1, 9), 3).is_err(), "{size:?}");
        }
    }

    /// A session begins on a free server, or one ends; between two looks, as many as happen to.
    #[derive(Clone, Debug)]
    struct Trace {
        policy: BufferPolicy,
        /// For each look: sessions that want to begin, and that end.
        looks: Vec<(i32, i32)>,
    }

    fn traces() -> impl Strategy<Value = Trace> {
        let size = prop_oneof![
            (1..20_i32).prop_map(IntOrString::Int),
            (1..99_i32).prop_map(|share| IntOrString::String(format!("{share}%"))),
        ];
        let looks = prop::collection::vec((0..30_i32, 0..30_i32), 1..60);
        (size, 1..40_i32, 0..200_i32, looks).prop_map(|(buffer_size, least, more, looks)| {
            let policy = policy(buffer_size, least, least + more);
            Trace { policy, looks }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn a_buffer_follows_sessions_and_never_swings_by_itself(trace in traces()) {
            let policy = &trace.policy;
            let (mut replicas, mut sessions) = (policy.min_replicas, 0_i32);
            let mut before: Option<(i32, i32)> = None;
            for (wanted, ended) in trace.looks {
                sessions += wanted.min(replicas - sessions).max(0);
                sessions -= ended.min(sessions);
                let desired = decide(policy, sessions).expect("an answer");
                prop_assert!((policy.min_replicas..=policy.max_replicas).contains(&desired.replicas));
                if let Some((sessions_before, desired_before)) = before {
                    // A rising load is never answered by fewer servers, nor a falling one by more.
                    let (load, size) = (sessions - sessions_before, desired.replicas - desired_before);
                    prop_assert!(size == 0 || size.signum() == load.signum(), "{load} sessions, {size} servers");
                }
                before = Some((sessions, desired.replicas));
                // Sessions are kept whatever is decided.
                replicas = desired.replicas.max(sessions);
                if desired.limit.is_none() {
                    let free = replicas - sessions;
                    let enough = match Size::read(&policy.buffer_size).expect("a size") {
                        Size::Number(number) => i64::from(free) == number,
                        Size::Percent(share) => i64::from(free) * 100 >= share * i64::from(replicas),
                    };
                    prop_assert!(enough, "{free} of {replicas} are free");
                }
            }
        }
    }
}
