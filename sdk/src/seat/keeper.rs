//! The task that keeps one server's deadlines: a missed ping, the end of a reservation.
//!
//! It sleeps until the nearest of them. A ping only moves a deadline away, so it wakes nobody; the keeper finds out when
//! the old one comes.

use std::sync::Arc;

use super::Seat;

/// Keeps the deadlines of a server until it is gone.
pub(crate) async fn keep(seat: Arc<Seat>) {
    loop {
        let next = seat.turn();
        tokio::select! {
            biased;
            () = seat.gone().cancelled() => return,
            () = seat.nearer.notified() => {}
            () = until(next) => {}
        }
    }
}

async fn until(next: Option<std::time::Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next.into()).await,
        None => std::future::pending().await,
    }
}
