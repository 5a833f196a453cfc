//! From what was written to what it means, or everything that is wrong with it. Pure.
//!
//! The rules and the paths of faults are those of `allocation.agones.dev/v1`. What was written is completed on the way
//! (a strategy, the selectors that the older fields stand for), because the answer shows it so.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::request::label_rule;
use super::{
    Amounts, CounterAction, CounterChange, CounterChoice, CounterSelector, Direction, GameServerAllocation,
    ListAction, ListChange, ListChoice, ListSelector, MetadataPatch, PlayerChoice, PlayerSelector, Priority,
    PriorityKind, PrioritySpec, Request, Selector, SelectorSpec, Wanted,
};
use crate::game_server::Scheduling;
use crate::label::{MOST_ANNOTATION_BYTES, fault_of_key, fault_of_value};

/// Something wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field, such as `spec.selectors[0].counters[rooms].minCount`.
    pub field: String,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What can be wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It must be given.
    Required {
        /// What for.
        detail: String,
    },
    /// It is not one of a few words.
    NotSupported {
        /// The word.
        value: String,
        /// The words that are.
        allowed: &'static [&'static str],
    },
    /// It breaks a rule.
    Invalid {
        /// What was given.
        value: String,
        /// The rule.
        detail: String,
    },
}

impl FaultKind {
    /// The reason of a cause in a `Status` of the API.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Required { .. } => "FieldValueRequired",
            Self::NotSupported { .. } => "FieldValueNotSupported",
            Self::Invalid { .. } => "FieldValueInvalid",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required { detail } => write!(formatter, "Required value: {detail}"),
            Self::NotSupported { value, allowed } => {
                let allowed: Vec<String> = allowed.iter().map(|word| format!("{word:?}")).collect();
                write!(formatter, "Unsupported value: {value:?}: supported values: {}", allowed.join(", "))
            }
            Self::Invalid { value, detail } => write!(formatter, "Invalid value: {value}: {detail}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.kind)
    }
}

impl GameServerAllocation {
    /// Completes what was written, and says what it means.
    ///
    /// # Errors
    /// Everything that is wrong with it, at least one fault.
    pub fn read(&mut self) -> Result<Request, Vec<Fault>> {
        let is_older_form = self.complete();
        let spec = &self.spec;
        let mut faults = Faults::default();
        let scheduling = match spec.scheduling.as_str() {
            "Packed" => Scheduling::Packed,
            "Distributed" => Scheduling::Distributed,
            other => {
                faults.unsupported("spec.scheduling".to_owned(), other, &["Packed", "Distributed"]);
                Scheduling::Packed
            }
        };
        // The older fields are looked at even where they do not count.
        let required = faults.selector("spec.required", &spec.required);
        let preferred = faults.selectors("spec.preferred", &spec.preferred);
        let selectors = if is_older_form {
            preferred.into_iter().chain(required).collect()
        } else {
            faults.selectors("spec.selectors", &spec.selectors)
        };
        let priorities = spec
            .priorities
            .iter()
            .enumerate()
            .filter_map(|(index, priority)| faults.priority(&format!("spec.priorities[{index}]"), priority))
            .collect();
        faults.metadata(&spec.metadata);
        let counters =
            spec.counters.iter().map(|(name, action)| (name.clone(), faults.counter(name, action))).collect();
        let lists =
            spec.lists.iter().map(|(name, action)| (name.clone(), faults.list(name, action))).collect();
        let policies =
            spec.multi_cluster_setting.enabled.then_some(&spec.multi_cluster_setting.policy_selector);
        let policies = policies
            .and_then(|selector| faults.label_selector("spec.multiClusterSetting.policySelector", selector));
        if !faults.0.is_empty() {
            return Err(faults.0);
        }
        Ok(Request {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            selectors,
            scheduling,
            priorities,
            metadata: spec.metadata.clone(),
            counters,
            lists,
            policies,
        })
    }

    /// Answers whether the selectors are those of the older fields: then each fault is told where its author wrote it.
    fn complete(&mut self) -> bool {
        let spec = &mut self.spec;
        if spec.scheduling.is_empty() {
            "Packed".clone_into(&mut spec.scheduling);
        }
        for priority in &mut spec.priorities {
            if priority.order.is_empty() {
                "Ascending".clone_into(&mut priority.order);
            }
        }
        let complete = |selector: &mut SelectorSpec| {
            selector.game_server_state.get_or_insert_with(|| Wanted::Ready.as_str().to_owned());
        };
        if spec.selectors.is_empty() {
            complete(&mut spec.required);
            spec.preferred.iter_mut().for_each(complete);
            spec.selectors = spec.preferred.iter().chain([&spec.required]).cloned().collect();
            return true;
        }
        spec.selectors.iter_mut().for_each(complete);
        false
    }
}

