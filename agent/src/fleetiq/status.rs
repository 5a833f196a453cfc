//! FleetIQ's judgement of this instance, put together from what three ways say: the channel, what is retained beside it,
//! and answers of FleetIQ itself. Pure.
//!
//! Of two observations the later one counts. A message on the channel carries no time, and is of now. What is not there
//! is unknown, and neither good nor bad news.

use std::time::Duration;

use berth_api::notice::{InstanceMessage, InstanceStatus, RetainedInstance};
use jiff::Timestamp;

use super::retry::later;
use crate::drain::notice::{Notice, Severity, Signal, Source};

/// How long an instance has whose interruption FleetIQ knows of and its metadata do not.
const INTERRUPTED_WITHIN: Duration = Duration::from_secs(50);
/// What is retained and older than this says nothing of now.
const RETAINED_LASTS: Duration = Duration::from_secs(180);
/// Two words of the same are of one piece if they are not further apart than this.
const GAP: Duration = Duration::from_secs(300);
/// How long an instance that was given back may be called viable: after that nobody is going to end it.
const LEFT_OVER: Duration = Duration::from_secs(600);

/// Something that was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A message on the instance's channel.
    Message(Vec<u8>),
    /// What is retained.
    Retained(Vec<u8>),
    /// An answer of FleetIQ.
    Asked(Option<InstanceStatus>),
}

/// What an observation was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It is about this instance, and the newest.
    Taken,
    /// Something newer was known.
    Old,
    /// It says nothing.
    Nothing,
    /// It is about another instance.
    Foreign,
    /// It cannot be read, or has a status that nobody knows.
    Malformed,
}

impl Worth {
    /// A short fixed word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Old => "old",
            Self::Nothing => "nothing",
            Self::Foreign => "foreign",
            Self::Malformed => "malformed",
        }
    }
}

/// What came of an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// What it was worth.
    pub worth: Worth,
    /// What is new for the drain.
    pub signal: Option<Signal>,
}

/// The judgement as known so far.
#[derive(Clone, Debug)]
pub struct StatusReader {
    instance: String,
    newest: Option<Timestamp>,
    told: InstanceStatus,
    interrupted: Option<Timestamp>,
    published: Option<Timestamp>,
    is_protected: Option<bool>,
    /// Since when it is called viable, without a gap.
    viable_since: Option<Timestamp>,
}

impl StatusReader {
    /// Nothing is known of the instance.
    #[must_use]
    pub fn new(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            newest: None,
            told: InstanceStatus::Active,
            interrupted: None,
            published: None,
            is_protected: None,
            viable_since: None,
        }
    }

    /// When the publisher was last heard of.
    #[must_use]
    pub fn published(&self) -> Option<Timestamp> {
        self.published
    }

    /// When anybody last said how the instance stands.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// Whether it was given back and is paid for all the same: FleetIQ has called it viable ever since, and for long.
    #[must_use]
    pub fn is_left_over(&self, given_back_at: Timestamp, now: Timestamp) -> bool {
        let is_fresh = self.newest.is_some_and(|newest| now < later(newest, GAP));
        is_fresh && self.viable_since.is_some_and(|since| later(since.max(given_back_at), LEFT_OVER) <= now)
    }

    /// Whether Auto Scaling protects it, as the publisher has seen.
    #[must_use]
    pub fn is_protected(&self) -> Option<bool> {
        self.is_protected
    }

    /// Takes an observation in.
    pub fn hear(&mut self, observation: &Observation, now: Timestamp) -> Heard {
        let nothing = |worth| Heard { worth, signal: None };
        match observation {
            Observation::Message(bytes) => match InstanceMessage::from_wire(bytes) {
                Err(_) => nothing(Worth::Malformed),
                Ok(message) if message.instance_id != self.instance => nothing(Worth::Foreign),
                Ok(message) => {
                    self.published = Some(now);
                    self.judge(message.instance_status, now, now)
                }
            },
            Observation::Retained(bytes) => {
                let Ok(retained) = serde_json::from_slice::<RetainedInstance>(bytes) else {
                    return nothing(Worth::Malformed);
                };
                let Ok(observed) = retained.observed_at.parse::<Timestamp>() else {
                    return nothing(Worth::Malformed);
                };
                if retained.message.instance_id != self.instance {
                    return nothing(Worth::Foreign);
                }
                // A publisher whose clock is ahead does not win over what comes after.
                let observed = observed.min(now);
                if later(observed, RETAINED_LASTS) <= now {
                    return nothing(Worth::Old);
                }
                self.published = self.published.max(Some(observed));
                self.is_protected = retained.protected_from_scale_in;
                self.judge(retained.message.instance_status, observed, now)
            }
            Observation::Asked(None) => nothing(Worth::Nothing),
            Observation::Asked(Some(status)) => self.judge(*status, now, now),
        }
    }

    fn judge(&mut self, status: InstanceStatus, observed: Timestamp, now: Timestamp) -> Heard {
        if self.newest.is_some_and(|newest| observed < newest) {
            return Heard { worth: Worth::Old, signal: None };
        }
        let is_of_one_piece = self.newest.is_some_and(|newest| observed < later(newest, GAP));
        self.newest = Some(observed);
        self.viable_since = match status {
            InstanceStatus::Active => self.viable_since.filter(|_| is_of_one_piece).or(Some(observed)),
            InstanceStatus::Draining | InstanceStatus::SpotTerminating => None,
        };
        let is_news = std::mem::replace(&mut self.told, status) != status;
        let raised = |severity, reason: &str, deadline| {
            Signal::Raised(Notice { source: Source::FleetIq, severity, reason: reason.to_owned(), deadline })
        };
        let signal = is_news.then(|| match status {
            InstanceStatus::Active => Signal::Cleared(Source::FleetIq),
            InstanceStatus::Draining => {
                raised(Severity::Draining, "FleetIQ no longer wants players on the instance", None)
            }
            InstanceStatus::SpotTerminating => {
                let first = *self.interrupted.get_or_insert(now);
                let deadline = later(first, INTERRUPTED_WITHIN);
                raised(Severity::Spot, "FleetIQ says that EC2 interrupts the instance", Some(deadline))
            }
        });
        Heard { worth: Worth::Taken, signal }
    }
}

