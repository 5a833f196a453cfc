//! What the core says to the front.

use std::os::fd::OwnedFd;

use berth_api::link::{ListenerKey, Sequence, ServerUid, View};
use berth_runtime::clock::Instant;
use tokio::sync::{mpsc, oneshot};

/// Speaks to the front's task. Every call returns as soon as the task has room for it, which does not depend on the
/// link; once the task has ended they do nothing.
#[derive(Clone, Debug)]
pub struct FrontHandle {
    commands: mpsc::Sender<Command>,
}

/// One thing said to the task.
#[derive(Debug)]
pub(super) enum Command {
    Serve { uid: ServerUid, view: Box<View>, applied: Sequence },
    Listeners { uid: ServerUid, listeners: Vec<(ListenerKey, OwnedFd)> },
    Started { uid: ServerUid, at: Instant },
    Acknowledge { uid: ServerUid, sequence: Sequence },
    Forget { uid: ServerUid },
    Held { uid: ServerUid, answer: oneshot::Sender<Vec<ListenerKey>> },
    Settled,
    SetListening(bool),
}

impl FrontHandle {
    pub(super) fn new(commands: mpsc::Sender<Command>) -> Self {
        Self { commands }
    }

    /// Serve this server, or show its game this from now on. `applied` is the last change contained in the view.
    pub async fn serve(&self, uid: ServerUid, view: View, applied: Sequence) {
        self.say(Command::Serve { uid, view: Box::new(view), applied }).await;
    }

    /// Listeners of a server. They are kept even before `serve`; those of an older generation are closed, and those
    /// whose key is held already replace it.
    pub async fn listeners(&self, uid: ServerUid, listeners: Vec<(ListenerKey, OwnedFd)>) {
        self.say(Command::Listeners { uid, listeners }).await;
    }

    /// The game's container started at this time: the clock for pings starts there. Only for a server that is served.
    pub async fn started(&self, uid: ServerUid, at: Instant) {
        self.say(Command::Started { uid, at }).await;
    }

    /// Changes up to this one are done with, applied or dropped for good.
    pub async fn acknowledge(&self, uid: ServerUid, sequence: Sequence) {
        self.say(Command::Acknowledge { uid, sequence }).await;
    }

    /// The server is gone: its listeners and streams are closed on both sides. Harmless for one that is unknown.
    pub async fn forget(&self, uid: ServerUid) {
        self.say(Command::Forget { uid }).await;
    }

    /// The listeners that are held for a server, whether it is served or was only handed back.
    pub async fn held(&self, uid: ServerUid) -> Vec<ListenerKey> {
        let (answer, answered) = oneshot::channel();
        self.say(Command::Held { uid, answer }).await;
        answered.await.unwrap_or_default()
    }

    /// The core has said `serve` for every server it adopts: whatever else `berth-sdk` hands back, or has handed back,
    /// is forgotten. Until then it is kept aside. To be said once after start-up.
    pub async fn settled(&self) {
        self.say(Command::Settled).await;
    }

    /// Listen for `berth-sdk`, or send it away and stop listening. Only the holder of the node lease listens.
    pub async fn set_listening(&self, listening: bool) {
        self.say(Command::SetListening(listening)).await;
    }

    async fn say(&self, command: Command) {
        // The task ends only when the process stops; what is said after that has no listener, and needs none.
        let _ = self.commands.send(command).await;
    }
}