/// Collects what is wrong, once per field and fault.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, field: String, kind: FaultKind) {
        self.0.push(Fault { field, kind });
    }

    fn invalid(&mut self, field: String, value: impl fmt::Display, detail: impl Into<String>) {
        self.add(field, FaultKind::Invalid { value: value.to_string(), detail: detail.into() });
    }

    fn unsupported(&mut self, field: String, value: &str, allowed: &'static [&'static str]) {
        self.add(field, FaultKind::NotSupported { value: value.to_owned(), allowed });
    }

    /// All of them, or fewer where something is wrong.
    fn selectors(&mut self, path: &str, selectors: &[SelectorSpec]) -> Vec<Selector> {
        let read = |(index, selector)| self.selector(&format!("{path}[{index}]"), selector);
        selectors.iter().enumerate().filter_map(read).collect()
    }

    fn selector(&mut self, path: &str, selector: &SelectorSpec) -> Option<Selector> {
        let before = self.0.len();
        let labels = self.label_selector(path, &selector.labels);
        let state = match selector.game_server_state.as_deref() {
            None | Some("Ready") => Wanted::Ready,
            Some("Allocated") => Wanted::Allocated,
            Some(other) => {
                self.unsupported(format!("{path}.gameServerState"), other, &["Ready", "Allocated"]);
                Wanted::Ready
            }
        };
        let players = selector.players.as_ref().map(|players| self.players(path, *players));
        let counters = selector
            .counters
            .iter()
            .map(|(name, rule)| {
                (name.clone(), self.counter_choice(&format!("{path}.counters[{name}]"), *rule))
            })
            .collect();
        let lists = selector
            .lists
            .iter()
            .map(|(name, rule)| (name.clone(), self.list_choice(&format!("{path}.lists[{name}]"), rule)))
            .collect();
        let is_good = self.0.len() == before;
        labels.filter(|_| is_good).map(|labels| Selector {
            labels,
            state,
            players: players.flatten(),
            counters,
            lists,
        })
    }

    fn players(&mut self, path: &str, players: PlayerSelector) -> Option<PlayerChoice> {
        let PlayerSelector { min_available: least, max_available: most } = players;
        self.not_negative(format!("{path}.players.minAvailable"), least);
        self.not_negative(format!("{path}.players.maxAvailable"), most);
        if least > most {
            self.invalid(format!("{path}.players.minAvailable"), least, "must not be more than maxAvailable");
        }
        (most != 0).then(|| PlayerChoice { available: Amounts::new(least, most) })
    }

    fn counter_choice(&mut self, path: &str, rule: CounterSelector) -> CounterChoice {
        CounterChoice {
            count: self.amounts(path, ("minCount", rule.min_count), ("maxCount", rule.max_count)),
            available: self.available(path, rule.min_available, rule.max_available),
        }
    }

    fn list_choice(&mut self, path: &str, rule: &ListSelector) -> ListChoice {
        ListChoice {
            contains: Some(rule.contains_value.clone()).filter(|value| !value.is_empty()),
            available: self.available(path, rule.min_available, rule.max_available),
        }
    }

    fn available(&mut self, path: &str, least: i64, most: i64) -> Amounts {
        self.amounts(path, ("minAvailable", least), ("maxAvailable", most))
    }

    fn amounts(
        &mut self,
        path: &str,
        (least_name, least): (&str, i64),
        (most_name, most): (&str, i64),
    ) -> Amounts {
        self.not_negative(format!("{path}.{least_name}"), least);
        self.not_negative(format!("{path}.{most_name}"), most);
        if most != 0 && least > most {
            self.invalid(format!("{path}.{least_name}"), least, format!("must not be more than {most_name}"));
        }
        Amounts::new(least, most)
    }

    fn not_negative(&mut self, field: String, value: i64) {
        if value < 0 {
            self.invalid(field, value, "must be greater than or equal to 0");
        }
    }

    fn priority(&mut self, path: &str, priority: &PrioritySpec) -> Option<Priority> {
        let before = self.0.len();
        let kind = match priority.kind.as_str() {
            "List" => PriorityKind::List,
            "Counter" => PriorityKind::Counter,
            other => {
                self.unsupported(path.to_owned(), other, &["Counter", "List"]);
                PriorityKind::Counter
            }
        };
        if priority.key.is_empty() {
            self.add(path.to_owned(), FaultKind::Required { detail: "key must not be empty".to_owned() });
        }
        let direction = match priority.order.as_str() {
            "Descending" => Direction::Descending,
            "Ascending" => Direction::Ascending,
            other => {
                self.unsupported(path.to_owned(), other, &["Ascending", "Descending"]);
                Direction::Ascending
            }
        };
        (self.0.len() == before).then(|| Priority { kind, key: priority.key.clone(), direction })
    }

    fn metadata(&mut self, patch: &MetadataPatch) {
        for (key, value) in &patch.labels {
            self.key("spec.metadata.labels", key);
            if let Some(detail) = fault_of_value(value) {
                self.invalid("spec.metadata.labels".to_owned(), format!("{value:?}"), detail);
            }
        }
        for key in patch.annotations.keys() {
            self.key("spec.metadata.annotations", key);
        }
        let bytes: usize = patch.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > MOST_ANNOTATION_BYTES {
            let detail = format!("annotations may have at most {MOST_ANNOTATION_BYTES} bytes together");
            self.invalid("spec.metadata.annotations".to_owned(), format!("{bytes} bytes"), detail);
        }
    }

    fn key(&mut self, path: &str, key: &str) {
        if let Some(detail) = fault_of_key(key) {
            self.invalid(path.to_owned(), format!("{key:?}"), detail);
        }
    }

    fn counter(&mut self, name: &str, action: &CounterAction) -> CounterChange {
        let path = format!("spec.counters[{name}]");
        if let Some(amount) = action.amount {
            self.not_negative(path.clone(), amount);
        }
        if let Some(capacity) = action.capacity {
            self.not_negative(path.clone(), capacity);
        }
        let step = match (&action.action, action.amount) {
            (None, None) => None,
            (Some(action), Some(amount)) => Some(match action.as_str() {
                "Increment" => Ok(amount),
                "Decrement" => Ok(amount.saturating_neg()),
                _ => Err(action.clone()),
            }),
            (Some(action), None) => {
                let detail = "an action needs an amount";
                self.invalid(path, format!("{action:?}"), detail);
                None
            }
            (None, Some(amount)) => {
                self.invalid(path, amount, "an amount needs an action: Increment or Decrement");
                None
            }
        };
        CounterChange { capacity: action.capacity, step }
    }

    fn list(&mut self, name: &str, action: &ListAction) -> ListChange {
        if let Some(capacity) = action.capacity {
            self.not_negative(format!("spec.lists[{name}]"), capacity);
        }
        ListChange {
            capacity: action.capacity,
            add: action.add_values.clone(),
            delete: action.delete_values.clone(),
        }
    }

    fn label_selector(&mut self, path: &str, selector: &LabelSelector) -> Option<kube::core::Selector> {
        let before = self.0.len();
        static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
        for (key, value) in selector.match_labels.as_ref().unwrap_or(&NO_LABELS) {
            self.key(&format!("{path}.matchLabels"), key);
            if let Some(detail) = fault_of_value(value) {
                self.invalid(format!("{path}.matchLabels"), format!("{value:?}"), detail);
            }
        }
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let path = format!("{path}.matchExpressions[{index}]");
            self.key(&format!("{path}.key"), &expression.key);
            let values = expression.values.as_deref().unwrap_or_default();
            match (expression.operator.as_str(), values.is_empty()) {
                ("In" | "NotIn", true) => {
                    let detail = "must be given when the operator is In or NotIn".to_owned();
                    self.add(format!("{path}.values"), FaultKind::Required { detail });
                }
                ("Exists" | "DoesNotExist", false) => {
                    let detail = "must not be given when the operator is Exists or DoesNotExist";
                    self.invalid(format!("{path}.values"), format!("{values:?}"), detail);
                }
                ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
                (other, _) => {
                    let allowed = &["In", "NotIn", "Exists", "DoesNotExist"];
                    self.unsupported(format!("{path}.operator"), other, allowed);
                }
            }
            for value in values {
                if let Some(detail) = fault_of_value(value) {
                    self.invalid(format!("{path}.values"), format!("{value:?}"), detail);
                }
            }
        }
        if self.0.len() > before {
            return None;
        }
        match label_rule(selector) {
            Ok(rule) => Some(rule),
            Err(detail) => {
                self.invalid(path.to_owned(), "the label selector", detail);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
