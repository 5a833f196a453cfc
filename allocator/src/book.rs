//! The book: every game server that may be allocated, what stands in its way, and which are being taken. Pure.
//!
//! It is fed by watches and by the answers of our own writes; whichever knows more wins. A server that is being taken
//! shows what it will be once that is done, so that many requests at once are chosen as if one after another.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use berth_api::allocation::Wanted;

mod candidate;
mod nodes;

pub use candidate::{Candidate, Players, Version, room_of_counter, room_of_list};
pub use nodes::Nodes;

/// Where a game server is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ServerKey {
    /// A server by this name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ServerKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// How many servers of a node can be had, over all namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCount {
    /// Allocated.
    pub allocated: u32,
    /// Ready.
    pub ready: u32,
}

/// One server.
#[derive(Clone, Debug)]
struct Entry {
    /// As it is, or as it will be once it is taken.
    shown: Candidate,
    taking: Option<Taking>,
}

/// A server that is being taken.
#[derive(Clone, Debug)]
struct Taking {
    /// As it is, as far as we know.
    base: Candidate,
    /// What the watch has said of it meanwhile; `None` inside when it cannot be had any more.
    news: Option<(Version, Option<Candidate>)>,
}

/// The servers of one namespace.
#[derive(Debug, Default)]
struct Page {
    servers: BTreeMap<String, Entry>,
    /// Their names by node, as they are shown: Ready ones, and Allocated ones.
    ready: ByNode,
    allocated: ByNode,
}

/// Names of servers, in their order, by node.
pub type ByNode = BTreeMap<String, BTreeSet<String>>;

/// Every server that may be allocated.
#[derive(Debug, Default)]
pub struct Book {
    namespaces: BTreeMap<String, Page>,
    counts: HashMap<String, NodeCount>,
    /// What a list has shown so far; whatever it does not show is gone at its end.
    listing: Option<BTreeSet<ServerKey>>,
    /// What the nodes say.
    pub nodes: Nodes,
}

impl Book {
    /// A server is so at this version; `None` where it can not be had.
    pub fn see(&mut self, key: &ServerKey, version: Version, candidate: Option<Candidate>) {
        if let Some(listing) = &mut self.listing {
            listing.insert(key.clone());
        }
        match self.entry_mut(key) {
            Some(Entry { taking: Some(taking), .. }) => {
                if taking.news.as_ref().is_none_or(|(known, _)| version.follows(known)) {
                    taking.news = Some((version, candidate));
                }
            }
            Some(entry) if !version.follows(&entry.shown.version) => {}
            Some(_) | None => self.put(key, candidate),
        }
    }

    /// A server is gone.
    pub fn forget(&mut self, key: &ServerKey, version: Version) {
        match self.entry_mut(key) {
            Some(Entry { taking: Some(taking), .. }) => taking.news = Some((version, None)),
            Some(entry) if entry.shown.version.is_of_another_life(&version) => {}
            Some(_) => self.put(key, None),
            None => {}
        }
    }