#[cfg(test)]
mod tests {
    use berth_api::notice::{InstanceMessage, InstanceStatus, RetainedInstance};
    use jiff::Timestamp;

    use super::{Observation, StatusReader, Worth};
    use crate::drain::notice::{Severity, Signal, Source};

    const INSTANCE: &str = "i-0f3a9c2b7d1e45680";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn message(instance: &str, status: InstanceStatus) -> InstanceMessage {
        InstanceMessage {
            game_server_group_name: "pvp-eu".into(),
            game_server_group_arn: "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu".into(),
            instance_id: instance.into(),
            instance_status: status,
        }
    }

    fn published(status: InstanceStatus) -> Observation {
        Observation::Message(message(INSTANCE, status).to_wire().into_bytes())
    }

    fn retained(status: InstanceStatus, second: i64, is_protected: Option<bool>) -> Observation {
        let retained = RetainedInstance {
            message: message(INSTANCE, status),
            observed_at: at(second).to_string(),
            changed_at: at(second).to_string(),
            publisher: "pubsub-1".into(),
            protected_from_scale_in: is_protected,
        };
        Observation::Retained(serde_json::to_vec(&retained).unwrap())
    }

    fn severity(signal: Option<Signal>) -> Option<(Severity, Option<Timestamp>)> {
        match signal {
            Some(Signal::Raised(notice)) => Some((notice.severity, notice.deadline)),
            Some(Signal::Cleared(source)) => panic!("{source:?} cleared"),
            None => None,
        }
    }

    #[test]
    fn a_change_is_told_once_however_often_it_is_said() {
        let mut reader = StatusReader::new(INSTANCE);
        assert_eq!(reader.hear(&published(InstanceStatus::Active), at(0)).signal, None);
        let heard = reader.hear(&published(InstanceStatus::Draining), at(60));
        assert_eq!(severity(heard.signal), Some((Severity::Draining, None)));
        for (second, observation) in [
            (61, published(InstanceStatus::Draining)),
            (62, retained(InstanceStatus::Draining, 62, None)),
            (63, Observation::Asked(Some(InstanceStatus::Draining))),
            (64, Observation::Asked(None)),
        ] {
            assert_eq!(reader.hear(&observation, at(second)).signal, None, "{observation:?}");
        }
        let heard = reader.hear(&published(InstanceStatus::Active), at(120));
        assert_eq!(
            heard.signal,
            Some(Signal::Cleared(Source::FleetIq)),
            "whether it counts is not decided here"
        );
    }

