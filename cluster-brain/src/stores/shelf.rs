//! The objects of one kind, newest version only, from two sources: a watch, and the answers to our own writes. Pure.
//!
//! Either source may be late. Versions of one kind are numbers that grow, so an older object never replaces a newer one;
//! and an object that only an answer has shown survives a list that was begun before it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::Key;

/// How many of the objects that are gone are remembered: those whose creation may not have been answered yet.
const REMEMBERED: usize = 1024;

/// What can be kept on a shelf.
pub(crate) trait Kept {
    fn key(&self) -> Key;
    fn uid(&self) -> &str;
    fn resource_version(&self) -> &str;
}

/// What became of one object.
#[derive(Debug)]
pub(crate) struct Change<T> {
    pub(crate) before: Option<Arc<T>>,
    pub(crate) after: Option<Arc<T>>,
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    kept: BTreeMap<Key, Entry<T>>,
    /// Number of the list that was begun last.
    round: u64,
    /// What the list that is under way has shown; `None` between lists.
    listing: Option<BTreeSet<Key>>,
    /// UIDs of the last objects that a watch has shown to be gone.
    buried: VecDeque<String>,
}

#[derive(Debug)]
struct Entry<T> {
    object: Arc<T>,
    /// The list that was begun last when an answer put it here; `None` once a watch has shown it.
    answered_in: Option<u64>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), round: 0, listing: None, buried: VecDeque::new() }
    }
}

impl<T: Kept> Shelf<T> {
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<T>> {
        self.kept.get(key).map(|entry| &entry.object)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.kept.values().map(|entry| &entry.object)
    }

    /// The objects of one namespace.
    pub(crate) fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<T>> {
        self.kept
            .range(Key::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, entry)| &entry.object)
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// A list was begun.
    pub(crate) fn begin_list(&mut self) {
        self.round += 1;
        self.listing = Some(BTreeSet::new());
    }

    /// A watch or a list has shown an object. Nothing when we knew it so already.
    pub(crate) fn seen(&mut self, object: T) -> Option<Change<T>> {
        let key = object.key();
        if let Some(listing) = &mut self.listing {
            listing.insert(key.clone());
        }
        if let Some(entry) = self.kept.get_mut(&key) {
            entry.answered_in = None;
            if !is_newer(&object, &entry.object) {
                return None;
            }
        }
        Some(self.put(key, object, None))
    }

    /// A list or a watch has shown that an object is there, which we cannot read.
    pub(crate) fn seen_unread(&mut self, key: &Key) {
        if let Some(listing) = &mut self.listing {
            listing.insert(key.clone());
        }
    }

    /// A watch has shown that an object is gone.
    pub(crate) fn gone(&mut self, key: &Key, uid: Option<&str>) -> Option<Change<T>> {
        if let Some(uid) = uid {
            self.buried.truncate(REMEMBERED - 1);
            self.buried.push_front(uid.to_owned());
        }
        if self.kept.get(key).is_some_and(|entry| uid.is_some_and(|uid| uid != entry.object.uid())) {
            return None;
        }
        let before = self.kept.remove(key)?.object;
        Some(Change { before: Some(before), after: None })
    }

    /// The list is complete: what it did not show is gone, unless an answer showed it after the list was begun.
    pub(crate) fn end_list(&mut self) -> Vec<Change<T>> {
        let Some(listed) = self.listing.take() else { return Vec::new() };
        let round = self.round;
        let is_gone = |key: &Key, entry: &Entry<T>| {
            !listed.contains(key) && entry.answered_in.is_none_or(|answered| answered < round)
        };
        let gone: Vec<Key> =
            self.kept.iter().filter(|(key, entry)| is_gone(key, entry)).map(|(key, _)| key.clone()).collect();
        gone.iter().filter_map(|key| self.gone(key, None)).collect()
    }

    /// The answer to a write that created an object, which may be gone again.
    pub(crate) fn created(&mut self, object: T) -> Option<Change<T>> {
        let key = object.key();
        if self.buried.iter().any(|uid| uid == object.uid()) {
            return None;
        }
        if self.kept.get(&key).is_some_and(|entry| !is_newer(&object, &entry.object)) {
            return None;
        }
        let round = self.round;
        Some(self.put(key, object, Some(round)))
    }

