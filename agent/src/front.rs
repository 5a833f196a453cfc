//! The agent's end of the link: what the SDK of each game server should show, and what its games ask for.
//!
//! [`FrontTask`] owns, for every server, the newest view, its listeners (copies, so that a listener outlives either
//! process) and the start of its container, and sees to it that `berth-sdk` knows all of that, whenever it is there. The
//! agent core says what is so through [`FrontHandle`] and hears of changes through [`FrontEvent`]. A link that is down
//! never blocks the core: what is to be said is remembered per server, newest only. When the core is slow to take
//! events, `berth-sdk` is not read from, and journals.
//!
//! It decides nothing about game servers, and writes nothing to the API.

mod connection;
mod handle;
mod metrics;
mod servers;
mod socket;
mod task;

use std::io;
use std::path::PathBuf;

use berth_api::link::{Change, ListenerKey, Pulse, Seen, Sequence, ServerUid};
use tokio::sync::mpsc;

pub use self::handle::FrontHandle;
pub use self::metrics::FrontMetrics;
pub use self::task::FrontTask;

/// Commands that may wait for the task. It takes them at once, whatever the link does.
const COMMANDS: usize = 256;
/// Events that may wait for the core, in the channel; as many again are kept by the task before it stops reading.
const EVENTS: usize = 256;

/// What the front needs to know of its surroundings.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// Where to listen, `/run/berth/link/sdk.sock` on a node.
    pub socket: PathBuf,
    /// The user `berth-sdk` runs as; its primary group has the same number. None lets every user in who may open the
    /// socket, for development.
    pub sdk_uid: Option<u32>,
    /// Name of the node.
    pub node: String,
    /// Version of the agent.
    pub version: String,
}

/// What the front tells the core.
#[derive(Clone, Debug, PartialEq)]
pub enum FrontEvent {
    /// `berth-sdk` is connected, and all it had to hand back has been told (by `HandedBack`, before this).
    Connected {
        /// Chosen anew by each process of `berth-sdk`: a new one has no pings yet.
        process_id: String,
        /// Its version.
        version: String,
    },
    /// `berth-sdk` is gone, or was sent away. Follows every `Connected`.
    Disconnected,
    /// A game asked for something and was answered. Comes again after each connect until acknowledged.
    Change {
        /// Whose.
        uid: ServerUid,
        /// Its number.
        sequence: Sequence,
        /// What was asked for.
        change: Change,
        /// What the game could see when it asked.
        seen: Seen,
    },
    /// What a game's pings tell has changed.
    Pings {
        /// Whose.
        uid: ServerUid,
        /// What they tell.
        pulse: Pulse,
    },
    /// `berth-sdk` holds these listeners; the front has copies of all of them now.
    HandedBack {
        /// Whose.
        uid: ServerUid,
        /// Which.
        keys: Vec<ListenerKey>,
    },
}

/// Why the front ended.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// The folder of the socket could not be made.
    #[error("could not make the folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something that is not a socket stands where the socket should be.
    #[error("{path} exists and is not a socket; remove it, or name another path")]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// An old socket could not be removed.
    #[error("could not remove the old socket {path}")]
    Stale {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket could not be listened on.
    #[error("could not listen on {path}")]
    Listen {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket could not be opened to `berth-sdk`.
    #[error("could not give {path} to group {gid}; run the agent as root, or with that supplementary group")]
    Group {
        /// The path.
        path: PathBuf,
        /// The group.
        gid: u32,
        /// Why.
        source: io::Error,
    },
}

/// A front, its handle, and where its events come out. Nothing happens until the task runs, and nothing is listened on
/// before [`FrontHandle::set_listening`].
#[must_use]
pub fn new(
    settings: FrontSettings,
    metrics: FrontMetrics,
) -> (FrontHandle, mpsc::Receiver<FrontEvent>, FrontTask) {
    let (commands, inbox) = mpsc::channel(COMMANDS);
    let (events, outlet) = mpsc::channel(EVENTS);
    (FrontHandle::new(commands), outlet, FrontTask::new(settings, metrics, inbox, events))
}
