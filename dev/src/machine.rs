//! What this machine must have before real nodes can run on it, each said in a sentence with its remedy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::CloneFlags;

use crate::cgroups;
use crate::command::{self, CommandError};
use crate::places;

/// What the machine lacks.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Not root.
    #[error(
        "real nodes need root (network namespaces, mounts, control groups): run this as root, or with sudo"
    )]
    NotRoot,
    /// Not Debian.
    #[error("this sets up Debian machines, and there is no apt-get here: use Debian 12 or newer")]
    NotDebian,
    /// The disk is too full.
    #[error(
        "{path} has {free} MB free and {needed} MB are needed: make room, or set BERTH_CACHE and GOCACHE to folders that have it"
    )]
    DiskFull {
        /// The folder that will grow.
        path: PathBuf,
        /// What it has, in megabytes.
        free: u64,
        /// What it needs, in megabytes.
        needed: u64,
    },
    /// A file system, control group or name space is missing.
    #[error("this kernel lacks {feature}: {remedy}")]
    Kernel {
        /// What is missing.
        feature: String,
        /// What helps.
        remedy: &'static str,
    },
    /// A network of our own cannot be made.
    #[error(
        "could not make a network namespace with a {device} device in it: load the kernel's module of that name"
    )]
    Network {
        /// The kind of device.
        device: &'static str,
        /// What `ip` says.
        source: CommandError,
    },
    /// Something holds the traces that we need.
    #[error("could not look at {path}")]
    Look {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Checks that we are root on Debian, as installing packages and real nodes needs.
///
/// # Errors
/// [`MachineError::NotRoot`], [`MachineError::NotDebian`].
pub fn require_root_on_debian() -> Result<(), MachineError> {
    if !places::is_root() {
        return Err(MachineError::NotRoot);
    }
    if places::find_program("apt-get").is_none() {
        return Err(MachineError::NotDebian);
    }
    Ok(())
}

/// Checks that the disk that holds `path`, or will hold it, has room for `bytes` more.
///
/// # Errors
/// [`MachineError::DiskFull`].
pub fn require_disk(path: &Path, bytes: u64) -> Result<(), MachineError> {
    let existing = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let disk = rustix::fs::statvfs(existing)
        .map_err(|source| MachineError::Look { path: existing.to_owned(), source: source.into() })?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < bytes {
        return Err(MachineError::DiskFull { path: path.to_owned(), free: free >> 20, needed: bytes >> 20 });
    }
    Ok(())
}

/// Checks what only the kernel can give: name spaces, overlayfs, control groups, virtual devices.
///
/// # Errors
/// The first feature that is missing.
pub fn require_kernel() -> Result<(), MachineError> {
    for space in ["net", "mnt", "pid", "uts"] {
        if !Path::new("/proc/self/ns").join(space).exists() {
            let feature = format!("{space} namespaces");
            return Err(MachineError::Kernel { feature, remedy: "boot one of Debian's own kernels" });
        }
    }
    if !has_overlay() {
        let remedy = "run `modprobe overlay`, or boot one of Debian's own kernels";
        return Err(MachineError::Kernel { feature: "overlayfs".to_owned(), remedy });
    }
    let missing = cgroups::missing_controllers();
    if !missing.is_empty() {
        let feature = format!("the control groups {}", missing.join(", "));
        return Err(MachineError::Kernel { feature, remedy: "mount them under /sys/fs/cgroup" });
    }
    for device in ["bridge", "veth"] {
        try_device(device).map_err(|source| MachineError::Network { device, source })?;
    }
    Ok(())
}

fn has_overlay() -> bool {
    let is_known = || fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("overlay"));
    // Where it is a module it is unknown until it is loaded.
    is_known() || (command::run("modprobe", ["overlay"]).is_ok() && is_known())
}

/// Makes a device in a namespace that ends with the thread that made it.
fn try_device(kind: &'static str) -> Result<(), CommandError> {
    let trial = std::thread::spawn(move || {
        let mut command = Command::new("ip");
        command.args(["link", "add", "trial", "type", kind]);
        let line = command::line_of(&command);
        nix::sched::unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|source| CommandError::Start { line, source: source.into() })?;
        command::finish(command)
    });
    match trial.join() {
        Ok(outcome) => outcome.map(drop),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_said_with_what_helps() {
        let error = require_disk(Path::new("/nowhere/at/all"), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MB are needed") && error.contains("BERTH_CACHE"), "{error}");
        require_disk(Path::new("/nowhere/at/all"), 1).unwrap();
    }
}