    /// A list begins.
    pub fn begin_list(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// It is complete: what it did not show is gone.
    pub fn end_list(&mut self) {
        let Some(listed) = self.listing.take() else { return };
        let gone: Vec<ServerKey> = self.keys().filter(|key| !listed.contains(key)).collect();
        for key in gone {
            match self.entry_mut(&key) {
                Some(Entry { taking: Some(taking), .. }) => {
                    taking.news = Some((taking.base.version.clone(), None));
                }
                Some(_) | None => self.put(&key, None),
            }
        }
    }

    /// A server is being taken, and will be like this once that is done.
    pub fn take(&mut self, key: &ServerKey, expected: Candidate) {
        let Some(entry) = self.entry_mut(key) else { return };
        let base = entry.shown.clone();
        let taking = entry.taking.take().unwrap_or(Taking { base, news: None });
        self.put(key, Some(expected));
        if let Some(entry) = self.entry_mut(key) {
            entry.taking = Some(taking);
        }
    }

    /// A server that is being taken is so at this version, `None` where it can not be had; what the watch has said
    /// meanwhile counts where it is newer. Answers the server as it is: it goes on being taken, unless it is gone.
    pub fn rebase(
        &mut self,
        key: &ServerKey,
        version: &Version,
        now: Option<Candidate>,
    ) -> Option<&Candidate> {
        let taking = self.entry_mut(key)?.taking.take()?;
        let news = taking.news.filter(|(news, _)| news.follows(version));
        let base = news.map_or(now, |(_, candidate)| candidate);
        self.put(key, base.clone());
        let entry = self.entry_mut(key)?;
        entry.taking = base.map(|base| Taking { base, news: None });
        Some(&entry.shown)
    }

    /// A server that was being taken is so no longer.
    pub fn release(&mut self, key: &ServerKey) {
        if let Some(taking) = self.entry_mut(key).and_then(|entry| entry.taking.take()) {
            let candidate = match taking.news {
                // A list that passed it over says so at no version of its own.
                Some((version, news)) if !taking.base.version.follows(&version) => news,
                Some(_) | None => Some(taking.base),
            };
            self.put(key, candidate);
        }
    }

    /// A server as it is: for one that is being taken, before that is done.
    pub fn look(&self, key: &ServerKey) -> Option<&Candidate> {
        let entry = self.entry(&key.namespace, &key.name)?;
        Some(entry.taking.as_ref().map_or(&entry.shown, |taking| &taking.base))
    }

    /// A server as the choice sees it: for one that is being taken, once that is done.
    pub fn shown(&self, key: &ServerKey) -> Option<&Candidate> {
        self.candidate(&key.namespace, &key.name)
    }

    /// The same by namespace and name.
    pub fn candidate(&self, namespace: &str, name: &str) -> Option<&Candidate> {
        self.entry(namespace, name).map(|entry| &entry.shown)
    }

    /// The names of a namespace's servers in this state, by node, as the choice sees them.
    pub fn by_node(&self, namespace: &str, state: Wanted) -> Option<&ByNode> {
        self.namespaces.get(namespace).map(|page| match state {
            Wanted::Ready => &page.ready,
            Wanted::Allocated => &page.allocated,
        })
    }

    /// How many servers of a node can be had.
    pub fn count(&self, node: &str) -> Option<NodeCount> {
        self.counts.get(node).copied()
    }

    /// How many servers there are.
    pub fn len(&self) -> usize {
        self.namespaces.values().map(|page| page.servers.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    fn keys(&self) -> impl Iterator<Item = ServerKey> + '_ {
        self.namespaces.iter().flat_map(|(namespace, page)| {
            page.servers.keys().map(move |name| ServerKey::new(namespace.as_str(), name.as_str()))
        })
    }

    fn entry(&self, namespace: &str, name: &str) -> Option<&Entry> {
        self.namespaces.get(namespace)?.servers.get(name)
    }

    fn entry_mut(&mut self, key: &ServerKey) -> Option<&mut Entry> {
        self.namespaces.get_mut(&key.namespace)?.servers.get_mut(&key.name)
    }

    fn put(&mut self, key: &ServerKey, candidate: Option<Candidate>) {
        let page = self.namespaces.entry(key.namespace.clone()).or_default();
        if let Some(before) = page.servers.remove(&key.name) {
            page.strike(&key.name, &before.shown);
            subtract(&mut self.counts, &before.shown);
        }
        if let Some(shown) = candidate {
            add(&mut self.counts, &shown);
            page.names(shown.state).entry(shown.node.clone()).or_default().insert(key.name.clone());
            page.servers.insert(key.name.clone(), Entry { shown, taking: None });
        }
        if page.servers.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
    }
}

impl Page {
    fn names(&mut self, state: Wanted) -> &mut ByNode {
        match state {
            Wanted::Ready => &mut self.ready,
            Wanted::Allocated => &mut self.allocated,
        }
    }

    fn strike(&mut self, name: &str, shown: &Candidate) {
        let names = self.names(shown.state);
        if let Some(those) = names.get_mut(&shown.node) {
            those.remove(name);
            if those.is_empty() {
                names.remove(&shown.node);
            }
        }
    }
}

fn add(counts: &mut HashMap<String, NodeCount>, candidate: &Candidate) {
    if candidate.node.is_empty() {
        return;
    }
    let count = counts.entry(candidate.node.clone()).or_default();
    *count.of(candidate) += 1;
}

fn subtract(counts: &mut HashMap<String, NodeCount>, candidate: &Candidate) {
    let Some(count) = counts.get_mut(&candidate.node) else { return };
    let number = count.of(candidate);
    *number = number.saturating_sub(1);
    if *count == NodeCount::default() {
        counts.remove(&candidate.node);
    }
}

impl NodeCount {
    fn of(&mut self, candidate: &Candidate) -> &mut u32 {
        match candidate.state {
            Wanted::Allocated => &mut self.allocated,
            Wanted::Ready => &mut self.ready,
        }
    }
}

/// Fuller nodes first: more Allocated, then more Ready; a node that nothing is known of comes last.
pub fn fuller_first(left: Option<NodeCount>, right: Option<NodeCount>) -> Ordering {
    match (left, right) {
        (Some(left), Some(right)) => (right.allocated, right.ready).cmp(&(left.allocated, left.ready)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests;
