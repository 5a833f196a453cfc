//! What kubelet writes into a pod's status at each turn of its life. Pure.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::admission::Refusal;

/// How a container has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By itself, or because it was asked to.
    Exited(i32),
    /// With its node's kubelet.
    Lost,
    /// Thrown out.
    Evicted,
}

impl Ending {
    pub(super) fn code(&self) -> i32 {
        match self {
            Self::Exited(code) => *code,
            Self::Lost | Self::Evicted => 137,
        }
    }
}

/// The containers of a pod as they run now.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) ids: Vec<String>,
    pub(super) since: Timestamp,
    pub(super) restarts: i32,
}

/// What is the same in all that is written of one pod.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    names: Vec<(String, String)>,
    node: Ipv4Addr,
    class: String,
    since: Timestamp,
}

impl Writer {
    pub(super) fn new(pod: &Pod, node: Ipv4Addr, since: Timestamp) -> Self {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let names = containers.map(|one| (one.name.clone(), one.image.clone().unwrap_or_default())).collect();
        // The API server has worked it out when the pod was made.
        let class = pod.status.as_ref().and_then(|status| status.qos_class.clone());
        Self { names, node, class: class.unwrap_or_else(|| "BestEffort".to_owned()), since }
    }

    pub(super) fn class(&self) -> &str {
        &self.class
    }

    /// It will not run.
    pub(super) fn refused(&self, refusal: &Refusal) -> Value {
        json!({ "phase": "Failed", "reason": refusal.reason, "message": refusal.message,
                "startTime": self.since.to_string() })
    }

    /// Its sandbox is being made.
    pub(super) fn creating(&self) -> Value {
        let state = |_| json!({ "waiting": { "reason": "ContainerCreating" } });
        let containers = self.containers(false, 0, state);
        self.whole("Pending", &json!(containers), "False")
    }

    /// Its containers run.
    pub(super) fn running(&self, address: Ipv4Addr, running: &Running) -> Value {
        let state = |_| json!({ "running": { "startedAt": running.since.to_string() } });
        let mut containers = self.containers(true, running.restarts, state);
        for (container, id) in containers.iter_mut().zip(&running.ids) {
            container["containerID"] = json!(format!("simulated://{id}"));
        }
        let mut status = self.whole("Running", &json!(containers), "True");
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{ "ip": address }]);
        status
    }

    /// Its containers have ended.
    pub(super) fn ended(&self, running: &Running, ending: &Ending, now: Timestamp) -> Value {
        let code = ending.code();
        let reason = if code == 0 { "Completed" } else { "Error" };
        let state = |at: usize| {
            json!({ "terminated": {
                "exitCode": code, "reason": reason,
                "containerID": running.ids.get(at).map(|id| format!("simulated://{id}")),
                "startedAt": running.since.to_string(), "finishedAt": now.to_string(),
            } })
        };
        let containers = self.containers(false, running.restarts, state);
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let mut status = self.whole(phase, &json!(containers), "False");
        if *ending == Ending::Evicted {
            status["reason"] = json!("Evicted");
            status["message"] = json!("The node was low on resource: memory.");
        }
        status
    }

    fn containers(&self, ready: bool, restarts: i32, state: impl Fn(usize) -> Value) -> Vec<Value> {
        let one = |(at, (name, image)): (usize, &(String, String))| {
            json!({ "name": name, "image": image, "imageID": "", "ready": ready, "started": ready,
                    "restartCount": restarts, "state": state(at) })
        };
        self.names.iter().enumerate().map(one).collect()
    }

    fn whole(&self, phase: &str, containers: &Value, ready: &str) -> Value {
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": self.since.to_string() });
        json!({
            "phase": phase,
            "hostIP": self.node,
            "hostIPs": [{ "ip": self.node }],
            "startTime": self.since.to_string(),
            "conditions": [
                condition("PodScheduled", "True"),
                condition("Initialized", "True"),
                condition("ContainersReady", ready),
                condition("Ready", ready),
            ],
            "containerStatuses": containers,
        })
    }
}
