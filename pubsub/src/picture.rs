//! What is known of the groups' instances, and what one poll adds to it. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_api::notice::InstanceStatus;
use berth_runtime::clock::Instant;
use jiff::Timestamp;

use crate::groups::Group;
use crate::pace::Ending;

/// How long what was seen counts, whatever the period.
const SHORTEST_LIFE: Duration = Duration::from_secs(180);

/// One moment, for people and for deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the wall clock.
    pub wall: Timestamp,
    /// By the monotonic one.
    pub instant: Instant,
}

/// An instance as one answer lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub instance: String,
    /// ARN of its group.
    pub group_arn: String,
    /// What FleetIQ says of it; nothing where that is missing or a word that nobody knows.
    pub status: Option<InstanceStatus>,
}

/// What one poll of a group brought, be it all pages or those before something went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The instances read.
    pub instances: Vec<Listed>,
    /// How it ended.
    pub ending: Ending,
    /// What went wrong.
    pub error: Option<String>,
}

/// An instance as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// ARN of its group.
    pub group_arn: String,
    /// What FleetIQ says of it.
    pub status: InstanceStatus,
    /// When it said so last.
    pub at: Moment,
    /// When it said so first.
    pub changed: Timestamp,
}

/// A group as it was last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPicture {
    /// By id.
    pub instances: BTreeMap<String, Seen>,
    /// The last poll that read all pages.
    pub complete: Option<Moment>,
    /// Polls so far: what is written of a group is written once a poll.
    pub polls: u64,
    /// Polls in a row that did not read all pages.
    pub failures: u32,
    /// What was wrong with the last of them.
    pub error: Option<String>,
    /// The time between polls.
    pub period: Duration,
}

impl GroupPicture {
    /// Adds what a poll brought. Only one that read all pages can say that an instance is gone.
    pub fn take(&mut self, poll: Poll, now: Moment) {
        let mut before = match poll.ending {
            Ending::Complete => std::mem::take(&mut self.instances),
            Ending::Throttled | Ending::Missing | Ending::Denied | Ending::Failed => self.instances.clone(),
        };
        for Listed { instance, group_arn, status } in poll.instances {
            let known = before.remove(&instance);
            // What is unknown is told as unknown: nothing is kept of it.
            let Some(status) = status else {
                self.instances.remove(&instance);
                continue;
            };
            let changed =
                known.filter(|known| known.status == status).map_or(now.wall, |known| known.changed);
            self.instances.insert(instance, Seen { group_arn, status, at: now, changed });
        }
        self.polls += 1;
        if poll.ending == Ending::Complete {
            self.complete = Some(now);
            self.failures = 0;
            self.error = None;
        } else {
            self.failures = self.failures.saturating_add(1);
            self.error = poll.error;
        }
    }

    /// How long what is seen counts.
    #[must_use]
    pub fn life(&self) -> Duration {
        (self.period * 3).max(SHORTEST_LIFE)
    }

    /// Instances of this status.
    #[must_use]
    pub fn count(&self, status: InstanceStatus) -> u64 {
        let same = self.instances.values().filter(|seen| seen.status == status).count();
        u64::try_from(same).unwrap_or(u64::MAX)
    }
}

/// All groups, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture(pub BTreeMap<String, GroupPicture>);

impl Picture {
    /// Leaves only these groups.
    pub fn keep(&mut self, groups: &[Group]) {
        self.0.retain(|name, _| groups.iter().any(|group| group.name() == name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(instance: &str, status: Option<InstanceStatus>) -> Listed {
        Listed { instance: instance.to_owned(), group_arn: "arn".to_owned(), status }
    }

    fn poll(ending: Ending, instances: &[(&str, InstanceStatus)]) -> Poll {
        let instances = instances.iter().map(|(id, status)| listed(id, Some(*status))).collect();
        Poll { instances, ending, error: (ending != Ending::Complete).then(|| "why".to_owned()) }
    }

    fn after(start: Instant, seconds: i64) -> Moment {
        let wall = Timestamp::from_second(1_790_000_000 + seconds).unwrap();
        Moment { wall, instant: start + Duration::from_secs(seconds.unsigned_abs()) }
    }

    use InstanceStatus::{Active, Draining};

    #[test]
    fn only_a_complete_poll_says_that_an_instance_is_gone() {
        let start = Instant::now();
        let mut group = GroupPicture::default();
        group.take(poll(Ending::Complete, &[("i-1", Active), ("i-2", Active)]), after(start, 0));
        for ending in [Ending::Failed, Ending::Throttled, Ending::Missing, Ending::Denied] {
            group.take(poll(ending, &[("i-1", Draining)]), after(start, 30));
            assert_eq!(group.instances.keys().collect::<Vec<_>>(), ["i-1", "i-2"], "{ending:?}");
            assert_eq!(group.instances["i-1"].status, Draining, "pages before the failure count");
            assert_eq!(group.instances["i-2"].at, after(start, 0));
            assert_eq!(group.error.as_deref(), Some("why"));
        }
        assert_eq!((group.failures, group.polls), (4, 5));
        group.take(poll(Ending::Complete, &[("i-1", Draining)]), after(start, 60));
        assert_eq!(group.instances.keys().collect::<Vec<_>>(), ["i-1"]);
        assert_eq!((group.failures, group.error.clone()), (0, None));
        assert_eq!(group.instances["i-1"].changed, after(start, 30).wall, "known since then");
    }

    #[test]
    fn what_nobody_knows_is_not_kept() {
        let start = Instant::now();
        let mut group = GroupPicture::default();
        group.take(poll(Ending::Complete, &[("i-1", Active)]), after(start, 0));
        let unknown = Poll { instances: vec![listed("i-1", None)], ending: Ending::Failed, error: None };
        group.take(unknown, after(start, 30));
        assert!(group.instances.is_empty());
    }

    #[test]
    fn what_is_seen_counts_for_three_minutes_or_three_periods() {
        let mut group = GroupPicture { period: Duration::from_secs(30), ..GroupPicture::default() };
        assert_eq!(group.life().as_secs(), 180);
        group.period = Duration::from_secs(300);
        assert_eq!(group.life().as_secs(), 900);
    }
}
