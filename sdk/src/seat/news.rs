//! Which servers have something to tell the agent: a set rather than a queue, so that it cannot fill.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use berth_api::link::ServerUid;
use tokio::sync::Notify;

/// The servers with news.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Guards the set; held for one insertion or removal.
    servers: Mutex<BTreeSet<ServerUid>>,
    arrived: Notify,
}

impl News {
    /// A server has something to tell.
    pub(crate) fn announce(&self, uid: &ServerUid) {
        let mut servers = self.lock();
        if servers.contains(uid) {
            return;
        }
        servers.insert(uid.clone());
        drop(servers);
        self.arrived.notify_one();
    }

    /// One of the servers with news; it announces itself again when it has more.
    pub(crate) fn take(&self) -> Option<ServerUid> {
        self.lock().pop_first()
    }

    /// Waits for an announcement. One that came before the wait ends it at once.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ServerUid>> {
        // Nothing panics while it is held.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