    /// The answer to a write that changed an object. An object that we do not know has been deleted since.
    pub(crate) fn changed(&mut self, object: T) -> Option<Change<T>> {
        let key = object.key();
        let entry = self.kept.get(&key)?;
        if entry.object.uid() != object.uid() || !is_newer(&object, &entry.object) {
            return None;
        }
        let answered_in = entry.answered_in;
        Some(self.put(key, object, answered_in))
    }

    fn put(&mut self, key: Key, object: T, answered_in: Option<u64>) -> Change<T> {
        let after = Arc::new(object);
        let entry = Entry { object: Arc::clone(&after), answered_in };
        let before = self.kept.insert(key, entry).map(|entry| entry.object);
        Change { before, after: Some(after) }
    }
}

/// Versions are numbers in every API server there is; should one be none, the object that came last is the newer.
fn is_newer<T: Kept>(object: &T, than: &T) -> bool {
    let number = |object: &T| object.resource_version().parse::<u128>().ok();
    match (number(object), number(than)) {
        (Some(object), Some(than)) => object > than,
        _ => object.resource_version() != than.resource_version(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Thing(&'static str, &'static str, &'static str);

    impl Kept for Thing {
        fn key(&self) -> Key {
            Key::new("games", self.0)
        }
        fn uid(&self) -> &str {
            self.1
        }
        fn resource_version(&self) -> &str {
            self.2
        }
    }

    fn versions(shelf: &Shelf<Thing>) -> Vec<(&'static str, &'static str)> {
        shelf.iter().map(|thing| (thing.0, thing.2)).collect()
    }

    #[test]
    fn an_older_object_never_replaces_a_newer_one() {
        let mut shelf = Shelf::default();
        assert!(shelf.seen(Thing("a", "1", "9")).is_some());
        assert!(shelf.changed(Thing("a", "1", "10")).is_some());
        assert!(shelf.seen(Thing("a", "1", "9")).is_none());
        assert!(shelf.created(Thing("a", "1", "8")).is_none());
        assert_eq!(versions(&shelf), [("a", "10")]);
    }

    #[test]
    fn a_late_answer_brings_nothing_back() {
        let mut shelf = Shelf::default();
        shelf.seen(Thing("a", "1", "1"));
        assert!(shelf.gone(&Key::new("games", "a"), Some("1")).is_some());
        assert!(shelf.changed(Thing("a", "1", "2")).is_none());
        assert!(shelf.created(Thing("a", "1", "1")).is_none());
        shelf.seen(Thing("a", "2", "5"));
        assert!(shelf.changed(Thing("a", "1", "6")).is_none(), "another object of the name");
        assert!(shelf.gone(&Key::new("games", "a"), Some("1")).is_none(), "a late end of the first");
        assert_eq!(versions(&shelf), [("a", "5")]);
    }

    #[test]
    fn an_answer_outlives_the_list_that_was_begun_before_it() {
        let mut shelf = Shelf::default();
        shelf.begin_list();
        shelf.seen(Thing("old", "1", "1"));
        shelf.end_list();
        shelf.begin_list();
        shelf.created(Thing("new", "2", "3"));
        let gone: Vec<_> = shelf.end_list().into_iter().filter_map(|change| change.before).collect();
        assert_eq!(gone.iter().map(|thing| thing.0).collect::<Vec<_>>(), ["old"]);
        assert_eq!(versions(&shelf), [("new", "3")]);
        shelf.begin_list();
        assert_eq!(shelf.end_list().len(), 1, "a list that was begun after it knows better");
    }

    #[test]
    fn what_cannot_be_read_is_not_gone() {
        let mut shelf = Shelf::default();
        shelf.seen(Thing("a", "1", "1"));
        shelf.begin_list();
        shelf.seen_unread(&Key::new("games", "a"));
        assert!(shelf.end_list().is_empty());
    }
}
