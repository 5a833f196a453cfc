//! The namespaces that make a node: network, mounts, processes and host name.
//!
//! They belong to threads: [`leave`] and [`enter`] change the calling thread only, and whatever it starts afterwards
//! lives in there. So they are called on a thread that ends soon after.

use nix::sched::{CloneFlags, setns, unshare};

use crate::process::Identity;

/// A namespace that could not be made or entered.
#[derive(Debug, thiserror::Error)]
pub enum SpacesError {
    /// New ones.
    #[error("could not make namespaces")]
    Leave(#[source] nix::Error),
    /// Those of a process.
    #[error("could not enter the namespaces of process {pid}")]
    Enter {
        /// The process that holds them.
        pid: i32,
        /// Why.
        source: nix::Error,
    },
    /// The process that held them is gone, and they with it.
    #[error("process {0}, which held the namespaces, is gone")]
    Gone(i32),
}

fn spaces() -> CloneFlags {
    CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS
}

/// Leaves the machine's namespaces for new ones. The next process to be started is the first of its kind in there.
///
/// # Errors
/// When the kernel refuses: not root, or too many.
pub(crate) fn leave() -> Result<(), SpacesError> {
    // Threads share their root and working folder, and mounts are seen from there.
    unshare(CloneFlags::CLONE_FS | spaces()).map_err(SpacesError::Leave)
}

/// Enters the namespaces that a process holds.
///
/// # Errors
/// When it is gone, or we are not root.
pub(crate) fn enter(holder: Identity) -> Result<(), SpacesError> {
    let pid = holder.pid();
    let handle = holder.handle().ok_or(SpacesError::Gone(pid))?;
    let failed = |source| SpacesError::Enter { pid, source };
    unshare(CloneFlags::CLONE_FS).map_err(failed)?;
    setns(&handle, spaces()).map_err(failed)
}
