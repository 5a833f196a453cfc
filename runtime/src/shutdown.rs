//! Stopping when asked: SIGTERM and SIGINT cancel one token that every task holds.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::tasks;

/// Why signals could not be listened to.
#[derive(Debug, thiserror::Error)]
#[error("could not listen for {signal}")]
pub struct ShutdownError {
    signal: &'static str,
    source: io::Error,
}

/// The request to stop.
#[derive(Debug, Clone)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// Listens for SIGTERM and SIGINT from now on. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the process may not install the signal handlers.
    pub fn on_signals() -> Result<Self, ShutdownError> {
        let terminate = listen(SignalKind::terminate(), "SIGTERM")?;
        let interrupt = listen(SignalKind::interrupt(), "SIGINT")?;
        let token = CancellationToken::new();
        tasks::spawn_detached(cancel_on(terminate, interrupt, token.clone()));
        Ok(Self { token })
    }

    /// The token that is cancelled when somebody asks the process to stop.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}

fn listen(kind: SignalKind, name: &'static str) -> Result<Signal, ShutdownError> {
    signal(kind).map_err(|source| ShutdownError { signal: name, source })
}

async fn cancel_on(mut terminate: Signal, mut interrupt: Signal, token: CancellationToken) {
    let reason = tokio::select! {
        biased;
        // Somebody else stopped the program: nothing is left to listen for.
        () = token.cancelled() => return,
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    info!(reason, "stopping");
    token.cancel();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_signal_cancels_the_token() {
        let shutdown = Shutdown::on_signals().unwrap();
        let token = shutdown.token();
        assert!(!token.is_cancelled());
        let status = std::process::Command::new("kill")
            .args(["-TERM", &std::process::id().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success());
        tokio::time::timeout(Duration::from_secs(10), token.cancelled())
            .await
            .expect("the token is cancelled within ten seconds of SIGTERM");
    }
}
