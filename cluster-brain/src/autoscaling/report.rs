//! What is said of an autoscaler after a look: its status, and what of it is news. Pure.

use berth_api::conditions::{ConditionKind, Trouble, told, trouble, whole_seconds};
use berth_api::events::EventReason;
use berth_api::fleet_autoscaler::FleetAutoscalerStatus;
use berth_runtime::error::chain;
use jiff::Timestamp;

use super::{Desired, NoAnswer};

/// What came of a look.
#[derive(Clone, Debug)]
pub(super) enum Look {
    /// A number was decided, and the Fleet has it.
    Decided {
        /// Servers that the Fleet has.
        current: i32,
        desired: Desired,
        /// Whose word counted.
        by: String,
        is_scaled: bool,
    },
    /// None was, or the Fleet could not be given it.
    Unable {
        trouble: Trouble,
        /// How it is told, where it is worth an Event.
        event: Option<EventReason>,
    },
}

impl Look {
    /// There is no such Fleet.
    pub(super) fn without_fleet(name: &str) -> Self {
        let message = format!("there is no Fleet {name} in this namespace");
        let trouble = Trouble { reason: "FleetMissing", message };
        Self::Unable { trouble, event: Some(EventReason::FailedGetFleet) }
    }

    /// The policy has no answer.
    pub(super) fn without_answer(error: &NoAnswer) -> Self {
        let event = match error {
            // Part of its days.
            NoAnswer::Inactive => None,
            NoAnswer::EmptyChain | NoAnswer::Chain(_) => Some(EventReason::ChainPolicyFailed),
            NoAnswer::NoObject { .. }
            | NoAnswer::BadBuffer(_)
            | NoAnswer::NoSuchKey { .. }
            | NoAnswer::NoGain { .. }
            | NoAnswer::Schedule(_)
            | NoAnswer::Nested
            | NoAnswer::NotSupported
            | NoAnswer::BadWebhook(_)
            | NoAnswer::Webhook(_) => Some(EventReason::FleetAutoscaler),
        };
        Self::Unable { trouble: Trouble { reason: error.reason(), message: chain(error) }, event }
    }

    /// The Fleet could not be given the number.
    pub(super) fn without_write(error: &(dyn std::error::Error + 'static)) -> Self {
        let trouble = Trouble { reason: "FleetNotWritten", message: chain(error) };
        Self::Unable { trouble, event: Some(EventReason::AutoScalingFleetError) }
    }
}

/// The status after a look, and what is told for the first time.
pub(super) fn report(
    before: &FleetAutoscalerStatus,
    look: &Look,
    now: Timestamp,
) -> (FleetAutoscalerStatus, Vec<(EventReason, String)>) {
    let mut status = before.clone();
    let mut news = Vec::new();
    let known = before.conditions.as_deref().unwrap_or_default();
    let is_new = |kind, found: &Trouble| {
        trouble(known, kind).is_none_or(|said| said.reason != found.reason || said.message != found.message)
    };
    let (unable, limited) = match look {
        Look::Decided { current, desired, by, is_scaled } => {
            status.current_replicas = *current;
            status.desired_replicas = desired.replicas;
            status.able_to_scale = true;
            if *is_scaled {
                status.last_scale_time = Some(whole_seconds(now));
            }
            if by.starts_with("Chain:") && *by != before.last_applied_policy {
                news.push((EventReason::ChainPolicy, format!("{by} decides")));
            }
            status.last_applied_policy.clone_from(by);
            let limited = desired.limit.map(|limit| Trouble {
                reason: limit.as_str(),
                message: format!("{} servers, limited by {limit}", desired.replicas),
            });
            if let Some(limited) = limited.as_ref().filter(|found| is_new(ConditionKind::WithinLimits, found))
            {
                news.push((EventReason::ScalingLimited, limited.message.clone()));
            }
            (None, limited)
        }
        Look::Unable { trouble: found, event } => {
            let scaled = before.last_scale_time;
            status = FleetAutoscalerStatus { last_scale_time: scaled, ..FleetAutoscalerStatus::default() };
            if let Some(event) = event.filter(|_| is_new(ConditionKind::AbleToScale, found)) {
                news.push((event, found.message.clone()));
            }
            (Some(found), None)
        }
    };
    status.scaling_limited = limited.is_some();
    let conditions = told(Some(known), ConditionKind::AbleToScale, unable, now);
    status.conditions = told(conditions.as_deref(), ConditionKind::WithinLimits, limited.as_ref(), now);
    (status, news)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autoscaling::Limit;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn decided(current: i32, desired: Desired, by: &str, is_scaled: bool) -> Look {
        Look::Decided { current, desired, by: by.to_owned(), is_scaled }
    }

    fn reasons(news: &[(EventReason, String)]) -> Vec<&'static str> {
        news.iter().map(|(reason, _)| reason.as_str()).collect()
    }

