//! How a lifecycle hook is answered. Pure and total: answers and time come in, the next call goes out.
//!
//! ```text
//! Staying ── Auto Scaling ends the instance ──▶ Unproven ── a heartbeat is taken ──▶ Held ◀─┐ a third of its time later
//!                                                   │                                 │ └────┘
//!                                 nothing waits, or │ the node is empty: Complete     │
//!                                                   ▼                                 ▼
//!                                           Passed, or Completed ◀────────────────────┘
//! ```
//!
//! What the node's deadline is worth rests on heartbeats that were taken: a hook is believed to wait once it has taken one,
//! and no longer than the last one lasts once no other is taken. Every call may be repeated, so that an answer that was lost
//! costs one call and nothing else.

use std::time::Duration;

use jiff::Timestamp;

use super::Stage;
use super::call::{Answer, Call, Failure, Operation};
use crate::drain::Course;
use crate::fleetiq::retry::{Cause, after_failure, after_refusal, between, later};
use crate::metadata::ENDS_WITHIN;

#[cfg(test)]
mod tests;

/// No hook holds an instance for longer than this.
const LONGEST: Duration = Duration::from_secs(48 * 60 * 60);
/// Nor for more than this many times what one heartbeat lasts.
const MOST_BEATS: u32 = 100;
/// The shortest time that Auto Scaling lets a heartbeat last.
const SHORTEST: Duration = Duration::from_secs(30);
/// How long an instance's end is known before a hook of which nothing can be learned is taken to hold nothing.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an action that is not there may yet come: the instance's end is told a little before the hook is asked.
const DOUBT: Duration = Duration::from_secs(15);
/// How often it is looked for.
const LOOK: Duration = Duration::from_secs(5);
/// The first question of an agent, which may be one of a thousand that start together, comes within this.
const SPREAD: Duration = Duration::from_secs(60);
/// What fails while the instance stays is tried again after so long, and half as long more or less.
const SELDOM: Duration = Duration::from_secs(300);
/// Failures in a row that are worth no word, where the next attempt may do.
const PASSING: u32 = 2;

/// What somebody else should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Auto Scaling waits, until then at most.
    Holds(Timestamp),
    /// It was told to go on.
    Completed,
    /// The hook cannot be had.
    Lacking(Lack),
    /// Auto Scaling ends the instance and does not wait for the hook, or not any more.
    Passed,
    /// Something fails, and is not over with the next attempts.
    Trouble(Operation, Failure),
}

/// Why there is no hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The instance is of no group.
    Group,
    /// Its group has no such hook for the end of an instance.
    Hook {
        /// The group.
        group: String,
    },
}

/// What a predecessor knew of an end that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Since when Auto Scaling ends the instance.
    pub since: Timestamp,
    /// When it had said that the node is gone, which stands.
    pub deadline: Option<Timestamp>,
}

/// What the machine looks at beside its answers.
#[derive(Clone, Copy, Debug)]
pub struct Outside<'a> {
    /// What the node is for.
    pub course: &'a Course,
    /// Whether Auto Scaling ends the instance, as its metadata say.
    pub is_ending: bool,
}

impl Outside<'_> {
    /// Whether nothing is left that an end would harm, and the drain knows of that end.
    fn is_drained(&self) -> bool {
        matches!(self.course, Course::Drained { .. }) && self.course.is_terminating()
    }
}

/// The next call, and when to make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The call.
    pub call: Call,
    /// Not before this time; at once where there is none.
    pub at: Option<Timestamp>,
}

impl Due {
    /// Whether it is to be made now.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.at.is_none_or(|at| at <= now)
    }
}

/// What is known of the hook.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Group { group: String },
    Hook { group: String, timeout: Duration },
    Lacking(Lack),
}

/// The instance's end, if it is near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Staying,
    /// Auto Scaling ends it, and whether it waits is not known.
    Unproven(Unproven),
    /// It waits, and has taken a heartbeat.
    Held {
        since: Timestamp,
        last_beat: Timestamp,
    },
    /// It does not wait, as far as is known since then; without a time where the node is empty, and nothing depends on it.
    Passed {
        at: Option<Timestamp>,
    },
    Completed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unproven {
    since: Timestamp,
    /// Since when this process knows.
    from: Timestamp,
    resumed: Option<Resumed>,
    /// Since when Auto Scaling knows of no action.
    refused_since: Option<Timestamp>,
}

