//! What an answer of the instance's metadata means. Pure.
//!
//! The same fact is told once, however often it is read: an event is known by its source, what it says, and its time.
//! Auto Scaling's target state has no time, and is known by what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{ENDED_BY_AUTO_SCALING, ENDS_WITHIN, Lifecycle, OnRebalance, Rules};
use crate::drain::notice::{Notice, Severity, Signal, Source};

/// How long a recommendation to rebalance keeps the node closed.
const REBALANCE_LASTS: SignedDuration = SignedDuration::from_mins(30);

/// Something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A Spot interruption.
    Spot,
    /// A recommendation to rebalance.
    Rebalance,
    /// Auto Scaling's target state.
    Lifecycle,
    /// Scheduled events.
    Scheduled,
}

impl Item {
    /// What is read every few seconds.
    pub const OFTEN: [Self; 3] = [Self::Spot, Self::Rebalance, Self::Lifecycle];

    /// Where it stands.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Spot => "spot/instance-action",
            Self::Rebalance => "events/recommendations/rebalance",
            Self::Lifecycle => "autoscaling/target-lifecycle-state",
            Self::Scheduled => "events/maintenance/scheduled",
        }
    }
}

/// An answer that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("could not understand {path} of the instance's metadata")]
pub struct Unreadable {
    path: &'static str,
    source: serde_json::Error,
}

#[derive(Debug, Deserialize)]
struct SpotAction {
    action: String,
    time: Timestamp,
}

