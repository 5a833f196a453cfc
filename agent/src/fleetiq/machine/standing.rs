//! What others see of the machine: the standing, whether servers may be offered, and what has lasted too long. Pure.

use std::time::Duration;

use berth_api::game_node::Protection;
use jiff::Timestamp;

use super::{Keeping, Machine, News, Problem, SILENT, Stage};
use crate::drain::Course;
use crate::fleetiq::Offers;
use crate::fleetiq::retry::later;

/// What the machine has to know of the rest of the agent.
#[derive(Clone, Copy, Debug)]
pub struct Outside<'a> {
    /// What the node is for at the moment.
    pub course: &'a Course,
    /// The instance waits in a warm pool: nothing is begun on it.
    pub is_warmed: bool,
}

/// Whether a node is offered that FleetIQ does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprotected {
    /// Never.
    Refuse,
    /// When it could not be helped for so long: capacity is worth more than none, if FleetIQ is out of reach.
    AllowAfter(Duration),
}

impl Machine {
    /// Whether, and how, FleetIQ keeps the instance.
    #[must_use]
    pub fn protection(&self) -> Protection {
        match self.stage {
            Stage::Deregistered { .. } => Protection::Released,
            Stage::Unregistered { .. } | Stage::Registered { .. } | Stage::Claimed { .. }
                if self.was_kept =>
            {
                Protection::Missing
            }
            Stage::Unregistered { .. } => Protection::Unregistered,
            Stage::Registered { .. } | Stage::Claimed { .. } => Protection::Registered,
            Stage::Active if self.is_protection_missing() => Protection::Missing,
            Stage::Active => Protection::Protected,
        }
    }

    /// Whether servers may be offered.
    #[must_use]
    pub fn offers(&self, outside: &Outside<'_>, policy: Unprotected, now: Timestamp) -> Offers {
        let withheld = |why: &str| Offers::Withheld { why: why.to_owned() };
        match self.stage {
            Stage::Deregistered { .. } => withheld("the instance has been given back to FleetIQ"),
            _ if outside.is_warmed => withheld("the instance waits in a warm pool"),
            // Whatever the policy says: it may be taken away this moment.
            _ if self.rests => withheld("the instance is free to be taken away"),
            Stage::Active => Offers::Allowed,
            Stage::Unregistered { .. } | Stage::Registered { .. } | Stage::Claimed { .. } => {
                // In use, only not protected from Auto Scaling: claiming it again takes nothing away.
                if self.is_protection_missing() {
                    return Offers::Allowed;
                }
                match policy {
                    Unprotected::AllowAfter(wait) if later(self.unprotected_since, wait) <= now => {
                        Offers::Allowed
                    }
                    Unprotected::AllowAfter(_) | Unprotected::Refuse => {
                        withheld("FleetIQ does not keep the instance yet")
                    }
                }
            }
        }
    }

    /// What has lasted too long, said once.
    pub fn look(&mut self, outside: &Outside<'_>, policy: Unprotected, now: Timestamp) -> Option<News> {
        let is_silent = self.stage == Stage::Active && later(self.beats_since, SILENT) <= now;
        if is_silent && !self.told_silent {
            self.told_silent = true;
            return Some(News::Silent);
        }
        let is_open = self.stage != Stage::Active
            && !self.is_protection_missing()
            && self.offers(outside, policy, now) == Offers::Allowed;
        if is_open && !self.told_unprotected {
            self.told_unprotected = true;
            return Some(News::OffersUnprotected);
        }
        None
    }

    /// When to look again, though nothing is heard.
    #[must_use]
    pub fn look_at(&self, policy: Unprotected) -> Option<Timestamp> {
        match (self.stage, policy) {
            (Stage::Active, _) => (!self.told_silent).then(|| later(self.beats_since, SILENT)),
            (Stage::Deregistered { .. }, _) | (_, Unprotected::Refuse) => None,
            (_, Unprotected::AllowAfter(wait)) => {
                (!self.told_unprotected).then(|| later(self.unprotected_since, wait))
            }
        }
    }

    /// Whether it is in use, and a sign of life was taken within two minutes.
    #[must_use]
    pub fn is_well(&self, now: Timestamp) -> bool {
        match self.stage {
            Stage::Active => self.last_beat.is_some_and(|beat| now < later(beat, SILENT)),
            // It is done with FleetIQ.
            Stage::Deregistered { .. } => true,
            Stage::Registered { .. } if self.rests => {
                self.last_beat.is_some_and(|beat| now < later(beat, SILENT))
            }
            Stage::Unregistered { .. } | Stage::Registered { .. } | Stage::Claimed { .. } => false,
        }
    }

    /// What keeps it from going on, as a sentence without a full stop.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        match self.problem {
            Some(Problem::Failing(call, failure)) => {
                Some(format!("{} fails ({failure}): {}", call.operation(), failure.advice()))
            }
            Some(Problem::Stolen) => Some(
                "the game server of this instance's id is registered for another instance, and is left alone"
                    .to_owned(),
            ),
            Some(Problem::Hidden) => Some(
                "FleetIQ refuses to register the instance, and does not show a registration of it: it may be about to \
                 end, or its id is in use in another group"
                    .to_owned(),
            ),
            None if self.is_protection_missing() => {
                Some("Auto Scaling does not protect the instance although it is in use".to_owned())
            }
            None => None,
        }
    }

    fn is_protection_missing(&self) -> bool {
        match self.keeping {
            Keeping::Absent { is_told, .. } => is_told,
            Keeping::Unknown | Keeping::Seen => false,
        }
    }
}
