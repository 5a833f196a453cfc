//! Questions that must be answered before a program can begin.

use std::time::Duration;

use anyhow::bail;
use tracing::warn;

use super::bounded::CallError;
use super::class::Class;
use crate::CancellationToken;
use crate::backoff::Backoff;

/// The first wait before asking again, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Asks again and again until the API server has answered: one that is away while a program starts is waited for, since a
/// program that ended then would come back later and later. An answer that will not do is told at once.
///
/// `ask` says by a [`CallError`] among the causes of its error that there was no answer. That we may not ask is one.
///
/// # Errors
/// An answer that will not do, or we were asked to stop before there was one.
pub async fn ask_until_answered<T, Asked: Future<Output = anyhow::Result<T>>>(
    stop: &CancellationToken,
    ask: impl Fn() -> Asked,
) -> anyhow::Result<T> {
    let mut backoff = Backoff::new(WAITS.0, WAITS.1);
    let answered = async {
        loop {
            match ask().await {
                Err(error) if is_unanswered(&error) => {
                    warn!(error = format!("{error:#}"), "waiting for the API server");
                    tokio::time::sleep(backoff.next()).await;
                }
                answer => return answer,
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => bail!("asked to stop before the API server answered"),
        answer = answered => answer,
    }
}

fn is_unanswered(error: &anyhow::Error) -> bool {
    let calls = error.chain().filter_map(|cause| cause.downcast_ref::<CallError>());
    calls.map(CallError::class).any(|class| matches!(class, Class::Transient | Class::Throttled))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn silence() -> CallError {
        CallError::TooSlow { limit: Duration::from_secs(1) }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("could not ask")]
    struct Asked(#[source] CallError);

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_asked_again_and_an_answer_ends_it() {
        let stop = CancellationToken::new();
        let asked = Cell::new(0);
        let answer = ask_until_answered(&stop, || {
            asked.set(asked.get() + 1);
            std::future::ready(match asked.get() {
                1 => Err(silence().into()),
                2 => Err(Asked(silence()).into()),
                _ => Ok("yes"),
            })
        });
        assert_eq!(answer.await.expect("an answer"), "yes");
        let refused = ask_until_answered(&stop, || async { Err::<(), _>(anyhow::anyhow!("too old")) });
        assert_eq!(refused.await.expect_err("a refusal").to_string(), "too old");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_waits_no_longer() {
        let stop = CancellationToken::new();
        let waiting = ask_until_answered(&stop, || async { Err::<(), _>(silence().into()) });
        let (answer, ()) = tokio::join!(waiting, async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            stop.cancel();
        });
        assert!(answer.expect_err("an end").to_string().contains("asked to stop"));
    }
}
