//! Word to systemd: ready, stopping, a status line, proof of life for its watchdog, and descriptors to be [kept](store).
//!
//! Outside systemd (no `NOTIFY_SOCKET`) all of it does nothing and succeeds.

pub mod store;

use std::io;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Why systemd could not be told.
#[derive(Debug, thiserror::Error)]
#[error("could not tell systemd: {what}")]
pub struct NotifyError {
    what: &'static str,
    source: io::Error,
}

/// Says that start-up is finished.
///
/// # Errors
/// When the notify socket is there and refuses.
pub fn ready() -> Result<(), NotifyError> {
    tell(&[NotifyState::Ready], "ready")
}

/// Says that the program is ending.
///
/// # Errors
/// When the notify socket is there and refuses.
pub fn stopping() -> Result<(), NotifyError> {
    tell(&[NotifyState::Stopping], "stopping")
}

/// Sets the line that `systemctl status` shows.
///
/// # Errors
/// When the notify socket is there and refuses.
pub fn status(line: &str) -> Result<(), NotifyError> {
    tell(&[NotifyState::Status(line)], "status")
}

/// Feeds the watchdog of systemd while `is_alive` says so, until `stop`; without a watchdog it only waits for `stop`.
///
/// # Errors
/// When the notify socket is there and refuses.
pub async fn keep_watchdog(
    is_alive: impl Fn() -> bool + Send,
    stop: CancellationToken,
) -> Result<(), NotifyError> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        stop.cancelled().await;
        return Ok(());
    };
    let mut beat = tokio::time::interval(period(limit));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            _ = beat.tick() => {}
        }
        if is_alive() {
            tell(&[NotifyState::Watchdog], "alive")?;
        } else {
            warn!("not alive by its own account: the watchdog is not fed");
        }
    }
}

fn tell(states: &[NotifyState<'_>], what: &'static str) -> Result<(), NotifyError> {
    sd_notify::notify(states).map_err(|source| NotifyError { what, source })
}

/// A third of the limit, so that one late beat does not cost the process its life.
fn period(limit: Duration) -> Duration {
    (limit / 3).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_watchdog_is_fed_three_times_per_limit() {
        assert_eq!(period(Duration::from_secs(30)), Duration::from_secs(10));
        assert_eq!(period(Duration::ZERO), Duration::from_millis(1));
    }

    #[test]
    fn without_systemd_nothing_happens() {
        ready().unwrap();
        status("fine").unwrap();
        stopping().unwrap();
    }

    /// Set in the process that the test below starts, since a process's environment is set only when it starts.
    const SPEAKER: &str = "BERTH_TEST_SPEAKER";

    async fn speak() {
        ready().unwrap();
        status("3 game servers").unwrap();
        let stop = CancellationToken::new();
        let fed = std::sync::atomic::AtomicU32::new(0);
        let stop_after_two = || {
            if fed.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1 {
                stop.cancel();
            }
            true
        };
        keep_watchdog(stop_after_two, stop.clone()).await.unwrap();
        stopping().unwrap();
    }

    #[tokio::test]
    async fn systemd_hears_all_of_it() {
        if std::env::var_os(SPEAKER).is_some() {
            return speak().await;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["notify::tests::systemd_hears_all_of_it", "--exact"])
            .env(SPEAKER, "1")
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "3000")
            .env_remove("WATCHDOG_PID")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let mut heard = Vec::new();
        let mut buffer = [0; 256];
        while heard.last().is_none_or(|last| last != "STOPPING=1\n") {
            let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}; heard {heard:?}"));
            heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        assert_eq!(
            heard,
            ["READY=1\n", "STATUS=3 game servers\n", "WATCHDOG=1\n", "WATCHDOG=1\n", "STOPPING=1\n"]
        );
    }
}
