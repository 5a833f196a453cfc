//! A lock between processes: a file that one of them holds with `flock`.
//!
//! The kernel lets go when the holder dies, whatever it died of. The file may be removed by the holder; who waited
//! for the removed one notices and takes the new one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// A lock file that could not be taken.
#[derive(Debug, thiserror::Error)]
#[error("could not lock {path}")]
pub struct LockError {
    path: PathBuf,
    source: io::Error,
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock, waiting for whoever holds it. The folder must exist.
    ///
    /// # Errors
    /// When the file cannot be made or locked.
    pub(crate) fn acquire(path: &Path) -> Result<Self, LockError> {
        loop {
            if let Some(lock) = Self::take(path, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock when nobody holds it.
    ///
    /// # Errors
    /// When the file cannot be made or locked for another reason than being held.
    pub(crate) fn try_acquire(path: &Path) -> Result<Option<Self>, LockError> {
        Self::take(path, FlockOperation::NonBlockingLockExclusive)
    }

    /// `None` when somebody else holds it, or when the file was removed while we waited for it.
    fn take(path: &Path, operation: FlockOperation) -> Result<Option<Self>, LockError> {
        let failed = |source| LockError { path: path.to_owned(), source };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(failed)?;
        match flock(&file, operation) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        }
        let held = file.metadata().map_err(failed)?;
        let is_current = fs::metadata(path).is_ok_and(|named| named.ino() == held.ino());
        Ok(is_current.then(|| Self { path: path.to_owned(), _file: file }))
    }

    /// Lets go and removes the file.
    pub(crate) fn remove(self) {
        // A file that stays is an empty file: the next holder takes it as it is.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = Lock::acquire(&path).unwrap();
        assert!(Lock::try_acquire(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn a_removed_lock_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        Lock::acquire(&path).unwrap().remove();
        assert!(!path.exists());
        drop(Lock::acquire(&path).unwrap());
        assert!(path.exists());
    }
}
