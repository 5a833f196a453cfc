//! What a worker does for the end of its node.

use std::sync::Arc;

use berth_runtime::kube_client::Class;
use jiff::Timestamp;
use tracing::{info, warn};

use super::{Business, Worker};
use crate::effects::Effect;
use crate::events::build;
use crate::game_server::Reason;
use crate::game_server::apply::ApplyError;
use crate::game_server::observe::DrainWord;
use crate::game_server::patches;
use crate::host::Host;

impl<H: Host> Worker<H> {
    /// A server without a session goes; whoever has changed it since it was looked at comes first.
    pub(super) async fn withdraw(&mut self, why: &str) -> Result<Business, ApplyError> {
        match self.actor.withdraw(&self.server).await {
            Ok(ending) => {
                info!(game_server = %self.name(), reason = why, "has no session and leaves");
                self.actor.metrics.withdrawn.inc();
                self.actor.record(build::withdrawn(&self.server, why, self.actor.stamp()));
                match ending {
                    Some(server) => self.note_server(Arc::new(server)),
                    None => self.is_stale = true,
                }
                Ok(Business::GoesOn)
            }
            Err(error) => {
                if error.class() == Some(Class::Conflict) {
                    self.actor.metrics.withdrawals_lost.inc();
                }
                Err(error)
            }
        }
    }

    pub(super) async fn tell_drain(&mut self, word: &DrainWord) -> Result<Business, ApplyError> {
        let body = patches::tell_drain(&self.server, word);
        self.write(Effect::TellDrain, body).await?;
        if let Some(reason) = &word.reason {
            info!(game_server = %self.name(), reason, deadline = word.deadline, "is told that its node will go");
            let stamp = self.actor.stamp();
            self.actor.record(build::drain_told(&self.server, reason, word.deadline.as_deref(), stamp));
        }
        Ok(Business::GoesOn)
    }

    pub(super) async fn tolerate(&mut self) -> Result<Business, ApplyError> {
        let Some(pod) = self.pod.clone() else { return Ok(Business::GoesOn) };
        match self.actor.tolerate(&pod).await {
            Ok(pod) => {
                self.actor.metrics.tolerations.inc();
                self.note_pod(Arc::new(pod));
            }
            // Somebody has changed the pod, or it is gone.
            Err(error) if matches!(error.class(), Some(Class::Conflict | Class::NotFound)) => {
                self.look_for_pod().await?;
            }
            Err(error) => return Err(error),
        }
        Ok(Business::GoesOn)
    }

    pub(super) async fn end_session(
        &mut self,
        grace: u32,
        deadline: Timestamp,
    ) -> Result<Business, ApplyError> {
        let Some(pod) = self.pod.clone() else { return Ok(Business::GoesOn) };
        let ending = self.actor.end_session(&pod, grace).await?;
        let why = Reason::NodeEnds { at: deadline }.to_string();
        warn!(game_server = %self.name(), grace, reason = why, "the session is asked to end");
        self.memory.cut_short = Some(deadline);
        self.actor.metrics.sessions_ended.inc();
        self.actor.record(build::session_ended(&self.server, &why, grace, self.actor.stamp()));
        match ending {
            Some(pod) => self.note_pod(Arc::new(pod)),
            None => {
                self.pod = None;
                self.memory.pod_is_gone = true;
            }
        }
        Ok(Business::GoesOn)
    }
}
