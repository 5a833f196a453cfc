//! What a worker remembers of its server and what the API does not hold. Start-up can rebuild what matters of it.

use std::collections::VecDeque;
use std::net::IpAddr;

use berth_api::game_server::{GameServer, PortSpec};
use berth_api::lifecycle::State;
use berth_api::link::Sequence;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::pod::ports_of_pod;
use super::wishes::Pending;
use crate::pods::is_pod_of;

/// States that are remembered.
const REMEMBERED: usize = 16;

/// What a worker remembers.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// The state last seen.
    pub(super) state: State,
    /// Since when.
    pub(super) since: Timestamp,
    /// The states seen, the present one last; the first of many are forgotten.
    pub(super) history: VecDeque<(State, Timestamp)>,
    /// What the game asks for and what is not yet in the API.
    pub(super) pending: Pending,
    /// Pings missed in a row, while the game is silent.
    pub(super) missed: Option<u32>,
    /// This process has made the server's pod.
    pub(super) made_pod: bool,
    /// The API server says that there is no pod.
    pub(super) pod_is_gone: bool,
    /// The ports reserved, split and with host ports.
    pub(super) ports: Option<Vec<PortSpec>>,
    /// The ports reserved for the SDK of a pod that shares the node's network.
    pub(super) sdk_ports: Option<(u16, u16)>,
    /// Addresses of the sandbox, known before kubelet reports them.
    pub(super) sandbox_addresses: Vec<IpAddr>,
    /// What went wrong last.
    pub(super) last_error: Option<String>,
    /// Changes up to this one are done with although the object does not say so: they were dropped.
    pub(super) dropped: Sequence,
    /// The last end of a game's container that we saw ourselves.
    pub(super) exit: Option<Exit>,
    /// The pod got another sandbox while the server was Ready or later.
    pub(super) has_new_sandbox: bool,
    /// Why the SDK is not open, or could not be.
    pub(super) sdk_error: Option<String>,
    /// The game's processes are on no network that this kernel knows.
    pub(super) is_out_of_reach: bool,
    /// The session was asked to end, since its node is gone by then.
    pub(super) cut_short: Option<Timestamp>,
}

/// The end of a container's first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// Id of the container, as kubelet writes it.
    pub(super) container: String,
    /// When we saw it.
    pub(super) at: Timestamp,
    /// How it failed, where that is known already.
    pub(super) failure: Option<String>,
}

impl Memory {
    /// A memory that begins now.
    pub(super) fn new(state: State, now: Timestamp) -> Self {
        Self {
            state,
            since: now,
            history: VecDeque::from([(state, now)]),
            pending: Pending::default(),
            missed: None,
            made_pod: false,
            pod_is_gone: false,
            ports: None,
            sdk_ports: None,
            sandbox_addresses: Vec::new(),
            last_error: None,
            dropped: Sequence::default(),
            exit: None,
            has_new_sandbox: false,
            sdk_error: None,
            is_out_of_reach: false,
            cut_short: None,
        }
    }

    /// Notes the state that the server has now.
    pub(super) fn note_state(&mut self, state: State, now: Timestamp) {
        if self.state != state {
            self.state = state;
            self.since = now;
            if self.history.len() == REMEMBERED {
                self.history.pop_front();
            }
            self.history.push_back((state, now));
        }
    }
}

/// The ports that a server has already: those its pod was made with, or those its spec shows. None where a node has not
/// filled them in yet.
pub(super) fn known_ports(server: &GameServer, pod: Option<&Pod>) -> Option<Vec<PortSpec>> {
    let has_place = server.state().is_some_and(|state| state.expects_pod() || state.is_terminal());
    let shown = || has_place.then(|| server.spec.ports().to_vec());
    let Some(spec) = pod.filter(|pod| is_pod_of(pod, server)).and_then(|pod| pod.spec.as_ref()) else {
        return shown();
    };
    // Once Scheduled is written, the spec shows what the pod has.
    shown().or_else(|| ports_of_pod(server, spec)).or_else(|| Some(server.spec.ports().to_vec()))
}
