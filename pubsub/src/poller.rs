//! The task that asks for each group's instances, in turn and each at its own pace, and shows what it sees.
//!
//! A group that fails costs nothing but its own freshness. Who does not lead reads the list of groups, and asks for nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_api::notice::InstanceStatus;
use berth_runtime::CancellationToken;
use berth_runtime::clock::{Clock, Instant};
use berth_runtime::error::chain;
use berth_runtime::health::Condition;
use tokio::sync::watch;
use tracing::{debug, info};

use crate::announce::{Announcer, News};
use crate::aws::Aws;
use crate::groups::{Group, Groups, USUAL_MOST};
use crate::groups_source::Source;
use crate::lead::Lead;
use crate::metrics::PubsubMetrics;
use crate::pace::{Ending, Pace};
use crate::picture::{GroupPicture, Moment, Picture, Poll};

/// What readiness hears of.
#[derive(Debug)]
pub(crate) struct PollerHealth {
    /// The groups are known.
    pub(crate) groups: Condition,
    /// What is known of them is fresh, or somebody else polls.
    pub(crate) polls: Condition,
}

/// When a group is asked for.
struct Turn {
    pace: Pace,
    next: Instant,
    /// The last ending that was told, since the last poll that was complete.
    told: Option<Ending>,
}

/// Asks for instances.
pub(crate) struct Poller {
    pub(crate) source: Source,
    pub(crate) aws: Aws,
    pub(crate) lead: Lead,
    pub(crate) period: Duration,
    pub(crate) health: PollerHealth,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: PubsubMetrics,
    /// The groups, once known, for those who ask AWS for other things.
    pub(crate) known: watch::Sender<Vec<Group>>,
    /// What is seen; nothing while another leads.
    pub(crate) picture: watch::Sender<Option<Arc<Picture>>>,
}

/// What the poller remembers.
#[derive(Default)]
struct Memory {
    turns: BTreeMap<String, Turn>,
    /// The last fault of the list of groups that was told.
    told_fault: Option<String>,
    refused: Vec<String>,
}

