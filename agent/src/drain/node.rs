//! Doing to the Node object what a plan says. The object has one writer in the agent: this.
//!
//! Each write names the version that was read, so that somebody else's taint is never lost; the answer, which is the
//! object as it is stored, is what is believed.

use std::time::Duration;

use berth_api::names;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::kill_point::around;
use berth_runtime::kube_client::{CallError, Class, within};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::plan::{OurTaint, Step};
use crate::effects::Effect;
use crate::identity::Identity;
use crate::lease::{Authority, NotHeld};

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The lease is not ours at this moment.
    #[error("nothing may be written")]
    NotHeld(#[from] NotHeld),
    /// The Node could not be read.
    #[error("could not read the Node")]
    Read(#[source] CallError),
    /// It could not be changed.
    #[error("could not {what}")]
    Write {
        /// What was tried.
        what: &'static str,
        /// What the API server answered.
        source: CallError,
    },
}

impl NodeError {
    /// The class of the API server's answer, where it is one.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::NotHeld(_) => None,
            Self::Read(source) | Self::Write { source, .. } => Some(source.class()),
        }
    }
}

/// Changes our own Node.
#[derive(Clone, Debug)]
pub struct NodeHand {
    nodes: Api<Node>,
    name: String,
    authority: Authority,
    limit: Duration,
    clock: Clock,
}

impl NodeHand {
    /// A hand on the node of this identity.
    pub fn new(client: Client, identity: &Identity, authority: Authority, limit: Duration) -> Self {
        Self {
            nodes: Api::all(client),
            name: identity.node.clone(),
            authority,
            limit,
            clock: Clock::system(),
        }
    }

    /// Whether anything may be written now.
    #[must_use]
    pub fn may_act(&self) -> bool {
        self.authority.check(self.now()).is_ok()
    }

    /// The right to write.
    #[must_use]
    pub fn authority(&self) -> Authority {
        self.authority.clone()
    }

    fn now(&self) -> Instant {
        self.clock.instant()
    }

    /// The Node as it is now.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn look(&self) -> Result<Node, NodeError> {
        within(self.limit, self.nodes.get(&self.name)).await.map_err(NodeError::Read)
    }

    /// Takes a step; answers the Node after it.
    ///
    /// # Errors
    /// Not held, or what the API server answered.
    pub async fn take(&self, step: &Step, node: &Node) -> Result<Option<Node>, NodeError> {
        let Some((effect, what)) = effect(step) else { return Ok(None) };
        let params =
            PatchParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        let body = Patch::Merge(body(step, node));
        self.authority.check(self.now())?;
        let written = within(self.limit, self.nodes.patch(&self.name, &params, &body));
        around(effect, written).await.map(Some).map_err(|source| NodeError::Write { what, source })
    }
}

fn effect(step: &Step) -> Option<(Effect, &'static str)> {
    Some(match step {
        Step::Wait(_) => return None,
        Step::Mark(_) => (Effect::MarkNode, "mark the Node"),
        Step::Cordon => (Effect::CordonNode, "close the Node for new pods"),
        Step::Uncordon => (Effect::UncordonNode, "open the Node for new pods"),
        Step::Taint(_) => (Effect::TaintNode, "put a taint on the Node"),
        Step::Untaint(_) => (Effect::UntaintNode, "take a taint off the Node"),
    })
}

/// A short fixed word for metrics.
#[must_use]
pub const fn word(step: &Step) -> &'static str {
    match step {
        Step::Wait(_) => "wait",
        Step::Mark(_) => "mark",
        Step::Cordon => "cordon",
        Step::Uncordon => "uncordon",
        Step::Taint(_) => "taint",
        Step::Untaint(_) => "untaint",
    }
}

/// A merge patch under the version that was read. Who made the Node unschedulable is noted in the same write, so that
/// nobody ever sees the one without the other.
pub(crate) fn body(step: &Step, node: &Node) -> Value {
    let metadata = json!({
        "uid": node.metadata.uid,
        "resourceVersion": node.metadata.resource_version,
    });
    let mut body = json!({ "metadata": metadata });
    let taints: &[Taint] = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    match step {
        Step::Wait(_) => {}
        Step::Mark(marks) => {
            let all: Map<String, Value> = marks
                .annotations()
                .into_iter()
                .map(|(name, value)| (name.to_owned(), json!(value)))
                .collect();
            body["metadata"]["annotations"] = Value::Object(all);
        }
        Step::Cordon => {
            body["spec"] = json!({ "unschedulable": true });
            body["metadata"]["annotations"] =
                json!({ names::NODE_CORDONED_BY_ANNOTATION: names::CORDONED_BY_AGENT });
        }
        Step::Uncordon => {
            body["spec"] = json!({ "unschedulable": null });
            body["metadata"]["annotations"] = json!({ names::NODE_CORDONED_BY_ANNOTATION: null });
        }
        Step::Taint(taint) => body["spec"] = json!({ "taints": with(taints, *taint) }),
        Step::Untaint(taint) => body["spec"] = json!({ "taints": without(taints, *taint) }),
    }
    body
}

