//! The folders of this node's two programs, made so that `berth-sdk` can write in its own although it may do nothing, and
//! the agent may give it away although it has hardly a capability: a group that it is in needs none.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

/// Name of the folder of `berth-sdk` below the state folder.
const SDK: &str = "sdk";
/// Its owner and its group, and nobody else.
const SDK_MODE: u32 = 0o770;

/// Why a folder is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It could not be made.
    #[error("could not make the folder {path}; run the agent as root or choose another")]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be given to `berth-sdk`.
    #[error(
        "could not give the folder {path} to the group {gid}; the agent must own it and be in that group"
    )]
    Give {
        /// Which.
        path: PathBuf,
        /// The group of `berth-sdk`.
        gid: u32,
        /// Why.
        source: io::Error,
    },
}

/// Makes a folder and those above it.
///
/// # Errors
/// It cannot be made.
pub fn make(path: &Path) -> Result<(), FolderError> {
    fs::create_dir_all(path).map_err(|source| FolderError::Make { path: path.to_owned(), source })
}

/// Makes the folder of `berth-sdk` below the state folder, and lets its group write there. One that belongs to it already
/// is left as it is.
///
/// # Errors
/// It cannot be made, or not be given away.
pub fn make_for_sdk(state_dir: &Path, sdk: u32) -> Result<(), FolderError> {
    let path = state_dir.join(SDK);
    let made = DirBuilder::new().recursive(true).mode(SDK_MODE).create(&path);
    let folder = made.and_then(|()| fs::metadata(&path));
    let folder = folder.map_err(|source| FolderError::Make { path: path.clone(), source })?;
    if folder.uid() == sdk {
        return Ok(());
    }
    let given = chown(&path, None, Some(sdk))
        .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(SDK_MODE)));
    given.map_err(|source| FolderError::Give { path, gid: sdk, source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::{fs, make_for_sdk};

    #[test]
    fn the_group_of_berth_sdk_may_write_in_a_folder_that_somebody_else_made() {
        let state = tempfile::tempdir().expect("a folder");
        // A group that we are in, so that this needs no privilege.
        let group = state.path().metadata().expect("its owner").gid();
        let folder = state.path().join("sdk");
        fs::create_dir(&folder).expect("a folder, as kubelet makes it");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("its mode");
        make_for_sdk(state.path(), group).expect("prepared");
        let found = folder.metadata().expect("the folder");
        let is_ours = found.uid() == group;
        assert!(is_ours || (found.gid(), found.mode() & 0o777) == (group, 0o770), "{found:?}");
        make_for_sdk(state.path(), group).expect("prepared again");
    }
}
