//! The list of what an instance made: a file with a line for each thing, only ever added to.
//!
//! A line that was cut off by a crash stands for a thing that was not made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::InstanceError;
use crate::process::Identity;

const FILE: &str = "made.jsonl";

/// Something that does not vanish by itself.
///
/// Namespaces are not among them: they end with the last process inside, and a node's mounts, routes and its end of
/// a link end with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Thing {
    /// A daemon.
    Process {
        /// What the instance calls it.
        name: String,
        /// Which process it is.
        identity: Identity,
    },
    /// A network device in the machine's own namespace.
    Link {
        /// The device.
        name: String,
    },
    /// A control group in every hierarchy.
    Cgroup {
        /// The folder under each hierarchy's root.
        name: String,
    },
}

#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    file: File,
}

impl Ledger {
    pub(super) fn open(folder: &Path) -> Result<Self, InstanceError> {
        let path = folder.join(FILE);
        match OpenOptions::new().create(true).append(true).open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(InstanceError::Files { path, source }),
        }
    }

    /// Adds a line, in one write, so that lines of several writers do not mix.
    pub(super) fn note(&self, thing: &Thing) -> Result<(), InstanceError> {
        let written = serde_json::to_string(thing).map_err(io::Error::other).and_then(|line| {
            // The line break in front ends whatever a crash left half written.
            (&self.file).write_all(format!("\n{line}\n").as_bytes())
        });
        written.map_err(|source| InstanceError::Files { path: self.path.clone(), source })
    }
}

/// Everything written down in this folder, in order.
pub(super) fn read(folder: &Path) -> Vec<Thing> {
    let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let bridge = Thing::Link { name: "bd1".to_owned() };
        let group = Thing::Cgroup { name: "berth-1-a".to_owned() };
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.note(&bridge).unwrap();
        (&ledger.file).write_all(b"{\"link\":{\"na").unwrap();
        ledger.note(&group).unwrap();
        assert_eq!(read(folder.path()), [bridge, group]);
    }
}
