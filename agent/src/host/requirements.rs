//! What the agent must be allowed to do, asked once at the start so that a lack of it is a sentence and not a riddle.

use std::fs;
use std::path::Path;

use super::hierarchy::Hierarchy;
use super::{HostError, LinuxSettings, netns};

/// Capabilities without which no pod's network namespace can be entered, and their numbers.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_SYS_ADMIN", 21), ("CAP_SYS_PTRACE", 19)];

/// Checks capabilities, network namespaces and cgroups.
///
/// # Errors
/// The first thing that is missing, with the remedy.
pub fn requirements(settings: &LinuxSettings) -> Result<(), HostError> {
    let path = Path::new("/proc/self/status");
    let status =
        fs::read_to_string(path).map_err(|source| HostError::Read { path: path.to_owned(), source })?;
    let held = effective_capabilities(&status);
    if let Some((capability, _)) = CAPABILITIES.iter().find(|(_, number)| held & (1 << number) == 0) {
        return Err(HostError::Capability { capability });
    }
    netns::of_host()?;
    Hierarchy::find(&settings.cgroup_mount, &settings.cgroup_root)?;
    Ok(())
}

/// The line `CapEff` of `/proc/PID/status`; none held where it is missing.
fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        let status = "Name:\tagent\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000280000\n";
        let held = effective_capabilities(status);
        assert!(CAPABILITIES.iter().all(|(_, number)| held & (1 << number) != 0));
        assert_eq!(effective_capabilities("CapEff:\t0000000000000000\n"), 0);
        assert_eq!(effective_capabilities(""), 0);
    }
}
