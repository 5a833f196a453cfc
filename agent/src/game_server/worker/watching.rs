//! What the worker does about its pod beside the API: the SDK in its sandbox, the game's process, the start of its clock.

use std::time::Duration;

use berth_api::lifecycle::State;
use berth_api::link::ListenerKey;
use berth_runtime::error::chain;
use k8s_openapi::api::core::v1::ContainerStatus;
use tracing::{info, warn};

use super::Worker;
use crate::game_server::container::News;
use crate::game_server::memory::Exit as Ended;
use crate::game_server::observe::{game_status, has_foreign_sidecar};
use crate::game_server::pod::{is_on_host, sdk_ports_of};
use crate::game_server::sandbox::{Opened, Wanted, generation_at};
use crate::host::{Exit, Host, HostError, SdkSockets};
use crate::pods::{is_pod_of, phase};

impl<H: Host> Worker<H> {
    /// The clock for pings starts with the game's container.
    pub(super) async fn tell_start(&mut self) {
        let Some(pod) = self.pod.as_deref().filter(|pod| is_pod_of(pod, &self.server)) else { return };
        let Some(game) = game_status(&self.server, pod) else { return };
        let running = game.state.as_ref().and_then(|state| state.running.as_ref());
        let Some(started_at) = running.and_then(|running| running.started_at.as_ref()) else { return };
        if self.started == game.container_id {
            return;
        }
        let ago = self.actor.clock.now().duration_since(started_at.0);
        let ago = Duration::try_from(ago).unwrap_or_default();
        let now = self.actor.clock.instant();
        self.actor.front.started(self.uid.clone(), now.checked_sub(ago).unwrap_or(now)).await;
        self.started.clone_from(&game.container_id);
    }

    /// Opens the listeners of a pod that will run and watches its game; ends that for one that will not.
    pub(super) fn tend_pod(&mut self) {
        let Some(pod) = self.pod.as_deref().filter(|pod| is_pod_of(pod, &self.server)) else {
            return self.let_pod_be();
        };
        if matches!(phase(pod), Some("Failed" | "Succeeded")) || pod.metadata.deletion_timestamp.is_some() {
            return self.let_pod_be();
        }
        let now = self.actor.clock.instant();
        let pod_uid = pod.metadata.uid.clone().unwrap_or_default();
        match game_status(&self.server, pod).and_then(running) {
            Some(id) => self.container.watch(&self.actor.host, &pod_uid, id, now),
            None => self.container.stop_looking(),
        }
        if has_foreign_sidecar(pod) {
            self.sandbox.leave_to_sidecar();
            return;
        }
        let (grpc_port, http_port) = sdk_ports_of(&self.server, pod);
        let on_host = is_on_host(pod.spec.as_ref());
        let generation = generation_at(self.actor.clock.now());
        let wanted = Wanted { pod_uid, grpc_port, http_port, on_host, generation };
        self.sandbox.open(&self.actor.host, &wanted, now);
    }

    fn let_pod_be(&mut self) {
        self.sandbox.stop_trying();
        self.container.stop_looking();
    }

    pub(super) async fn note_opened(&mut self, opened: Opened) {
        match opened {
            Opened::First(sockets) => self.take_listeners(sockets).await,
            Opened::Again(sockets) => {
                self.note_new_sandbox();
                self.take_listeners(sockets).await;
            }
            Opened::AreHeld => self.memory.sdk_error = None,
            Opened::Failed(error, is_first) => {
                // After a restart, `berth-sdk` has the listeners of our predecessor and hands them back.
                let held = self.actor.front.held(self.uid.clone()).await;
                self.note_held(&held);
                let may_be_ours = is_first && matches!(error, HostError::AddressInUse { .. });
                if held.is_empty() && !may_be_ours {
                    let told = chain(&error);
                    warn!(game_server = %self.name(), error = told, "the SDK could not be opened yet");
                    self.memory.sdk_error = Some(told);
                }
            }
        }
    }

    /// The front has these listeners, from `berth-sdk`.
    pub(super) fn note_held(&mut self, keys: &[ListenerKey]) {
        if self.sandbox.note_held(keys) {
            self.note_new_sandbox();
        }
    }

    /// Whatever ran in the old one has ended with it.
    fn note_new_sandbox(&mut self) {
        warn!(game_server = %self.name(), "the pod has another sandbox");
        self.memory.has_new_sandbox |=
            matches!(self.memory.state, State::Ready | State::Allocated | State::Reserved);
    }

    async fn take_listeners(&mut self, sockets: SdkSockets) {
        let listeners = sockets.listeners.len();
        info!(game_server = %self.name(), listeners, sandbox = %sockets.sandbox, "SDK listens");
        self.memory.sdk_error = None;
        self.memory.sandbox_addresses = sockets.addresses;
        self.actor.front.listeners(self.uid.clone(), sockets.listeners).await;
    }

    pub(super) fn note_container(&mut self, news: News) {
        match news {
            News::IsHere | News::NotYet => {}
            // One that has another system's sidecar needs nothing of us that is on this kernel.
            News::IsNowhere => {
                self.memory.is_out_of_reach = !self.pod.as_deref().is_some_and(has_foreign_sidecar);
            }
            News::Ended { id, exit } => {
                info!(game_server = %self.name(), ?exit, "the game's process has ended");
                let failure = self.told(exit);
                self.memory.exit = Some(Ended { container: id, at: self.actor.clock.now(), failure });
            }
        }
    }

    /// A failure in the words in which kubelet's are told.
    fn told(&self, exit: Exit) -> Option<String> {
        let game = self.pod.as_deref().and_then(|pod| game_status(&self.server, pod));
        let name = game.map(|game| game.name.clone()).unwrap_or_default();
        match exit {
            Exit::Somehow => None,
            Exit::Code(code) => Some(format!("container {name} ended with exit code {code}")),
            Exit::Signal(signal) => {
                Some(format!("container {name} ended with exit code {}", 128 + u16::from(signal)))
            }
            Exit::OutOfMemory => Some(format!("container {name} ended with exit code 137 (OOMKilled)")),
        }
    }
}

/// The id of a container that runs.
fn running(game: &ContainerStatus) -> Option<&str> {
    game.state.as_ref()?.running.as_ref()?;
    game.container_id.as_deref().filter(|id| !id.is_empty())
}
