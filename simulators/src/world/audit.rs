//! The audit: sessions that ended because their instance did, and the chain of events that led there.

use jiff::Timestamp;
use serde::Serialize;

use super::World;
use super::log::{Event, EventKind};
use super::things::Cause;
use super::words::{GroupName, InstanceId};

/// Events that explain a loss.
const CHAIN: usize = 20;

/// Sessions that were live on an instance when it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Loss {
    pub(crate) time: Timestamp,
    pub(crate) group: GroupName,
    pub(crate) instance: InstanceId,
    pub(crate) sessions: u32,
    pub(crate) cause: Cause,
    pub(crate) words: String,
    pub(crate) chain: Vec<Event>,
}

/// What the account's programs have to answer for, and what nobody could have helped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Audit {
    /// Sessions lost to anything but a Spot interruption. A test ends by finding none.
    pub(crate) violations: Vec<Loss>,
    /// Sessions lost to Spot interruptions.
    pub(crate) spot: Vec<Loss>,
}

impl World {
    pub(crate) fn audit(&self) -> Audit {
        let (spot, violations) = self.losses.iter().cloned().partition(|loss| loss.cause == Cause::Spot);
        Audit { violations, spot }
    }

    pub(super) fn lose_sessions(&mut self, id: &InstanceId, cause: &Cause, sessions: u32) {
        let Some(group) = self.instances.get(id).map(|instance| instance.group.clone()) else { return };
        let words = cause.words();
        self.tell_instance(EventKind::SessionsLost, id, format!("{sessions}, {words}"));
        self.losses.push(Loss {
            time: self.now,
            group,
            instance: id.clone(),
            sessions,
            cause: cause.clone(),
            words,
            chain: self.log.chain(id, CHAIN),
        });
    }
}
