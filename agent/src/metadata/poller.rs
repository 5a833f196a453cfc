//! The task that reads the instance's metadata and passes on what they say. Whatever they do, it goes on.

use std::convert::Infallible;
use std::time::Duration;

use berth_api::events::EventReason;
use berth_runtime::CancellationToken;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::error::chain;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;
use tracing::{debug, info, warn};

use super::client::MetadataClient;
use super::metrics::SourceLabels;
use super::reading::{Item, Reader};
use super::{Lifecycle, MetadataMetrics, Rules};
use crate::drain::notice::Signal;
use crate::events::NodeRecorder;

/// How often notices are looked for.
const OFTEN: Duration = Duration::from_secs(5);
/// How often scheduled events are.
const SELDOM: Duration = Duration::from_secs(60);
/// Longest pause while nothing answers.
const CEILING: Duration = Duration::from_secs(15);
/// How long nothing may answer before somebody is told.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads one instance's metadata.
#[derive(Debug)]
pub struct Poller {
    client: MetadataClient,
    reader: Reader,
    clock: Clock,
    outlets: Outlets,
    metrics: MetadataMetrics,
    scheduled_at: Instant,
    pause: Duration,
    failing_since: Option<Instant>,
    is_told: bool,
}

/// Where the poller says what it has read.
#[derive(Clone, Debug)]
pub struct Outlets {
    /// Notices.
    pub signals: mpsc::Sender<Signal>,
    /// Auto Scaling's target state.
    pub lifecycle: watch::Sender<Lifecycle>,
    /// Where people read.
    pub tell: NodeRecorder,
}

impl Poller {
    /// A poller that has read nothing.
    #[must_use]
    pub fn new(client: MetadataClient, rules: Rules, outlets: Outlets, metrics: MetadataMetrics) -> Self {
        Self {
            client,
            reader: Reader::new(rules),
            clock: Clock::system(),
            outlets,
            metrics,
            scheduled_at: Instant::now(),
            pause: OFTEN,
            failing_since: None,
            is_told: false,
        }
    }

    /// Reads until asked to stop.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        loop {
            let turn = self.turn();
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                next = turn => next,
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = sleep_until(next) => {}
            }
        }
    }

    /// Reads everything that is due, and says when to read again.
    async fn turn(&mut self) -> Instant {
        let began = Instant::now();
        let mut is_well = true;
        for item in Item::OFTEN {
            is_well = is_well && self.read(item).await;
        }
        if is_well && self.scheduled_at <= began && self.read(Item::Scheduled).await {
            self.scheduled_at = began + jittered(SELDOM);
        }
        let expired = self.reader.expire(self.clock.now());
        self.pass_on(expired).await;
        if is_well {
            self.answered();
        } else {
            self.unanswered(began);
        }
        let lifecycle = self.reader.lifecycle();
        self.outlets.lifecycle.send_if_modified(|last| std::mem::replace(last, lifecycle) != lifecycle);
        began + jittered(self.pause)
    }

    /// Reads one thing; whether there was an answer.
    async fn read(&mut self, item: Item) -> bool {
        let content = match self.client.get(item.path()).await {
            Ok(content) => content,
            Err(error) => {
                self.metrics.failed(error.category());
                debug!(path = item.path(), error = %chain(&error), "instance metadata");
                return false;
            }
        };
        self.metrics.reads.inc();
        match self.reader.read(item, content.as_deref(), self.clock.now()) {
            Ok(signals) => self.pass_on(signals).await,
            Err(error) => {
                self.metrics.failed("unreadable");
                warn!(error = %chain(&error), "instance metadata");
            }
        }
        true
    }

    async fn pass_on(&self, signals: Vec<Signal>) {
        for signal in signals {
            if let Signal::Raised(notice) = &signal {
                info!(source = notice.source.word(), reason = %notice.reason, "instance metadata give notice");
                self.metrics.notices.get_or_create(&SourceLabels { source: notice.source.word() }).inc();
            }
            // Nobody listens any more: the agent stops.
            drop(self.outlets.signals.send(signal).await);
        }
    }

    fn answered(&mut self) {
        self.pause = OFTEN;
        self.failing_since = None;
        self.metrics.last_success.set(self.clock.now().as_second());
        if std::mem::take(&mut self.is_told) {
            info!("instance metadata answer again");
        }
    }

    fn unanswered(&mut self, began: Instant) {
        self.reader.miss();
        self.pause = (self.pause * 3 / 2).min(CEILING);
        let since = *self.failing_since.get_or_insert(began);
        if !self.is_told && since.elapsed() >= PATIENCE {
            self.is_told = true;
            let what = "the instance's metadata have not answered for a minute: an interruption would be noticed late; \
                        in a pod that is not on its node's network, raise the instance's hop limit";
            warn!("{what}");
            self.outlets.tell.record(EventReason::MetadataSilent, what);
        }
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.9..1.1))
}
