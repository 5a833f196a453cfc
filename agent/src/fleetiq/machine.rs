//! How an instance gets and keeps its standing with FleetIQ. Pure and total: answers and time come in, the next call goes out.
//!
//! ```text
//! Unregistered ── Register ──▶ Registered ── Claim ──▶ Claimed ── Update ──▶ Active ◀─┐ a beat each minute
//!      ▲                            ▲                                          │ └────┘
//!      └────────── NotFound ────────┴──── in use no more ──────────────────────┤
//!                                                        the node is empty, or │ ordered
//!                                                                              ▼
//!                                             Deregistered ◀── Deregister ── Drained
//! ```
//!
//! Draining, Drained and Terminating are the node's [`Course`]: the machine reads it, and keeps
//! nothing of it. Every call may be repeated, so that an answer that was lost costs one call and nothing else.
//!
//! A node that nobody needs is given back the same way, since what is in use never becomes available again, and registered at
//! once: there it rests, with a sign of life each minute that claims nothing, and Auto Scaling may take it. It is offered
//! again only when FleetIQ has answered that it is in use.

use std::time::Duration;

use berth_api::notice::InstanceStatus;
use jiff::Timestamp;

use super::call::{Answer, Call, Failure, Registration, Utilization};
use super::retry::{
    Cause, after_failure, after_missed_beat, after_refusal, before_registration, between, first_beat, later,
    next_beat,
};
use crate::drain::Course;

mod mark;
mod standing;
#[cfg(test)]
mod tests;

pub use mark::Mark;
pub use standing::{Outside, Unprotected};

/// A claim lasts a minute; an older one than this is made again before it is used.
const CLAIM_LASTS: Duration = Duration::from_secs(50);
/// How long a registration that nobody can see has to show up.
const HIDDEN: Duration = Duration::from_secs(15);
/// How often it is looked for.
const ROUNDS: u8 = 3;
/// Failures in a row that are worth no word, where the next attempt may do.
const PASSING: u32 = 2;
/// Failures after which what is nice to know is done without.
const PATIENCE: u32 = 3;
/// How long protection may be missing before something is done about it.
const UNPROTECTED: Duration = Duration::from_secs(120);
/// How soon it is done again.
const CLAIM_AGAIN: Duration = Duration::from_secs(600);
/// How long after the last beat somebody is told.
const SILENT: Duration = Duration::from_secs(120);

/// What somebody else should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// FleetIQ keeps the instance.
    Protected,
    /// It is registered again, after FleetIQ had lost it.
    Reregistered,
    /// FleetIQ has lost the instance: nothing protects its sessions until it is registered again.
    ProtectionLost,
    /// Auto Scaling does not protect it although it is in use.
    ProtectionMissing,
    /// The registration is of another instance. It is left alone.
    Stolen,
    /// A registration is there, but nobody can see it.
    Hidden,
    /// It has been given back.
    Deregistered,
    /// Something fails that did not before, and is not over with the next attempts.
    Trouble(Call, Failure),
    /// No sign of life was taken for two minutes.
    Silent,
    /// Servers are offered although nothing protects them.
    OffersUnprotected,
}

/// The next call, and when to make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unregistered { step: Entry, rounds: u8 },
    Registered { step: Taking },
    Claimed { at: Timestamp },
    Active,
    Deregistered { comeback: Comeback },
}

/// The way into a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    AskStatus,
    Register,
    Describe,
}

/// The way to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Claim,
    AskStatus,
}

/// When an instance that was given back is registered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comeback {
    /// Once the node has been seen to drain, and then no longer does: at the start of a process nobody knows yet.
    AfterDrain,
    /// Once it drains no longer.
    OnceOpen,
    /// In no case: an operator wanted it so.
    Never,
}

/// Whether Auto Scaling protects the instance, as somebody else has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    Unknown,
    Seen,
    Absent { again_at: Timestamp, is_told: bool },
}

/// What keeps it from going on, as long as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Failing(Call, Failure),
    Stolen,
    Hidden,
}

