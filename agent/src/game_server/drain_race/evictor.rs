//! The taint-eviction controller, by its rules: a change of the Node's taints that evict, or of a pod's tolerations, has it
//! compare what its two caches hold. What does not tolerate every such taint is deleted at once, with no second look; what
//! tolerates for a while is deleted then; what tolerates for good has a deletion that was planned called off.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

#[derive(Default)]
pub(super) struct Evictor {
    taints: Vec<Taint>,
    pods: BTreeMap<String, Arc<Pod>>,
}

impl Evictor {
    /// The cache of Nodes has this; answers which pods are deleted now.
    pub(super) fn see_node(&mut self, node: &Node) -> Vec<String> {
        let all = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let taints: Vec<Taint> = all.filter(|taint| taint.effect == "NoExecute").cloned().collect();
        if taints == self.taints {
            return Vec::new();
        }
        self.taints = taints;
        self.pods.iter().filter(|(_, pod)| self.evicts(pod)).map(|(name, _)| name.clone()).collect()
    }

    /// The cache of pods has this; answers whether it is deleted now.
    pub(super) fn see_pod(&mut self, name: &str, pod: Option<Arc<Pod>>) -> bool {
        let Some(pod) = pod else {
            self.pods.remove(name);
            return false;
        };
        let is_news = self.pods.get(name).is_none_or(|known| tolerations(known) != tolerations(&pod));
        let is_due = is_news && self.evicts(&pod);
        self.pods.insert(name.to_owned(), pod);
        is_due
    }

    /// No pod of this world tolerates a taint of this world for a while only.
    fn evicts(&self, pod: &Pod) -> bool {
        self.taints.iter().any(|taint| {
            let mut fitting = tolerations(pod).iter().filter(|toleration| tolerates(toleration, taint));
            match fitting.next() {
                Some(toleration) => {
                    assert_eq!(toleration.toleration_seconds, None, "a toleration with an end");
                    false
                }
                None => true,
            }
        })
    }
}

fn tolerations(pod: &Pod) -> &[Toleration] {
    pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let says =
        |said: &Option<String>, is: &str| said.as_deref().is_none_or(|said| said.is_empty() || said == is);
    says(&toleration.effect, &taint.effect)
        && says(&toleration.key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "Exists" => true,
            "" | "Equal" => {
                toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
            }
            _ => false,
        }
}
