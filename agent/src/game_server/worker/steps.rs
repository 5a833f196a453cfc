//! How each step is carried out. The write comes first; what it changed is believed afterwards.

use std::sync::Arc;

use berth_api::conditions::Trouble;
use berth_api::game_server::GameServer;
use berth_api::lifecycle::State;
use berth_runtime::error::chain;
use berth_runtime::kill_point::around;
use berth_runtime::kube_client::Class;
use tracing::{info, warn};

use super::{Business, Worker};
use crate::effects::Effect;
use crate::events::build;
use crate::game_server::apply::{ApplyError, MadePod, key};
use crate::game_server::decide::Step;
use crate::game_server::observe::{addresses, game_status};
use crate::game_server::patches::{self, AtReady, Place};
use crate::game_server::pod::is_on_host;
use crate::game_server::wishes::Wishes;
use crate::game_server::{MoveLabels, Reason};
use crate::host::Host;
use crate::node::NodeFacts;
use crate::pods::is_pod_of;
use crate::ports::ledger::without_host_ports;
use crate::ports::loopback;
use crate::ports::probe::ProbeError;

impl<H: Host> Worker<H> {
    pub(super) async fn perform(&mut self, step: Step) -> Result<Business, ApplyError> {
        match step {
            Step::Wait(_) => Ok(Business::GoesOn),
            Step::HandBack(why) => self.hand_back(&why).await,
            Step::ReservePorts => self.reserve_ports().await,
            Step::CreatePod => self.create_pod().await,
            Step::NoteRefusal(message) => {
                let body = patches::note_refusal(&self.server, &message);
                self.write(Effect::NoteRefusal, body).await?;
                Ok(Business::GoesOn)
            }
            Step::LookForPod => self.look_for_pod().await,
            Step::Schedule => self.schedule().await,
            Step::Grant(wishes) => self.grant(wishes).await,
            Step::MakeReady => self.make_ready().await,
            Step::End { to, reason } => self.end(to, reason).await,
            Step::DropWishes(wishes) => {
                self.drop_wishes(&wishes, "the server is ending").await;
                Ok(Business::GoesOn)
            }
            Step::DeleteServer => self.delete_server().await,
            Step::Withdraw(why) => self.withdraw(&why).await,
            Step::TellDrain(word) => self.tell_drain(&word).await,
            Step::Tolerate => self.tolerate().await,
            Step::EndSession { grace, deadline } => self.end_session(grace, deadline).await,
            Step::DeletePod => self.delete_pod().await,
            Step::Finish => self.finish().await,
            Step::Readdress => self.readdress().await,
            Step::Tell(trouble) => self.tell(trouble).await,
        }
    }

    /// Writes, and believes the answer.
    pub(super) async fn write(&mut self, effect: Effect, body: serde_json::Value) -> Result<(), ApplyError> {
        let written = self.actor.patch(effect, &self.server, body).await?;
        self.note_server(Arc::new(written));
        Ok(())
    }

    pub(super) fn note_move(&self, state: State, reason: &'static str) {
        self.actor.metrics.moves.get_or_create(&MoveLabels { state: state.as_str(), reason }).inc();
        info!(game_server = %self.name(), state = %state, reason, "moved");
    }

    async fn hand_back(&mut self, why: &str) -> Result<Business, ApplyError> {
        let body = patches::hand_back(&self.server, &self.actor.identity.node, why);
        self.write(Effect::HandBack, body).await?;
        self.actor.metrics.handed_back.inc();
        info!(game_server = %self.name(), reason = why, "handed back");
        self.actor.record(build::handed_back(&self.server, why, self.actor.stamp()));
        self.forget().await;
        Ok(Business::IsOver)
    }

    async fn reserve_ports(&mut self) -> Result<Business, ApplyError> {
        let mut wanted = without_host_ports(self.server.spec.ports());
        let template = self.server.spec.template.read().ok().and_then(|template| template.spec);
        if is_on_host(template.as_ref()) && self.actor.allows_host_network {
            wanted.extend(loopback::wanted(&self.server.spec));
        }
        let reserved = self.actor.ports.reserve(&self.tenant, &wanted, &self.actor.host);
        match around(Effect::ReservePorts, reserved).await {
            Ok(ports) => {
                let (ports, sdk_ports) = loopback::split(ports);
                self.memory.ports = Some(ports);
                self.memory.sdk_ports = sdk_ports;
                Ok(Business::GoesOn)
            }
            Err(ProbeError::Reserve(error)) => self.hand_back(&error.to_string()).await,
            Err(error @ (ProbeError::Host { .. } | ProbeError::Unanswered)) => Err(error.into()),
        }
    }