/// The machine of one instance.
#[derive(Clone, Debug)]
pub struct Machine {
    stage: Stage,
    /// This call not before this time.
    wait: Option<(Call, Timestamp)>,
    /// Failures of the present call in a row.
    failures: u32,
    /// Claims in a row that were of no use.
    idle_claims: u32,
    last_beat: Option<Timestamp>,
    /// Since when a sign of life is due, while it is kept.
    beats_since: Timestamp,
    /// Since when nothing protects it, while it is not kept.
    unprotected_since: Timestamp,
    /// It has been kept, so that a registration is one more.
    was_kept: bool,
    /// It may be taken away, or have been given back, until an answer says that it is in use.
    rests: bool,
    keeping: Keeping,
    problem: Option<Problem>,
    is_given_up: bool,
    told_silent: bool,
    told_unprotected: bool,
}

impl Machine {
    /// The machine of an instance at the start of a process.
    #[must_use]
    pub fn new(mark: Mark, now: Timestamp, chance: f64) -> Self {
        let (stage, wait) = match mark {
            Mark::None => (Stage::Unregistered { step: Entry::AskStatus, rounds: 0 }, None),
            Mark::Registered => (Stage::Registered { step: Taking::Claim }, None),
            Mark::Active => (Stage::Active, Some((Call::Update, first_beat(now, chance)))),
            Mark::Deregistered => (Stage::Deregistered { comeback: Comeback::AfterDrain }, None),
        };
        Self {
            stage,
            wait,
            failures: 0,
            idle_claims: 0,
            last_beat: None,
            beats_since: now,
            unprotected_since: now,
            was_kept: mark == Mark::Active,
            rests: false,
            keeping: Keeping::Unknown,
            problem: None,
            is_given_up: false,
            told_silent: false,
            told_unprotected: false,
        }
    }

    /// What to call next, if anything.
    #[must_use]
    pub fn next(&self, outside: &Outside<'_>, now: Timestamp) -> Option<Due> {
        let call = self.call(outside, now)?;
        let at = self.wait.filter(|(waiting, _)| *waiting == call).map(|(_, until)| until);
        Some(Due { call, at })
    }

    fn call(&self, outside: &Outside<'_>, now: Timestamp) -> Option<Call> {
        let begins_nothing = outside.course.is_terminating() || outside.is_warmed;
        match self.stage {
            Stage::Deregistered { .. } => None,
            _ if self.is_given_up || outside.course.releases() => Some(Call::Deregister),
            Stage::Claimed { .. } | Stage::Active if outside.course.is_idle() => Some(Call::Deregister),
            Stage::Unregistered { .. } | Stage::Registered { .. } if begins_nothing => None,
            // Nobody is on it, whatever else is said of the node: it is claimed for those who come.
            Stage::Registered { .. } if outside.course.is_spare() => Some(Call::Live),
            Stage::Registered { .. } if self.rests && *outside.course != Course::Open => Some(Call::Live),
            Stage::Unregistered { step: Entry::AskStatus, .. }
            | Stage::Registered { step: Taking::AskStatus } => Some(Call::AskStatus),
            Stage::Unregistered { step: Entry::Register, .. } => Some(Call::Register),
            Stage::Unregistered { step: Entry::Describe, .. } => Some(Call::Describe),
            Stage::Registered { step: Taking::Claim } => Some(Call::Claim),
            Stage::Claimed { at } if now > later(at, CLAIM_LASTS) => Some(Call::Claim),
            Stage::Claimed { .. } | Stage::Active => Some(Call::Update),
        }
    }

