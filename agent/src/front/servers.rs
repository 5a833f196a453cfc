//! What is so for every server, and what `berth-sdk` has still to be told. Pure: no socket is read or written here.
//!
//! Nothing is queued but the names of servers: what is owed to `berth-sdk` is remembered per server, so that a slow link
//! costs no memory and the newest view overtakes the older ones. Within a server the order is Forget, Server, Listeners,
//! Started, Acknowledge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use berth_api::link::{ListenerKey, MAX_SOCKETS, Sequence, ServerUid, ToSdk, View};
use berth_runtime::clock::Instant;

/// Most servers that are kept; many times what a node runs.
const MAX_SERVERS: usize = 4096;

/// A frame to be sent, and the sockets that go with it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) frame: ToSdk,
    pub(super) sockets: Vec<Arc<OwnedFd>>,
}

/// Where the conversation with `berth-sdk` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Link {
    #[default]
    Down,
    /// It says what it holds; nothing is owed to it yet but Forget.
    HandingBack,
    Up,
}

/// Everything that is known of the servers of this node.
#[derive(Debug, Default)]
pub(super) struct Servers {
    entries: BTreeMap<ServerUid, Entry>,
    /// Those that are owed something, first come first served.
    queue: VecDeque<ServerUid>,
    link: Link,
    is_settled: bool,
}

#[derive(Debug, Default)]
struct Entry {
    served: Option<(Box<View>, Sequence)>,
    sockets: BTreeMap<ListenerKey, Arc<OwnedFd>>,
    /// The core itself gave sockets, rather than `berth-sdk`.
    is_given: bool,
    started: Option<Instant>,
    acknowledged: Sequence,
    /// What `berth-sdk` holds, as far as this connection has told.
    there: BTreeSet<ListenerKey>,
    owed: Owed,
    is_queued: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Owed {
    forget: bool,
    server: bool,
    listeners: bool,
    started: bool,
    acknowledge: bool,
}

/// More servers than any node runs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_SERVERS} servers were handed back")]
pub(super) struct TooMany;

impl Servers {
    /// The core serves this server, or has a newer view.
    pub(super) fn serve(&mut self, uid: ServerUid, view: Box<View>, applied: Sequence) {
        let entry = self.entries.entry(uid.clone()).or_default();
        let is_new = entry.served.is_none();
        entry.served = Some((view, applied));
        entry.owed.server = true;
        if is_new {
            entry.owe_all();
        }
        self.enqueue(uid);
    }

    /// The core has opened listeners.
    pub(super) fn listeners(&mut self, uid: ServerUid, listeners: Vec<(ListenerKey, OwnedFd)>) {
        let entry = self.entries.entry(uid.clone()).or_default();
        entry.is_given = true;
        for (key, socket) in listeners {
            if entry.admits(key) {
                entry.sockets.insert(key, Arc::new(socket));
                entry.there.remove(&key);
            }
        }
        entry.owed.listeners = true;
        self.enqueue(uid);
    }

    /// The game's container has started. For a server that is not served it means nothing.
    pub(super) fn started(&mut self, uid: ServerUid, at: Instant) {
        if let Some(entry) = self.entries.get_mut(&uid).filter(|entry| entry.served.is_some()) {
            entry.started = Some(at);
            entry.owed.started = true;
            self.enqueue(uid);
        }
    }

    /// Changes are done with; also for a server that is not served, whose changes must end all the same.
    pub(super) fn acknowledge(&mut self, uid: ServerUid, sequence: Sequence) {
        let entry = self.entries.entry(uid.clone()).or_default();
        entry.acknowledged = entry.acknowledged.max(sequence);
        entry.owed.acknowledge = true;
        self.enqueue(uid);
    }

    /// The server is gone.
    pub(super) fn forget(&mut self, uid: ServerUid) {
        match self.link {
            Link::Down => drop(self.entries.remove(&uid)),
            Link::HandingBack | Link::Up => {
                let is_queued = self.entries.get(&uid).is_some_and(|entry| entry.is_queued);
                let owed = Owed { forget: true, ..Owed::default() };
                self.entries.insert(uid.clone(), Entry { owed, is_queued, ..Entry::default() });
                self.enqueue(uid);
            }
        }
    }

    /// The listeners that are held.
    pub(super) fn held(&self, uid: &ServerUid) -> Vec<ListenerKey> {
        self.entries.get(uid).map(|entry| entry.sockets.keys().copied().collect()).unwrap_or_default()
    }

    /// From now on, what is not served is to be forgotten.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
        self.forget_strangers();
    }

    /// A new connection begins.
    pub(super) fn begin(&mut self) {
        self.end();
        self.link = Link::HandingBack;
    }

    /// The connection is gone, and with it what we know of the other side.
    pub(super) fn end(&mut self) {
        self.link = Link::Down;
        self.queue.clear();
        for entry in self.entries.values_mut() {
            entry.there.clear();
            entry.owed = Owed::default();
            entry.is_queued = false;
        }
        self.entries.retain(|_, entry| !entry.is_empty());
    }