/// The list is replaced as a whole, so what others have put there goes in unchanged.
fn with(taints: &[Taint], ours: OurTaint) -> Vec<Taint> {
    let mut all = without(taints, ours);
    all.push(Taint {
        key: ours.key().to_owned(),
        value: Some(names::TAINT_VALUE.to_owned()),
        effect: ours.effect().to_owned(),
        time_added: None,
    });
    all
}

fn without(taints: &[Taint], ours: OurTaint) -> Vec<Taint> {
    taints.iter().filter(|taint| taint.key != ours.key()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    use super::body;
    use crate::drain::marks::Marks;
    use crate::drain::plan::{OurTaint, Step};

    fn node(taints: Value) -> Node {
        let object = json!({
            "metadata": { "name": "n", "uid": "u", "resourceVersion": "7" },
            "spec": { "taints": taints }
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn defect_1_a_taint_is_added_to_what_is_there_and_to_nothing() {
        let ours = json!({ "key": "gamelift.status/draining", "value": "true", "effect": "NoExecute" });
        let theirs = json!({ "key": "gpu", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" });
        let step = Step::Taint(OurTaint::Draining);
        for (name, taints, expected) in [
            ("a null list", Value::Null, json!([ours])),
            ("an empty list", json!([]), json!([ours])),
            ("another's", json!([theirs]), json!([theirs, ours])),
            ("ours already", json!([ours, theirs]), json!([theirs, ours])),
        ] {
            let body = body(&step, &node(taints));
            assert_eq!(body["spec"]["taints"], expected, "{name}");
            assert_eq!(body["metadata"], json!({ "uid": "u", "resourceVersion": "7" }), "{name}");
        }
        let off = body(&Step::Untaint(OurTaint::Draining), &node(json!([ours, theirs])));
        assert_eq!(off["spec"]["taints"], json!([theirs]));
        let none = body(&Step::Untaint(OurTaint::Draining), &node(Value::Null));
        assert_eq!(none["spec"]["taints"], json!([]));
    }

    /// The list of taints is replaced as a whole: without a version, what another has put there since would be lost.
    #[test]
    fn defect_3_every_write_to_the_node_is_under_the_version_that_was_read() {
        let steps = [
            Step::Mark(Marks::default()),
            Step::Cordon,
            Step::Uncordon,
            Step::Taint(OurTaint::Active),
            Step::Untaint(OurTaint::Active),
        ];
        for step in steps {
            assert_eq!(body(&step, &node(json!([])))["metadata"]["resourceVersion"], "7", "{step:?}");
        }
    }

    #[test]
    fn case_20_the_agents_own_pod_stays_under_every_taint() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/agent.yaml");
        let text = std::fs::read_to_string(path).expect("the manifest");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| *line == "tolerations:").expect("it tolerates something");
        // Neither a key nor an effect nor an end stands with it.
        assert_eq!(lines[at + 1..=at + 2], ["- operator: Exists", "containers:"]);
    }

    #[test]
    fn who_closes_a_node_says_so_in_the_same_write() {
        let closed = body(&Step::Cordon, &node(Value::Null));
        assert_eq!(closed["spec"], json!({ "unschedulable": true }));
        assert_eq!(closed["metadata"]["annotations"], json!({ "gamelift.status/cordoned-by": "agent" }));
        let open = body(&Step::Uncordon, &node(Value::Null));
        assert_eq!(open["metadata"]["annotations"], json!({ "gamelift.status/cordoned-by": null }));
    }

    #[test]
    fn marks_that_are_over_are_taken_off() {
        let body = body(&Step::Mark(Marks::default()), &node(Value::Null));
        let annotations = body["metadata"]["annotations"].as_object().unwrap();
        assert!(annotations.values().all(Value::is_null));
        assert_eq!(annotations.len(), 7);
    }
}
