//! How many servers each set of a Fleet shall have. Pure.
//!
//! Promises, whatever is seen: no number is negative, an old set never grows, sessions are never counted away, and a
//! Fleet that is settled decides nothing new. Old servers go only as far as new ones can be allocated in their place.
//! There are never more servers than wanted because of sessions on old versions, unless the Fleet's author allows it.

use super::steps::Step;

/// How a new template replaces the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    Recreate,
    RollingUpdate { surge: Step, unavailable: Step },
}

/// One set as it is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SetSeen {
    /// Servers it shall have.
    pub(super) wanted: i32,
    /// Servers it has that are not being deleted.
    pub(super) replicas: i32,
    pub(super) ready: i32,
    pub(super) reserved: i32,
    pub(super) allocated: i32,
    /// Servers being deleted.
    pub(super) shutdown: i32,
}

impl SetSeen {
    /// Servers that are, or could be, in use.
    fn up(&self) -> i32 {
        self.ready + self.reserved + self.allocated
    }

    fn sessions(&self) -> i32 {
        self.reserved + self.allocated
    }

    /// It has what it shall have, or as few as sessions allow. Waiting for sessions to end would hold up the rest.
    fn is_settled(&self) -> bool {
        self.replicas == self.wanted || (self.replicas > self.wanted && self.replicas <= self.sessions())
    }
}

/// How many servers each set shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rollout {
    pub(super) active: i32,
    /// In the order of the old sets.
    pub(super) rest: Vec<i32>,
}

/// What a Fleet's author wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aim {
    /// Servers, of all versions.
    pub(super) wanted: i32,
    /// As many servers of the new version may be there above that as sessions on old versions keep it from having.
    pub(super) beyond: i32,
    pub(super) strategy: Strategy,
}

/// How many servers each set shall have. `active` is empty for a set that is yet to be made.
pub(super) fn roll(aim: Aim, active: SetSeen, rest: &[SetSeen]) -> Rollout {
    let (wanted, beyond) = (aim.wanted.max(0), aim.beyond.max(0));
    let sum = |of: fn(&SetSeen) -> i32| rest.iter().map(of).fold(0_i32, i32::saturating_add);
    let kept: Vec<i32> = rest.iter().map(|set| set.wanted.max(0)).collect();
    // What sessions on old sets leave; never less than none, however many there are.
    let without = |sessions: i32| wanted.saturating_sub(sessions.saturating_sub(beyond).max(0)).max(0);
    if rest.is_empty() {
        return Rollout { active: wanted, rest: kept };
    }
    if kept.iter().all(|wanted| *wanted == 0) {
        return Rollout { active: without(sum(SetSeen::sessions)), rest: kept };
    }
    match aim.strategy {
        Strategy::Recreate => {
            Rollout { active: without(sum(|set| set.allocated)), rest: vec![0; rest.len()] }
        }
        Strategy::RollingUpdate { surge, unavailable } => Rollout {
            active: grow(wanted, Space::of(wanted, beyond, surge, rest), &active, rest),
            rest: shrink(wanted, unavailable, &active, rest),
        },
    }
}

/// What the active set may grow to.
#[derive(Clone, Copy)]
struct Space {
    /// Its own number.
    most: i32,
    /// All servers, of all sets.
    limit: i32,
    /// At a time.
    step: i32,
}

impl Space {
    fn of(wanted: i32, beyond: i32, surge: Step, rest: &[SetSeen]) -> Self {
        let allocated: i32 = rest.iter().map(|set| set.allocated).sum();
        let beyond = beyond.min(allocated);
        let step = surge.up(wanted);
        Self {
            most: wanted.saturating_sub(allocated - beyond).max(0),
            limit: wanted.saturating_add(step.max(beyond)),
            step,
        }
    }
}

/// The active set grows within the space beside the old sets.
fn grow(wanted: i32, space: Space, active: &SetSeen, rest: &[SetSeen]) -> i32 {
    let Space { most, limit, step } = space;
    let now = active.wanted.max(0);
    if !active.is_settled() || now >= most {
        return now.min(most);
    }
    let next = now.saturating_add(step).min(wanted);
    // A set that is short of what it shall have makes that up in a moment.
    let old = rest.iter().map(|set| set.replicas.max(set.wanted)).fold(0_i32, i32::saturating_add);
    let total = old.saturating_add(next);
    let next = next - total.saturating_sub(limit).max(0);
    // Where there is no room beside the old sets, what is there stays.
    next.min(most).max(now.min(most))
}

/// The old sets shrink within what may be unavailable.
fn shrink(wanted: i32, unavailable: Step, active: &SetSeen, rest: &[SetSeen]) -> Vec<i32> {
    let mut next: Vec<i32> = rest.iter().map(|set| set.wanted.max(0)).collect();
    // What never came up is nobody's loss: it goes first, and at once.
    for (set, next) in rest.iter().zip(&mut next) {
        if set.up() == 0 {
            *next = 0;
        }
    }
    let ready = rest.iter().chain([active]).map(|set| set.ready).sum::<i32>();
    let step = unavailable.down(ready).max(1).min(wanted);
    let fewest = (ready - step).min(wanted);
    let coming = (active.wanted - active.up() - active.shutdown).max(0);

    let mut spare = ready - fewest - coming;
    if spare <= 0 {
        return next;
    }
    for (set, next) in rest.iter().zip(&mut next) {
        let failed = (*next - set.up()).max(0).min(spare);
        *next -= failed;
        spare -= failed;
    }

    // Beside the limit from what is ready now, there is one that does not move while the update goes on.
    let floor = wanted - unavailable.down(wanted).max(1);
    let up = rest.iter().chain([active]).map(SetSeen::up).sum::<i32>();
    let mut budget = (ready - fewest).min((up - floor).max(0));
    for (set, next) in rest.iter().zip(&mut next) {
        if *next <= 0 || *next != set.wanted.max(0) || set.shutdown != 0 {
            continue;
        }
        if budget <= 0 || !set.is_settled() {
            break;
        }
        if set.replicas == set.allocated {
            // All that is left are sessions: nothing is lost by it, and none may come back.
            *next = 0;
            continue;
        }
        let step = (*next).min(budget);
        *next -= step;
        budget -= step;
    }
    next
}

#[cfg(test)]
mod examples;
#[cfg(test)]
mod tests;
