//! The socket file that `berth-sdk` connects to, and who may.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use tokio::net::{UnixListener, UnixStream};

use super::{FrontError, FrontSettings};

/// Of a folder that has to be made: others may pass through, and find a socket they may not open.
const FOLDER_MODE: u32 = 0o755;
/// Of the socket: the agent, and the group of `berth-sdk`.
const SOCKET_MODE: u32 = 0o660;

/// The socket being listened on. Dropping it removes the file, unless somebody else has put another there.
#[derive(Debug)]
pub(super) struct LinkSocket {
    listener: UnixListener,
    path: PathBuf,
    identity: (u64, u64),
    sdk_uid: Option<u32>,
}

/// Who knocked.
#[derive(Debug)]
pub(super) enum Visitor {
    /// `berth-sdk`.
    Sdk(UnixStream),
    /// Somebody else; already sent away.
    Stranger {
        /// The user, if the kernel says.
        uid: Option<u32>,
    },
}

impl LinkSocket {
    /// Removes what a predecessor left, listens, and lets `berth-sdk` in. Only for the holder of the node lease, since
    /// it takes the place of whoever listens there.
    ///
    /// # Errors
    /// See [`FrontError`].
    pub(super) fn bind(settings: &FrontSettings) -> Result<Self, FrontError> {
        let path = settings.socket.clone();
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(folder)
                .map_err(|source| FrontError::Folder { path: folder.to_owned(), source })?;
        }
        match fs::symlink_metadata(&path) {
            Ok(old) if !old.file_type().is_socket() => return Err(FrontError::Occupied { path }),
            Ok(_) => {
                fs::remove_file(&path).map_err(|source| FrontError::Stale { path: path.clone(), source })?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(FrontError::Stale { path, source }),
        }
        let failed = |source| FrontError::Listen { path: path.clone(), source };
        let listener = UnixListener::bind(&path).map_err(failed)?;
        if let Some(gid) = settings.sdk_uid {
            chown(&path, None, Some(gid)).map_err(|source| FrontError::Group {
                path: path.clone(),
                gid,
                source,
            })?;
        }
        fs::set_permissions(&path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
        let file = fs::symlink_metadata(&path).map_err(failed)?;
        let identity = (file.dev(), file.ino());
        Ok(Self { listener, path, identity, sdk_uid: settings.sdk_uid })
    }

    /// Waits for somebody to connect. Safe to drop.
    ///
    /// # Errors
    /// The kernel has no room for another connection.
    pub(super) async fn accept(&self) -> io::Result<Visitor> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred().map(|peer| peer.uid()).ok();
        Ok(match self.sdk_uid {
            Some(expected) if uid != Some(expected) => Visitor::Stranger { uid },
            Some(_) | None => Visitor::Sdk(stream),
        })
    }
}

impl Drop for LinkSocket {
    fn drop(&mut self) {
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
        if is_ours {
            // A successor removes what is left here.
            let _ = fs::remove_file(&self.path);
        }
    }
}
