//! Spot interruptions: every part of the notice comes at its own time, and any part may be lost.

use jiff::{SignedDuration, Timestamp};
use rand::Rng as _;
use serde::{Deserialize, Serialize};

use super::World;
use super::log::EventKind;
use super::things::{Cause, SpotNotice};
use super::timers::{SpotPart, Timer};
use super::words::{InstanceId, InstanceStatus, Milliseconds};

/// An interruption. Parts that are null do not come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Interruption {
    /// Until the notice.
    pub(crate) in_ms: Milliseconds,
    /// What will be done with the instance; null for no notice in the metadata.
    pub(crate) action: Option<String>,
    /// From the notice to power off.
    pub(crate) lead_ms: Milliseconds,
    /// The recommendation comes that long before the notice.
    pub(crate) rebalance_before_ms: Option<Milliseconds>,
    /// FleetIQ's status against the notice; `random` for ten seconds before to thirty seconds after.
    pub(crate) fleetiq_offset_ms: Option<Offset>,
}

/// When FleetIQ's status comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Offset {
    Milliseconds(i64),
    Word(OffsetWord),
}

/// Instead of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OffsetWord {
    Random,
}

impl Default for Interruption {
    fn default() -> Self {
        Self {
            in_ms: Milliseconds(0),
            action: Some("terminate".to_owned()),
            lead_ms: Milliseconds::of_seconds(120),
            rebalance_before_ms: Some(Milliseconds::of_seconds(600)),
            fleetiq_offset_ms: Some(Offset::Milliseconds(5000)),
        }
    }
}

impl World {
    pub(super) fn plan_interruption(&mut self, id: &InstanceId, wanted: Interruption) {
        let notice = self.after(wanted.in_ms.duration());
        let power_off = notice + wanted.lead_ms.duration();
        let mut plan = |due: Timestamp, part| {
            self.timers.plan(due, Timer::Spot { instance: id.clone(), part });
        };
        if let Some(before) = wanted.rebalance_before_ms {
            // One that would have been due before now comes at once.
            plan(notice.saturating_sub(before.duration()).unwrap_or(notice), SpotPart::Rebalance);
        }
        if let Some(action) = wanted.action {
            plan(notice, SpotPart::Notice { action, power_off });
        }
        plan(power_off, SpotPart::PowerOff);
        let offset = match wanted.fleetiq_offset_ms {
            Some(Offset::Milliseconds(offset)) => Some(offset),
            Some(Offset::Word(OffsetWord::Random)) => Some(self.dice.random_range(-10_000..=30_000)),
            None => None,
        };
        if let Some(offset) = offset {
            let due = notice.saturating_add(SignedDuration::from_millis(offset)).unwrap_or(notice);
            self.timers.plan(due, Timer::Spot { instance: id.clone(), part: SpotPart::Status });
        }
    }

    pub(super) fn interrupt(&mut self, id: &InstanceId, part: SpotPart) {
        let now = self.now;
        let Some(instance) = self.instances.get_mut(id) else { return };
        match part {
            SpotPart::Rebalance => {
                instance.notices.rebalance = Some(now);
                self.tell_instance(EventKind::Rebalance, id, "");
            }
            SpotPart::Notice { action, power_off } => {
                self.tell_instance(EventKind::SpotNotice, id, format!("{action} at {power_off}"));
                if let Some(instance) = self.instances.get_mut(id) {
                    instance.notices.spot = Some(SpotNotice { action, time: power_off });
                }
            }
            SpotPart::Status => self.set_status(id, InstanceStatus::SpotTerminating),
            SpotPart::PowerOff => self.power_off(id, Cause::Spot),
        }
    }

    /// The recommendation alone.
    pub(super) fn recommend_rebalance(&mut self, id: &InstanceId) {
        self.interrupt(id, SpotPart::Rebalance);
    }
}