    async fn create_pod(&mut self) -> Result<Business, ApplyError> {
        let ports = self.memory.ports.clone().unwrap_or_default();
        let sdk_ports = self.memory.sdk_ports.unwrap_or_else(|| self.server.spec.sdk_ports());
        let made = match self.actor.create_pod(&self.server, &ports, sdk_ports).await {
            Ok(made) => made,
            Err(ApplyError::Pod(error)) => {
                return self.end(State::Error, Reason::InvalidTemplate { message: chain(&error) }).await;
            }
            Err(error) => {
                let message = chain(&error);
                return match error.class() {
                    Some(Class::Invalid) => self.end(State::Error, Reason::InvalidTemplate { message }).await,
                    Some(Class::QuotaExceeded) => {
                        self.end(State::Error, Reason::QuotaExceeded { message }).await
                    }
                    _ => Err(error),
                };
            }
        };
        let pod = match made {
            MadePod::New(pod) => pod,
            // It goes by itself; until then we try again, and hand the server back where it takes too long.
            MadePod::Old(pod)
                if pod.metadata.deletion_timestamp.is_some() && !is_pod_of(&pod, &self.server) =>
            {
                return Err(ApplyError::NameTaken);
            }
            MadePod::Old(pod) => {
                // An earlier try made it, with ports of its own.
                if is_pod_of(&pod, &self.server)
                    && let Some(known) = crate::game_server::memory::known_ports(&self.server, Some(&pod))
                {
                    self.actor.ports.release(&self.tenant);
                    self.actor.ports.enter(&self.tenant, crate::ports::slots_of(&known));
                    self.memory.ports = Some(known);
                }
                pod
            }
        };
        self.memory.made_pod = is_pod_of(&pod, &self.server);
        self.note_pod(Arc::new(pod));
        Ok(Business::GoesOn)
    }

    pub(super) async fn look_for_pod(&mut self) -> Result<Business, ApplyError> {
        let (namespace, name) = key(&self.server);
        match self.actor.look_for_pod(namespace, name).await? {
            Some(pod) => self.note_pod(Arc::new(pod)),
            None => self.memory.pod_is_gone = true,
        }
        Ok(Business::GoesOn)
    }

    fn pod_addresses(&self) -> Vec<String> {
        self.pod
            .as_deref()
            .filter(|pod| is_pod_of(pod, &self.server))
            .map(|pod| addresses(pod, &self.memory.sandbox_addresses))
            .unwrap_or_default()
    }

    fn pod_uid(&self) -> String {
        self.pod.as_ref().and_then(|pod| pod.metadata.uid.clone()).unwrap_or_default()
    }

    async fn schedule(&mut self) -> Result<Business, ApplyError> {
        let node = self.node.borrow().clone();
        let ports = self.memory.ports.clone().unwrap_or_else(|| self.server.spec.ports().to_vec());
        let pod_addresses = self.pod_addresses();
        let place = self.place(&node, &ports, &pod_addresses);
        let body = patches::schedule(&self.server, place, &self.pod_uid());
        self.write(Effect::Schedule, body).await?;
        self.note_move(State::Scheduled, "Placed");
        self.actor.record(build::scheduled(&self.server, self.actor.stamp()));
        Ok(Business::GoesOn)
    }

