//! The task that puts the observations of the instance's status together, and passes on what is new.

use std::convert::Infallible;

use berth_api::game_node::Protection;
use berth_runtime::CancellationToken;
use berth_runtime::clock::{Clock, Instant};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::metrics::WorthLabels;
use super::status::{Observation, StatusReader};
use super::{FleetMetrics, Standing};
use crate::drain::notice::Signal;

/// Where the watcher says what it has heard.
#[derive(Debug)]
pub struct Outlets {
    /// Notices.
    pub signals: mpsc::Sender<Signal>,
    /// When the publisher was last heard of.
    pub heard: watch::Sender<Instant>,
    /// Whether Auto Scaling protects the instance.
    pub protection: watch::Sender<Option<bool>>,
}

/// Watches the status of one instance.
#[derive(Debug)]
pub struct Watcher {
    reader: StatusReader,
    clock: Clock,
    observed: mpsc::Receiver<Observation>,
    standing: watch::Receiver<Standing>,
    given_back_at: Option<Timestamp>,
    is_left_over: bool,
    outlets: Outlets,
    metrics: FleetMetrics,
}

impl Watcher {
    /// A watcher that has heard nothing.
    #[must_use]
    pub fn new(
        instance: &str,
        observed: mpsc::Receiver<Observation>,
        standing: watch::Receiver<Standing>,
        outlets: Outlets,
        metrics: FleetMetrics,
    ) -> Self {
        Self {
            reader: StatusReader::new(instance),
            clock: Clock::system(),
            observed,
            standing,
            given_back_at: None,
            is_left_over: false,
            outlets,
            metrics,
        }
    }

    /// Watches until asked to stop.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Some(observation) = self.observed.recv() => self.hear(&observation).await,
                else => {
                    stop.cancelled().await;
                    return Ok(());
                }
            }
        }
    }

    async fn hear(&mut self, observation: &Observation) {
        let published = self.reader.published();
        let heard = self.reader.hear(observation, self.clock.now());
        self.metrics.observations.get_or_create(&WorthLabels { worth: heard.worth.word() }).inc();
        debug!(worth = heard.worth.word(), "status of the instance");
        self.metrics.last_status.set(self.reader.newest().map_or(0, Timestamp::as_second));
        self.look_for_what_is_left_over();
        if self.reader.published() != published {
            self.outlets.heard.send_replace(Instant::now());
        }
        if matches!(observation, Observation::Retained(_)) {
            // Also when it is what it was: how long it has been so counts.
            self.outlets.protection.send_replace(self.reader.is_protected());
        }
        if let Some(signal) = heard.signal {
            match &signal {
                Signal::Raised(notice) => info!(reason = %notice.reason, "FleetIQ gives notice"),
                Signal::Cleared(_) => info!("FleetIQ calls the instance viable again"),
            }
            // Nobody listens any more: the agent stops.
            drop(self.outlets.signals.send(signal).await);
        }
    }

    /// An instance that was given back is FleetIQ's to end. One that it keeps calling viable is not used by anybody.
    fn look_for_what_is_left_over(&mut self) {
        let now = self.clock.now();
        let is_given_back = self.standing.borrow().protection == Protection::Released;
        self.given_back_at = is_given_back.then(|| self.given_back_at.unwrap_or(now));
        let is_left_over = self.given_back_at.is_some_and(|at| self.reader.is_left_over(at, now));
        if is_left_over && !self.is_left_over {
            warn!(
                "the instance was given back, and FleetIQ has called it viable for ten minutes since: nobody uses it"
            );
        }
        self.is_left_over = is_left_over;
        self.metrics.drained_but_active.set(i64::from(is_left_over));
    }
}