#[derive(Debug, Deserialize)]
struct Rebalance {
    #[serde(rename = "noticeTime")]
    notice_time: Timestamp,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScheduledEvent {
    not_before: String,
    code: String,
    event_id: String,
    #[serde(default)]
    state: String,
}

/// All that has been read so far.
#[derive(Clone, Debug)]
pub struct Reader {
    rules: Rules,
    told: BTreeMap<Source, Notice>,
    rebalance: Option<Timestamp>,
    rebalance_ends: Option<Timestamp>,
    lifecycle: Lifecycle,
}

impl Reader {
    /// One that has read nothing.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            told: BTreeMap::new(),
            rebalance: None,
            rebalance_ends: None,
            lifecycle: Lifecycle::Unasked,
        }
    }

    /// The state that Auto Scaling moves the instance to.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle
    }

    /// The metadata did not answer: what is not known yet is unknown.
    pub fn miss(&mut self) {
        if self.lifecycle == Lifecycle::Unasked {
            self.lifecycle = Lifecycle::Unknown;
        }
    }

    /// Reads an answer, or that there is none, and says what is new.
    ///
    /// # Errors
    /// It is something else than it should be; nothing changes by it.
    pub fn read(
        &mut self,
        item: Item,
        content: Option<&str>,
        now: Timestamp,
    ) -> Result<Vec<Signal>, Unreadable> {
        let unreadable = |source| Unreadable { path: item.path(), source };
        match (item, content) {
            // What was given is not taken back by an answer that is missing.
            (Item::Spot | Item::Rebalance, None) => Ok(Vec::new()),
            (Item::Spot, Some(text)) => {
                let SpotAction { action, time } = serde_json::from_str(text).map_err(unreadable)?;
                let reason = format!("EC2 interrupts the Spot instance ({action} at {time})");
                Ok(self.raise(Notice {
                    source: Source::Spot,
                    severity: Severity::Spot,
                    reason,
                    deadline: Some(time),
                }))
            }
            (Item::Rebalance, Some(text)) => {
                let Rebalance { notice_time } = serde_json::from_str(text).map_err(unreadable)?;
                Ok(self.rebalance(notice_time, now))
            }
            (Item::Lifecycle, None) => {
                self.lifecycle = Lifecycle::Unknown;
                Ok(Vec::new())
            }
            (Item::Lifecycle, Some(text)) => Ok(self.target(text.trim(), now)),
            (Item::Scheduled, content) => {
                let events: Vec<ScheduledEvent> = match content.map(str::trim) {
                    None | Some("") => Vec::new(),
                    Some(text) => serde_json::from_str(text).map_err(unreadable)?,
                };
                Ok(self.scheduled(&events, now))
            }
        }
    }

    /// What ends by itself.
    pub fn expire(&mut self, now: Timestamp) -> Vec<Signal> {
        if self.rebalance_ends.is_none_or(|end| now < end) {
            return Vec::new();
        }
        self.rebalance_ends = None;
        self.clear(Source::Rebalance)
    }

    fn rebalance(&mut self, notice_time: Timestamp, now: Timestamp) -> Vec<Signal> {
        if self.rebalance == Some(notice_time) {
            return Vec::new();
        }
        self.rebalance = Some(notice_time);
        let severity = match self.rules.on_rebalance {
            OnRebalance::Ignore => Severity::Advice,
            OnRebalance::Cordon => Severity::Cordoned,
            // It empties the node, and does not give the instance back: FleetIQ has not asked for it.
            OnRebalance::Drain => Severity::Claimed,
        };
        if self.rules.on_rebalance == OnRebalance::Cordon {
            self.rebalance_ends = Some(now.saturating_add(REBALANCE_LASTS).unwrap_or(Timestamp::MAX));
        }
        self.raise(Notice {
            source: Source::Rebalance,
            severity,
            reason: format!("EC2 recommends to rebalance the Spot instance (at {notice_time})"),
            deadline: None,
        })
    }

    fn target(&mut self, state: &str, now: Timestamp) -> Vec<Signal> {
        self.lifecycle = match state {
            "Terminated" => Lifecycle::Ending,
            _ if state.starts_with("Warmed:") => Lifecycle::Warmed,
            _ => Lifecycle::Other,
        };
        // By what it says alone: with a time in it, the same fact would be new at each read.
        if self.lifecycle != Lifecycle::Ending || self.told.contains_key(&Source::Lifecycle) {
            return Vec::new();
        }
        self.raise(Notice {
            source: Source::Lifecycle,
            severity: Severity::AutoScaling,
            reason: ENDED_BY_AUTO_SCALING.to_owned(),
            deadline: now.checked_add(ENDS_WITHIN).ok().filter(|_| !self.rules.has_hook),
        })
    }

    fn scheduled(&mut self, events: &[ScheduledEvent], now: Timestamp) -> Vec<Signal> {
        let near = |event: &ScheduledEvent| {
            let starts = time(&event.not_before)?;
            let is_open = event.state.is_empty() || event.state == "active";
            let lead = self.rules.scheduled_lead;
            (is_open && starts.duration_since(now) <= signed(lead)).then(|| Notice {
                source: Source::Scheduled(event.event_id.clone()),
                severity: Severity::Scheduled,
                reason: format!("EC2 has scheduled {} for {starts}", event.code),
                deadline: Some(starts),
            })
        };
        let near: BTreeMap<Source, Notice> =
            events.iter().filter_map(near).map(|notice| (notice.source.clone(), notice)).collect();
        let over = self
            .told
            .keys()
            .filter(|source| matches!(source, Source::Scheduled(_)) && !near.contains_key(*source));
        let over: Vec<Source> = over.cloned().collect();
        let mut signals: Vec<Signal> = over.into_iter().flat_map(|source| self.clear(source)).collect();
        signals.extend(near.into_values().flat_map(|notice| self.raise(notice)));
        signals
    }

    fn raise(&mut self, notice: Notice) -> Vec<Signal> {
        if self.told.get(&notice.source) == Some(&notice) {
            return Vec::new();
        }
        self.told.insert(notice.source.clone(), notice.clone());
        vec![Signal::Raised(notice)]
    }

    fn clear(&mut self, source: Source) -> Vec<Signal> {
        self.told.remove(&source).map(|_| Signal::Cleared(source)).into_iter().collect()
    }
}

/// A time such as `21 Sep 2026 09:00:43 GMT`.
fn time(text: &str) -> Option<Timestamp> {
    let time = DateTime::strptime("%d %b %Y %H:%M:%S GMT", text.trim()).ok()?;
    TimeZone::UTC.to_timestamp(time).ok()
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests;