    #[test]
    fn an_interruption_has_fifty_seconds_from_when_it_was_first_seen() {
        let mut reader = StatusReader::new(INSTANCE);
        let heard = reader.hear(&published(InstanceStatus::SpotTerminating), at(10));
        assert_eq!(severity(heard.signal), Some((Severity::Spot, Some(at(60)))));
        reader.hear(&published(InstanceStatus::Draining), at(20));
        let heard = reader.hear(&published(InstanceStatus::SpotTerminating), at(30));
        assert_eq!(severity(heard.signal), Some((Severity::Spot, Some(at(60)))));
    }

    #[test]
    fn the_later_of_two_observations_counts() {
        let mut reader = StatusReader::new(INSTANCE);
        reader.hear(&published(InstanceStatus::Active), at(100));
        let heard = reader.hear(&retained(InstanceStatus::Draining, 90, None), at(101));
        assert_eq!((heard.worth, heard.signal), (Worth::Old, None));
        let heard = reader.hear(&retained(InstanceStatus::Draining, 101, None), at(102));
        assert_eq!(severity(heard.signal), Some((Severity::Draining, None)));
        let mut reader = StatusReader::new(INSTANCE);
        let heard = reader.hear(&retained(InstanceStatus::Draining, 900, None), at(100));
        assert_eq!(heard.worth, Worth::Taken, "a clock that is ahead");
        assert_eq!(reader.hear(&published(InstanceStatus::Active), at(101)).worth, Worth::Taken);
    }

    #[test]
    fn what_is_retained_says_who_protects_and_grows_old() {
        let mut reader = StatusReader::new(INSTANCE);
        assert_eq!(reader.is_protected(), None);
        reader.hear(&retained(InstanceStatus::Active, 0, Some(true)), at(1));
        assert_eq!((reader.is_protected(), reader.published()), (Some(true), Some(at(0))));
        let heard = reader.hear(&retained(InstanceStatus::Draining, 10, Some(false)), at(190));
        assert_eq!((heard.worth, heard.signal), (Worth::Old, None));
        assert_eq!(reader.is_protected(), Some(true));
        reader.hear(&Observation::Asked(Some(InstanceStatus::Active)), at(200));
        assert_eq!(reader.published(), Some(at(0)), "FleetIQ is not its publisher");
    }

    #[test]
    fn an_instance_that_was_given_back_and_is_called_viable_for_long_is_left_over() {
        let mut reader = StatusReader::new(INSTANCE);
        reader.hear(&published(InstanceStatus::Active), at(-100_000));
        for second in (0..=1200).step_by(120) {
            reader.hear(&Observation::Asked(Some(InstanceStatus::Active)), at(second));
            assert_eq!(reader.is_left_over(at(300), at(second)), second >= 900, "{second}");
        }
        assert!(!reader.is_left_over(at(300), at(1600)), "nobody says so any more");
        reader.hear(&published(InstanceStatus::Draining), at(1300));
        assert!(!reader.is_left_over(at(300), at(1300)), "it is going to end");
        reader.hear(&published(InstanceStatus::Active), at(1400));
        assert!(!reader.is_left_over(at(300), at(1400)), "from the beginning");
    }

    #[test]
    fn what_is_not_ours_or_cannot_be_read_changes_nothing() {
        let mut reader = StatusReader::new(INSTANCE);
        let foreign = message("i-0aaaaaaaaaaaaaaaa", InstanceStatus::Draining).to_wire().into_bytes();
        let unknown =
            String::from_utf8(message(INSTANCE, InstanceStatus::Draining).to_wire().into_bytes()).unwrap();
        let unknown = unknown.replace("DRAINING", "RESTING").into_bytes();
        let table = [
            (Observation::Message(foreign.clone()), Worth::Foreign),
            (Observation::Message(unknown), Worth::Malformed),
            (Observation::Message(b"DRAINING".to_vec()), Worth::Malformed),
            (Observation::Message(vec![0xff, 0]), Worth::Malformed),
            (Observation::Retained(foreign), Worth::Malformed),
            (Observation::Retained(b"{}".to_vec()), Worth::Malformed),
            (Observation::Asked(None), Worth::Nothing),
        ];
        for (observation, worth) in table {
            let heard = reader.hear(&observation, at(0));
            assert_eq!((heard.worth, heard.signal), (worth, None), "{observation:?}");
            assert_eq!((reader.published(), reader.newest()), (None, None));
        }
    }
}
