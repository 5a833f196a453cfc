//! A lock on a file of this node: whoever has it knows that no other agent of this boot is alive.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_runtime::CancellationToken;
use tracing::info;

/// Name of the file in the run folder.
const NAME: &str = "agent.lock";
/// How often a lock that another agent has is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file could not be made.
    #[error("could not open the lock {path}; the run folder must exist and be ours to write")]
    Open {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel refuses to lock it.
    #[error("could not lock {path}; the run folder must be on a local file system")]
    Lock {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The lock. The kernel takes it back when the process ends, however it ends.
#[derive(Debug)]
pub struct NodeLock {
    _file: File,
}

/// Waits for the lock; none when asked to stop.
///
/// # Errors
/// The file cannot be made or locked.
pub async fn acquire(run_dir: &Path, stop: &CancellationToken) -> Result<Option<NodeLock>, LockError> {
    let path = run_dir.join(NAME);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|source| LockError::Open { path: path.clone(), source })?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(NodeLock { _file: file })),
            Err(TryLockError::Error(source)) => return Err(LockError::Lock { path, source }),
            Err(TryLockError::WouldBlock) => {
                if !told {
                    info!(path = %path.display(), "another agent is at work on this node; waiting for its end");
                    told = true;
                }
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(TRY_AGAIN) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_runtime::CancellationToken;

    use super::acquire;

    #[tokio::test]
    async fn the_second_waits_until_the_first_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let stop = CancellationToken::new();
        let first = acquire(folder.path(), &stop).await.expect("works").expect("not stopped");
        let second = acquire(folder.path(), &stop);
        tokio::pin!(second);
        tokio::select! {
            biased;
            _ = &mut second => panic!("two have the lock"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        let second = tokio::time::timeout(Duration::from_secs(10), second).await;
        assert!(second.expect("within ten seconds").expect("works").is_some());
    }

    #[tokio::test]
    async fn stopping_ends_the_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let stop = CancellationToken::new();
        let _first = acquire(folder.path(), &stop).await.expect("works");
        stop.cancel();
        assert!(acquire(folder.path(), &stop).await.expect("works").is_none());
    }
}
