//! Descriptors that systemd keeps while this process is started anew, and gives to the next one.
//!
//! Outside systemd nothing is kept, and nothing comes back. Where a unit allows none (`FileDescriptorStoreMax=`), systemd
//! closes what it is given.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use sd_notify::NotifyState;

use super::{NotifyError, tell};

/// Gives systemd a copy of a descriptor, to be kept under this name: printable ASCII without ':', at most 255 of it.
/// What it has already it keeps once.
///
/// # Errors
/// When the notify socket is there and refuses.
pub fn keep(name: &str, descriptor: BorrowedFd<'_>) -> Result<(), NotifyError> {
    sd_notify::notify_with_fds(&[NotifyState::FdStore, NotifyState::FdName(name)], &[descriptor])
        .map_err(|source| NotifyError { what: "what to keep", source })
}

/// Has systemd close all that it keeps under this name.
///
/// # Errors
/// When the notify socket is there and refuses.
pub fn release(name: &str) -> Result<(), NotifyError> {
    tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)], "what not to keep any more")
}

/// What systemd kept from an earlier process, each with its name. To be asked for once: it is the caller's then.
///
/// # Errors
/// When the environment promises descriptors that are not there.
pub fn take() -> Result<Vec<(String, OwnedFd)>, NotifyError> {
    let failed = |source| NotifyError { what: "which kept descriptors are here", source };
    let kept = sd_notify::listen_fds_with_names().map_err(failed)?;
    kept.map(|(number, name)| Ok((name, own(number).map_err(failed)?))).collect()
}

/// A descriptor that came as a number, as one that is closed by its owner: the kernel makes a copy, and the number is
/// given up.
fn own(number: RawFd) -> io::Result<OwnedFd> {
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty())?;
    let descriptor = pidfd_getfd(ourselves, number, PidfdGetfdFlags::empty())?;
    nix::unistd::close(number)?;
    Ok(descriptor)
}