impl Unproven {
    fn new(since: Timestamp, from: Timestamp, resumed: Option<Resumed>) -> Self {
        Self { since, from, resumed, refused_since: None }
    }
}

/// The machine of one instance and one hook.
#[derive(Clone, Debug)]
pub struct Machine {
    known: Known,
    end: End,
    /// The hook was asked about since the instance's end is near: it may have been changed in the months before.
    is_fresh: bool,
    /// This kind of call not before this time.
    wait: Option<(Operation, Timestamp)>,
    /// Failures of the present call in a row.
    failures: u32,
    problem: Option<(Operation, Failure)>,
}

impl Machine {
    /// The machine at the start of a process.
    #[must_use]
    pub fn new(resumed: Option<Resumed>, now: Timestamp, chance: f64) -> Self {
        let end = resumed
            .map_or(End::Staying, |one| End::Unproven(Unproven::new(one.since.min(now), now, Some(one))));
        let wait = resumed.is_none().then(|| between(Duration::ZERO, SPREAD, chance));
        Self {
            known: Known::Nothing,
            end,
            is_fresh: false,
            wait: wait.map(|wait| (Operation::FindGroup, later(now, wait))),
            failures: 0,
            problem: None,
        }
    }

    /// Takes in that Auto Scaling ends the instance.
    pub fn follow(&mut self, outside: &Outside<'_>, now: Timestamp) {
        if outside.is_ending && self.end == End::Staying {
            self.end = End::Unproven(Unproven::new(now, now, None));
            self.is_fresh = false;
            self.go_on();
        }
    }

    /// What to call next, if anything.
    #[must_use]
    pub fn next(&self, outside: &Outside<'_>) -> Option<Due> {
        let call = self.call(outside)?;
        let at = self.wait.filter(|(waiting, _)| *waiting == call.operation()).map(|(_, until)| until);
        Some(Due { call, at })
    }

    fn call(&self, outside: &Outside<'_>) -> Option<Call> {
        match (self.end, &self.known) {
            (End::Passed { .. } | End::Completed, _) => None,
            (End::Staying, Known::Hook { .. } | Known::Lacking(_)) => None,
            (_, Known::Nothing) => Some(Call::FindGroup),
            (End::Staying, Known::Group { group }) => Some(Call::DescribeHook { group: group.clone() }),
            (End::Unproven(_) | End::Held { .. }, Known::Lacking(_)) => Some(Call::FindGroup),
            (End::Unproven(_) | End::Held { .. }, Known::Group { group } | Known::Hook { group, .. }) => {
                let group = group.clone();
                Some(if outside.is_drained() {
                    Call::Complete { group }
                } else if self.is_fresh && self.timeout().is_some() {
                    Call::Beat { group }
                } else {
                    Call::DescribeHook { group }
                })
            }
        }
    }

    /// Takes an answer in.
    pub fn hear(&mut self, answer: Answer, now: Timestamp, chance: f64) -> Option<News> {
        match answer {
            Answer::FindGroup(Ok(Some(group))) => {
                self.known = Known::Group { group };
                self.go_on();
                None
            }
            Answer::FindGroup(Ok(None)) => self.lack(Lack::Group),
            Answer::DescribeHook(Ok(Some(timeout))) => {
                if let Some(group) = self.group().map(str::to_owned) {
                    self.known = Known::Hook { group, timeout: timeout.max(SHORTEST) };
                }
                self.is_fresh = self.end != End::Staying;
                self.go_on();
                None
            }
            // A group that is gone has no hook either.
            Answer::DescribeHook(Ok(None) | Err(Failure::InvalidRequest)) => {
                let group = self.group().unwrap_or_default().to_owned();
                self.lack(Lack::Hook { group })
            }
            Answer::DescribeHook(Err(failure)) if matches!(self.known, Known::Hook { .. }) => {
                // What it was before is better than nothing.
                self.is_fresh = true;
                self.fail(Operation::DescribeHook, failure, now, chance)
            }
            Answer::Beat(Ok(())) => self.held(now),
            Answer::Beat(Err(Failure::InvalidRequest)) => self.refused(Operation::Beat, now),
            Answer::Complete(Ok(())) => {
                self.end = End::Completed;
                self.go_on();
                Some(News::Completed)
            }
            Answer::Complete(Err(Failure::InvalidRequest)) => self.refused(Operation::Complete, now),
            Answer::FindGroup(Err(failure)) => self.fail(Operation::FindGroup, failure, now, chance),
            Answer::DescribeHook(Err(failure)) => self.fail(Operation::DescribeHook, failure, now, chance),
            Answer::Beat(Err(failure)) => self.fail(Operation::Beat, failure, now, chance),
            Answer::Complete(Err(failure)) => self.fail(Operation::Complete, failure, now, chance),
        }
    }

