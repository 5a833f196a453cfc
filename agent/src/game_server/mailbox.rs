//! Where a worker finds what is new: the newest object and pod, and everything its game has said.
//!
//! Sending never waits, so that one slow server never holds up the others. It holds little: objects replace each other,
//! and what a game says is taken out at each turn of the worker and comes no faster than `berth-sdk` journals it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use berth_api::game_server::GameServer;
use berth_api::link::{Asked, ListenerKey, Pulse, Sequence};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Notify;

/// What is new.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// The newest object.
    pub(super) server: Option<Arc<GameServer>>,
    /// The object is not among ours any more, as far as the watch can tell.
    pub(super) left: bool,
    /// The newest pod.
    pub(super) pod: Option<Arc<Pod>>,
    /// UID of a pod that is gone, as the watch has seen.
    pub(super) gone_pod: Option<String>,
    /// UID of a pod that a new list does not show. It may be younger than the list.
    pub(super) unlisted_pod: Option<String>,
    /// What the game asked for.
    pub(super) changes: Vec<(Sequence, Asked)>,
    /// What the pings tell.
    pub(super) pulse: Option<Pulse>,
    /// Listeners that `berth-sdk` holds.
    pub(super) handed_back: Option<Vec<ListenerKey>>,
}

/// What a worker knew last when it ended: older news of its server must not start another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The object is not ours since this version.
    At(String),
    /// The object does not exist any more.
    Gone,
}

/// One worker's mailbox.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// Guards the mail; held for a few assignments.
    mail: Mutex<Mail>,
    arrived: Notify,
    ended: OnceLock<Ended>,
}

impl Mailbox {
    /// Puts something in.
    pub(super) fn post(&self, put: impl FnOnce(&mut Mail)) {
        put(&mut self.lock());
        self.arrived.notify_one();
    }

    /// Waits until something is there, and takes all of it out.
    pub(super) async fn take(&self) -> Mail {
        self.arrived.notified().await;
        std::mem::take(&mut *self.lock())
    }

    /// The worker has ended.
    pub(super) fn close(&self, ended: Ended) {
        // A worker ends once.
        let _ = self.ended.set(ended);
    }

    /// How the worker ended, if it has, and not by a panic.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended.get().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        // Every field is replaced whole, so a panic elsewhere leaves the mail readable.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
