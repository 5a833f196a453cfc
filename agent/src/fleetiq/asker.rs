//! The slow way to the instance's status, for when nobody publishes it: FleetIQ is asked, seldom, and never in step with
//! other instances. It has nothing to do with signs of life and cannot hold them up.

use std::convert::Infallible;
use std::time::Duration;

use berth_api::events::EventReason;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until};
use tracing::{info, warn};

use super::FleetMetrics;
use super::call::{Answer, Call};
use super::client::FleetClient;
use super::status::Observation;
use crate::events::NodeRecorder;

/// How long the publisher may be silent.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often FleetIQ is asked, half of it more or less.
const PERIOD: Duration = Duration::from_secs(120);

/// Asks for the status while nobody publishes it.
#[derive(Debug)]
pub struct Asker {
    /// Who is asked.
    pub client: FleetClient,
    /// When the publisher was last heard of, or when we began to listen.
    pub heard: watch::Receiver<Instant>,
    /// Whether anybody is expected to publish it.
    pub has_publisher: bool,
    /// Where answers go.
    pub observations: mpsc::Sender<Observation>,
    /// Where people read.
    pub tell: NodeRecorder,
    /// Numbers.
    pub metrics: FleetMetrics,
}

impl Asker {
    /// Asks until asked to stop.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        // The first question comes at any time within a period, so that a silence of all has no echo.
        let mut is_first = true;
        loop {
            let heard = *self.heard.borrow_and_update();
            let silent_at = heard + if self.has_publisher { PATIENCE } else { Duration::ZERO };
            let is_silent = silent_at <= Instant::now();
            if is_silent && is_first && self.has_publisher {
                warn!("nobody publishes the status of the instance; FleetIQ is asked for it");
                self.tell.record(
                    EventReason::StatusStale,
                    "nobody has published FleetIQ's status of the instance for three minutes, so FleetIQ is asked for it \
                     every two minutes",
                );
            }
            let pause = PERIOD.mul_f64(if is_first {
                rand::random_range(0.0..1.0)
            } else {
                rand::random_range(0.5..1.5)
            });
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                changed = self.heard.changed() => {
                    if changed.is_err() {
                        stop.cancelled().await;
                        return Ok(());
                    }
                    if !std::mem::replace(&mut is_first, true) {
                        info!("the status of the instance is published again");
                    }
                }
                () = sleep_until(silent_at), if !is_silent => {}
                () = sleep(pause), if is_silent => {
                    is_first = false;
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return Ok(()),
                        () = self.ask() => {}
                    }
                }
            }
        }
    }

    async fn ask(&self) {
        let answer = self.client.call(Call::AskStatus).await;
        self.metrics.called(&answer);
        if let Answer::AskStatus(Ok(status)) = answer {
            // Nobody listens any more: the agent stops.
            drop(self.observations.send(Observation::Asked(status)).await);
        }
    }
}
