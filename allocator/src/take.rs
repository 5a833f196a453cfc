//! Taking a server: the one way by which a game server becomes Allocated, and its one caller is [`Taker::allocate`].
//!
//! A request is chosen a server under the desk's lock, and sits down at it. The first one to sit at a server starts its
//! writer; whoever sits down while a write is under way is served by the next one, all of them together, since each was
//! chosen on the server as it will be by then. So no two requests here ever race for a server, and an allocation costs at
//! most one write, compared and set on what the choice saw. A race that is lost to somebody else is run again at once,
//! on the server as it is by then and all others, until the request's time is over.
//!
//! Where none is left but those that others are taking, a request waits until it is known whether they are: a write may
//! fail, and its server is there again.
//!
//! A node's own agent could take in our stead, as its single writer: then `writer` would ask it instead of patching.

use std::sync::Arc;
use std::time::Duration;

use berth_api::allocation::{AllocationStatus, Request};
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::Clock;
use berth_runtime::kube_client::Class;
use berth_runtime::tasks::Spawner;
use kube::Client;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout_at};
use tracing::debug;

mod desk;
mod metrics;
mod patch;
mod writer;

pub use desk::Desk;
use desk::Seating;
pub use metrics::TakeMetrics;

use crate::announce::Announcer;

/// The first wait after the API server has failed, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The API server did not do it, and will not.
    #[error("could not write the game server: {reason}")]
    Refused {
        /// What it answered.
        reason: String,
    },
    /// Time is over while the API server fails.
    #[error("the API server failed until the time for an allocation was over: {reason}")]
    Overdue {
        /// What it answered last.
        reason: String,
    },
    /// We are stopping.
    #[error("the allocator is stopping")]
    Stopping,
}

/// What came to a request at its server.
#[derive(Debug)]
enum Answer {
    /// It is allocated.
    Taken(Box<AllocationStatus>),
    /// Somebody else was faster.
    Lost,
    /// The API server did not do it.
    Failed { class: Class, reason: String },
}

/// One request that sits at a server.
#[derive(Debug)]
struct Seat {
    request: Arc<Request>,
    /// Which of its selectors the server was chosen by.
    selector: usize,
    reply: oneshot::Sender<Answer>,
}

/// Where a request is.
enum Sitting {
    /// At a server.
    At(oneshot::Receiver<Answer>),
    /// Behind others, who may leave one.
    Behind(watch::Receiver<()>),
    Nowhere,
}

/// Takes servers.
#[derive(Clone)]
pub struct Taker {
    desk: Arc<Desk>,
    client: Client,
    spawner: Spawner,
    announcer: Announcer,
    metrics: TakeMetrics,
    clock: Clock,
    /// How long a request may take in all.
    limit: Duration,
}

impl Taker {
    /// A taker over this desk. `limit` is how long a request may take in all.
    pub fn new(
        desk: Arc<Desk>,
        client: Client,
        spawner: Spawner,
        announcer: Announcer,
        metrics: TakeMetrics,
        limit: Duration,
    ) -> Self {
        Self { desk, client, spawner, announcer, metrics, clock: Clock::system(), limit }
    }

    /// Allocates a server; `None` where there is none that fits.
    ///
    /// # Errors
    /// The API server failed for as long as there was time, or we are stopping.
    pub async fn allocate(&self, request: Request) -> Result<Option<AllocationStatus>, TakeError> {
        let request = Arc::new(request);
        let deadline = self.clock.instant() + self.limit;
        let mut backoff = Backoff::new(WAITS.0, WAITS.1);
        let mut was_lost = false;
        loop {
            let answer = match self.sit_down(&request) {
                Sitting::At(answer) => answer,
                Sitting::Behind(mut settled) => match timeout_at(deadline, settled.changed()).await {
                    Ok(_) => continue,
                    Err(_) => break,
                },
                Sitting::Nowhere => {
                    debug!(namespace = request.namespace, "no game server fits");
                    return Ok(None);
                }
            };
            match timeout_at(deadline, answer).await {
                Ok(Ok(Answer::Taken(status))) => return Ok(Some(*status)),
                Ok(Ok(Answer::Lost)) if self.clock.instant() < deadline => was_lost = true,
                // Somebody was faster each time: as good as none, and what the callers know how to handle.
                Ok(Ok(Answer::Lost)) => break,
                Err(_) if was_lost => break,
                Ok(Ok(Answer::Failed { class: Class::Forbidden | Class::Invalid, reason })) => {
                    return Err(TakeError::Refused { reason });
                }
                Ok(Ok(Answer::Failed { reason, .. })) => {
                    was_lost = false;
                    let wait = backoff.next();
                    if self.clock.instant() + wait >= deadline {
                        return Err(TakeError::Overdue { reason });
                    }
                    sleep(wait).await;
                }
                Ok(Err(_)) => return Err(TakeError::Stopping),
                Err(_) => {
                    return Err(TakeError::Overdue { reason: "no answer in time".to_owned() });
                }
            }
        }
        debug!(namespace = request.namespace, "others were faster until the time was over");
        Ok(None)
    }

    /// Chooses a server and sits down at it. The one who comes first starts its writer.
    fn sit_down(&self, request: &Arc<Request>) -> Sitting {
        let (reply, answer) = oneshot::channel();
        match self.desk.seat(request, reply, self.clock.instant()) {
            Seating::Seated { key, is_first } => {
                if is_first {
                    let name = format!("take {key}");
                    // Its end needs no look: a writer that panics drops its seats, and their requests end.
                    drop(self.spawner.spawn_child(name, writer::run(self.clone(), key)));
                }
                Sitting::At(answer)
            }
            Seating::Wait(settled) => Sitting::Behind(settled),
            Seating::Nothing => Sitting::Nowhere,
        }
    }
}