    /// Takes an answer in.
    pub fn hear(&mut self, answer: Answer, now: Timestamp, chance: f64) -> Option<News> {
        match answer {
            Answer::Register(Ok(())) => {
                self.go(Stage::Registered { step: Taking::Claim });
                self.was_kept.then_some(News::Reregistered)
            }
            Answer::Register(Err(Failure::Conflict)) => {
                let rounds = self.rounds();
                self.go(Stage::Unregistered { step: Entry::Describe, rounds });
                None
            }
            Answer::Describe(Ok(found)) => self.found(found, now, chance),
            Answer::Describe(Err(Failure::NotFound)) => self.hidden(now),
            Answer::AskStatus(answer) => self.judged(answer, now, chance),
            // Taken by us a moment ago, or by somebody else: saying that it is in use is what counts.
            Answer::Claim(Ok(()) | Err(Failure::Conflict)) => {
                self.go(Stage::Claimed { at: now });
                None
            }
            Answer::Claim(Err(Failure::OutOfCapacity)) => {
                self.go(Stage::Registered { step: Taking::AskStatus });
                None
            }
            Answer::Claim(Err(Failure::NotFound)) => self.lost(now, chance),
            Answer::Update(Ok(Utilization::Utilized)) => self.beat(now, chance),
            Answer::Update(Ok(Utilization::Available)) => {
                self.unprotect(now);
                let is_first = self.idle_claims == 0;
                self.claim_later(now, chance);
                if is_first {
                    self.wait = None;
                }
                None
            }
            Answer::Update(Err(Failure::NotFound)) => self.lost(now, chance),
            Answer::Live(Ok(Utilization::Available)) => {
                self.go(Stage::Registered { step: Taking::Claim });
                self.was_kept = false;
                self.last_beat = Some(now);
                self.wait = Some((Call::Live, next_beat(now, chance)));
                None
            }
            // Somebody else has taken it, and nobody is there: it is given back, and registered anew.
            Answer::Live(Ok(Utilization::Utilized)) => {
                self.go(Stage::Active);
                None
            }
            Answer::Live(Err(Failure::NotFound)) => self.lost(now, chance),
            Answer::Deregister(Ok(()) | Err(Failure::NotFound)) => {
                let comeback = if self.is_given_up { Comeback::Never } else { Comeback::OnceOpen };
                self.go(Stage::Deregistered { comeback });
                self.was_kept = false;
                self.keeping = Keeping::Unknown;
                Some(News::Deregistered)
            }
            Answer::Register(Err(failure)) => self.fail(Call::Register, failure, now, chance),
            Answer::Claim(Err(failure)) => self.fail(Call::Claim, failure, now, chance),
            Answer::Update(Err(failure)) => self.fail(Call::Update, failure, now, chance),
            Answer::Live(Err(failure)) => self.fail(Call::Live, failure, now, chance),
            Answer::Describe(Err(failure)) => self.fail(Call::Describe, failure, now, chance),
            Answer::Deregister(Err(failure)) => {
                // It may have been done.
                self.rests = true;
                self.fail(Call::Deregister, failure, now, chance)
            }
        }
    }

    /// Takes the node's course in: what was given back comes back once the node no longer drains, to rest where nobody
    /// needs it.
    pub fn follow(&mut self, course: &Course, now: Timestamp, chance: f64) {
        let drains = match course {
            Course::Open | Course::Closed { .. } | Course::Spare { .. } => false,
            Course::Draining { .. } | Course::Drained { .. } => true,
        };
        let may_be_taken = matches!(self.stage, Stage::Registered { .. });
        if (course.is_idle() || (course.is_spare() && may_be_taken)) && !self.rests {
            self.rests = true;
            // Whoever comes back finds out at once how it stands.
            self.wait = None;
        }
        match self.stage {
            Stage::Deregistered { comeback: Comeback::AfterDrain } if drains => {
                self.stage = Stage::Deregistered { comeback: Comeback::OnceOpen };
            }
            Stage::Deregistered { comeback: Comeback::OnceOpen } if !drains => {
                self.go(Stage::Unregistered { step: Entry::Register, rounds: 0 });
                self.unprotect(now);
                self.wait = Some((Call::Register, later(now, before_registration(chance))));
            }
            Stage::Deregistered { .. }
            | Stage::Unregistered { .. }
            | Stage::Registered { .. }
            | Stage::Claimed { .. }
            | Stage::Active => {}
        }
    }

