//! What the Node and the GameNode themselves say of the node's end, as notices. Pure.

use std::collections::BTreeSet;

use berth_api::game_node::GameNodeSpec;
use berth_api::names;

use super::notice::{Notice, Notices, Severity, Signal, Source};
use crate::node::NodeFacts;

/// Taints by which autoscalers say that they will delete a node.
const DELETIONS: [&str; 2] = [names::AUTOSCALER_DELETES_TAINT, names::KARPENTER_DISRUPTS_TAINT];

/// Whether a GameNode has been looked at, and what it orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ordered {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    /// Nothing, or this.
    Known(GameNodeSpec),
}

/// The signals that bring what is known up to what the Node says.
#[must_use]
pub fn of_node(node: &NodeFacts, known: &Notices) -> Vec<Signal> {
    let mut said = Vec::new();
    if node.is_cordoned && !node.is_cordoned_by_agent {
        said.push(notice(Source::Cordon, Severity::Cordoned, "the Node is marked unschedulable".to_owned()));
    }
    if node.asks_for_drain {
        let reason = format!("the Node's annotation {} asks for it", names::NODE_DRAIN_ANNOTATION);
        said.push(notice(Source::Annotation, Severity::Ordered, reason));
    }
    for key in DELETIONS.into_iter().filter(|key| node.has_taint(key)) {
        let reason = format!("an autoscaler will delete the Node: taint {key}");
        said.push(notice(Source::Autoscaler(key.to_owned()), Severity::Claimed, reason));
    }
    let is_read_here =
        |source: &Source| matches!(source, Source::Cordon | Source::Annotation | Source::Autoscaler(_));
    bring_up(known, said, is_read_here)
}

/// The signals that bring what is known up to what the GameNode orders.
#[must_use]
pub fn of_game_node(ordered: &Ordered, known: &Notices) -> Vec<Signal> {
    let Ordered::Known(spec) = ordered else { return Vec::new() };
    let said = spec.drain.iter().map(|order| {
        let why = order.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let by = if order.by.is_empty() { "somebody" } else { &order.by };
        let deadline = order.deadline.as_deref().and_then(|text| text.parse().ok());
        Notice { deadline, ..notice(Source::GameNode, Severity::Ordered, format!("{by} ordered it{why}")) }
    });
    bring_up(known, said.collect(), |source| *source == Source::GameNode)
}

fn notice(source: Source, severity: Severity, reason: String) -> Notice {
    Notice { source, severity, reason, deadline: None }
}

/// What is said is raised where it is news; what is not said any more is cleared.
fn bring_up(known: &Notices, said: Vec<Notice>, is_read_here: impl Fn(&Source) -> bool) -> Vec<Signal> {
    let sources: BTreeSet<&Source> = said.iter().map(|notice| &notice.source).collect();
    let silent = known.iter().map(|notice| &notice.source);
    let silent = silent.filter(|source| is_read_here(source) && !sources.contains(source));
    let mut signals: Vec<Signal> = silent.cloned().map(Signal::Cleared).collect();
    let is_news = |notice: &Notice| known.of(&notice.source) != Some(notice);
    signals.extend(said.into_iter().filter(is_news).map(Signal::Raised));
    signals
}

#[cfg(test)]
mod tests {
    use berth_api::game_node::{DrainOrder, GameNodeSpec};
    use k8s_openapi::api::core::v1::Taint;

    use super::{Ordered, of_game_node, of_node};
    use crate::drain::notice::{Heard, Notices, Severity, Signal, Source};
    use crate::node::NodeFacts;

    fn hear(notices: &mut Notices, signals: Vec<Signal>) -> usize {
        let news = signals.len();
        for signal in signals {
            assert_eq!(notices.hear(signal.clone()), Heard::News, "{signal:?}");
        }
        news
    }

    #[test]
    fn a_node_raises_and_clears_what_it_says() {
        let taint = |key: &str| Taint { key: key.into(), effect: "NoSchedule".into(), ..Taint::default() };
        let cordoned = || NodeFacts { is_cordoned: true, ..NodeFacts::default() };
        let table = [
            ("nothing", NodeFacts::default(), None),
            ("a cordon", cordoned(), Some(Severity::Cordoned)),
            ("our own cordon", NodeFacts { is_cordoned_by_agent: true, ..cordoned() }, None),
            ("an order", NodeFacts { asks_for_drain: true, ..NodeFacts::default() }, Some(Severity::Ordered)),
            (
                "cluster-autoscaler",
                NodeFacts { taints: vec![taint("ToBeDeletedByClusterAutoscaler")], ..NodeFacts::default() },
                Some(Severity::Claimed),
            ),
            (
                "Karpenter",
                NodeFacts { taints: vec![taint("karpenter.sh/disrupted")], ..NodeFacts::default() },
                Some(Severity::Claimed),
            ),
            ("another taint", NodeFacts { taints: vec![taint("gpu")], ..NodeFacts::default() }, None),
        ];
        for (name, node, expected) in table {
            let mut notices = Notices::default();
            let signals = of_node(&node, &notices);
            hear(&mut notices, signals);
            assert_eq!(notices.gravest().map(|notice| notice.severity), expected, "{name}");
            assert_eq!(of_node(&node, &notices), [], "{name}: the same again is no news");
            let signals = of_node(&NodeFacts::default(), &notices);
            hear(&mut notices, signals);
            assert_eq!(notices, Notices::default(), "{name}");
        }
    }

    #[test]
    fn a_game_node_orders_and_takes_back() {
        let mut notices = Notices::default();
        let order = DrainOrder {
            by: "ann".into(),
            reason: Some("maintenance".into()),
            deadline: Some("1970-01-01T00:15:00Z".into()),
        };
        let ordered = GameNodeSpec { drain: Some(order), ..GameNodeSpec::default() };
        let signals = of_game_node(&Ordered::Known(ordered), &notices);
        hear(&mut notices, signals);
        let gravest = notices.gravest().unwrap();
        assert_eq!(
            (gravest.source, gravest.deadline.map(|deadline| deadline.as_second())),
            (Source::GameNode, Some(900))
        );
        assert_eq!(of_game_node(&Ordered::Unknown, &notices), [], "nobody has looked yet");
        let signals = of_game_node(&Ordered::Known(GameNodeSpec::default()), &notices);
        assert_eq!(hear(&mut notices, signals), 1);
        assert_eq!(notices, Notices::default());
    }
}
