//! The task that answers on the local socket.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use berth_api::game_node::GameNodeStatus;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::views::{LeaseView, Status};
use crate::game_server::Board;
use crate::lease::Authority;

/// Root and the socket's group.
const MODE: u32 = 0o660;

/// Why the socket does not answer.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Something that is no socket stands in its place.
    #[error("{path} exists and is not a socket; remove it, or choose another run folder")]
    Occupied {
        /// Where.
        path: PathBuf,
    },
    /// It could not be made.
    #[error("could not listen on {path}")]
    Bind {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It failed while serving.
    #[error("could not serve the local socket")]
    Serve(#[source] io::Error),
}

/// What the answers are made from.
#[derive(Clone, Debug)]
pub struct Knowledge {
    /// Name of the node.
    pub node: String,
    /// The node's picture.
    pub pictures: watch::Receiver<GameNodeStatus>,
    /// The servers.
    pub board: Board,
    /// The lease.
    pub authority: Authority,
}

/// Listens. The caller holds the node's lock, so a socket that is there is a dead agent's.
///
/// # Errors
/// The socket cannot be made.
pub fn bind(path: &Path) -> Result<UnixListener, SocketError> {
    let failed = |source| SocketError::Bind { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(failed)?,
        Ok(_) => return Err(SocketError::Occupied { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(failed)?;
    Ok(listener)
}

/// Answers until asked to stop.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: UnixListener,
    knowledge: Knowledge,
    stop: CancellationToken,
) -> Result<(), SocketError> {
    let routes = Router::new().route("/v1/status", get(status)).with_state(knowledge);
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        ended = std::future::IntoFuture::into_future(axum::serve(listener, routes)) => {
            ended.map_err(SocketError::Serve)
        }
    }
}

async fn status(State(knowledge): State<Knowledge>) -> Json<Status> {
    let now = Instant::now();
    let claim = knowledge.authority.check(now).ok();
    let lease = LeaseView {
        held: claim.is_some(),
        epoch: claim.as_ref().map_or(0, |claim| claim.epoch.0),
        remaining_milliseconds: claim
            .map(|claim| u64::try_from(claim.remaining(now).as_millis()).unwrap_or(u64::MAX))
            .unwrap_or_default(),
    };
    let servers = knowledge.board.lines().borrow().values().cloned().collect();
    let picture = knowledge.pictures.borrow().clone();
    Json(Status::new(&knowledge.node, &picture, lease, servers))
}
