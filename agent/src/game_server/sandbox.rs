//! The SDK listeners of one server: opened in its pod's sandbox, or handed back by `berth-sdk`.
//!
//! The opening starts as soon as the pod is made, long before kubelet can run it, so that the first process of the pod
//! finds the SDK there. It goes on afterwards: a pod may get another sandbox, and the listeners of the old one are dead
//! then. Listeners that were handed back may be of either; who tries to listen beside them finds out.
//!
//! Generations grow with the time, so that those of this process are above all that a predecessor gave out for another
//! sandbox of the pod.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use berth_api::link::ListenerKey;
use berth_runtime::CancellationToken;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::Instant;
use berth_runtime::kill_point::around;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::effects::Effect;
use crate::host::{Host, HostError, NetnsId, SandboxRequest, SdkSockets};

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
    /// The pod shares the host's loopback.
    pub(super) on_host: bool,
    /// The next generation is at least this, see [`generation_at`].
    pub(super) generation: u32,
}

/// Beginning of the time that generations count, in seconds: the first of January 2025.
const BEGINNING: i64 = 1_735_689_600;

/// The lowest generation that may be given out now: tenths of a second, less than any sandbox takes to be made.
pub(super) fn generation_at(now: Timestamp) -> u32 {
    let tenths = now.as_millisecond().saturating_sub(BEGINNING * 1000) / 100;
    u32::try_from(tenths).unwrap_or_default()
}

/// What the opening came to.
#[derive(Debug)]
pub(super) enum Opened {
    /// The first listeners of this server.
    First(SdkSockets),
    /// The pod has another sandbox than before.
    Again(SdkSockets),
    /// Those that `berth-sdk` handed back are the right ones.
    AreHeld,
    /// It did not open. The flag says whether this is the first time in a row.
    Failed(HostError, bool),
}

/// Where the listeners stand.
pub(super) struct Sandbox {
    stage: Stage,
    /// Generation of the newest listeners; 0 while there were none.
    generation: u32,
    /// Generation of those that are being opened.
    next: u32,
    /// The newest were opened here, without knowing of any before.
    is_first: bool,
    backoff: Backoff,
}

type Opening = BoxFuture<'static, Result<SdkSockets, HostError>>;

enum Stage {
    /// Nothing is wanted.
    Closed,
    /// The host waits for the sandbox, or tries beside listeners that were handed back.
    Opening(Opening),
    /// Trying again then.
    Resting { until: Instant, why: String },
    /// The front has those of this sandbox; the host waits for another one.
    Open { sandbox: NetnsId, next: Option<Opening> },
    /// The pod speaks for its game by a container of its own.
    Foreign,
}

impl Sandbox {
    pub(super) fn new() -> Self {
        let backoff = Backoff::new(WAITS.0, WAITS.1);
        Self { stage: Stage::Closed, generation: 0, next: 0, is_first: false, backoff }
    }

    /// The word for the local socket.
    pub(super) fn word(&self) -> String {
        match &self.stage {
            Stage::Opening(_) | Stage::Closed if self.generation > 0 => "open".to_owned(),
            Stage::Closed => "closed".to_owned(),
            Stage::Opening(_) => "opening".to_owned(),
            Stage::Resting { why, .. } => format!("failed: {why}"),
            Stage::Open { .. } => "open".to_owned(),
            Stage::Foreign => "sidecar".to_owned(),
        }
    }

    /// Opens, where that has not begun; watches for another sandbox, where it is open.
    pub(super) fn open<H: Host>(&mut self, host: &Arc<H>, wanted: &Wanted, now: Instant) {
        let other_than = match &self.stage {
            Stage::Opening(_) | Stage::Foreign | Stage::Open { next: Some(_), .. } => return,
            // The host's loopback does not change.
            Stage::Open { .. } if wanted.on_host => return,
            Stage::Resting { until, .. } if now < *until => return,
            Stage::Closed | Stage::Resting { .. } => None,
            Stage::Open { sandbox, next: None } => Some(*sandbox),
        };
        self.next = wanted.generation.max(self.generation.saturating_add(1));
        let request = SandboxRequest {
            pod_uid: wanted.pod_uid.clone(),
            grpc_port: wanted.grpc_port,
            http_port: wanted.http_port,
            generation: self.next,
            other_than,
            on_host: wanted.on_host,
        };
        let host = Arc::clone(host);
        let opening = async move {
            // Dropping the future is what ends it; nobody else has the token.
            let cancel = CancellationToken::new();
            around(Effect::OpenSdk, host.open_sdk(request, &cancel)).await
        };
        let mut opening = opening.boxed();
        // The host is asked now, not when somebody waits for its answer: the writes to the API that come before that may
        // take longer than kubelet takes to start the game.
        let opening = match (&mut opening).now_or_never() {
            Some(outcome) => ready(outcome).boxed(),
            None => opening,
        };
        match &mut self.stage {
            Stage::Open { next, .. } => *next = Some(opening),
            stage => *stage = Stage::Opening(opening),
        }
    }