    /// When the node is gone, as far as the hook goes; none where that cannot be said yet.
    #[must_use]
    pub fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        match (self.end, self.timeout()) {
            (End::Staying | End::Completed, _) => None,
            (End::Passed { at }, _) => at.map(|at| later(at, ENDS_WITHIN)),
            (End::Unproven(end), None) => {
                let is_known = end.resumed.is_some_and(|resumed| resumed.deadline.is_some());
                (!is_known && now >= later(end.from, PATIENCE)).then(|| later(end.from, ENDS_WITHIN))
            }
            // Whoever has taken no heartbeat waits for one all the same.
            (End::Unproven(end), Some(timeout)) => is_silent(end.from, timeout, now)
                .then(|| later(end.from, timeout).min(longest(end.since, timeout))),
            (End::Held { since, last_beat }, Some(timeout)) => {
                let longest = longest(since, timeout);
                let is_silent = is_silent(last_beat, timeout, now);
                Some(if is_silent { later(last_beat, timeout).min(longest) } else { longest })
            }
            // A hook that has taken a heartbeat is known.
            (End::Held { .. }, None) => None,
        }
    }

    /// When [`deadline`](Self::deadline) may change without an answer.
    #[must_use]
    pub fn look_at(&self, now: Timestamp) -> Option<Timestamp> {
        let at = match (self.end, self.timeout()) {
            (End::Unproven(end), None) => later(end.from, PATIENCE),
            (
                End::Unproven(Unproven { from: last, .. }) | End::Held { last_beat: last, .. },
                Some(timeout),
            ) => silent_at(last, timeout),
            (End::Staying | End::Completed | End::Passed { .. } | End::Held { .. }, _) => return None,
        };
        (now < at).then_some(at)
    }

    /// How far it has come.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.end {
            End::Staying => Stage::Idle,
            End::Unproven(_) => Stage::Asked,
            End::Held { .. } => Stage::Waits,
            End::Passed { .. } => Stage::Passed,
            End::Completed => Stage::Completed,
        }
    }

    /// The instance's group, where it is known.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        match &self.known {
            Known::Group { group } | Known::Hook { group, .. } | Known::Lacking(Lack::Hook { group }) => {
                Some(group)
            }
            Known::Nothing | Known::Lacking(Lack::Group) => None,
        }
    }

    /// When Auto Scaling last took a heartbeat, and when it goes on without another.
    #[must_use]
    pub fn beats(&self) -> Option<(Timestamp, Timestamp)> {
        match self.end {
            End::Held { since, last_beat } => {
                let timeout = self.timeout()?;
                Some((last_beat, later(last_beat, timeout).min(longest(since, timeout))))
            }
            End::Staying | End::Unproven(_) | End::Passed { .. } | End::Completed => None,
        }
    }

    /// Why there is no hook.
    #[must_use]
    pub fn lacks(&self) -> Option<&Lack> {
        match &self.known {
            Known::Lacking(lack) => Some(lack),
            Known::Nothing | Known::Group { .. } | Known::Hook { .. } => None,
        }
    }

    /// The call that fails, and why.
    #[must_use]
    pub fn problem(&self) -> Option<(Operation, Failure)> {
        self.problem
    }

    fn timeout(&self) -> Option<Duration> {
        match &self.known {
            Known::Hook { timeout, .. } => Some(*timeout),
            Known::Nothing | Known::Group { .. } | Known::Lacking(_) => None,
        }
    }

    /// A heartbeat was taken.
    fn held(&mut self, now: Timestamp) -> Option<News> {
        self.go_on();
        let timeout = self.timeout()?;
        let (since, is_new) = match self.end {
            End::Unproven(end) => (end.since, true),
            End::Held { since, .. } => (since, false),
            End::Staying | End::Passed { .. } | End::Completed => return None,
        };
        self.end = End::Held { since, last_beat: now };
        self.wait = Some((Operation::Beat, later(now, timeout / 3)));
        is_new.then(|| News::Holds(longest(since, timeout)))
    }

    /// Auto Scaling knows of no action: it is not there yet, or somebody has answered it, or its time is over.
    fn refused(&mut self, operation: Operation, now: Timestamp) -> Option<News> {
        self.go_on();
        if let End::Unproven(end) = &mut self.end {
            let since = *end.refused_since.get_or_insert(now);
            // A predecessor may have told Auto Scaling to go on and died; it had seen the end before the drain was over.
            let may_come = operation == Operation::Beat || end.resumed.is_none();
            if may_come && now < later(since, DOUBT) {
                self.wait = Some((operation, later(now, LOOK)));
                return None;
            }
        }
        let at = match self.end {
            End::Unproven(end) => end.refused_since.unwrap_or(now),
            End::Held { .. } => now,
            End::Staying | End::Passed { .. } | End::Completed => return None,
        };
        // Of an empty node it does not matter who has answered.
        let has_sessions = operation == Operation::Beat;
        self.end = End::Passed { at: has_sessions.then_some(at) };
        has_sessions.then_some(News::Passed)
    }

    /// There is no hook: what is known while the instance stays is looked at once more when it ends.
    fn lack(&mut self, lack: Lack) -> Option<News> {
        self.go_on();
        match self.end {
            End::Unproven(end) => self.end = End::Passed { at: Some(end.from) },
            End::Held { last_beat, .. } => self.end = End::Passed { at: Some(last_beat) },
            End::Staying | End::Passed { .. } | End::Completed => {}
        }
        let is_new = self.known != Known::Lacking(lack.clone());
        self.known = Known::Lacking(lack.clone());
        is_new.then_some(News::Lacking(lack))
    }

    /// The call brought nothing and is made again.
    fn fail(&mut self, operation: Operation, failure: Failure, now: Timestamp, chance: f64) -> Option<News> {
        let cause = match failure {
            Failure::Denied | Failure::ClockSkew => None,
            Failure::Throttled => Some(Cause::Throttled),
            Failure::NotFound
            | Failure::Conflict
            | Failure::OutOfCapacity
            | Failure::LimitExceeded
            | Failure::InvalidRequest
            | Failure::Server
            | Failure::Timeout
            | Failure::Unreachable
            | Failure::Other => Some(Cause::Transient),
        };
        let wait = match (self.end, cause) {
            (End::Staying, _) => between(SELDOM / 2, SELDOM * 3 / 2, chance),
            (_, None) => after_refusal(chance),
            (_, Some(cause)) => after_failure(cause, self.failures, chance),
        };
        // Some heartbeats are tried before the last one is over.
        let most = self.timeout().filter(|_| operation == Operation::Beat).map(|timeout| timeout / 6);
        let wait = most.map_or(wait, |most| wait.min(most));
        let is_lasting = cause.is_none() || self.failures >= PASSING;
        self.failures = self.failures.saturating_add(1);
        self.wait = Some((operation, later(now, wait)));
        let is_new = is_lasting && self.problem != Some((operation, failure));
        if is_lasting {
            self.problem = Some((operation, failure));
        }
        is_new.then_some(News::Trouble(operation, failure))
    }

    /// Nothing is in the way.
    fn go_on(&mut self) {
        self.wait = None;
        self.failures = 0;
        self.problem = None;
    }
}

/// When no heartbeat holds an instance any more.
fn longest(since: Timestamp, timeout: Duration) -> Timestamp {
    later(since, LONGEST.min(timeout.saturating_mul(MOST_BEATS)))
}

/// When a whole heartbeat has been missed.
fn silent_at(last: Timestamp, timeout: Duration) -> Timestamp {
    later(last, timeout * 2 / 3)
}

fn is_silent(last: Timestamp, timeout: Duration, now: Timestamp) -> bool {
    now >= silent_at(last, timeout)
}
