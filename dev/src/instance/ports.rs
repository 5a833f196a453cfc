//! Ports of this machine for an instance's daemons.
//!
//! Each instance has a block of its own below the range that the kernel takes outgoing ports from, so that neither
//! another instance nor a passing connection takes a port between the choice and its use.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use super::InstanceError;

const FIRST: u16 = 20_000;
const BLOCK: u16 = 120;
const FILE: &str = "ports.json";

/// The port for `purpose`, chosen at the first call and written down.
pub(super) fn choose(folder: &Path, number: u8, purpose: &str) -> Result<u16, InstanceError> {
    let path = folder.join(FILE);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut chosen: BTreeMap<String, u16> = serde_json::from_str(&text).unwrap_or_default();
    if let Some(port) = chosen.get(purpose) {
        return Ok(*port);
    }
    let first = FIRST + u16::from(number) * BLOCK;
    let mut block = first..first + BLOCK;
    let port = block
        .find(|port| !chosen.values().any(|taken| taken == port) && is_free(*port))
        .ok_or_else(|| InstanceError::NoPort(purpose.to_owned(), first, first + BLOCK - 1))?;
    chosen.insert(purpose.to_owned(), port);
    match serde_json::to_string(&chosen)
        .map_err(std::io::Error::other)
        .and_then(|text| fs::write(&path, text))
    {
        Ok(()) => Ok(port),
        Err(source) => Err(InstanceError::Files { path, source }),
    }
}

/// Free on every address: whoever listens on one of them holds it against us.
fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_chosen_once_and_given_to_one_purpose() {
        let folder = tempfile::tempdir().unwrap();
        let one = choose(folder.path(), 99, "one").unwrap();
        let other = choose(folder.path(), 99, "other").unwrap();
        assert_ne!(one, other);
        assert_eq!(choose(folder.path(), 99, "one").unwrap(), one);
    }

    #[test]
    fn the_last_block_ends_below_the_kernels_own_range() {
        assert!(FIRST + (u16::from(super::super::folder::NUMBERS.end) + 1) * BLOCK < 32_768);
    }
}