    /// Another program speaks for this game.
    pub(super) fn leave_to_sidecar(&mut self) {
        self.stage = Stage::Foreign;
    }

    /// Waits for nothing any more; listeners that are open stay.
    pub(super) fn stop_trying(&mut self) {
        match &mut self.stage {
            Stage::Opening(_) | Stage::Resting { .. } => self.stage = Stage::Closed,
            Stage::Open { next, .. } => *next = None,
            Stage::Closed | Stage::Foreign => {}
        }
    }

    /// Stops whatever goes on.
    pub(super) fn close(&mut self) {
        self.stage = Stage::Closed;
    }

    /// The front has these listeners, from `berth-sdk`. Answers whether they tell that the pod had another sandbox before:
    /// in one and the same, ours could not listen beside them.
    pub(super) fn note_held(&mut self, keys: &[ListenerKey]) -> bool {
        let Some(newest) = keys.iter().map(|key| key.generation).max() else { return false };
        if newest > self.generation {
            self.generation = newest;
            // What was opened or tried has given way to these.
            if matches!(self.stage, Stage::Opening(_) | Stage::Resting { .. } | Stage::Open { .. }) {
                self.stage = Stage::Closed;
            }
            return false;
        }
        newest < self.generation && std::mem::take(&mut self.is_first)
    }

    /// When to try again, where that is ahead.
    pub(super) fn next_try(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Resting { until, .. } => Some(*until),
            Stage::Closed | Stage::Opening(_) | Stage::Open { .. } | Stage::Foreign => None,
        }
    }

    /// Waits for the opening to end; never, where there is none. Safe to drop and call again.
    pub(super) async fn opened(&mut self, now: impl Fn() -> Instant) -> Opened {
        let (answer, was_open) = match &mut self.stage {
            Stage::Opening(opening) => (opening.await, false),
            Stage::Open { next: Some(next), .. } => (next.await, true),
            Stage::Closed | Stage::Resting { .. } | Stage::Open { next: None, .. } | Stage::Foreign => {
                return std::future::pending().await;
            }
        };
        let is_first = self.generation == 0;
        match answer {
            Ok(sockets) => {
                self.stage = Stage::Open { sandbox: sockets.sandbox, next: None };
                self.generation = self.next;
                self.is_first = is_first;
                self.backoff.reset();
                if is_first { Opened::First(sockets) } else { Opened::Again(sockets) }
            }
            // Ours, since they were handed back, and in the sandbox that the pod has now.
            Err(HostError::AddressInUse { sandbox, .. }) if !is_first && !was_open => {
                self.stage = Stage::Open { sandbox, next: None };
                self.backoff.reset();
                Opened::AreHeld
            }
            Err(error) => {
                let is_first_failure = self.backoff.attempts() == 0;
                self.stage = Stage::Resting { until: now() + self.backoff.next(), why: error.to_string() };
                Opened::Failed(error, is_first_failure)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn the_host_is_asked_before_anybody_waits_for_its_answer() {
        let host = Arc::new(FakeHost::new("boot-1"));
        let wanted = Wanted {
            pod_uid: "pod".to_owned(),
            grpc_port: 9357,
            http_port: 9358,
            on_host: false,
            generation: 1,
        };
        let mut sandbox = Sandbox::new();
        sandbox.open(&host, &wanted, Instant::now());
        let asked: Vec<String> = host.requests().into_iter().map(|request| request.pod_uid).collect();
        assert_eq!(asked, ["pod"]);
    }
}