    /// `berth-sdk` holds these.
    ///
    /// # Errors
    /// There are more servers than can be.
    pub(super) fn hand_back(
        &mut self,
        uid: ServerUid,
        listeners: Vec<(ListenerKey, OwnedFd)>,
    ) -> Result<(), TooMany> {
        if self.entries.len() >= MAX_SERVERS && !self.entries.contains_key(&uid) {
            return Err(TooMany);
        }
        let entry = self.entries.entry(uid).or_default();
        for (key, socket) in listeners {
            entry.there.insert(key);
            // One that is about to be forgotten is not to come back.
            if !entry.owed.forget && entry.admits(key) {
                entry.sockets.entry(key).or_insert_with(|| Arc::new(socket));
            }
        }
        Ok(())
    }

    /// `berth-sdk` has said all it holds: now it is told everything.
    pub(super) fn hand_back_ends(&mut self) {
        self.link = Link::Up;
        let uids: Vec<ServerUid> = self.entries.keys().cloned().collect();
        for uid in uids {
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.owe_all();
            }
            self.enqueue(uid);
        }
        if self.is_settled {
            self.forget_strangers();
        }
    }

    /// The next frame that is owed, if any; taking it means that it is said.
    pub(super) fn next(&mut self, now: Instant) -> Option<Outgoing> {
        if self.link != Link::Up {
            return None;
        }
        while let Some(uid) = self.queue.front().cloned() {
            if let Some(outgoing) = self.entries.get_mut(&uid).and_then(|entry| entry.next(&uid, now)) {
                return Some(outgoing);
            }
            self.queue.pop_front();
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.is_queued = false;
                if entry.is_empty() {
                    self.entries.remove(&uid);
                }
            }
        }
        None
    }

    /// How many servers are served, and how many listeners are held.
    pub(super) fn counts(&self) -> (usize, usize) {
        let served = self.entries.values().filter(|entry| entry.served.is_some()).count();
        (served, self.entries.values().map(|entry| entry.sockets.len()).sum())
    }

    fn forget_strangers(&mut self) {
        let is_stranger = |entry: &Entry| entry.served.is_none() && !entry.is_given && !entry.owed.forget;
        let strangers: Vec<ServerUid> =
            self.entries.iter().filter(|(_, entry)| is_stranger(entry)).map(|(uid, _)| uid.clone()).collect();
        strangers.into_iter().for_each(|uid| self.forget(uid));
    }

    fn enqueue(&mut self, uid: ServerUid) {
        let is_down = self.link == Link::Down;
        if let Some(entry) = self.entries.get_mut(&uid) {
            if is_down {
                // All of it is owed when the link is up again.
                entry.owed = Owed::default();
                if entry.is_empty() {
                    self.entries.remove(&uid);
                }
            } else if !entry.is_queued {
                entry.is_queued = true;
                self.queue.push_back(uid);
            }
        }
    }
}

impl Entry {
    /// Makes room for a socket of this key: an older sandbox's are closed. False when ours are of a newer one.
    fn admits(&mut self, key: ListenerKey) -> bool {
        if self.sockets.keys().any(|held| held.generation > key.generation) {
            return false;
        }
        self.sockets.retain(|held, _| held.generation == key.generation);
        true
    }

    fn owe_all(&mut self) {
        self.owed.server = true;
        self.owed.listeners = true;
        self.owed.started = true;
        self.owed.acknowledge = self.acknowledged > Sequence::default();
    }

    /// Whether nothing would be lost with it.
    fn is_empty(&self) -> bool {
        self.served.is_none()
            && self.sockets.is_empty()
            && self.there.is_empty()
            && self.owed == Owed::default()
    }

    fn next(&mut self, uid: &ServerUid, now: Instant) -> Option<Outgoing> {
        let uid = || uid.clone();
        if std::mem::take(&mut self.owed.forget) {
            self.there.clear();
            return Some(Outgoing { frame: ToSdk::Forget { uid: uid() }, sockets: Vec::new() });
        }
        if let Some((view, applied)) = &self.served {
            if std::mem::take(&mut self.owed.server) {
                let frame = ToSdk::Server { uid: uid(), view: view.clone(), applied: *applied };
                return Some(Outgoing { frame, sockets: Vec::new() });
            }
            if self.owed.listeners {
                let lacking = self.sockets.iter().filter(|(key, _)| !self.there.contains(key));
                let (keys, sockets): (Vec<_>, Vec<_>) =
                    lacking.take(MAX_SOCKETS).map(|(key, socket)| (*key, Arc::clone(socket))).unzip();
                if !keys.is_empty() {
                    self.there.extend(&keys);
                    return Some(Outgoing { frame: ToSdk::Listeners { uid: uid(), keys }, sockets });
                }
                self.owed.listeners = false;
            }
            if std::mem::take(&mut self.owed.started)
                && let Some(at) = self.started
            {
                let ago = now.saturating_duration_since(at);
                return Some(Outgoing { frame: ToSdk::Started { uid: uid(), ago }, sockets: Vec::new() });
            }
        } else {
            // What is kept aside is not spoken of until the core says what becomes of it.
            let acknowledge = self.owed.acknowledge;
            self.owed = Owed { acknowledge, ..Owed::default() };
        }
        std::mem::take(&mut self.owed.acknowledge).then(|| Outgoing {
            frame: ToSdk::Acknowledge { uid: uid(), sequence: self.acknowledged },
            sockets: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