    /// Takes in whether Auto Scaling protects the instance.
    pub fn see_protection(&mut self, is_protected: bool, now: Timestamp) -> Option<News> {
        match (self.stage, self.keeping) {
            (_, _) if is_protected => {
                self.keeping = Keeping::Seen;
                None
            }
            (Stage::Active, Keeping::Unknown | Keeping::Seen) => {
                self.keeping = Keeping::Absent { again_at: later(now, UNPROTECTED), is_told: false };
                None
            }
            (Stage::Active, Keeping::Absent { again_at, is_told }) if now > again_at => {
                self.keeping = Keeping::Absent { again_at: later(now, CLAIM_AGAIN), is_told: true };
                self.go(Stage::Registered { step: Taking::Claim });
                (!is_told).then_some(News::ProtectionMissing)
            }
            (_, Keeping::Unknown | Keeping::Seen | Keeping::Absent { .. }) => None,
        }
    }

    /// An operator wants it given back, whatever its node's course: it does not come back.
    pub fn give_up(&mut self) {
        self.is_given_up = true;
        if let Stage::Deregistered { comeback } = &mut self.stage {
            *comeback = Comeback::Never;
        }
    }

    /// When FleetIQ last took a sign of life.
    #[must_use]
    pub fn last_beat(&self) -> Option<Timestamp> {
        self.last_beat
    }

    /// Whether a sign of life is due that often.
    #[must_use]
    pub fn beats(&self) -> bool {
        matches!(self.stage, Stage::Active)
    }

    /// A sign of life was taken, and it is in use.
    fn beat(&mut self, now: Timestamp, chance: f64) -> Option<News> {
        let news = (self.stage != Stage::Active && !self.was_kept).then_some(News::Protected);
        self.go(Stage::Active);
        self.idle_claims = 0;
        self.last_beat = Some(now);
        self.beats_since = now;
        self.was_kept = true;
        self.rests = false;
        self.told_silent = false;
        self.told_unprotected = false;
        self.wait = Some((Call::Update, next_beat(now, chance)));
        news
    }

    /// The registration is gone.
    fn lost(&mut self, now: Timestamp, chance: f64) -> Option<News> {
        let was_active = self.stage == Stage::Active;
        self.go(Stage::Unregistered { step: Entry::Register, rounds: 0 });
        self.unprotect(now);
        self.keeping = Keeping::Unknown;
        if was_active {
            return Some(News::ProtectionLost);
        }
        // It was there a moment ago: it may not show yet.
        let wait = between(Duration::from_secs(2), Duration::from_secs(5), chance);
        self.wait = Some((Call::Register, later(now, wait)));
        None
    }

    /// The registration is there, and this is what it looks like.
    fn found(&mut self, found: Registration, now: Timestamp, chance: f64) -> Option<News> {
        match found {
            Registration { is_ours: false, .. } => {
                self.go(Stage::Unregistered { step: Entry::Register, rounds: 0 });
                self.wait = Some((Call::Register, later(now, after_refusal(chance))));
                self.encounter(Problem::Stolen).then_some(News::Stolen)
            }
            Registration { is_ours: true, utilization: Utilization::Utilized } => {
                self.go(Stage::Active);
                self.beats_since = now;
                None
            }
            Registration { is_ours: true, utilization: Utilization::Available } => {
                self.go(Stage::Registered { step: Taking::Claim });
                None
            }
        }
    }

    /// Registering is refused since it is there, and it is not there.
    fn hidden(&mut self, now: Timestamp) -> Option<News> {
        let rounds = self.rounds().saturating_add(1);
        if rounds < ROUNDS {
            self.stage = Stage::Unregistered { step: Entry::Register, rounds };
            self.wait = Some((Call::Register, later(now, HIDDEN)));
            return None;
        }
        self.stage = Stage::Unregistered { step: Entry::AskStatus, rounds };
        self.wait = None;
        self.encounter(Problem::Hidden).then_some(News::Hidden)
    }

