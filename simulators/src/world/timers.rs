//! What is to happen later: in the order of when it is due, and then of when it was planned.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::orders::Order;
use super::words::{GroupName, InstanceId, ServerId};

/// Something that is due at a time. It is checked against the state when it comes, so nothing needs to be cancelled.
#[derive(Clone, Debug)]
pub(crate) enum Timer {
    /// A claim is sixty seconds old.
    ClaimEnds { server: ServerId, serial: u64 },
    /// A server may have been silent for too long.
    Silence { server: ServerId, serial: u64 },
    /// An unhealthy server may have to go.
    Removal { server: ServerId, serial: u64 },
    /// An instance comes into service.
    InService { instance: InstanceId },
    /// A DRAINING instance may have nothing left to keep it.
    Reap { instance: InstanceId },
    /// The next step of an instance's end.
    EndingStep { instance: InstanceId },
    /// A part of a Spot interruption.
    Spot { instance: InstanceId, part: SpotPart },
    /// The next step of a group's status.
    GroupStep { group: GroupName },
    /// The group's scaling policy looks at it.
    Scale { group: GroupName },
    /// A part of a scenario, or an order for later.
    Order(Box<Order>),
    /// Something that comes again and again.
    Routine(Routine),
}

/// The parts of a Spot interruption.
#[derive(Clone, Debug)]
pub(crate) enum SpotPart {
    Rebalance,
    Notice { action: String, power_off: Timestamp },
    Status,
    PowerOff,
}

/// What comes again and again once it was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routine {
    /// Somebody else claims whatever there is.
    Stranger,
    /// Players come.
    Visitor,
    /// An instance type stops being viable.
    Balance,
}

/// The queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeMap<(Timestamp, u64), Timer>,
    planned: u64,
}

impl Timers {
    pub(crate) fn plan(&mut self, due: Timestamp, timer: Timer) {
        self.queue.insert((due, self.planned), timer);
        self.planned += 1;
    }

    /// The next that is due at `now` or before.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, Timer)> {
        let first = self.queue.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let ((due, _), timer) = first.remove_entry();
        Some((due, timer))
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.queue.first_key_value().map(|((due, _), _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_run_by_due_time_and_then_by_age() {
        let start = Timestamp::UNIX_EPOCH;
        let mut timers = Timers::default();
        let plan = [(5, Routine::Stranger), (3, Routine::Visitor), (3, Routine::Balance)];
        for (seconds, routine) in plan {
            timers.plan(start + Duration::from_secs(seconds), Timer::Routine(routine));
        }
        let mut order = Vec::new();
        while let Some((_, Timer::Routine(routine))) = timers.pop_due(start + Duration::from_secs(4)) {
            order.push(routine);
        }
        assert_eq!(order, [Routine::Visitor, Routine::Balance]);
        assert_eq!(timers.next_due(), Some(start + Duration::from_secs(5)));
    }
}
