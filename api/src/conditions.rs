//! Conditions of GameServers, sets, Fleets and autoscalers: what is not as it should be, in the shape that Kubernetes'
//! tools know.
//!
//! A condition is written when something is first wrong, and turned to `True` when that is over; an object of which
//! nothing was ever wrong has none, and costs no write for it.

use jiff::Timestamp;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What a condition is about. Each is `True` where all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionKind {
    /// Berth may write games in the namespace.
    NamespaceEnabled,
    /// Every server has a node.
    Placed,
    /// New servers become Ready, so others follow without a wait.
    Progressing,
    /// One PodDisruptionBudget matches each pod, as evictions demand.
    OneDisruptionBudget,
    /// An autoscaler can decide a number, and give it to its Fleet.
    AbleToScale,
    /// No limit of an autoscaler's policy made it decide another number.
    WithinLimits,
}

impl ConditionKind {
    /// The word in the condition's `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NamespaceEnabled => "NamespaceEnabled",
            Self::Placed => "Placed",
            Self::Progressing => "Progressing",
            Self::OneDisruptionBudget => "OneDisruptionBudget",
            Self::AbleToScale => "AbleToScale",
            Self::WithinLimits => "WithinLimits",
        }
    }
}

/// What is wrong: a word for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One word in CamelCase.
    pub reason: &'static str,
    /// A sentence that says what to do, where something can be done.
    pub message: String,
}

/// The trouble that a condition tells of; `None` where all is well or nothing was ever said.
pub fn trouble(conditions: &[Condition], kind: ConditionKind) -> Option<&Condition> {
    conditions.iter().find(|one| one.type_ == kind.as_str() && one.status == "False")
}

/// The conditions with what is so of `kind` now. Others stay; the time of the last change moves with the status only.
#[must_use]
pub fn told(
    conditions: Option<&[Condition]>,
    kind: ConditionKind,
    trouble: Option<&Trouble>,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let mut conditions = conditions.unwrap_or_default().to_vec();
    let known = conditions.iter().position(|one| one.type_ == kind.as_str());
    let (status, reason, message) = match trouble {
        Some(trouble) => ("False", trouble.reason, trouble.message.as_str()),
        None => ("True", kind.as_str(), ""),
    };
    match known {
        // Nothing was ever wrong, and nothing is.
        None if trouble.is_none() => {}
        None => conditions.push(Condition {
            type_: kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(whole_seconds(now)),
            observed_generation: None,
        }),
        Some(index) => {
            let one = &mut conditions[index];
            if one.status != status {
                one.last_transition_time = Time(whole_seconds(now));
            }
            (one.status, one.reason, one.message) =
                (status.to_owned(), reason.to_owned(), message.to_owned());
        }
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// The time as the API keeps it, in whole seconds: what is written must be what is read back.
#[must_use]
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn no_room(message: &str) -> Trouble {
        Trouble { reason: "NoRoom", message: message.to_owned() }
    }

    #[test]
    fn nothing_wrong_is_not_worth_a_condition() {
        assert_eq!(told(None, ConditionKind::Placed, None, at(1)), None);
        assert_eq!(told(Some(&[]), ConditionKind::Placed, None, at(1)), None);
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let first = told(None, ConditionKind::Placed, Some(&no_room("2 nodes draining")), at(1));
        let other = told(first.as_deref(), ConditionKind::Placed, Some(&no_room("1 node draining")), at(2));
        let other = other.expect("conditions");
        assert_eq!((other.len(), other[0].message.as_str()), (1, "1 node draining"));
        assert_eq!(other[0].last_transition_time.0, at(1));
        assert!(trouble(&other, ConditionKind::Placed).is_some());
        let over = told(Some(&other), ConditionKind::Placed, None, at(3)).expect("conditions");
        assert_eq!((over[0].status.as_str(), over[0].last_transition_time.0), ("True", at(3)));
        assert!(trouble(&over, ConditionKind::Placed).is_none());
    }

    #[test]
    fn conditions_of_others_stay() {
        let first = told(None, ConditionKind::Placed, Some(&no_room("x")), at(1));
        let crashing = Trouble { reason: "ServersFail", message: String::new() };
        let both = told(first.as_deref(), ConditionKind::Progressing, Some(&crashing), at(2));
        let both = both.expect("conditions");
        let kinds: Vec<_> = both.iter().map(|one| one.type_.as_str()).collect();
        assert_eq!(kinds, ["Placed", "Progressing"]);
    }
}