    /// What FleetIQ thinks of the instance. Nothing depends on it for long: the permission may be missing.
    fn judged(
        &mut self,
        answer: Result<Option<InstanceStatus>, Failure>,
        now: Timestamp,
        chance: f64,
    ) -> Option<News> {
        let goes = match answer {
            Ok(Some(InstanceStatus::Draining | InstanceStatus::SpotTerminating)) => true,
            Ok(Some(InstanceStatus::Active) | None) => false,
            Err(failure) if failure.cause().is_some() && self.failures < PATIENCE => {
                return self.fail(Call::AskStatus, failure, now, chance);
            }
            Err(_) => false,
        };
        match self.stage {
            Stage::Unregistered { rounds: ROUNDS.., .. } => {
                self.stage = Stage::Unregistered { step: Entry::Register, rounds: 0 };
                self.wait = Some((Call::Register, later(now, after_refusal(chance))));
            }
            // Perhaps its predecessor has given it back: a registration that is still there is looked for, none is made.
            Stage::Unregistered { rounds, .. } if goes => {
                self.go(Stage::Unregistered { step: Entry::Describe, rounds });
            }
            Stage::Unregistered { rounds, .. } => {
                self.go(Stage::Unregistered { step: Entry::Register, rounds });
                self.wait = Some((Call::Register, later(now, before_registration(chance))));
            }
            Stage::Registered { .. } if goes => self.go(Stage::Claimed { at: now }),
            Stage::Registered { .. } => self.claim_later(now, chance),
            Stage::Claimed { .. } | Stage::Active | Stage::Deregistered { .. } => {}
        }
        None
    }

    /// A claim was of no use, and another is made.
    fn claim_later(&mut self, now: Timestamp, chance: f64) {
        let wait = after_failure(Cause::Transient, self.idle_claims, chance);
        self.idle_claims = self.idle_claims.saturating_add(1);
        self.go(Stage::Registered { step: Taking::Claim });
        self.wait = Some((Call::Claim, later(now, wait)));
    }

    /// The call brought nothing and is made again.
    fn fail(&mut self, call: Call, failure: Failure, now: Timestamp, chance: f64) -> Option<News> {
        let wait = match failure.cause() {
            None => after_refusal(chance),
            Some(cause) if self.stage == Stage::Active && call == Call::Update => {
                after_missed_beat(cause, self.failures, chance)
            }
            Some(cause) => after_failure(cause, self.failures, chance),
        };
        let is_lasting = failure.cause().is_none() || self.failures >= PASSING;
        self.failures = self.failures.saturating_add(1);
        self.wait = Some((call, later(now, wait)));
        (is_lasting && self.encounter(Problem::Failing(call, failure)))
            .then_some(News::Trouble(call, failure))
    }

    /// Goes on to another stage, with nothing in the way.
    fn go(&mut self, stage: Stage) {
        self.stage = stage;
        self.wait = None;
        self.failures = 0;
        if !matches!(stage, Stage::Unregistered { .. }) {
            self.problem = None;
        }
    }

    fn unprotect(&mut self, now: Timestamp) {
        self.unprotected_since = now;
        self.told_unprotected = false;
    }

    /// Notes a problem, and whether it is new.
    fn encounter(&mut self, problem: Problem) -> bool {
        let is_new = self.problem != Some(problem);
        self.problem = Some(problem);
        is_new
    }

    fn rounds(&self) -> u8 {
        match self.stage {
            Stage::Unregistered { rounds, .. } => rounds,
            Stage::Registered { .. } | Stage::Claimed { .. } | Stage::Active | Stage::Deregistered { .. } => {
                0
            }
        }
    }
}

impl Failure {
    /// Why the same call may be answered otherwise soon; none for what somebody else has to put right.
    fn cause(self) -> Option<Cause> {
        match self {
            Self::Throttled => Some(Cause::Throttled),
            Self::Server
            | Self::Timeout
            | Self::Unreachable
            | Self::Other
            | Self::Conflict
            | Self::OutOfCapacity => Some(Cause::Transient),
            Self::NotFound | Self::LimitExceeded | Self::InvalidRequest | Self::Denied | Self::ClockSkew => {
                None
            }
        }
    }
}
