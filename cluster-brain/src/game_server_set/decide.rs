//! How many servers a set makes and which it lets go. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_api::fleet::{AllocationOverflow, Priority};
use berth_api::game_server::Scheduling;
use berth_api::lifecycle::State;
use berth_api::names;
use jiff::Timestamp;

use super::order::sort;
use crate::stores::{Key, Server};

/// How long a server in Error is left for somebody to look at.
const ERROR_IS_KEPT: Duration = Duration::from_secs(30);

/// How much a set does in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) creations: usize,
    pub(super) deletions: usize,
    pub(super) pending: usize,
}

/// What a set wants and has.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    pub(super) target: usize,
    /// No server is made beyond so many, since its autoscaler would have it go.
    pub(super) ceiling: Option<usize>,
    pub(super) scheduling: Scheduling,
    pub(super) priorities: &'a [Priority],
    pub(super) overflow: Option<&'a AllocationOverflow>,
    pub(super) servers: &'a [Arc<Server>],
    /// Servers that are being created and that no watch has shown yet.
    pub(super) being_created: usize,
    /// Ready and Allocated servers by node, over all Fleets.
    pub(super) tallies: &'a BTreeMap<String, usize>,
}

/// What a set does now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// Servers to create.
    pub(super) create: usize,
    /// Servers to mark for deletion.
    pub(super) delete: Vec<Key>,
    /// Allocated servers to mark as beyond the target.
    pub(super) mark: Vec<Key>,
    /// More is left to do at once.
    pub(super) is_partial: bool,
    /// When a server in Error has been kept long enough.
    pub(super) look_again: Option<Duration>,
}

/// What a set does now.
pub(super) fn decide(seen: &Seen<'_>, limits: Limits, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    // What was lost with its node is replaced, and goes by itself.
    let live = || seen.servers.iter().filter(|server| !server.is_ending && !server.is_lost());
    let mut up = live().filter(|server| server.is_protected()).count() + seen.being_created;
    let mut pending = seen.being_created;
    let mut excess = 0_usize;
    let mut failed = Vec::new();
    let mut candidates = Vec::new();
    for server in live().filter(|server| !server.is_protected() && !server.is_being_deleted()) {
        match server.state {
            Some(State::Unhealthy) => {
                failed.push(server.key.clone());
                continue;
            }
            Some(State::Error) => match error_is_kept(server, now) {
                None => {
                    failed.push(server.key.clone());
                    continue;
                }
                Some(left) => {
                    decision.look_again = Some(decision.look_again.map_or(left, |other| other.min(left)));
                    pending += 1;
                }
            },
            Some(State::PortAllocation | State::Creating | State::Starting | State::Scheduled) => {
                pending += 1
            }
            // The states that are left out here were passed over above.
            Some(
                State::RequestReady | State::Ready | State::Allocated | State::Reserved | State::Shutdown,
            )
            | None => {}
        }
        if up >= seen.target {
            excess += 1;
        } else {
            up += 1;
        }
        candidates.push(Arc::clone(server));
    }

    let wanted = seen.ceiling.map_or(seen.target, |ceiling| ceiling.min(seen.target)).saturating_sub(up);
    decision.create = wanted.min(limits.creations).min(limits.pending.saturating_sub(pending));
    // Where as many are pending as may be, the next one that is not wakes the set.
    decision.is_partial = decision.create > 0 && decision.create < wanted;

    // Replacing what failed and trimming what is too much take two turns.
    let excess = excess.saturating_sub(failed.len());
    if excess > 0 {
        sort(&mut candidates, seen.scheduling, seen.priorities, seen.tallies);
    }
    let trimmed = candidates.iter().take(excess).map(|server| server.key.clone());
    decision.delete = failed.into_iter().chain(trimmed).collect();
    if decision.delete.len() > limits.deletions {
        decision.delete.truncate(limits.deletions);
        decision.is_partial = true;
    }
    decision.mark = overflowing(seen);
    decision
}

/// How much longer a server in Error is kept; `None` when it has been long enough, or nobody knows how long.
fn error_is_kept(server: &Server, now: Timestamp) -> Option<Duration> {
    let since: Timestamp = server.annotations.get(names::ERRORED_AT_ANNOTATION)?.parse().ok()?;
    let end = since.checked_add(ERROR_IS_KEPT).ok()?;
    Duration::try_from(end.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// Allocated servers beyond the target that do not carry the marks yet. Marks are never taken away.
fn overflowing(seen: &Seen<'_>) -> Vec<Key> {
    let Some(marks) = seen.overflow else { return Vec::new() };
    let (labels, annotations) = (marks.labels.as_ref(), marks.annotations.as_ref());
    if labels.is_none_or(BTreeMap::is_empty) && annotations.is_none_or(BTreeMap::is_empty) {
        return Vec::new();
    }
    let has = |server: &Server| {
        labels.into_iter().flatten().all(|(name, value)| server.labels.get(name) == Some(value))
            && annotations
                .into_iter()
                .flatten()
                .all(|(name, value)| server.annotations.get(name) == Some(value))
    };
    let is_allocated =
        |server: &&Arc<Server>| server.state == Some(State::Allocated) && !server.is_being_deleted();
    let allocated = seen.servers.iter().filter(is_allocated);
    let (marked, mut unmarked): (Vec<_>, Vec<_>) = allocated.cloned().partition(|server| has(server));
    let beyond = (marked.len() + unmarked.len()).saturating_sub(seen.target);
    let missing = beyond.saturating_sub(marked.len());
    if missing > 0 {
        sort(&mut unmarked, seen.scheduling, seen.priorities, seen.tallies);
    }
    unmarked.iter().take(missing).map(|server| server.key.clone()).collect()
}

#[cfg(test)]
mod tests;
