//! The Debian packages that real nodes and the checks need, installed when they are missing.

use std::process::Command;

use crate::command::{self, CommandError};
use crate::machine::{self, MachineError};

/// The package's name, and why we want it.
const PACKAGES: [(&str, &str); 11] = [
    ("buildah", "builds images without a daemon or a registry"),
    ("busybox-static", "a shell for images that have none"),
    ("conntrack", "kube-proxy forgets connections with it"),
    ("containerd", "runs containers"),
    ("containernetworking-plugins", "the network of pods"),
    ("iproute2", "makes bridges and links"),
    ("iptables", "host ports and service addresses"),
    ("redis-server", "carries instance status"),
    ("runc", "starts containers"),
    ("systemd", "checks the units that we ship"),
    ("util-linux", "setpriv, setsid, mount"),
];

/// Why the packages are not there.
#[derive(Debug, thiserror::Error)]
pub enum PackagesError {
    /// They cannot be installed here.
    #[error("the packages {missing} are missing and cannot be installed")]
    Machine {
        /// The packages.
        missing: String,
        /// What the machine lacks.
        source: MachineError,
    },
    /// Debian's own tool says no.
    #[error("could not install {missing}: run `apt-get install {missing}` to see why")]
    Install {
        /// The packages.
        missing: String,
        /// What it said.
        source: CommandError,
    },
}

/// Installs what is missing; does nothing when nothing is.
///
/// # Errors
/// When something is missing and cannot be installed.
pub fn ensure(say: &mut dyn FnMut(&str)) -> Result<(), PackagesError> {
    let absent: Vec<&str> =
        PACKAGES.iter().map(|(name, _)| *name).filter(|name| !is_installed(name)).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let missing = absent.join(" ");
    machine::require_root_on_debian()
        .map_err(|source| PackagesError::Machine { missing: missing.clone(), source })?;
    say(&format!("installing Debian packages: {missing}"));
    if apt_get(&["install", "-y", "--no-install-recommends"], &absent).is_ok() {
        return Ok(());
    }
    // A new machine has no lists yet, or old ones.
    apt_get(&["update"], &[])
        .and_then(|()| apt_get(&["install", "-y", "--no-install-recommends"], &absent))
        .map_err(|source| PackagesError::Install { missing, source })
}

fn is_installed(package: &str) -> bool {
    let status = command::run("dpkg-query", ["--show", "--showformat=${db:Status-Status}", package]);
    status.is_ok_and(|status| status == "installed")
}

fn apt_get(action: &[&str], packages: &[&str]) -> Result<(), CommandError> {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Services that a package would start at once are none of a developer's machine.
        .env("RUNLEVEL", "1")
        .args(["-qq", "-o", "DPkg::Lock::Timeout=120"])
        .args(action)
        .args(packages);
    command::finish(command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_package_is_not_installed() {
        assert!(!is_installed("no-such-package-of-debian"));
    }

    #[test]
    fn the_list_is_sorted_and_names_nothing_twice() {
        assert!(PACKAGES.is_sorted_by(|(one, _), (other, _)| one < other));
    }
}
