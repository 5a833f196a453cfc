//! The copy of a node's marks on disk, for a Node object that is deleted and made again.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use berth_runtime::kill_point::around;
use serde::{Deserialize, Serialize};

use super::marks::Marks;
use crate::effects::Effect;

/// Name of the file below the state folder.
const NAME: &str = "marks.json";
/// Version of its format.
const FORMAT_VERSION: u32 = 1;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It could not be written.
    #[error("could not write the copy of the node's marks to {path}")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be put into words.
    #[error("could not put the node's marks into words")]
    Encode(#[source] serde_json::Error),
    /// The thread that was to write is gone.
    #[error("the copy of the node's marks was not written: its thread is gone")]
    Lost,
}

/// Whose marks they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// UID of the Node object.
    pub node_uid: String,
    /// The kernel's boot.
    pub boot_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Copy {
    version: u32,
    owner: Owner,
    marks: Marks,
}

/// The copy of this node's marks.
#[derive(Clone, Debug)]
pub struct Backup {
    path: PathBuf,
    owner: Owner,
}

impl Backup {
    /// Where the copy of this node is.
    #[must_use]
    pub fn new(state_dir: &Path, owner: Owner) -> Self {
        Self { path: state_dir.join(NAME), owner }
    }

    /// The marks as they were last written here: by this boot under this Node object, or about this instance. A copy
    /// that cannot be read is as good as none.
    #[must_use]
    pub fn read(&self, instance: Option<&str>) -> Option<Marks> {
        let bytes = fs::read(&self.path).ok()?;
        let copy: Copy = serde_json::from_slice(&bytes).ok()?;
        let is_ours = copy.owner == self.owner
            || instance.is_some_and(|instance| copy.marks.instance.as_deref() == Some(instance));
        let holds = copy.version == FORMAT_VERSION && is_ours && copy.marks.is_about(instance);
        holds.then_some(copy.marks)
    }

    /// Writes a copy; it is whole or not there at all.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn write(&self, marks: &Marks) -> Result<(), BackupError> {
        let copy = Copy { version: FORMAT_VERSION, owner: self.owner.clone(), marks: marks.clone() };
        let bytes = serde_json::to_vec_pretty(&copy).map_err(BackupError::Encode)?;
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || {
            replace(&path, &bytes).map_err(|source| BackupError::Write { path, source })
        });
        around(Effect::KeepMarks, async { written.await.unwrap_or(Err(BackupError::Lost)) }).await
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Backup, Owner};
    use crate::drain::marks::Marks;

    fn owner(node_uid: &str, boot_id: &str) -> Owner {
        Owner { node_uid: node_uid.into(), boot_id: boot_id.into() }
    }

    #[tokio::test]
    async fn a_copy_is_found_by_its_node_and_boot_or_by_its_instance() {
        let folder = tempfile::tempdir().unwrap();
        let marks = Marks { instance: Some("i-1".into()), reason: Some("why".into()), ..Marks::default() };
        let backup = Backup::new(folder.path(), owner("u", "b"));
        assert_eq!(backup.read(None), None);
        backup.write(&marks).await.unwrap();
        let table = [
            (owner("u", "b"), None, true),
            (owner("u", "b"), Some("i-1"), true),
            (owner("u", "b"), Some("i-2"), false),
            (owner("another Node", "b"), None, false),
            (owner("another Node", "another boot"), Some("i-1"), true),
        ];
        for (owner, instance, expected) in table {
            let found = Backup::new(folder.path(), owner.clone()).read(instance);
            assert_eq!(found.is_some(), expected, "{owner:?} {instance:?}");
        }
        std::fs::write(folder.path().join("marks.json"), "{").unwrap();
        assert_eq!(backup.read(None), None);
    }
}
