//! When a change meets an earlier one that nobody has seen yet: which of them stays, or what both come to. Pure.

use berth_api::link::Change;

/// What becomes of an earlier change when another one comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// They have nothing to do with one another.
    Strangers,
    /// The later one takes its place.
    Replaced,
    /// The earlier one stays, and the later one has no effect.
    Stands,
    /// Both come to this one.
    Joined(Change),
    /// They are about the same, and must be done one after the other.
    Apart,
}

/// What becomes of `old` when `new` comes.
pub(super) fn meet(old: &Change, new: &Change) -> Meeting {
    match (old, new) {
        (Change::Label { key: old, .. }, Change::Label { key: new, .. })
        | (Change::Annotation { key: old, .. }, Change::Annotation { key: new, .. })
            if old == new =>
        {
            Meeting::Replaced
        }
        (Change::Counter { name, by: old }, Change::Counter { name: other, by: new }) if name == other => {
            joined(old.then(new).map(|by| Change::Counter { name: name.clone(), by }))
        }
        (Change::List { name, by: old }, Change::List { name: other, by: new }) if name == other => {
            joined(old.then(new).map(|by| Change::List { name: name.clone(), by }))
        }
        (Change::Players { by: old }, Change::Players { by: new }) => {
            Meeting::Joined(Change::Players { by: old.then(new) })
        }
        // Shutdown beats every other state, also one that is asked for later.
        (Change::Shutdown, new) if new.is_state() => Meeting::Stands,
        (old, new) if old.is_state() && new.is_state() => Meeting::Replaced,
        _ => Meeting::Strangers,
    }
}

/// Whether a change works on what is there, so that it must be done exactly once.
pub(super) fn is_operation(change: &Change) -> bool {
    match change {
        Change::Counter { .. } | Change::List { .. } | Change::Players { .. } => true,
        Change::Ready
        | Change::Allocate { .. }
        | Change::Reserve { .. }
        | Change::Shutdown
        | Change::Label { .. }
        | Change::Annotation { .. } => false,
    }
}

fn joined(both: Option<Change>) -> Meeting {
    both.map_or(Meeting::Apart, Meeting::Joined)
}