    #[test]
    fn the_same_again_changes_nothing_and_is_no_news() {
        let limit = Limit::MaxReplicas(10);
        let looks = [
            decided(3, Desired::free(5), "Buffer", false),
            decided(10, Desired::limited(10, limit), "Chain:a:Buffer", false),
            Look::without_fleet("lobby"),
            Look::without_answer(&NoAnswer::NotSupported),
            Look::without_answer(&NoAnswer::Inactive),
        ];
        for look in looks {
            let (first, _) = report(&FleetAutoscalerStatus::default(), &look, at(1));
            let (second, news) = report(&first, &look, at(2));
            assert_eq!((second, news), (first, vec![]), "{look:?}");
        }
    }

    #[test]
    fn a_limit_is_named_once_and_forgotten_when_it_is_over() {
        let limited = Desired::limited(10, Limit::MaxReplicas(10));
        let (status, news) =
            report(&FleetAutoscalerStatus::default(), &decided(3, limited, "Buffer", true), at(1));
        assert_eq!(
            news,
            [(EventReason::ScalingLimited, "10 servers, limited by maxReplicas, 10".to_owned())]
        );
        assert!(status.scaling_limited && status.able_to_scale);
        assert_eq!((status.desired_replicas, status.last_scale_time), (10, Some(at(1))));
        // The servers come; the limit is the same.
        let (status, news) = report(&status, &decided(10, limited, "Buffer", false), at(2));
        assert_eq!((news, status.current_replicas, status.last_scale_time), (vec![], 10, Some(at(1))));
        let least = Desired::limited(2, Limit::MinReplicas(2));
        let (status, news) = report(&status, &decided(10, least, "Buffer", true), at(3));
        assert_eq!(news, [(EventReason::ScalingLimited, "2 servers, limited by minReplicas, 2".to_owned())]);
        let (status, news) = report(&status, &decided(2, Desired::free(4), "Buffer", true), at(4));
        assert_eq!((news, status.scaling_limited), (vec![], false));
        let conditions = status.conditions.expect("conditions");
        let said: Vec<_> = conditions.iter().map(|one| (one.type_.as_str(), one.status.as_str())).collect();
        assert_eq!(said, [("WithinLimits", "True")]);
    }

    #[test]
    fn an_autoscaler_that_cannot_says_why_and_recovers() {
        let decided_before = decided(3, Desired::free(5), "Buffer", true);
        let (status, _) = report(&FleetAutoscalerStatus::default(), &decided_before, at(1));
        let (status, news) = report(&status, &Look::without_fleet("lobby"), at(2));
        assert_eq!(reasons(&news), ["FailedGetFleet"]);
        let expected = FleetAutoscalerStatus {
            last_scale_time: Some(at(1)),
            conditions: status.conditions.clone(),
            ..FleetAutoscalerStatus::default()
        };
        assert_eq!(status, expected);
        let (status, news) = report(&status, &Look::without_answer(&NoAnswer::Inactive), at(3));
        assert_eq!(reasons(&news), [""; 0], "a schedule's nights are no news");
        assert_eq!(status.conditions.as_ref().expect("conditions")[0].reason, "ScheduleInactive");
        let (status, news) = report(&status, &Look::without_answer(&NoAnswer::EmptyChain), at(4));
        assert_eq!(news, [(EventReason::ChainPolicyFailed, "the chain is empty".to_owned())]);
        let (status, news) = report(&status, &decided(3, Desired::free(5), "Buffer", false), at(5));
        assert_eq!((news.len(), status.able_to_scale), (0, true));
        assert_eq!(status.conditions.expect("conditions")[0].status, "True");
    }

    #[test]
    fn another_entry_of_a_chain_is_news() {
        let by = |by: &str| decided(3, Desired::free(5), by, false);
        let (status, news) = report(&FleetAutoscalerStatus::default(), &by("Chain:a:Buffer"), at(1));
        assert_eq!(reasons(&news), ["ChainPolicy"]);
        let (status, news) = report(&status, &by("Chain:b:Webhook"), at(2));
        assert_eq!(news, [(EventReason::ChainPolicy, "Chain:b:Webhook decides".to_owned())]);
        assert_eq!(status.last_applied_policy, "Chain:b:Webhook");
    }
}
