//! The SDK listeners of one server: opened in its pod's sandbox, or handed back by `berth-sdk`.
//!
//! The opening starts as soon as the pod is made, long before kubelet can run it, so that the first process of the pod
//! finds the SDK there.

use std::sync::Arc;
use std::time::Duration;

use berth_api::link::ListenerKey;
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::Instant;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::host::{Host, HostError, SandboxRequest, SdkSockets};

/// First and longest wait before the next try to open.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// What is asked of a sandbox.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// UID of the pod.
    pub(super) pod_uid: String,
    /// Port for gRPC.
    pub(super) grpc_port: u16,
    /// Port for REST.
    pub(super) http_port: u16,
}

/// Where the listeners stand.
pub(super) struct Sandbox {
    stage: Stage,
    generation: u32,
    backoff: Backoff,
}

enum Stage {
    /// Nothing is wanted.
    Closed,
    /// The host waits for the sandbox.
    Opening { opening: BoxFuture<'static, Result<SdkSockets, HostError>> },
    /// Trying again then.
    Resting { until: Instant, why: String },
    /// The front has them.
    Open,
    /// The pod speaks for its game by a container of its own.
    Foreign,
}

impl Sandbox {
    pub(super) fn new() -> Self {
        Self { stage: Stage::Closed, generation: 0, backoff: Backoff::new(WAITS.0, WAITS.1) }
    }

    /// The word for the local socket.
    pub(super) fn word(&self) -> String {
        match &self.stage {
            Stage::Closed => "closed".to_owned(),
            Stage::Opening { .. } => "opening".to_owned(),
            Stage::Resting { why, .. } => format!("failed: {why}"),
            Stage::Open => "open".to_owned(),
            Stage::Foreign => "sidecar".to_owned(),
        }
    }

    /// Opens, where that has not begun.
    pub(super) fn open<H: Host>(&mut self, host: &Arc<H>, wanted: &Wanted, now: Instant) {
        match &self.stage {
            Stage::Opening { .. } | Stage::Open | Stage::Foreign => return,
            Stage::Resting { until, .. } if now < *until => return,
            Stage::Closed | Stage::Resting { .. } => {}
        }
        let request = SandboxRequest {
            pod_uid: wanted.pod_uid.clone(),
            grpc_port: wanted.grpc_port,
            http_port: wanted.http_port,
            generation: self.generation + 1,
            other_than: None,
        };
        let host = Arc::clone(host);
        let opening = async move {
            // Dropping the future is what ends it; nobody else has the token.
            let cancel = CancellationToken::new();
            host.open_sdk(request, &cancel).await
        };
        self.stage = Stage::Opening { opening: opening.boxed() };
    }

    /// Another program speaks for this game.
    pub(super) fn leave_to_sidecar(&mut self) {
        self.stage = Stage::Foreign;
    }

    /// Stops what has not succeeded; listeners that are open stay.
    pub(super) fn stop_trying(&mut self) {
        if matches!(self.stage, Stage::Opening { .. } | Stage::Resting { .. }) {
            self.stage = Stage::Closed;
        }
    }

    /// Stops whatever goes on.
    pub(super) fn close(&mut self) {
        self.stage = Stage::Closed;
    }

    /// The front has these listeners.
    pub(super) fn note_held(&mut self, keys: &[ListenerKey]) {
        let Some(generation) = keys.iter().map(|key| key.generation).max() else { return };
        if generation >= self.generation {
            self.generation = generation;
            self.stage = Stage::Open;
            self.backoff.reset();
        }
    }

    /// It did not open, and is tried again later. Answers whether this is the first time in a row.
    pub(super) fn note_failure(&mut self, error: &HostError, now: Instant) -> bool {
        let is_first = self.backoff.attempts() == 0;
        self.stage = Stage::Resting { until: now + self.backoff.next(), why: error.to_string() };
        is_first
    }

    /// When to try again, where that is ahead.
    pub(super) fn next_try(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Resting { until, .. } => Some(*until),
            Stage::Closed | Stage::Opening { .. } | Stage::Open | Stage::Foreign => None,
        }
    }

    /// Waits for the opening to end; never, where there is none. Safe to drop and call again.
    pub(super) async fn opened(&mut self) -> Result<SdkSockets, HostError> {
        let Stage::Opening { opening } = &mut self.stage else {
            return std::future::pending().await;
        };
        let answer = opening.await;
        // A finished future must not be asked again.
        self.stage = Stage::Closed;
        answer
    }
}
