//! Waiting for a condition: the one way in which tests, and this crate, wait for anything.
//!
//! There is always a limit, and a wait that ends in failure says what it last saw.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// The first pause between two looks; each is a half longer than the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Long enough that a hundred waiting tests do not load the machine, short enough not to be felt.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A condition that did not come true in time.
#[derive(Debug, thiserror::Error)]
#[error("waited {limit:?} for {what}; last seen: {last_seen}")]
pub struct Overdue {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub limit: Duration,
    /// What the last look that came to an end said.
    pub last_seen: String,
}

/// Looks again and again until `look` returns `Ok`, and gives its value.
///
/// `look` says what it sees as an `Err` for as long as the condition does not hold. A look that hangs is cut
/// off at the limit.
///
/// # Errors
/// [`Overdue`] when the limit passes first.
pub async fn eventually<T, Seen, Look, Looking>(
    limit: Duration,
    what: impl Into<String>,
    mut look: Look,
) -> Result<T, Overdue>
where
    Seen: Display,
    Look: FnMut() -> Looking,
    Looking: Future<Output = Result<T, Seen>>,
{
    let deadline = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    let mut last_seen = "nothing: the first look has not come to an end".to_owned();
    loop {
        match tokio::time::timeout_at(deadline, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last_seen = format!("{seen:#}"),
            Err(_) => {}
        }
        let next = Instant::now() + pause;
        if next >= deadline {
            return Err(Overdue { what: what.into(), limit, last_seen });
        }
        tokio::time::sleep_until(next).await;
        pause = (pause + pause / 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_comes_true_gives_its_value() {
        let looks = Cell::new(0);
        let value = eventually(Duration::from_secs(1), "three looks", async || {
            looks.set(looks.get() + 1);
            if looks.get() == 3 { Ok("there") } else { Err(format!("look {}", looks.get())) }
        });
        assert_eq!(value.await.unwrap(), "there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_wait_says_what_it_saw_last() {
        let overdue = eventually(Duration::from_secs(2), "a ready node", async || Err::<(), _>("not ready"));
        let message = overdue.await.unwrap_err().to_string();
        assert_eq!(message, "waited 2s for a ready node; last seen: not ready");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_cut_off() {
        let hanging = eventually(Duration::from_secs(2), "an answer", async || {
            std::future::pending::<Result<(), String>>().await
        });
        assert!(hanging.await.is_err());
    }
}