    fn place<'a>(
        &'a self,
        node: &'a NodeFacts,
        ports: &'a [berth_api::game_server::PortSpec],
        pod_addresses: &'a [String],
    ) -> Place<'a> {
        Place { server: &self.server, name: &self.actor.identity.node, node, ports, pod_addresses }
    }

    /// The body of a write that may make the server Ready.
    pub(super) fn at_ready(
        &self,
        body: impl FnOnce(&GameServer, AtReady<'_>) -> serde_json::Value,
    ) -> serde_json::Value {
        let node = self.node.borrow().clone();
        let pod_addresses = self.pod_addresses();
        let restarts = self
            .pod
            .as_ref()
            .and_then(|pod| pod.spec.as_ref()?.restart_policy.as_deref())
            .is_some_and(|policy| policy != "Never");
        let container = self
            .pod
            .as_deref()
            .filter(|_| restarts)
            .and_then(|pod| game_status(&self.server, pod)?.container_id.as_deref());
        let place = self.place(&node, self.server.spec.ports(), &pod_addresses);
        body(&self.server, AtReady { place, container })
    }

    async fn make_ready(&mut self) -> Result<Business, ApplyError> {
        let body = self.at_ready(patches::make_ready);
        self.write(Effect::MakeReady, body).await?;
        self.note_move(State::Ready, "Due");
        let why = "the reservation is over, or another program asked for Ready";
        self.actor.record(build::moved(&self.server, State::Ready, why, self.actor.stamp()));
        Ok(Business::GoesOn)
    }

    async fn end(&mut self, to: State, reason: Reason) -> Result<Business, ApplyError> {
        let body = patches::end(&self.server, to, &reason, self.actor.clock.now());
        self.write(Effect::End, body).await?;
        self.note_move(to, reason.word());
        self.actor.record(build::moved(&self.server, to, &reason.to_string(), self.actor.stamp()));
        Ok(Business::GoesOn)
    }

    async fn drop_wishes(&mut self, wishes: &Wishes, why: &str) {
        self.memory.pending.forget(wishes.up_to);
        self.memory.dropped = self.memory.dropped.max(wishes.up_to);
        self.actor.metrics.changes_dropped.inc();
        info!(game_server = %self.name(), reason = why, "what the game asked for is dropped");
        self.actor.front.acknowledge(self.uid.clone(), wishes.up_to).await;
    }

    async fn delete_server(&mut self) -> Result<Business, ApplyError> {
        match self.actor.delete_server(&self.server).await? {
            Some(server) => self.note_server(Arc::new(server)),
            None => self.is_stale = true,
        }
        Ok(Business::GoesOn)
    }

    async fn delete_pod(&mut self) -> Result<Business, ApplyError> {
        let Some(pod) = self.pod.clone() else { return Ok(Business::GoesOn) };
        match self.actor.delete_pod(Effect::DeletePod, &pod).await? {
            Some(pod) => self.note_pod(Arc::new(pod)),
            None => {
                self.pod = None;
                self.memory.pod_is_gone = true;
            }
        }
        Ok(Business::GoesOn)
    }

    async fn finish(&mut self) -> Result<Business, ApplyError> {
        self.forget().await;
        let body = patches::finish(&self.server);
        match self.write(Effect::Finish, body).await {
            Ok(()) => {}
            Err(error) if error.class() == Some(Class::NotFound) => self.is_gone = true,
            Err(error) => return Err(error),
        }
        info!(game_server = %self.name(), "finished");
        Ok(Business::IsOver)
    }

    async fn readdress(&mut self) -> Result<Business, ApplyError> {
        let node = self.node.borrow().clone();
        let pod_addresses = self.pod_addresses();
        let body = patches::readdress(self.place(&node, self.server.spec.ports(), &pod_addresses));
        self.write(Effect::Readdress, body).await?;
        info!(game_server = %self.name(), "shows another address");
        Ok(Business::GoesOn)
    }

    async fn tell(&mut self, trouble: Option<Trouble>) -> Result<Business, ApplyError> {
        let body = patches::tell(&self.server, trouble.as_ref(), self.actor.clock.now());
        self.write(Effect::Tell, body).await?;
        match &trouble {
            Some(trouble) => {
                warn!(game_server = %self.name(), reason = trouble.reason, what = trouble.message, "does not go on");
                self.actor.record(build::not_progressing(&self.server, trouble, self.actor.stamp()));
            }
            None => info!(game_server = %self.name(), "goes on"),
        }
        Ok(Business::GoesOn)
    }

    pub(super) async fn restore(&mut self) -> Result<Business, ApplyError> {
        let node = self.node.borrow().clone();
        let ports = self.memory.ports.clone().unwrap_or_else(|| self.server.spec.ports().to_vec());
        let pod_addresses = self.pod_addresses();
        let state = if self.memory.state.expects_pod() { self.memory.state } else { State::Scheduled };
        let place = self.place(&node, &ports, &pod_addresses);
        let body = patches::restore(&self.server, place, state, &self.pod_uid());
        self.write(Effect::Restore, body).await?;
        Ok(Business::GoesOn)
    }
}
