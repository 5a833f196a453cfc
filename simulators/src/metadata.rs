//! Instance metadata, version 2: tokens, the tree, and everything that may be wrong with either.
//!
//! One listener serves all instances. The first segment of a path names the instance; a path that names none belongs to
//! the instance whose address asks.

mod answer;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::faults::Delay;
use crate::world::{InstanceId, Milliseconds};

pub(crate) use answer::answer;

/// The longest life of a token.
const LONGEST_TTL: u64 = 21_600;

/// What is wrong with the metadata of an instance. Nothing is, unless it is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Switches {
    /// Reads without a token are served, as version 1.
    pub(crate) is_optional: bool,
    pub(crate) is_disabled: bool,
    /// All tokens that there are die now.
    pub(crate) invalidate_tokens: bool,
    /// Tokens live shorter than they say.
    pub(crate) token_ttl_seconds: Option<u64>,
    /// The answer with the token dies on the way.
    pub(crate) hop_limit_one: bool,
    /// So many answers are 503.
    pub(crate) busy_probability: f64,
    pub(crate) delay: Option<Delay>,
    /// The connection is closed without an answer.
    pub(crate) refuses: bool,
    /// More requests in a second are answered 503.
    pub(crate) most_in_a_second: Option<u64>,
    /// Times in answers are off by so much.
    pub(crate) clock_offset_ms: i64,
    /// Notices are there for so long, then not, then there again.
    pub(crate) flapping_ms: Option<Milliseconds>,
    /// JSON that is none.
    pub(crate) is_malformed: bool,
    /// 200 with nothing.
    pub(crate) is_empty: bool,
    /// Instead of the one name that the instance has.
    pub(crate) local_hostname: Option<String>,
    pub(crate) public_address: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
}

/// The door to one instance's metadata.
#[derive(Debug, Default)]
struct Door {
    switches: Switches,
    since: Option<Timestamp>,
    tokens: BTreeMap<String, Timestamp>,
    second: i64,
    in_second: u64,
    reads_without_token: u64,
}

/// The doors of all instances.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    doors: BTreeMap<InstanceId, Door>,
}

impl Metadata {
    /// Sets what is wrong with an instance's metadata.
    pub(crate) fn switch(&mut self, instance: &InstanceId, switches: Switches, now: Timestamp) {
        let door = self.doors.entry(instance.clone()).or_default();
        if switches.invalidate_tokens {
            door.tokens.clear();
        }
        door.switches = Switches { invalidate_tokens: false, ..switches };
        door.since = Some(now);
    }

    /// Reads of version 1, by instance.
    pub(crate) fn reads_without_token(&self) -> BTreeMap<&InstanceId, u64> {
        self.doors.iter().map(|(id, door)| (id, door.reads_without_token)).collect()
    }

    fn door(&mut self, instance: &InstanceId) -> &mut Door {
        self.doors.entry(instance.clone()).or_default()
    }
}

impl Door {
    /// Whether a notice that comes and goes is gone at the moment.
    fn hides_notices(&self, now: Timestamp) -> bool {
        let (Some(period), Some(since)) = (self.switches.flapping_ms, self.since) else { return false };
        let passed = u64::try_from(now.duration_since(since).as_millis()).unwrap_or(0);
        (passed / period.0.max(1)) % 2 == 1
    }

    /// Whether there were too many requests in this second, with this one.
    fn is_overrun(&mut self, now: Timestamp) -> bool {
        if self.second != now.as_second() {
            self.second = now.as_second();
            self.in_second = 0;
        }
        self.in_second += 1;
        self.switches.most_in_a_second.is_some_and(|most| self.in_second > most)
    }
}
