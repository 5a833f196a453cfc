//! What is written about servers of nodes for which nobody acts.

use std::sync::Arc;

use berth_api::events::EventReason;
use berth_api::lifecycle::State;
use berth_api::names;
use berth_runtime::clock;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tracing::info;

use super::decide::Remains;
use super::gone::{pod_of, without_finalizers};
use super::reconciler::{POD_LOOK, PlacementReconciler};
use crate::effects::Effect;
use crate::fencing::Death;
use crate::queue::Outcome;
use crate::stores::Server;
use crate::writes::{WriteError, under_version};

impl PlacementReconciler {
    /// It never started: it goes elsewhere; one that has a pod is replaced, since a name has one pod ever.
    pub(super) async fn take_back(&self, server: &Server, has_set: bool) -> Result<Outcome, WriteError> {
        // No call of its agent is on its way any more, so what is there now is all there will be.
        let Some(pod) = pod_of(&self.writer, server).await? else {
            let node = server.node.clone().unwrap_or_default();
            let outcome = self.place(server, Some((&node, "its agent is silent")), true).await?;
            if outcome == Outcome::Done {
                self.fencing.taken_back.inc();
            }
            return Ok(outcome);
        };
        let state = if has_set { State::Shutdown } else { State::Unhealthy };
        let reason = "its node fell silent before the game was started";
        self.change(Effect::TakeBack, &server.key, &ended(server, state, "NodeSilent", reason)).await?;
        self.writer.remove::<Pod>(Effect::RemovePod, &server.key, &pod).await?;
        self.fencing.taken_back.inc();
        self.fencing.pods_removed.inc();
        self.tell_silent(server, "it is replaced, and its pod, which was never started, removed");
        Ok(Outcome::Done)
    }

    /// Its set makes another in its place; it goes when its agent is back, or its node known to be gone.
    pub(super) async fn lose(&self, server: &Server) -> Result<Outcome, WriteError> {
        let time = clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let change = json!({ "metadata": { "annotations": { names::LOST_ANNOTATION: time } } });
        self.change(Effect::Lose, &server.key, &under_version(change, &server.resource_version)).await?;
        self.fencing.lost.inc();
        self.tell_silent(server, "it is replaced, and goes when the agent is back");
        Ok(Outcome::Done)
    }

    /// There is another in its place.
    pub(super) async fn let_surplus_go(&self, server: &Server) -> Result<Outcome, WriteError> {
        let reason = "it was replaced while its node was silent";
        self.change(Effect::LetSurplusGo, &server.key, &ended(server, State::Shutdown, "NodeSilent", reason))
            .await?;
        info!(game_server = %server.key, "surplus let go, its node is back");
        Ok(Outcome::Done)
    }

    /// A session is on it: it counts again.
    pub(super) async fn keep(&self, server: &Server) -> Result<Outcome, WriteError> {
        let change = json!({ "metadata": { "annotations": { names::LOST_ANNOTATION: null } } });
        self.change(Effect::Keep, &server.key, &under_version(change, &server.resource_version)).await?;
        info!(game_server = %server.key, "kept, its node is back");
        Ok(Outcome::Done)
    }

    /// It ended with its node.
    pub(super) async fn fail(&self, server: &Server, death: Death) -> Result<Outcome, WriteError> {
        let (word, sentence) = death.words();
        self.change(Effect::Fail, &server.key, &ended(server, State::Unhealthy, word, sentence)).await?;
        self.fencing.failed.inc();
        info!(game_server = %server.key, reason = word, "ended with its node");
        self.say(server, EventReason::State(State::Unhealthy), sentence.to_owned());
        Ok(Outcome::Done)
    }

    /// Nobody else will let it go.
    pub(super) async fn let_go(&self, server: &Arc<Server>, remains: Remains) -> Result<Outcome, WriteError> {
        let pod = match remains {
            Remains::Nothing => None,
            Remains::Pod | Remains::DeadPod => pod_of(&self.writer, server).await?,
        };
        match (pod, remains) {
            (Some(pod), Remains::DeadPod) => {
                self.writer.remove::<Pod>(Effect::RemovePod, &server.key, &pod).await?;
                self.fencing.pods_removed.inc();
                info!(game_server = %server.key, "pod of a node that is gone removed");
            }
            (Some(_), Remains::Pod | Remains::Nothing) => return Ok(Outcome::After(POD_LOOK)),
            (None, _) => {}
        }
        self.change(Effect::LetGo, &server.key, &without_finalizers(server)).await?;
        self.metrics.let_go.inc();
        info!(game_server = %server.key, "let go");
        Ok(Outcome::Done)
    }

    fn tell_silent(&self, server: &Server, what: &str) {
        let node = server.node.as_deref().unwrap_or_default();
        info!(game_server = %server.key, node, what, "the agent of its node is silent");
        self.say(server, EventReason::NodeSilent, format!("the agent of {node} is silent: {what}"));
    }
}

/// The write that ends a server, with the reason.
fn ended(server: &Server, state: State, word: &str, sentence: &str) -> Value {
    let change = json!({
        "metadata": { "annotations": { names::REASON_ANNOTATION: format!("{word}: {sentence}") } },
        "status": { "state": state },
    });
    under_version(change, &server.resource_version)
}