impl Poller {
    /// Polls until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut memory = Memory::default();
        let mut next_list = Instant::now();
        loop {
            if Instant::now() >= next_list {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    () = self.read_groups(&mut memory) => {}
                }
                next_list = Instant::now() + self.period;
            }
            if !self.lead.is_ours() {
                self.stand_by(&mut memory);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    () = self.lead.gained() => info!("this publisher polls"),
                    () = tokio::time::sleep_until(next_list) => {}
                }
                continue;
            }
            let mut lead = self.lead.clone();
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                // What is under way is not ours to tell any more.
                () = lead.lost() => continue,
                next = self.poll_due(&mut memory) => next.unwrap_or(next_list).min(next_list),
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = lead.lost() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    fn stand_by(&self, memory: &mut Memory) {
        // Another sees it now, and what we have seen is of no use when we lead again.
        memory.turns.clear();
        if self.picture.send_replace(None).is_some() {
            info!("another publisher polls");
        }
        self.health.polls.set(true);
    }

    async fn read_groups(&self, memory: &mut Memory) {
        match self.source.groups().await {
            Ok(Groups { groups, refused }) => {
                memory.told_fault = None;
                self.health.groups.set(true);
                if *self.known.borrow() != groups {
                    info!(groups = ?groups.iter().map(Group::name).collect::<Vec<_>>(), "groups");
                    if groups.len() > USUAL_MOST {
                        let message = format!(
                            "{} groups are named, more than the {USUAL_MOST} of a region",
                            groups.len()
                        );
                        tracing::warn!("{message}");
                    }
                }
                for entry in refused.iter().filter(|entry| !memory.refused.contains(entry)) {
                    self.tell(News::GroupRefused(format!(
                        "{entry} is no name of a game server group; it is left out"
                    )));
                }
                self.metrics.groups.set(i64::try_from(groups.len()).unwrap_or(i64::MAX));
                self.metrics.refused_groups.set(i64::try_from(refused.len()).unwrap_or(i64::MAX));
                memory.refused = refused;
                self.known.send_if_modified(|known| {
                    let is_changed = *known != groups;
                    *known = groups;
                    is_changed
                });
            }
            Err(error) => {
                self.metrics.group_failures.inc();
                let fault = chain(&error);
                if memory.told_fault.as_ref() != Some(&fault) {
                    let stays = if self.known.borrow().is_empty() {
                        "nothing is polled"
                    } else {
                        "the last list stays"
                    };
                    self.tell(News::GroupsUnreadable(format!("{fault}; {stays}")));
                    memory.told_fault = Some(fault);
                }
            }
        }
    }

    /// Of several publishers one speaks.
    fn tell(&self, news: News) {
        if self.lead.is_ours() {
            self.announcer.say(news);
        }
    }

    /// Asks for the groups whose time has come, and says when the next is due.
    async fn poll_due(&self, memory: &mut Memory) -> Option<Instant> {
        let groups = self.known.borrow().clone();
        memory.turns.retain(|name, _| groups.iter().any(|group| group.name() == name));
        self.change(|picture| picture.keep(&groups));
        for group in &groups {
            let turn = memory.turns.entry(group.name().to_owned()).or_insert_with(|| Turn {
                pace: Pace::new(self.period),
                next: Instant::now(),
                told: None,
            });
            if Instant::now() >= turn.next {
                self.poll(group, turn).await;
            }
        }
        self.report(memory);
        memory.turns.values().map(|turn| turn.next).min()
    }

    async fn poll(&self, group: &Group, turn: &mut Turn) {
        let begun = Instant::now();
        let poll = self.aws.instances(group).await;
        let ending = poll.ending;
        let wait = turn.pace.note(ending, rand::random());
        // A group of so many pages that they take longer than its period is not asked for without a pause.
        turn.next = (begun + wait).max(Instant::now() + wait / 2);
        self.tell_ending(group, turn, &poll);
        if turn.pace.failures() == 1
            && let Some(error) = &poll.error
        {
            tracing::warn!(%group, error, "the group could not be polled; what is known of it stays");
        }
        debug!(%group, instances = poll.instances.len(), ?ending, "polled");
        let now = Moment { wall: Clock::system().now(), instant: Instant::now() };
        let period = turn.pace.period();
        self.change(|picture| {
            let seen = picture.0.entry(group.name().to_owned()).or_default();
            seen.period = period;
            seen.take(poll, now);
        });
        if ending == Ending::Complete {
            self.metrics.last_poll.set(now.wall.as_second());
        }
    }

    /// What somebody has to mend is told once, however many faults of another kind come in between.
    fn tell_ending(&self, group: &Group, turn: &mut Turn, poll: &Poll) {
        let news = match poll.ending {
            Ending::Complete => {
                turn.told = None;
                return;
            }
            Ending::Throttled | Ending::Failed => return,
            Ending::Missing => News::GroupMissing(format!(
                "AWS knows no game server group {group} in this account and region"
            )),
            Ending::Denied => News::NotAllowed(format!(
                "{}; without it no node of game server group {group} is told anything",
                poll.error.as_deref().unwrap_or("a call was refused")
            )),
        };
        if turn.told.replace(poll.ending) != Some(poll.ending) {
            self.tell(news);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Picture)) {
        self.picture.send_if_modified(|shown| {
            let before = shown.clone();
            let mut picture = before.as_deref().cloned().unwrap_or_default();
            change(&mut picture);
            let is_changed = before.as_deref() != Some(&picture);
            *shown = Some(Arc::new(picture));
            is_changed
        });
    }

    fn report(&self, memory: &Memory) {
        let longest = memory.turns.values().map(|turn| turn.pace.period()).max().unwrap_or_default();
        self.metrics.longest_period.set(longest.as_secs_f64());
        let Some(picture) = self.picture.borrow().clone() else { return };
        let groups = picture.0.values();
        for status in [InstanceStatus::Active, InstanceStatus::Draining, InstanceStatus::SpotTerminating] {
            self.metrics
                .set_instances(status.as_str(), groups.clone().map(|group| group.count(status)).sum());
        }
        let now = Instant::now();
        let is_fresh = |group: &GroupPicture| {
            group.complete.is_some_and(|complete| now < complete.instant + group.life())
        };
        // One group that is not there must not take the publisher of all others out of service.
        self.health.polls.set(groups.clone().any(is_fresh));
    }
}
