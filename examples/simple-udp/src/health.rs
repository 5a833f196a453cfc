//! The task that keeps the Health stream: a ping at once, one per period, and those that are asked for.
//!
//! A stream that ends is opened again after a moment; pings in between are lost, as they would be for any game.

use std::time::Duration;

use berth_api::sdk::v1::Empty;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;

use crate::sdk::Sdk;

/// How long to wait before a stream that ended is opened again.
const REOPEN: Duration = Duration::from_secs(1);
/// Pings that may wait for the connection; more are dropped, since one that is late says nothing new.
const WAITING_PINGS: usize = 4;

/// What the game's commands may ask of the pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// One ping now.
    Ping,
    /// No pings by themselves any more.
    Stop,
}

/// Pings for as long as the game lives.
pub(crate) async fn keep(sdk: Sdk, period: Duration, mut orders: mpsc::Receiver<Order>) {
    let mut beat = tokio::time::interval(period);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut beating = true;
    loop {
        let (pings, waiting) = mpsc::channel(WAITING_PINGS);
        let stream = sdk.health(ReceiverStream::new(waiting));
        tokio::pin!(stream);
        let ended = loop {
            tokio::select! {
                biased;
                // A stream that ended takes no pings, so that comes first.
                ended = &mut stream => break ended,
                order = orders.recv() => match order {
                    Some(Order::Ping) => ping(&pings),
                    Some(Order::Stop) => beating = false,
                    None => return,
                },
                _ = beat.tick(), if beating => ping(&pings),
            }
        };
        match ended {
            Ok(()) => println!("health stream ended by the server; opening it again"),
            Err(error) => println!("health stream broken; opening it again error={error}"),
        }
        tokio::time::sleep(REOPEN).await;
    }
}

fn ping(pings: &mpsc::Sender<Empty>) {
    if pings.try_send(Empty {}).is_err() {
        println!("health ping dropped: the SDK server does not take them");
    }
}
